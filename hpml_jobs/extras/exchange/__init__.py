"""Studies in and out: timings from CSV files, archives."""

from hpml_jobs.core.features import Command, Feature, HelpSection

FEATURE = Feature(
    commands={
        "import": Command(
            "extras.exchange.command:import_",
            HelpSection.IN_AND_OUT,
            "import FILE",
            "make a study of another program's timings,\nor of an archive",
            after="record",
        ),
        "archive": Command(
            "extras.exchange.command:archive",
            HelpSection.IN_AND_OUT,
            "archive [STUDY]",
            "pack a study into one file, to publish it",
            after="import",
        ),
    },
    checks={"Imported timings": ("extras.exchange.imported_row:implausible_row",)},
    replaced={
        **dict.fromkeys(("unpack", "untar", "unzip", "load"), "import FILE.tar.gz"),
        **dict.fromkeys(("pack", "zip", "tar"), "archive"),
        "export": "collect (it writes report/cells.csv)",
    },
)
