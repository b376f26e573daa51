"""Download a data set before the first job needs it."""

from hpml_jobs.core.features import Command, Feature, HelpSection

FEATURE = Feature(
    commands={
        "fetch": Command(
            "extras.fetch.command:fetch",
            HelpSection.SET_UP,
            "fetch KEY=VALUE...",
            "download the data set, once, on the login node",
        )
    },
    replaced=dict.fromkeys(("download", "data"), "fetch"),
)
