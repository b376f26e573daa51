"""The page's section on hardware and software."""

from hpml_jobs.core.features import Feature

FEATURE = Feature(sections={"environment": "extras.method.sections:hardware"})
