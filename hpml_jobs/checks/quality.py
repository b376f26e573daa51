"""Does a number mean what one thinks? Checks of one record that a true number may fail."""

from collections import defaultdict

from hpml_jobs.checks.limits import (
    DRIFT_LIMIT,
    LEAST_ITERATIONS,
    OVERHEAD_LIMIT,
    PROFILER_LIMIT,
    STALL_LIMIT,
)
from hpml_jobs.checks.result import CheckResult, warn
from hpml_jobs.core.cell import SyncBuffers
from hpml_jobs.core.formulas import FIT_MEDIAN_LIMIT, FIT_WORST_LIMIT, fit_alpha_beta
from hpml_jobs.core.measurements import Card
from hpml_jobs.core.record import Record
from hpml_jobs.core.text import counted, percent_text

LAUNCH_MS = 0.5
"""What a call from Python to the library's own beginning, and waking up after it, may take."""

DRIFT_ITERATIONS = 30
"""A tenth of fewer iterations is decided by the loader's start and the last, partial batch."""

HARMLESS = frozenset({"gpu_idle", "applications_clocks_setting", "display_clock_setting"})
"""NVML's reasons for lower clocks that did not slow the work: no work, or clocks set by hand."""


def loader_bound(record: Record) -> CheckResult | None:
    """The device waits for its data at most 5 % of the epoch."""
    if record.train_s is None:
        return None
    share = 1 - record.train_s / record.epoch_s
    return warn(
        "loader-bound",
        holds=share <= STALL_LIMIT,
        found=f"stall is {percent_text(share)} of the epoch (limit {percent_text(STALL_LIMIT)})",
        advice="loader-bound, the epoch is the loader's time; take more loader_workers=, or "
        "faster storage",
    )


def short(record: Record) -> CheckResult | None:
    """An epoch has at least 10 iterations: fewer are start and end."""
    if record.cell.workload.images is None:
        return None
    return warn(
        "short",
        holds=record.iterations >= LEAST_ITERATIONS,
        found=f"{counted(record.iterations, 'iteration')} per epoch (least {LEAST_ITERATIONS})",
        advice="start and end weigh more than the work; take a smaller batch=, or more images",
    )


def overhead(record: Record) -> CheckResult | None:
    """Instruments make an epoch at most 5 % longer."""
    share = record.overhead
    if share is None:
        return None
    return warn(
        "overhead",
        holds=share <= OVERHEAD_LIMIT,
        found=f"the instrumented epoch is {percent_text(share)} longer than the timed one (limit "
        f"{percent_text(OVERHEAD_LIMIT)})",
        advice="Tables 2 and 3 are of a slower epoch than Table 1; repeat on a quiet machine",
    )


def profiler(record: Record) -> CheckResult | None:
    """Our communication time is the profiler's, within 5 %, on every rank."""
    traces = [rank.trace for rank in record.ranks if rank.trace and rank.trace.comm_s > 0]
    if not traces or not record.cell.strategy.under_torchrun:  # dp's copies: not collectives
        return None
    worst = max(traces, key=lambda trace: trace.disagreement or 0.0)
    gap = worst.disagreement or 0.0
    each_ms = 1e3 * abs(worst.instruments_comm_s - worst.comm_s) / max(1, worst.messages)
    return warn(
        "profiler",
        holds=gap <= PROFILER_LIMIT,
        found=f"communication is {percent_text(gap)} from what the profiler saw (limit "
        f"{percent_text(PROFILER_LIMIT)}), {each_ms:.2g} ms per message",
        advice="messages as short as that are mostly their launch from Python"
        if each_ms < LAUNCH_MS
        else "take the split of Table 2 with care; trace=true keeps the profiler's trace",
    )


def drift(record: Record) -> CheckResult | None:
    """Iterations take as long at the end of the epoch as at its start, within 5 %."""
    steps = [rank.timed.steps for rank in record.ranks if rank.timed.steps]
    shares = [s.last_tenth_s / s.first_tenth_s - 1 for s in steps if s.first_tenth_s > 0]
    if not shares or record.iterations < DRIFT_ITERATIONS:
        return None
    worst = max(shares, key=abs)
    word = "faster" if worst < 0 else "slower"
    return warn(
        "drift",
        holds=abs(worst) <= DRIFT_LIMIT,
        found=f"the last tenth of the iterations is {percent_text(abs(worst))} {word} than the "
        f"first (limit {percent_text(DRIFT_LIMIT)})",
        advice="speed changed while it was measured: heat, clocks, or others on the machine",
    )


def _cards(record: Record) -> list[Card]:
    return [card for rank in record.ranks for card in rank.cards]


