"""Studies in and out: timings from CSV files, archives, files of other tools."""

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
        "export": Command(
            "extras.exchange.command:export",
            HelpSection.IN_AND_OUT,
            "export [STUDY] FORMAT",
            "write it for wandb, mlflow or tensorboard, offline",
            after="import",
        ),
        "archive": Command(
            "extras.exchange.command:archive",
            HelpSection.IN_AND_OUT,
            "archive [STUDY]",
            "pack a study into one file, to publish it",
            after="export",
        ),
    },
    replaced={
        **dict.fromkeys(("unpack", "untar", "unzip", "load"), "import FILE.tar.gz"),
        **dict.fromkeys(("pack", "zip", "tar"), "archive"),
        **dict.fromkeys(("save", "wandb", "mlflow", "tensorboard"), "export"),
    },
)
