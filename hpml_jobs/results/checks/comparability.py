"""May a cell be compared with the others of its table? Checks of a run beside its table's."""

from collections.abc import Iterable, Sequence
from functools import cache

from hpml_jobs.core.check_result import Affected, Level, Tier
from hpml_jobs.core.environment import PROFILERS, text_of
from hpml_jobs.core.record import Facts
from hpml_jobs.core.script import READS_ALL
from hpml_jobs.core.strategies import Device
from hpml_jobs.core.text import Share, percent_text
from hpml_jobs.results.checks.comparison import (
    EFFICIENCY_LIMIT,
    ByValue,
    ComparedRun,
    Differing,
    Efficiency,
    between,
)
from hpml_jobs.results.checks.result import Observation, check, names

SCATTER_LIMIT = Share(0.20)


@check("conditions", Level.WARN, Tier.TABLE, Affected.TIME)
def other_conditions(run: ComparedRun) -> list[Observation | None]:
    """The cell was measured with other hardware or software than cells of the same workload, which
    are in another table: no ratio of the two is a speedup. One outlier is named, not all the others
    with it. Another patch of Python, operating system, kernel or container hardly changes a number.
    Or a profiler was on in all its epochs, by a variable of NCCL, torch or nsys.

    Limit: the same hardware, software and code; no profiler
    Fix: measure again what differs (rerun=true), or measure the table in one go, with one
    installation (rerun=true)
    """
    again = "measure again what differs (rerun=true)"
    in_one_go = "measure the table in one go, with one installation (rerun=true)"
    system = "Python and operating system"
    remarks = run.table.remarks
    return [
        _differing(run, run.table.related, "hardware and software", again),
        _differing(run, remarks, system, in_one_go),
        _profiled(run.record.facts or Facts()),
    ]


def _profiled(facts: Facts) -> Observation | None:
    """Return which variables turned a profiler on, whose cost is in all times."""
    variables = text_of(PROFILERS, facts.nccl_environment | facts.environment)
    text = f"a profiler was on in all epochs: {variables}"
    unset = "unset it and measure again (rerun=true)"
    return Observation(False, text, unset) if variables else None


def _differing(
    run: ComparedRun, values: ByValue, what: str, remedy: str
) -> Observation | None:
    """Return in which conditions a run differs from others."""
    own = values.of(run)
    if not own:
        return None
    others = [dict(value) for value in values.other_values(run)]
    if not others:
        same = f"the same {what} as the other cells of the table"
        return Observation(True, same) if len(run.table.runs) > 1 else None
    differing = values.differing(run)
    differences = [
        f"{name} {value} (theirs {distinct(other[name] for other in others)})"
        for name, value in own
        if any(other[name] != value for other in others)
    ]
    return Observation(
        not differing.is_outlier_of(len(values)),
        f"differs from {names_of(differing)} in {', '.join(differences)}",
        remedy,
    )


def names_of(differing: Differing) -> str:
    """Return the runs that differ: the first few by name, the others counted."""
    return names(run.slug for run in differing.runs)


def distinct(values: Iterable[object]) -> str:
    """Return values in words, each once."""
    return " | ".join(dict.fromkeys(map(str, values)))


@check("efficiency", Level.FAIL, Tier.NUMBER, Affected.TIME)
def too_efficient(run: ComparedRun) -> Observation | None:
    """N GPUs are more than N times as fast as one: the baseline was disturbed, or the batches
    differ. A warning if data loading of the baseline explains it, with a single run, and if the
    bootstrap interval of the efficiency (of a single run: of its blocks) reaches below the limit.

    Limit: an efficiency of {EFFICIENCY_LIMIT}
    Fix: measure the cell and its baseline again: disturbed ones by resubmit --disturbed, others
    with rerun=true
    """
    efficiencies = [
        reached
        for reached in run.table.efficiencies
        if run.row in (reached.row, reached.baseline)
    ]
    if not efficiencies:
        return None
    above = [reached for reached in efficiencies if reached.is_too_high]
    greatest = max(efficiencies, key=lambda reached: reached.with_loading)
    text = _efficiency_text(run, greatest)
    if noise := greatest.of_one_run:
        text += f"; {between(noise)} by one run of each"
    level = None if any(reached.is_certain for reached in above) else Level.WARN
    if not all(reached.is_explained for reached in above):
        return Observation(not above, text, level=level)
    remedy = "increase loader_workers=, the baseline waits for its data"
    return Observation(not above, text, remedy, level)


