"""Picture of the test accuracy after each evaluated epoch."""

from typing import TYPE_CHECKING, NamedTuple

from hpml_jobs.report.merge import learning
from hpml_jobs.report.merge.learning import Mean
from hpml_jobs.report.plots import style
from hpml_jobs.report.plots.picture import Picture, listed, not_drawn, sentences
from hpml_jobs.report.plots.style import Look
from hpml_jobs.report.report import Report, ReportGroup
from hpml_jobs.report.text.captions import full_label

if TYPE_CHECKING:
    from matplotlib.axes import Axes

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
    groups = [(group, courses) for group in report.groups if (courses := _courses(group))]
    if not groups:
        return None
    strategies = {c.label: c.strategy for _, courses in groups for c in courses}
    labels = list(strategies)
    looks = style.looks({label: strategies[label] for label in labels[: style.LINES]})
    shown = groups[: style.PANELS]
    figure, axes = style.panels(len(shown), columns=2, height=3.4)
    for axis, (group, courses) in zip(axes, shown, strict=True):
        axis.set_title(report.name(group), loc="left")
        coloured = [course for course in courses if course.label in looks]
        for number, course in enumerate(coloured):
            _draw(axis, course, looks[course.label], 0.03 * (number - (len(coloured) - 1) / 2))
        axis.set_xlabel("epoch")
        axis.set_xticks(_ticks(max(len(course.means) for course in courses)))
    for axis in style.left_ones(axes):
        axis.set_ylabel("test accuracy, %")
    missing = labels[len(looks) :] + [report.name(group) for group, _ in groups[len(shown) :]]
    style.line_legend(figure, looks)
    caption = sentences(CAPTION, not_drawn(missing, "evaluation.csv"))
    last = [
        f"{course.label} {100 * course.means[-1].mean:.2f} % after {len(course.means)} epochs"
        for _, courses in shown
        for course in courses
    ]
    alt = f"Test accuracy by epoch: {listed(last)}."
    return Picture("Test accuracy by epoch", figure, alt, caption)


def _courses(group: ReportGroup) -> list[Course]:
    courses = []
    for row in group.source.rows:
        runs = learning.longest(group.source.records(row))
        epochs = learning.epochs(runs[0]) if runs else 0
        every = [learning.over_seeds(runs, learning.evaluated(n)) for n in range(epochs)]
        means = [mean for mean in every if mean]
        if means:
            label = f"{full_label(row.setup, group.source.device)} b{row.batch_per_gpu}"
            courses.append(Course(label, row.strategy.value, means))
    return courses


def _draw(axis: "Axes", course: Course, look: Look, aside: float) -> None:
    """Draw a line with its deviations, shifted by `aside` epochs so that bars do not overlap."""
    deviations = [100 * (mean.deviation or 0.0) for mean in course.means]
    axis.errorbar(
        [number + 1 + aside for number in range(len(course.means))],
        [100 * mean.mean for mean in course.means],
        yerr=deviations if any(deviations) else None,
        color=look.colour,
        ls=look.dashes,
        marker=look.marker,
        ms=4,
        lw=1.5,
        elinewidth=1,
        capsize=2.5,
    )


def _ticks(epochs: int) -> range:
    return range(1, epochs + 1, max(1, epochs // 10))
