"""What fits into memory: training paths and sharding, the largest batch."""

from hpml_jobs.core.features import Command, Feature, HelpSection, Part

FEATURE = Feature(
    commands={
        "submit": Command(
            "extras.memory.command:submit",
            HelpSection.SUBMIT,
            "submit KEY=VALUE...",
            "submit a study; the word submit can be left out",
        ),
        "plan": Command(
            "extras.memory.command:plan",
            HelpSection.SUBMIT,
            "plan KEY=VALUE...",
            "show cells, job scripts, GPU-hours; submit nothing",
        ),
    },
    tables={
        "largest": Part("extras.memory.tables:largest", after="iterations"),
        "paths": Part("extras.memory.tables:training_paths", after="largest"),
    },
)
