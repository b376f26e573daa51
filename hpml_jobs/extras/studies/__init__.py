"""The list of studies."""

from hpml_jobs.core.features import Command, Feature, HelpSection

FEATURE = Feature(
    commands={
        "list": Command(
            "extras.studies.command:list_",
            HelpSection.FOLLOW,
            "list",
            "list all studies: cells by state, date, cluster",
            after="cancel",
        )
    },
)
