"""The lab of a course: its questions with their answers, and what is handed in."""

from hpml_jobs.core.features import Command, Feature, HelpSection, Part

FEATURE = Feature(
    commands={
        "report": Command(
            "extras.course.command:report",
            HelpSection.RESULTS,
            "report [STUDY]",
            "write a page to hand in, and its pictures",
        )
    },
    tables={
        "shuffling": Part("extras.course.replicas:shuffling", after="scaling"),
        "replicas": Part("extras.course.replicas:replicas", after="phases"),
    },
    page_sections={"questions": "extras.course.questions:section"},
)