def _efficiency_text(run: ComparedRun, greatest: Efficiency) -> str:
    """Return an efficiency of the row of a run, or of the row that is compared with it."""
    limit = f"(limit {EFFICIENCY_LIMIT})"
    units = "GPUs" if run.table.group.device is Device.CUDA else "processes"
    if greatest.baseline is run.row:  # it may be the one that was disturbed
        row = greatest.row
        cell = f"{row.strategy.value} on {row.gpus} {units}"
        return (
            f"{cell}, compared with this cell, has an efficiency of {greatest} {limit}"
        )
    text = f"efficiency is {greatest} over {run.row.gpus} {units} {limit}"
    if greatest.without_loading is None:
        return text
    return f"{text}, {percent_text(greatest.without_loading)} without data loading"


def threads_text(counts: Sequence[int]) -> str:
    """Return numbers of threads in words.

    >>> threads_text([1]), threads_text([1, 8])
    ('1 thread per process', '1 or 8 threads per process')
    """
    word = "thread" if list(counts) == [1] else "threads"
    return f"{' or '.join(map(str, counts))} {word} per process"


@check("threads", Level.WARN, Tier.NUMBER, Affected.TIME, Affected.SPLIT)
def other_threads(run: ComparedRun) -> list[Observation | None]:
    """Processes computed with another number of threads than the cell asks for: ranks differ in
    compute time. Or with another number than in the other cells of the table: more threads compute
    faster, so no ratio is a speedup.

    Limit: exactly threads=, in every process, and the same number in all cells
    Fix: unset OMP_NUM_THREADS in the job's environment, or resubmit all cells with one threads=
    """
    counts = run.threads
    if not counts:
        return []
    cell = run.record.cell
    text = threads_text(counts)
    remedy = "unset OMP_NUM_THREADS in the job's environment"
    if cell.script and len(counts) == 1:
        remedy = f"set threads={counts[0]}, as the script does"
    is_right = counts == (cell.threads,)
    alone = Observation(is_right, f"{text}, threads={cell.threads}", remedy)
    threads = run.table.threads
    differing = threads.differing(run)
    if not differing.runs:
        return [alone]
    theirs = distinct(count for other in threads.other_values(run) for count in other)
    beside = Observation(
        not differing.is_outlier_of(len(threads)),
        f"{text}, {names_of(differing)} had {theirs}",
        "resubmit all cells with one threads=",
    )
    return [alone, beside]


SCATTER = "scatter"


@check(SCATTER, Level.WARN, Tier.TABLE, Affected.TIME)
def scattered_repeats(run: ComparedRun) -> Observation | None:
    """Repeats of the cell differ widely: a single run means little.

    Limit: the slowest run takes {SCATTER_LIMIT} more than the fastest
    Fix: let no other program run, or give more repeats=
    """
    return _scatter(run.row.times_s)


@cache
def _scatter(times_s: tuple[float, ...]) -> Observation | None:
    # the same for all runs of a row, which may be hundreds
    if len(times_s) < 2:
        return None
    fastest_s, slowest_s = min(times_s), max(times_s)
    return Observation(
        slowest_s <= (1 + SCATTER_LIMIT) * fastest_s,
        f"times from {fastest_s:.3g} to {slowest_s:.3g} s",
    )


OTHER_EPOCH = "epoch-samples"


@check(OTHER_EPOCH, Level.FAIL, Tier.NUMBER, Affected.TIME)
def other_epoch(run: ComparedRun) -> Observation | None:
    """An epoch of a script has another number of samples than on one GPU: mostly each process
    passes over all of the data, and the speedup compares epochs of different work.

    Limit: the samples of the baseline's epoch, within a batch of each process
    Fix: let the script share the data out (DistributedSampler), or use window=A,B, by which equal
    samples are compared
    """
    record = run.record
    baseline = run.row.plain_loop
    reasons = record.facts.missing if record.facts else ()
    why = READS_ALL if READS_ALL in " ".join(reasons) else ""
    if record.work_samples and why:
        return Observation(False, why, level=Level.WARN, tier=Tier.TABLE)
    if record.cell.origin.has_fixed_epochs or record.work_samples:
        return None
    samples = record.samples
    theirs = baseline and baseline.timing and baseline.timing.samples
    if not samples or not theirs:
        return None
    return Observation(
        abs(samples - theirs) <= record.cell.global_batch,
        f"an epoch has {samples:,} samples, of the baseline {theirs:,}; {why}".rstrip(
            "; "
        ),
    )
