"""A paragraph for a proposal: what was measured, the speedups by size, and the request."""

from typing import NamedTuple

from hpml_jobs.checks.result import names
from hpml_jobs.core import formulas
from hpml_jobs.core.check_result import Affected, Level
from hpml_jobs.core.strategies import BASELINE
from hpml_jobs.core.text import counted
from hpml_jobs.report.choose import words
from hpml_jobs.report.choose.rules import Candidate, Choice, Exclusion
from hpml_jobs.report.choose.sizes import coverage_text, speedup_text
from hpml_jobs.report.frame import captions
from hpml_jobs.report.frame.numbers import (
    aside,
    gigabytes,
    per_second,
    share_text,
    significant,
)
from hpml_jobs.results.groups import ConditionGroup


class SizeSeries(NamedTuple):
    """The cells by size that have the batch and the strategy of the cell to ask for."""

    kind: str  # weak: one batch per GPU; strong: one global batch
    cells: tuple[Candidate, ...]


def _series(choice: Choice, winner: Candidate) -> SizeSeries:
    """Return the weak or the strong series, whichever has more sizes; a single GPU is in both.

    The strategy of a single GPU's plain loop is that of the fastest cell beside it.
    """
    strategies = (
        c.row.strategy for c in (winner, *choice.candidates) if not c.row.is_baseline
    )
    allowed = (BASELINE, next(strategies, BASELINE))
    slowest_first = (*choice.candidates[::-1], winner)  # the last one of a size remains
    cells = [
        c
        for c in slowest_first
        if c.exclusion is not Exclusion.FAILED_CHECK
        and c.row.strategy in allowed
        and c.row.treatment == winner.row.treatment
        and c.row.path_of_batch == winner.row.path_of_batch
    ]
    batch = winner.row.global_batch
    weak = {
        c.row.gpus: c
        for c in cells
        if c.row.global_batch * winner.row.gpus == batch * c.row.gpus
    }
    strong = {c.row.gpus: c for c in cells if c.row.global_batch == batch}
    kind, by_size = ("strong", strong) if len(strong) > len(weak) else ("weak", weak)
    return SizeSeries(kind, tuple(by_size[size] for size in sorted(by_size)))


def refusal(choice: Choice, *, is_preliminary: bool = False) -> str:
    """Return why no paragraph is written, and what to do; empty if it can be written."""
    if choice.measure_again or choice.ask is None:
        return "no proposal without a cell to ask for: follow the answer above"
    cells = _series(choice, choice.ask.candidate).cells
    if len(cells) < 2:
        return (
            "no proposal from one size: measure another one at the batch and strategy of "
            f"{choice.ask.candidate.words}"
        )
    if choice.undecided and not is_preliminary:
        return (
            "no proposal while the runs do not decide: follow the answer above, or add "
            "--preliminary to choose epochs=90 runs=10"
        )
    single = [c for c in cells if c.timing.runs == 1]
    if not single or is_preliminary:
        return ""
    cell_words = names((c.words for c in single), separator="; ")
    remedy = "submit with repeats=3"
    if any(c.row.disturbed_runs for c in single):
        cell_words = f"{cell_words}, the other runs were disturbed"
        remedy = "measure them again (resubmit --disturbed)"
    return (
        f"no proposal from one run of {cell_words}: {remedy}, or add --preliminary to "
        "choose epochs=90 runs=10"
    )


def paragraph(group: ConditionGroup, choice: Choice) -> str:
    """Return the paragraph: what was measured, the speedups by size, the request, and how.

    Raises:
        ValueError: there is no cell to ask for.
    """
    if choice.ask is None:
        raise ValueError("no cell to ask for")
    winner = choice.ask.candidate
    series = _series(choice, winner)
    reference, *larger = series.cells
    parts = [
        _preliminary(group, choice, series),
        _measured(group, series, winner),
        _reference(reference),
    ]
    parts += [_size(reference, candidate) for candidate in larger]
    parts += [_request(group, choice, winner), _how(group, series)]
    return " ".join(part for part in parts if part)


def _preliminary(group: ConditionGroup, choice: Choice, series: SizeSeries) -> str:
    """Return what speaks against the figures: an open choice, a single run, the gravest check."""
    reasons = []
    if choice.undecided:
        two = names((c.words for c in words.asked(choice)), separator="; ")
        reasons.append(f"the runs do not decide between {two}")
    if any(c.timing.runs == 1 for c in series.cells):
        reasons.append("one run")
    doubts = [
        (result, candidate)
        for candidate in series.cells
        for result in group.doubts_of(candidate.row, Affected.TIME)
    ]
    if doubts:
        result, candidate = max(
            doubts, key=lambda doubt: [*Level].index(doubt[0].level)
        )
        verb = "fails" if result.level is Level.FAIL else "warns"
        reasons.append(
            f"the data-quality check {result.check} {verb} for {candidate.words}: {result.figures}"
        )
    return f"Preliminary: {'; '.join(reasons)}." if reasons else ""


