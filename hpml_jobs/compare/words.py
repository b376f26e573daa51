"""The comparison of two studies in words: the answer, and why it does not pass a limit."""

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from hpml_jobs.compare.reference import EPOCH, ReferenceCell, ReferenceGroup
from hpml_jobs.compare.rules import ComparedCell, ComparedGroup, StudyComparison
from hpml_jobs.core.cell import Outcome
from hpml_jobs.core.text import counted, percent_text
from hpml_jobs.report.frame.captions import cell_words
from hpml_jobs.report.frame.numbers import percent, verb
from hpml_jobs.results.checks.result import names
from hpml_jobs.results.decision import LEAST_RUNS, Decision, Ratio
from hpml_jobs.results.rows import by_key

CAPTION = (
    "A and B: seconds of {timed}, median over the runs. Change: how much longer (+) or shorter (-) "
    "B takes than A, with its 95 % interval (Hodges-Lehmann). Verdict: slower or faster if an "
    "exact Mann-Whitney test gives p <= 5 % and the change is more than 2 %; each cell is tested "
    "alone. Could show: the smallest change that so many runs show in 80 % of cases."
)


def caption(group: ReferenceGroup) -> str:
    """Return how the numbers of a comparison were measured."""
    timed = "an epoch (longest rank)" if group.timed == EPOCH else group.timed
    return CAPTION.format(timed=timed)


class StudyNames(NamedTuple):
    """The names of both studies."""

    old: str
    new: str


def names_of(comparison: StudyComparison) -> StudyNames:
    """Return the names of both studies, with A and B where they are equal."""
    old, new = comparison.old.study, comparison.new.study
    return (
        StudyNames(f"{old} (A)", f"{new} (B)") if old == new else StudyNames(old, new)
    )


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

    >>> from hpml_jobs.core.statistics import Interval
    >>> amount_text(Ratio(0.97, Interval(0.95, 0.99, 0.95)))
    '3.0 % [1.0, 5.0] faster'
    """
    is_slower = ratio.estimate > 1
    sign = 1 if is_slower else -1
    interval = ""
    if ratio.interval:
        ends = sorted(sign * (end - 1) for end in ratio.interval[:2])
        interval = f" [{', '.join(map(percent, ends))}]"
    word = "slower" if is_slower else "faster"
    return f"{percent(sign * (ratio.estimate - 1))} %{interval} {word}"


def answer(comparison: StudyComparison) -> str:
    """Return the result of a comparison in a sentence."""
    title = names_of(comparison)
    unlike = comparison.unlike_hardware
    prefix = f"On different hardware ({', '.join(unlike)}): " if unlike else ""
    pairs = [(group, cell) for group in comparison.groups for cell in group.measured]
    if len(pairs) == 1:
        text = _single(title, *pairs[0])
    else:
        counts = ", ".join(_counts(pairs)) or "no cell has a number in both"
        text = f"{title.new} compared with {title.old}: {counts}"
    return f"{prefix}{text}{_absent(comparison)}."


def _single(title: StudyNames, group: ComparedGroup, cell: ComparedCell) -> str:
    """Return the result of the only shared cell."""
    name = label(cell, group)
    pair = f"{title.new} and {title.old}"
    match cell.decision:
        case Decision.FASTER | Decision.SLOWER:
            return (
                f"{title.new} is {amount_text(cell.ratio)} than {title.old} on {name}"
            )
        case Decision.TOO_FEW:
            runs = f"{LEAST_RUNS} in each study are needed"
            return f"too few runs to tell {pair} apart on {name} ({_runs(cell)} runs; {runs})"
        case None:
            return f"{pair} cannot be compared: a data-quality check failed for {name}"
        case decision:
            word = (
                "no difference seen"
                if decision is Decision.SAME
                else "less than 2 % apart"
            )
            return f"{pair}: {word} on {name} ({change_text(cell.ratio)})"


def _runs(cell: ComparedCell) -> str:
    return f"{len(cell.old.runs)} and {len(cell.new.runs)}"


def _counts(pairs: Sequence[tuple[ComparedGroup, ComparedCell]]) -> Iterator[str]:
    """Yield the number of cells by decision, with the largest change of the faster and slower."""
    words = {
        Decision.SLOWER: ("is slower", "are slower"),
        Decision.FASTER: ("is faster", "are faster"),
        Decision.BELOW_GAP: ("is less than 2 % apart", "are less than 2 % apart"),
        Decision.SAME: ("shows no difference", "show no difference"),
        Decision.TOO_FEW: ("has too few runs to tell", "have too few runs to tell"),
        None: ("has a failed data-quality check", "have a failed data-quality check"),
    }
    is_first = True
    for decision, (singular, plural) in words.items():
        chosen = [(group, cell) for group, cell in pairs if cell.decision is decision]
        if not chosen:
            continue
        number = len(chosen)
        shared = f" of {counted(len(pairs), 'shared cell')}" if is_first else ""
        text = verb(number, singular, plural)
        largest = (
            _largest(chosen) if decision in (Decision.SLOWER, Decision.FASTER) else ""
        )
        yield f"{number}{shared} {text}{largest}"
        is_first = False


def label(cell: ComparedCell, group: ComparedGroup) -> str:
    """Return the name of a cell in a sentence: `4 GPUs, batch 512 (ddp)`."""
    return cell_words(cell.place, group.new.device)


def listed(labels: Iterable[str]) -> str:
    """Return the first few names of cells, which have commas, and how many more there are."""
    return names(labels, separator="; ")


def size(cell: ComparedCell) -> float:
    """Return the size of a change, as a share."""
    return abs(cell.ratio.estimate - 1)


def _largest(pairs: Sequence[tuple[ComparedGroup, ComparedCell]]) -> str:
    group, cell = max(pairs, key=lambda pair: size(pair[1]))
    word = "largest: " if len(pairs) > 1 else ""
    return f" ({word}{label(cell, group)}: {change_text(cell.ratio)})"


def _absent(comparison: StudyComparison) -> str:
    number = len(comparison.only_old) + len(comparison.only_new)
    without = len(comparison.unmeasured)
    parts = []
    if number:
        be = verb(number, "is", "are")
        parts.append(f"{counted(number, 'cell')} {be} in only one of the studies")
    if without:
        has = verb(without, "has", "have")
        parts.append(f"{counted(without, 'shared cell')} {has} no number")
    return "".join(f"; {part}" for part in parts)


def places_text(group: ReferenceGroup) -> str:
    """Return the measured cells of a group in short."""
    return listed(
        cell_words(cell.place, group.device) for cell in group.cells if cell.runs
    )


def no_number(cell: ReferenceCell) -> str:
    """Return why a cell has no number, if the record says it."""
    return "out of memory" if cell.outcome is Outcome.OOM else "no number"


def drift_text(drift: float | None, limit: float | None) -> str:
    """Return what is known of the machine's own change between two submissions."""
    if drift is None:
        return (
            "The machine may have changed between A and B. To measure by how much, submit A again "
            "as another study and add --drift STUDY."
        )
    text = f"Between A and its second submission a cell changed by up to {percent_text(drift)}"
    if limit is None:
        return f"{text}: a change below twice that may come from the machine."
    return f"{text}: the limit is {percent_text(limit)}."


