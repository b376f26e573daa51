"""Delete a study."""

from hpml_jobs.core.features import Command, Feature, HelpSection

FEATURE = Feature(
    commands={
        "remove": Command(
            "extras.remove.command:remove",
            HelpSection.FOLLOW,
            "remove STUDY",
            "delete a study that has no job; asks first",
            after="logs",
        )
    },
    replaced=dict.fromkeys(
        ("rm", "delete", "del", "clean", "purge", "erase"), "remove"
    ),
)
