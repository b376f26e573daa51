"""The lab of a course: its questions with their answers, and what is handed in."""

from hpml_jobs.core.features import Command, Feature, Section

FEATURE = Feature(
    commands={
        "report": Command(
            "extras.course.command:report",
            Section.RESULTS,
            "report [STUDY]",
            "write a page to hand in, and its pictures",
        )
    },
    section="extras.course.questions:section",
)
