"""The lab of a course: questions with answers, what is handed in, folders of studies."""

from hpml_jobs.core.features import Command, Feature, HelpSection, Part

FEATURE = Feature(
    commands={
        "list": Command(
            "extras.course.command:list_",
            HelpSection.FOLLOW,
            "list [FOLDER...]",
            "list all studies: cells by state, date, cluster, workload",
        ),
        "report": Command(
            "extras.course.command:report",
            HelpSection.RESULTS,
            "report [STUDY]",
            "write a page to hand in, and its pictures",
        ),
    },
    replaced={"grade": "list course/*/"},
    tables={
        "shuffling": Part("extras.course.replicas:shuffling", after="scaling"),
        "replicas": Part("extras.course.replicas:replicas", after="phases"),
    },
    sections={"questions": "extras.course.questions:section"},
)
