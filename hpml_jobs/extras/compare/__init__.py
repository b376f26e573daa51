"""Two studies cell by cell, and stored references."""

from hpml_jobs.core.features import Command, Feature, HelpSection

FEATURE = Feature(
    commands={
        "compare": Command(
            "extras.compare.command:compare",
            HelpSection.RESULTS,
            "compare A [B]",
            "say which cells of B are faster or slower than A's;\n"
            "--save FILE keeps the numbers of a study for later",
            after="collect",
        )
    },
)
