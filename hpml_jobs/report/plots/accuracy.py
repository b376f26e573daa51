"""Picture of the accuracy after each epoch, where epochs were evaluated."""

from typing import TYPE_CHECKING, NamedTuple

from hpml_jobs.report import learnt
from hpml_jobs.report.captions import full_label
from hpml_jobs.report.groups import Group, Report
from hpml_jobs.report.learnt import Mean
from hpml_jobs.report.plots import paper

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

CAPTION = (
    "Accuracy on the whole test set after each epoch, every rank on its share. Mean over runs; the "
    "bars are one standard deviation over runs, and not there with one run."
)


class Course(NamedTuple):
    """The accuracies of one place after each epoch, of 1."""

    label: str
    means: list[Mean]


def accuracy(report: Report) -> "Figure | None":
    """Test accuracy after each epoch; None where no epoch was evaluated."""
    groups = [(group, found) for group in report.groups if (found := _courses(group))]
    if not groups:
        return None
    most = len(paper.COLOURS)
    figure, axes = paper.panels(len(groups[: paper.PANELS]), columns=2, height=3.6)
    for axis, (group, courses) in zip(axes, groups, strict=False):
        number = f"group {group.number}, " if report.several else ""
        axis.set_title(f"{number}{group.title}", loc="left")
        for place, course in enumerate(courses[:most]):
            _draw(axis, course, place, min(most, len(courses)))
        axis.set_xlabel("epoch")
        axis.set_xticks(_ticks(max(len(course.means) for course in courses)))
        axis.set_ylabel("test accuracy, %")
        paper.below(axis)
    lost = [course.label for _, courses in groups for course in courses[most:]]
    lost += [group.title for group, _ in groups[paper.PANELS :]]
    paper.title(figure, "Test accuracy by epoch")
    paper.caption(figure, CAPTION, paper.not_drawn(lost, "evaluation.csv"))
    return figure


def _courses(group: Group) -> list[Course]:
    courses = []
    for entry in group.entries:
        records = group.records(entry)
        epochs = max(map(learnt.epochs, records), default=0)
        every = [Mean.of(learnt.evaluated(n)(record) for record in records) for n in range(epochs)]
        means = [mean for mean in every if mean]
        if means:
            label = f"{full_label(entry.row, group.device)} b{entry.batch_per_gpu}"
            courses.append(Course(label, means))
    return courses


def _draw(axis: "Axes", course: Course, number: int, of: int) -> None:
    """A line with its deviations; lines stand a little beside each other, so bars do too."""
    aside = 0.03 * (number - (of - 1) / 2)
    axis.errorbar(
        [n + 1 + aside for n in range(len(course.means))],
        [100 * mean.mean for mean in course.means],
        yerr=[100 * (mean.deviation or 0.0) for mean in course.means],
        color=paper.COLOURS[number],
        label=course.label,
        marker="o",
        ms=4,
        lw=1.5,
        elinewidth=1,
        capsize=2.5,
    )


def _ticks(epochs: int) -> range:
    return range(1, epochs + 1, max(1, epochs // 10))
