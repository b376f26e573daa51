"""The comparison of two studies in words: the answer, other conditions, what became slower."""

from collections.abc import Iterator, Sequence

from hpml_jobs.checks.result import names
from hpml_jobs.core.text import counted, percent_text
from hpml_jobs.report.merge.comparison import (
    PARTS,
    ComparedCell,
    ComparedGroup,
    Kind,
    StudyComparison,
)
from hpml_jobs.report.merge.decision import LEAST_RUNS, Decision, Ratio
from hpml_jobs.report.merge.power import MOST_RUNS, runs_to_show, smallest_difference
from hpml_jobs.report.merge.reference import ReferenceCell, ReferenceGroup
from hpml_jobs.report.text.captions import cell_label
from hpml_jobs.report.text.numbers import percent, seconds

SHOWN = 0.05
"""The difference for which the needed runs are said, without a limit of the user."""

CAPTION = (
    "Seconds of an epoch, the longest of all ranks: medians over runs. Change: the ratio of times, "
    "B to A (Hodges-Lehmann, 95 % interval). Faster or slower: an exact Mann-Whitney test gives p "
    "<= 5 % and the ratio is more than 2 % from 1; each cell is tested alone, so of 20 equal cells "
    "one may be called different. Could show: the true difference that these runs show in 80 % of "
    "cases."
)


class Names:
    """The names of both studies, and of a cell in them."""

    def __init__(self, comparison: StudyComparison) -> None:
        self.old, self.new = comparison.old.study, comparison.new.study
        if self.old == self.new:
            self.old, self.new = f"{self.old} (A)", f"{self.new} (B)"


def percents(share: float) -> str:
    """Return a change of time in percent with its sign.

    >>> percents(0.0789), percents(-0.031), percents(0.0)
    ('+7.9', '-3.1', '0')
    """
    text = percent(share)
    return text if text.startswith("-") or text == "0" else f"+{text}"


def change_text(ratio: Ratio) -> str:
    """Return a change with its interval: `+7.9 % [6.1, 9.9]`."""
    return f"{percents(ratio.estimate - 1)} %{interval_text(ratio)}"


def interval_text(ratio: Ratio) -> str:
    """Return the interval of a change in percent, after a space; empty without one."""
    if ratio.interval is None:
        return ""
    low, high = (percent(end - 1) for end in ratio.interval[:2])
    return f" [{low}, {high}]"


def amount_text(ratio: Ratio) -> str:
    """Return how much faster or slower: `3.1 % [2.0, 4.4] slower`.

    >>> from hpml_jobs.report.merge.statistics import Interval
    >>> amount_text(Ratio(0.97, Interval(0.95, 0.99, 0.95)))
    '3.0 % [1.0, 5.0] faster'
    """
    is_slower = ratio.estimate > 1
    sign = 1 if is_slower else -1
    ends = sorted(sign * (end - 1) for end in ratio.interval[:2]) if ratio.interval else []
    interval = f" [{', '.join(map(percent, ends))}]" if ends else ""
    word = "slower" if is_slower else "faster"
    return f"{percent(sign * (ratio.estimate - 1))} %{interval} {word}"


def answer(comparison: StudyComparison) -> str:
    """Return the result of a comparison in a sentence."""
    title = Names(comparison)
    cells = comparison.cells
    unlike = comparison.unlike_hardware
    prefix = f"On unlike hardware ({', '.join(unlike)}): " if unlike else ""
    pairs = [(group, cell) for group in comparison.groups for cell in group.measured]
    if len(pairs) == 1:
        text = _single(title, *pairs[0])
    else:
        text = f"{title.new} against {title.old}: {', '.join(_counts(pairs, len(cells)))}"
    return f"{prefix}{text}{_absent(comparison)}."


def _single(title: Names, group: ComparedGroup, cell: ComparedCell) -> str:
    """Return the result of the only shared cell."""
    label = cell_label(cell.place, group.new.device)
    pair = f"{title.new} and {title.old}"
    match cell.decision:
        case Decision.FASTER | Decision.SLOWER:
            return f"{title.new} is {amount_text(cell.ratio)} than {title.old} ({label})"
        case Decision.TOO_FEW:
            runs = f"{LEAST_RUNS} of each are needed"
            return f"too few runs to tell {pair} apart ({label}, {_runs(cell)} runs; {runs})"
        case None:
            return f"{pair} cannot be compared: {label} failed a data-quality check"
        case decision:
            word = "no difference seen" if decision is Decision.SAME else "less than 2 % apart"
            return f"{pair}: {word} ({label}, {change_text(cell.ratio)})"


def _runs(cell: ComparedCell) -> str:
    return f"{len(cell.old.runs)} and {len(cell.new.runs)}"


