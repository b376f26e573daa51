"""The page's sections on hardware and software, and on how the figures were measured."""

from hpml_jobs.core.features import Feature

FEATURE = Feature(
    sections={"environment": "extras.method.sections:hardware"},
    page_sections={"method": "extras.method.sections:method"},
)
