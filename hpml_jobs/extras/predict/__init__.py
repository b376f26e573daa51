"""Predictions of iterations that were not measured, each with a band and its skill."""

from hpml_jobs.core.features import Command, Feature, HelpSection, Part

FEATURE = Feature(
    commands={
        "predict": Command(
            "extras.predict.command:predict",
            HelpSection.RESULTS,
            "predict [STUDY] KEY=VALUE",
            "predict sizes that were not measured",
            after="choose",
        )
    },
    replaced={"extrapolate": "predict", "forecast": "predict"},
    result="extras.predict.rules:next_sizes",
    tables={"predictions": Part("extras.predict.table:of_next_sizes", after="choice")},
    pictures={"prediction": Part("extras.predict.picture:of_report", after="pareto")},
)
