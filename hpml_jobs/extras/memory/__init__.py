"""`largest_batch=auto`: the largest batch that fits into memory."""

from hpml_jobs.core.features import Command, Feature, HelpSection

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
)
