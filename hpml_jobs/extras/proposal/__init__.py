"""A paragraph for a proposal for computing time."""

from hpml_jobs.core.features import Command, Feature, HelpSection

FEATURE = Feature(
    commands={
        "choose": Command(
            "extras.proposal.command:choose",
            HelpSection.RESULTS,
            "choose [STUDY] KEY=VALUE",
            "recommend a cell, e.g. within a budget",
        )
    },
    answer="extras.proposal.page:below_answer",
)