def throttled(record: Record) -> CheckResult | None:
    """Nothing slowed the GPUs' clocks down after the timed epoch."""
    cards = _cards(record)
    if not cards:
        return None
    slowed = [(card, sorted({*card.throttle_reasons} - HARMLESS)) for card in cards]
    bad = [(card, reasons) for card, reasons in slowed if reasons]
    found = f"no clock of {counted(len(cards), 'GPU')} was held back"
    if bad:
        card, reasons = bad[0]
        found = (
            f"{len(bad)} of {counted(len(cards), 'GPU')} held back by {', '.join(reasons)} "
            f"({card.sm_clock_mhz} of {card.max_sm_clock_mhz} MHz, {card.temperature_c} °C)"
        )
    return warn(
        "throttled",
        holds=not bad,
        found=found,
        advice="this is not the GPU's own speed; compare with cells held back alike",
    )


def other_processes(record: Record) -> CheckResult | None:
    """Nobody else computed on the cell's GPUs."""
    cards = _cards(record)
    if not cards:
        return None
    others = sum(card.other_processes for card in cards)
    return warn(
        "other-processes",
        holds=others == 0,
        found=f"{others} processes of others on the cell's GPUs",
        advice="the GPUs were shared, so times are not theirs alone; ask for whole GPUs, or send "
        "the cell again (rerun=true)",
    )


def cpus(record: Record) -> CheckResult | None:
    """A process has a CPU for itself and one for each of its loader workers."""
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
    return warn(
        "cpus",
        holds=least >= workers + 1,
        found=f"{least:.3g} {'CPU' if least == 1 else 'CPUs'} per process on {host} for itself and "
        f"{counted(workers, 'loader worker')}",
        advice=f"loading and computing share CPUs; take {workers + 1} per process, or fewer "
        "loader_workers=",
    )


def threads(record: Record) -> CheckResult | None:
    """Every process computed with the threads that the cell asks for."""
    if not record.ranks:
        return None
    found = sorted({rank.threads for rank in record.ranks})
    asked = record.cell.threads
    return warn(
        "threads",
        holds=found == [asked],
        found=f"{' or '.join(map(str, found))} threads per process, threads={asked}",
        advice="processes did not compute alike; is OMP_NUM_THREADS set for the job?",
    )


def buffers(record: Record) -> CheckResult | None:
    """Replicas use the same BatchNorm statistics; where a strategy does not see to it, it is said.

    Under ddp buffers differ after a step, until the next forward sends rank 0's.
    """
    hashes = [rank.buffers_hash for rank in record.ranks]
    if len(hashes) < 2 or "" in hashes or not (record.model and record.model.buffer_bytes):
        return None
    strategy, kinds = record.cell.strategy.value, len(set(hashes))
    tested = [rank.test_accuracy for rank in record.ranks if rank.test_accuracy is not None]
    if record.cell.replicas_share_buffers:
        found = f"{strategy} sends rank 0's buffers at every forward, ranks test with the same"
        if record.cell.sync_buffers is SyncBuffers.SYNCBN:
            found = "SyncBatchNorm takes the statistics of all ranks, ranks test with the same"
        return warn("buffers", holds=True, found=found, advice="")
    if kinds == 1:
        found = f"the same buffers on all {len(hashes)} ranks: nothing in them follows the batches"
        return warn("buffers", holds=True, found=found, advice="")
    span = f"{min(tested):.4f} to {max(tested):.4f} over ranks" if tested else "not tested"
    return warn(
        "buffers",
        holds=False,
        found=f"{kinds} different sets of buffers on {len(hashes)} ranks",
        advice=f"{strategy} leaves BatchNorm's statistics to each rank, and each tests with its "
        f"own (accuracy {span})",
    )


def all_reduce_fit(record: Record) -> CheckResult | None:
    """The microbenchmark's times lie on a line alpha + beta x size."""
    times_s = {n: t for n, t in (record.probe.times_s if record.probe else {}).items() if t > 0}
    if len(times_s) < 2:
        return None
    line = fit_alpha_beta(times_s)
    return warn(
        "all-reduce-fit",
        holds=line.accepted,
        found="alpha + beta x size misses the microbenchmark by "
        f"{percent_text(line.median_residual)} (median, limit {percent_text(FIT_MEDIAN_LIMIT)}), "
        f"{percent_text(line.worst_residual)} (worst, limit {percent_text(FIT_WORST_LIMIT)})",
        advice="the line is not used, times between sizes are interpolated",
    )


CHECKS = (
    loader_bound,
    short,
    overhead,
    profiler,
    drift,
    throttled,
    other_processes,
    cpus,
    threads,
    buffers,
    all_reduce_fit,
)
"""In the order they are told."""
