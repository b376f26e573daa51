"""The list of studies, also of those in the folders of a course."""

from hpml_jobs.core.features import Command, Feature, HelpSection

FEATURE = Feature(
    commands={
        "list": Command(
            "extras.studies.command:list_",
            HelpSection.FOLLOW,
            "list [FOLDER...]",
            "list all studies: cells by state, date, cluster",
            after="cancel",
        )
    },
    replaced={
        "grade": "list course/*/",
        **dict.fromkeys(("ls", "dir", "studies"), "list"),
    },
)
