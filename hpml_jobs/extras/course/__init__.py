"""The lab of a course: what is measured of its questions, and what is handed in."""

from hpml_jobs.core.features import Feature, Part

FEATURE = Feature(
    tables={
        "shuffling": Part("extras.course.replicas:shuffling", after="scaling"),
        "replicas": Part("extras.course.replicas:replicas", after="phases"),
    },
    page_sections={"questions": "extras.course.questions:section"},
)