def _measured(group: ConditionGroup, series: SizeSeries, winner: Candidate) -> str:
    setting = captions.setting(group).removesuffix(".")
    records = [
        cell.record for cell in group.cells if cell.record and not cell.record.imported
    ]
    versions = {record.facts.hpml_jobs for record in records if record.facts}
    program = (
        f", measured with hpml_jobs {' and '.join(sorted(versions))}"
        if versions
        else ""
    )
    batch, caveat = f"global batch {winner.row.global_batch}", ""
    if series.kind == "weak":
        batch = f"batch {winner.row.batch_per_gpu} per {captions.unit(winner.device)}"
        equal = "times" if winner.timing.work else "epochs"
        caveat = f" The global batch grows with the size: equal {equal} are not equal training."
    strategy = series.cells[-1].row.strategy.value
    return f"Evidence of {series.kind} scaling ({batch}, {strategy}){program}: {setting}.{caveat}"


def _reference(reference: Candidate) -> str:
    timing, rate = reference.timing, reference.timing.units_per_s
    throughput = ""
    if rate is not None:
        shown_rate = captions.mark(per_second(rate), is_doubtful=reference.doubtful)
        throughput = f" ({shown_rate} {timing.unit.value}/s)"
    return (
        f"On {words.name(reference)}, the smallest size measured, "
        f"{captions.an_epoch(timing.work)} {'take' if timing.work else 'takes'} "
        f"{words.time(reference)} s{throughput}."
    )


def _size(reference: Candidate, candidate: Candidate) -> str:
    takes = "they take" if candidate.timing.work else "it takes"
    speedup = formulas.speedup(reference.epoch_s, candidate.epoch_s)
    efficiency = formulas.efficiency(speedup, candidate.row.gpus, reference.row.gpus)
    is_doubtful = candidate.doubtful or reference.doubtful
    interval = aside(coverage_text(reference, candidate))
    speedup_words = f"{speedup_text(reference, candidate)}{interval}"
    ratios = [
        captions.mark(text, is_doubtful=is_doubtful)
        for text in (speedup_words, share_text(efficiency))
    ]
    return (
        f"On {words.name(candidate)} {takes} {words.time(candidate)} s: speedup "
        f"{ratios[0]}, parallel efficiency {ratios[1]}, "
        f"{_hours(candidate.gpu_hours, candidate)} {captions.hours_unit(candidate.device)} per "
        f"{captions.work_text(candidate.timing.work)}."
    )


def _hours(gpu_hours: float, candidate: Candidate) -> str:
    return captions.mark(significant(gpu_hours, 3), is_doubtful=candidate.doubtful)


def _request(group: ConditionGroup, choice: Choice, winner: Candidate) -> str:
    """Return the request: the total if epochs and runs are given, and what a job needs."""
    wish, hours = choice.wish, captions.hours_unit(winner.device)
    total = ""
    if wish.runs and wish.epochs:
        cost = wish.runs * wish.epochs * winner.gpu_hours
        total = (
            f"{_hours(cost, winner)} {hours} ({counted(wish.runs, 'run')} x "
            f"{counted(wish.epochs, 'epoch')} x {_hours(winner.gpu_hours, winner)} {hours}), with "
        )
    against = "" if wish.has_limit else f" against {choice.reference.words}"
    return (
        f"We request {total}{words.size(winner)} per job at batch {winner.row.batch_per_gpu} per "
        f"{captions.unit(winner.device)}{_machine(group, winner)}: {words.rule(choice)}{against}."
    )


def _machine(group: ConditionGroup, winner: Candidate) -> str:
    """Return cluster, partition, nodes and memory that the records report."""
    row, device = winner.row, winner.device
    records = group.counted_records(row, Affected.TIME)
    slurm = next((r.facts.slurm for r in records if r.facts), {})
    size = counted(row.gpus // row.nodes, captions.unit(device), captions.units(device))
    kind = captions.hardware(group) or "hardware not reported"
    parts = [f" on {counted(row.nodes, 'node')}, {size} per node ({kind})"]
    if cluster := slurm.get("SLURM_CLUSTER_NAME"):
        parts.append(f"cluster {cluster}")
    if partition := slurm.get("SLURM_JOB_PARTITION"):
        parts.append(f"partition {partition}")
    if (memory := slurm.get("SLURM_MEM_PER_NODE", "")).isdecimal():
        parts.append(f"{gigabytes(int(memory) * 2**20)} GB requested per node")
    peaks = [rank.peak_memory_bytes or 0 for record in records for rank in record.ranks]
    if peak := max(peaks, default=0):
        parts.append(f"peak memory {gigabytes(peak)} GB per {captions.unit(device)}")
    return ", ".join(parts)


def _how(group: ConditionGroup, series: SizeSeries) -> str:
    runs = captions.runs(candidate.row for candidate in series.cells)
    if group.imported:
        return f"Times are those of whole epochs, as reported by their source. {runs}"
    if group.work:
        return (
            f"Times of {captions.work_text(group.work)} are computed from a window of iterations "
            f"of the slowest process, data loading included. {runs}"
        )
    return (
        "Times are of the training loop of one epoch after a warm-up epoch, start-up excluded and "
        f"data loading included, of the slowest process. {runs}"
    )