def _counts(pairs: Sequence[tuple[ComparedGroup, ComparedCell]], total: int) -> Iterator[str]:
    """Yield the number of cells by decision, with the largest change of the faster and slower."""
    words = {
        Decision.SLOWER: ("is slower", "are slower"),
        Decision.FASTER: ("is faster", "are faster"),
        Decision.BELOW_GAP: ("is less than 2 % apart", "are less than 2 % apart"),
        Decision.SAME: ("shows no difference", "show no difference"),
        Decision.TOO_FEW: ("has too few runs to tell", "have too few runs to tell"),
        None: ("failed a data-quality check", "failed a data-quality check"),
    }
    is_first = True
    for decision, (one_word, several) in words.items():
        chosen = [(group, cell) for group, cell in pairs if cell.decision is decision]
        if not chosen:
            continue
        number = len(chosen)
        shared = f" of {counted(total, 'shared cell')}" if is_first else ""
        verb = one_word if number == 1 and not (shared and total > 1) else several
        largest = _largest(chosen) if decision in (Decision.SLOWER, Decision.FASTER) else ""
        yield f"{number}{shared} {verb}{largest}"
        is_first = False


def _largest(pairs: Sequence[tuple[ComparedGroup, ComparedCell]]) -> str:
    group, cell = max(pairs, key=lambda pair: abs(pair[1].ratio.estimate - 1))
    word = "largest: " if len(pairs) > 1 else ""
    return f" ({word}{cell_label(cell.place, group.new.device)} {change_text(cell.ratio)})"


def _absent(comparison: StudyComparison) -> str:
    number = len(comparison.only_old) + len(comparison.only_new)
    without = len(comparison.unmeasured)
    parts = []
    if number:
        parts.append(
            f"{counted(number, 'cell')} {'is' if number == 1 else 'are'} in only one of them"
        )
    if without:
        parts.append(
            f"{counted(without, 'shared cell')} {'has' if without == 1 else 'have'} no number"
        )
    return "".join(f"; {part}" for part in parts)


def days(comparison: StudyComparison) -> list[str]:
    """Return a line if the studies were measured on other days: machines change."""
    old, new = (side.measured[:10] for side in (comparison.old, comparison.new))
    return [f"measured on other days (A | B): {old} | {new}"] if old and new and old != new else []


def conditions(group: ComparedGroup) -> list[str]:
    """Return the conditions in which two groups differ, a line per kind, the worst first."""
    lines = []
    for kind, pairs in group.by_kind.items():
        values = "; ".join(f"{name}: {old} | {new}" for name, (old, new) in pairs.items())
        mark = "unlike hardware" if kind is Kind.HARDWARE else f"other {kind.value}"
        lines.append(f"{mark} (A | B): {values}")
    for clock, cells in group.other_clocks.items():
        values = "; ".join(
            f"{_label(cell, group)} {cell.old.clocks[clock]:g} | {cell.new.clocks[clock]:g}"
            for cell in cells
        )
        lines.append(f"other {clock} (A | B): {values}")
    is_same = not lines
    for side, missing in group.unrecorded.items():
        where = "A" if side == "old" else "B"
        lines.append(f"not recorded in {where}: {', '.join(missing)}")
    if group.old.imported or group.new.imported:
        sides = (("A", group.old), ("B", group.new))
        where = " and ".join(side for side, values in sides if values.imported)
        lines.append(f"imported in {where}: software and clocks are not known")
    elif group.without_clocks:
        lines.append("GPU clocks are not recorded for all cells")
    if is_same:
        same = "the same hardware, software and settings"
        lines.insert(0, f"{same}, as far as recorded" if lines else same)
    return lines


def _label(cell: ComparedCell, group: ComparedGroup) -> str:
    return cell_label(cell.place, group.new.device)


def notes(group: ComparedGroup, limit: float | None) -> Iterator[str]:
    """Yield what became slower, then what limits the comparison, the most serious first."""
    for cell in group.measured:
        if cell.decision in (Decision.FASTER, Decision.SLOWER):
            yield _what_changed(cell, group)
    yield from _checks(group)
    for cell in group.measured:
        yield from _left_out(cell, group)
    yield from _power(group, limit or SHOWN)
    for cell in group.cells:
        if not cell.is_measured:
            yield f"not compared: {_label(cell, group)}: {_why_not(cell)}"


def _what_changed(cell: ComparedCell, group: ComparedGroup) -> str:
    """Return by how many seconds the parts of a changed epoch changed, the largest first."""
    epoch = (cell.new.median_s("epoch_s") or 0) - (cell.old.median_s("epoch_s") or 0)
    changes = sorted(cell.changes().items(), key=lambda item: -abs(item[1]))
    parts = ", ".join(f"{PARTS[name]} {_signed(change)} s" for name, change in changes)
    text = f"{cell.decision.value if cell.decision else ''}: {_label(cell, group)}: epoch"
    return f"{text} {_signed(epoch)} s" + (f"; {parts}" if parts else "")


def _signed(value_s: float) -> str:
    text = seconds(value_s)
    return text if text.startswith("-") or text == "0" else f"+{text}"


