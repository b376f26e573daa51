"""Timings from CSV files as studies."""

from hpml_jobs.core.features import Command, Feature, HelpSection

FEATURE = Feature(
    commands={
        "import": Command(
            "extras.exchange.command:import_",
            HelpSection.IN_AND_OUT,
            "import FILE",
            "make a study of another program's timings",
            after="record",
        ),
    },
    replaced={
        "archive": "tar czf STUDY.tar.gz -C outputs STUDY",
        "export": "collect (it writes report/cells.csv)",
    },
)
