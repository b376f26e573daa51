"""Data-quality checks of one record that a correct measurement may fail."""

from collections import defaultdict

from hpml_jobs.checks.limits import (
    DRIFT_ITERATIONS,
    DRIFT_LIMIT,
    LEAST_ITERATIONS,
    PROFILER_LIMIT,
)
from hpml_jobs.checks.result import Affected, Level, Observation, Tier, check
from hpml_jobs.core.formulas import FIT_MEDIAN_LIMIT, FIT_WORST_LIMIT, fit_alpha_beta
from hpml_jobs.core.measurements import Card
from hpml_jobs.core.record import Record
from hpml_jobs.core.strategies import SyncBuffers
from hpml_jobs.core.text import counted, percent_text

LAUNCH_MS = 0.5
"""Allowed delay of a library call from Python: entering it, and waking up after it."""

HARMLESS = frozenset({"gpu_idle", "applications_clocks_setting", "display_clock_setting"})
"""NVML's reasons for lower clocks that did not slow the work: no work, or clocks set by hand."""


@check(
    "short",
    Level.WARN,
    meaning="The epoch has too few iterations: start-up dominates the time.",
    limit=f"at least {LEAST_ITERATIONS} iterations",
    remedy="use a smaller batch= or more images",
    tier=Tier.NUMBER,
    affects={Affected.TIME, Affected.SPLIT},
)
def too_few_iterations(record: Record) -> Observation | None:
    """Warn if an epoch has fewer than 10 iterations."""
    if record.cell.workload.images is None:
        return None
    return Observation(
        record.iterations >= LEAST_ITERATIONS,
        f"{counted(record.iterations, 'iteration')} per epoch (at least {LEAST_ITERATIONS})",
    )


@check(
    "profiler",
    Level.WARN,
    meaning="Our instruments and torch.profiler measure another time of communication for the same "
    "iterations. Where a message takes less than "
    f"{LAUNCH_MS} ms, most of the difference is its launch from Python.",
    limit=f"{percent_text(PROFILER_LIMIT)} of the profiler's time, on every rank",
    remedy="check the split of Table 2 with trace=true, which keeps the profiler's trace",
    tier=Tier.TABLE,
    affects={Affected.SPLIT},
)
def profiler_disagrees(record: Record) -> Observation | None:
    """Warn if our communication time is more than 5 % from the profiler's."""
    traces = [rank.profiler for rank in record.ranks if rank.profiler and rank.profiler.comm_s > 0]
    if not traces or not record.cell.strategy.under_torchrun:  # dp's copies: not collectives
        return None
    worst = max(traces, key=lambda trace: trace.disagreement or 0.0)
    gap = worst.disagreement or 0.0
    each_ms = 1e3 * abs(worst.instruments_comm_s - worst.comm_s) / max(1, worst.messages)
    launch = "use larger messages: messages as short as these are mostly launch time from Python"
    return Observation(
        gap <= PROFILER_LIMIT,
        f"communication differs by {percent_text(gap)} from the profiler's (limit "
        f"{percent_text(PROFILER_LIMIT)}), {each_ms:.2g} ms per message",
        launch if each_ms < LAUNCH_MS else "",
    )


@check(
    "drift",
    Level.WARN,
    meaning="Iterations became slower or faster during the epoch: heat, clocks, or other programs "
    f"on the machine. Not checked below {DRIFT_ITERATIONS} iterations.",
    limit=f"{percent_text(DRIFT_LIMIT)} between the first and the last tenth of the iterations",
    remedy="repeat the cell on a quiet machine, after a warm-up",
    tier=Tier.TABLE,
    affects={Affected.TIME, Affected.SPLIT},
)
def speed_drifts(record: Record) -> Observation | None:
    """Warn if iterations at the end of the epoch take 5 % more or less than at its start."""
    steps = [rank.timed.steps for rank in record.ranks if rank.timed.steps]
    shares = [s.last_tenth_s / s.first_tenth_s - 1 for s in steps if s.first_tenth_s > 0]
    # A tenth of fewer iterations is decided by the loader's start and the last, partial batch.
    if not shares or record.iterations < DRIFT_ITERATIONS:
        return None
    worst = max(shares, key=abs)
    word = "faster" if worst < 0 else "slower"
    return Observation(
        abs(worst) <= DRIFT_LIMIT,
        f"the last tenth of the iterations is {percent_text(abs(worst))} {word} than the first "
        f"(limit {percent_text(DRIFT_LIMIT)})",
    )


def _cards(record: Record) -> list[Card]:
    return [card for rank in record.ranks for card in rank.cards]


@check(
    "throttled",
    Level.WARN,
    meaning="The driver lowered the clocks of a GPU (power, heat): this is not the GPU's own "
    "speed.",
    limit=f"no reason for lower clocks after the timed epoch but {', '.join(sorted(HARMLESS))}",
    remedy="compare with equally throttled cells only, or use another node",
    tier=Tier.TABLE,
    affects={Affected.TIME, Affected.SPLIT},
)
def throttled(record: Record) -> Observation | None:
    """Warn if a GPU was throttled after the timed epoch."""
    cards = _cards(record)
    if not cards:
        return None
    with_reasons = [(card, sorted({*card.throttle_reasons} - HARMLESS)) for card in cards]
    slowed = [(card, reasons) for card, reasons in with_reasons if reasons]
    if not slowed:
        return Observation(True, f"0 of {counted(len(cards), 'GPU')} throttled")
    card, reasons = slowed[0]
    return Observation(
        False,
        f"{len(slowed)} of {counted(len(cards), 'GPU')} throttled by {', '.join(reasons)} "
        f"({card.sm_clock_mhz} of {card.max_sm_clock_mhz} MHz, {card.temperature_c} °C)",
    )