def _checks(group: ComparedGroup) -> Iterator[str]:
    """Yield a line per check with its cells and sides: failures first."""
    for word, field, verb in (("not decided", "failed", "failed"), ("doubtful", "warned", "warns")):
        sides: dict[str, dict[str, list[str]]] = {}
        for cell in group.measured:
            for side, values in (("A", cell.old), ("B", cell.new)):
                for check in getattr(values, field):
                    sides.setdefault(check, {}).setdefault(side, []).append(_label(cell, group))
        for check, labels in sides.items():
            same = len({tuple(cells) for cells in labels.values()}) == 1
            by_side = {" and ".join(labels): next(iter(labels.values()))} if same else labels
            where = "; ".join(f"in {side}: {names(cells)}" for side, cells in by_side.items())
            yield f"{word}: check {check} {verb} {where}; see hpml-jobs collect"


def _left_out(cell: ComparedCell, group: ComparedGroup) -> Iterator[str]:
    for side, values in (("A", cell.old), ("B", cell.new)):
        if values.left_out:
            total = len(values.runs) + values.left_out
            yield (
                f"{_label(cell, group)}: {values.left_out} of {counted(total, 'run')} in {side} "
                "left out: the timed epoch was disturbed"
            )


def _power(group: ComparedGroup, wanted: float) -> Iterator[str]:
    """Yield the runs that undecided cells need to show a difference."""
    few = [cell for cell in group.measured if cell.decision is Decision.TOO_FEW]
    if few:
        yield f"{Decision.TOO_FEW.value}: {_labels(few, group)}: {_needed(few, wanted)}"
    weak = [
        cell
        for cell in group.measured
        if cell.decision is Decision.SAME and (cell.smallest_difference or 0) > wanted
    ]
    if weak:
        yield (
            f"a difference of {percent_text(wanted)} could not be shown: {_labels(weak, group)}: "
            f"{_needed(weak, wanted)}"
        )


def _labels(cells: Sequence[ComparedCell], group: ComparedGroup) -> str:
    return names(_label(cell, group) for cell in cells)


def _needed(cells: Sequence[ComparedCell], wanted: float) -> str:
    """Return the remedy in runs, for the cell that scatters most."""
    noise = max((cell.noise for cell in cells if cell.noise is not None), default=None)
    if noise is None:
        return f"{LEAST_RUNS} runs of each are needed (repeats={LEAST_RUNS})"
    runs = runs_to_show(wanted, noise)
    scatter = f"{'largest ' if len(cells) > 1 else ''}scatter {percent(noise)} %"
    if runs is None:
        return (
            f"{percent_text(wanted)} cannot be shown with {MOST_RUNS} runs of each ({scatter}): "
            "measure on a quiet machine"
        )
    shown = smallest_difference(runs, runs, noise)
    return f"{runs} runs of each show {percent(shown or wanted)} % ({scatter}; repeats={runs})"


def _why_not(cell: ComparedCell) -> str:
    sides = (("A", cell.old), ("B", cell.new))
    return ", ".join(
        f"no number in {side} ({values.outcome.value})" for side, values in sides if not values.runs
    )


def only_in(side: str, cells: Sequence[tuple[ReferenceGroup, ReferenceCell]]) -> Iterator[str]:
    """Yield a line with the cells that only one study has."""
    if cells:
        labels = [cell_label(cell.place, group.device) for group, cell in cells]
        yield f"only in {side}: {', '.join(labels) if len(labels) <= 10 else names(labels)}"


def places_text(group: ReferenceGroup) -> str:
    """Return the measured cells of a group in short."""
    return names(cell_label(cell.place, group.device) for cell in group.cells if cell.runs)


def gate_failure(comparison: StudyComparison, limit: float) -> str:
    """Return why a comparison does not pass a limit; empty if it does.

    A cell that the runs cannot decide does not pass.
    """
    pairs = [(group, cell) for group in comparison.groups for cell in group.cells]
    slower = [
        f"{_label(cell, group)} {change_text(cell.ratio)}"
        for group, cell in pairs
        if cell.is_measured and cell.is_slower_than(limit)
    ]
    parts = []
    if slower:
        parts.append(f"slower by more than {percent_text(limit)}: {', '.join(slower)}")
    few = [pair for pair in pairs if pair[1].is_measured and pair[1].decision is Decision.TOO_FEW]
    if few:
        labels = names(_label(cell, group) for group, cell in few)
        parts.append(
            f"too few runs to tell: {labels}: {LEAST_RUNS} runs of each are needed "
            f"(repeats={LEAST_RUNS})"
        )
    failed = [pair for pair in pairs if pair[1].is_measured and pair[1].decision is None]
    if failed:
        parts.append(
            f"a data-quality check failed: {names(_label(cell, group) for group, cell in failed)}"
        )
    lost = [pair for pair in pairs if pair[1].old.runs and not pair[1].new.runs]
    if lost:
        parts.append(
            f"no number in B: {names(f'{_label(c, g)} ({c.new.outcome.value})' for g, c in lost)}"
        )
    return "; ".join(parts)
