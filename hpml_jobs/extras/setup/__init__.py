"""Checks of the setup: before jobs are queued, and by a diagnostic job; your defaults."""

from hpml_jobs.core.features import Command, Feature, HelpSection

FEATURE = Feature(
    before_queue="extras.setup.before_queue:before_queue",
    commands={
        "init": Command(
            "extras.setup.command:init",
            HelpSection.SET_UP,
            "init",
            "write your defaults from what this cluster says",
        ),
        "doctor": Command(
            "extras.setup.command:doctor",
            HelpSection.SET_UP,
            "doctor KEY=VALUE...",
            "check the setup, with a short diagnostic job",
            after="init",
        ),
    },
)