@check(
    "other-processes",
    Level.WARN,
    meaning="Other programs used the cell's GPUs: the times are not the cell's alone.",
    limit="no process of others on the GPUs",
    remedy="request whole GPUs, or resubmit the cell (rerun=true)",
    tier=Tier.NUMBER,
    affects={Affected.TIME, Affected.SPLIT, Affected.BANDWIDTH},
)
def shared_gpus(record: Record) -> Observation | None:
    """Warn if other processes were on the cell's GPUs."""
    cards = _cards(record)
    if not cards:
        return None
    others = sum(card.other_processes for card in cards)
    return Observation(others == 0, f"{others} processes of others on the cell's GPUs")


@check(
    "cpus",
    Level.WARN,
    meaning="Loading and computing share CPUs.",
    limit="a CPU for each process and for each of its loader workers",
    remedy="request more CPUs or decrease loader_workers=",
    tier=Tier.LIST,
    affects={Affected.TIME},
)
def too_few_cpus(record: Record) -> Observation | None:
    """Warn if a process does not have a CPU for itself and for each of its loader workers."""
    allowed: dict[str, set[int]] = defaultdict(set)
    processes: dict[str, int] = defaultdict(int)
    for rank in record.ranks:
        if not rank.affinity:
            return None
        allowed[rank.host] |= {*rank.affinity}
        processes[rank.host] += 1
    if not allowed:
        return None
    least, host = min((len(allowed[host]) / processes[host], host) for host in allowed)
    workers = max(rank.loader_workers for rank in record.ranks)
    return Observation(
        least >= workers + 1,
        f"{least:.3g} {'CPU' if least == 1 else 'CPUs'} per process on {host} for itself and "
        f"{counted(workers, 'loader worker')}",
        f"request {workers + 1} CPUs per process or decrease loader_workers=",
    )


@check(
    "threads",
    Level.WARN,
    meaning="Processes computed with another number of threads than the cell asks for: ranks "
    "differ in compute time.",
    limit="exactly threads=, in every process",
    remedy="unset OMP_NUM_THREADS in the job's environment",
    tier=Tier.NUMBER,
    affects={Affected.TIME, Affected.SPLIT},
)
def other_threads(record: Record) -> Observation | None:
    """Warn if a process did not compute with the threads that the cell asks for."""
    if not record.ranks:
        return None
    used = sorted({rank.threads for rank in record.ranks})
    requested = record.cell.threads
    return Observation(
        used == [requested],
        f"{' or '.join(map(str, used))} threads per process, threads={requested}",
    )


@check(
    "buffers",
    Level.WARN,
    meaning="Each rank has BatchNorm statistics of its own and tests with them, because the "
    "strategy does not synchronize buffers. (Under ddp they differ after a step until the next "
    "forward sends those of rank 0: that passes.)",
    limit="the same buffers in every test",
    remedy="quote the accuracies of all ranks, or use strategy=ddp",
    tier=Tier.TABLE,
    affects={Affected.LEARNING},
)
def buffers_differ(record: Record) -> Observation | None:
    """Warn if ranks test with different BatchNorm statistics."""
    hashes = [rank.buffers_hash for rank in record.ranks]
    if len(hashes) < 2 or "" in hashes or not (record.model and record.model.buffer_bytes):
        return None
    strategy, different = record.cell.strategy.value, len(set(hashes))
    if record.cell.replicas_share_buffers:
        if record.cell.sync_buffers is SyncBuffers.SYNCBN:
            return Observation(
                True, "SyncBatchNorm uses the statistics of all ranks; tests share them"
            )
        return Observation(
            True, f"{strategy} sends rank 0's buffers at every forward; tests share them"
        )
    if different == 1:
        unused = "nothing in them depends on the batches"
        return Observation(True, f"the same buffers on all {len(hashes)} ranks: {unused}")
    tested = [rank.test_accuracy for rank in record.ranks if rank.test_accuracy is not None]
    span = f"{min(tested):.4f} to {max(tested):.4f} over ranks" if tested else "not tested"
    return Observation(
        False,
        f"{different} different sets of buffers on {len(hashes)} ranks, {strategy} does not "
        f"synchronize them (accuracy {span})",
    )


@check(
    "all-reduce-fit",
    Level.WARN,
    meaning="The microbenchmark's times are not on a line alpha + beta x size.",
    limit=f"{percent_text(FIT_MEDIAN_LIMIT)} in the median, {percent_text(FIT_WORST_LIMIT)} at "
    "worst",
    remedy="use interpolated times: the line is not used in any table",
    tier=Tier.LIST,
    affects={Affected.BANDWIDTH},
)
def poor_fit(record: Record) -> Observation | None:
    """Warn if the microbenchmark's times are not on a line alpha + beta x size."""
    times_s = {
        n: t
        for n, t in (record.microbenchmark.times_s if record.microbenchmark else {}).items()
        if t > 0
    }
    if len(times_s) < 2:
        return None
    line = fit_alpha_beta(times_s)
    return Observation(
        line.accepted,
        f"alpha + beta x size misses the microbenchmark by {percent_text(line.median_residual)} "
        f"(median, limit {percent_text(FIT_MEDIAN_LIMIT)}), {percent_text(line.worst_residual)} "
        f"(worst, limit {percent_text(FIT_WORST_LIMIT)})",
    )


CHECKS = (
    too_few_iterations,
    profiler_disagrees,
    speed_drifts,
    throttled,
    shared_gpus,
    too_few_cpus,
    other_threads,
    buffers_differ,
    poor_fit,
)
"""In the order of the report."""
