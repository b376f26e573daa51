"""The log of a running cell as it grows."""

from hpml_jobs.core.features import Command, Feature, HelpSection

FEATURE = Feature(
    commands={
        "logs": Command(
            "extras.follow.command:logs",
            HelpSection.FOLLOW,
            "logs [STUDY] [PATTERN]",
            "show why cells failed; -f follows a running cell",
        )
    }
)
