"""The time of an epoch against its cost."""

from hpml_jobs.core.features import Feature, Part

FEATURE = Feature(
    pictures={"pareto": Part("extras.pareto.picture:of_report", after="gap")}
)