def needed_runs(runs: int) -> str:
    """Return what to submit for so many runs of every cell."""
    return f"submit both studies again with repeats={runs}"


def gate_success(limit: float) -> str:
    """Return that a comparison passes a limit."""
    return f"passed: the runs show no cell that is slower by more than {percent_text(limit)}"


def gate_failure(comparison: StudyComparison, limit: float) -> str:
    """Return why a comparison does not pass a limit; empty if it does.

    A cell does not pass whose runs cannot decide, or could not have shown such a difference.
    """
    pairs = [(group, cell) for group in comparison.groups for cell in group.cells]
    measured = [pair for pair in pairs if pair[1].is_measured]
    by_decision = by_key((cell.decision, (group, cell)) for group, cell in measured)
    doubtful = by_decision.get(None, [])
    slower = [pair for pair in measured if pair[1].is_slower_than(limit)]
    slower.sort(key=lambda pair: size(pair[1]), reverse=True)
    weak = [pair for pair in measured if pair[1].could_hide(limit)]
    lost = [pair for pair in pairs if pair[1].old.runs and not pair[1].new.runs]
    reasons = (
        (
            f"slower by more than {percent_text(limit)}: ",
            [
                f"{label(cell, group)}: {change_text(cell.ratio)}"
                for group, cell in slower
            ],
            "",
        ),
        (
            "too few runs to tell: ",
            _labels(by_decision.get(Decision.TOO_FEW, [])),
            f": {needed_runs(LEAST_RUNS)}",
        ),
        (
            f"the runs scatter too much to show {percent_text(limit)}: ",
            _labels(weak),
            ": the note below the table says how many runs show it",
        ),
        (
            "a data-quality check failed: ",
            _labels(doubtful),
            ": measure these again",
        ),
        (
            "not measured in B: ",
            [f"{label(cell, group)}: {no_number(cell.new)}" for group, cell in lost],
            "",
        ),
    )
    return "; ".join(
        f"{before}{listed(cells)}{after}" for before, cells, after in reasons if cells
    )


def _labels(pairs: Sequence[tuple[ComparedGroup, ComparedCell]]) -> list[str]:
    return [label(cell, group) for group, cell in pairs]
