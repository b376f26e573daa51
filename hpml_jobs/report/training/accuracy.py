"""Picture of the test accuracy after each evaluated epoch."""

from collections.abc import Iterator
from typing import NamedTuple

from hpml_jobs.report.frame import learning, style
from hpml_jobs.report.frame.captions import cell_label
from hpml_jobs.report.frame.learning import Mean
from hpml_jobs.report.frame.picture import Axes, Panel, Picture, cut, panels
from hpml_jobs.report.report import Report, ReportGroup

CAPTION = (
    "Accuracy on the whole test set after each epoch; every rank tests its share. Mean over "
    "seeds; bars: one sample standard deviation over seeds, none with a single seed."
)


class Course(NamedTuple):
    """The accuracies of one place after each epoch, as shares of 1."""

    label: str
    strategy: str
    means: list[Mean]


def accuracy(report: Report) -> Picture | None:
    """Plot the test accuracy after each epoch; None if no epoch was evaluated."""
    every = [
        Panel(report.name(group), courses)
        for group in report.groups
        if (courses := [*_courses(group)])
    ]
    shown, missing = cut(every)
    strategies = {course.label: course.strategy for panel in every for course in panel.data}
    labels = list(strategies)
    looks = style.looks({label: strategies[label] for label in labels[: style.LINES]})

    def draw(axis: Axes, panel: Panel[list[Course]]) -> list[str]:
        coloured = [course for course in panel.data if course.label in looks]
        for number, course in enumerate(coloured):
            aside = 0.03 * (number - (len(coloured) - 1) / 2)  # so that bars do not overlap
            deviations = [100 * (mean.deviation or 0.0) for mean in course.means]
            axis.errorbar(
                [epoch + aside for epoch in range(1, len(course.means) + 1)],
                [100 * mean.mean for mean in course.means],
                yerr=deviations if any(deviations) else None,
                **looks[course.label].line,
                ms=4,
                lw=1.5,
                elinewidth=1,
                capsize=2.5,
            )
        epochs = max(len(course.means) for course in panel.data)
        axis.set_xticks(range(1, epochs + 1, max(1, epochs // 10)))
        axis.set_xlabel("epoch")
        axis.set_ylabel("test accuracy, %")
        return [
            f"{course.label} {100 * course.means[-1].mean:.2f} % after {len(course.means)} epochs"
            for course in panel.data
        ]

    return panels(
        "Test accuracy by epoch",
        shown,
        draw,
        alt="Test accuracy by epoch: ",
        caption=[CAPTION],
        legend={label: look.line | {"ms": 4} for label, look in looks.items()},
        missing=labels[style.LINES :] + missing,
        file="evaluation.csv",
        columns=2,
        height=3.4,
        between=", ",
    )


def _courses(group: ReportGroup) -> Iterator[Course]:
    for row in group.source.rows:
        runs = learning.longest(group.source.records(row))
        epochs = learning.epochs(runs[0]) if runs else 0
        every = [learning.over_seeds(runs, learning.evaluated(n)) for n in range(epochs)]
        if means := [mean for mean in every if mean]:
            label = cell_label(row.place, group.source.device)
            yield Course(label, row.strategy.value, means)
