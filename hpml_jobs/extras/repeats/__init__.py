"""Repeated runs: their intervals and scatter, strategies compared by them."""

from hpml_jobs.core.features import Feature, Part

FEATURE = Feature(
    tables={"repeats": Part("extras.repeats.table:repeats", after="largest")},
    sheets={"repeats-measured": Part("extras.repeats.table:measured", after="")},
    difference="extras.repeats.compared:between",
)
