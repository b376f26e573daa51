"""May a cell be compared with the others of its table? Checks that need its peers."""

from collections.abc import Iterable, Sequence

from hpml_jobs.checks.peers import (
    APART_LIMIT,
    EFFICIENCY_LIMIT,
    ByValue,
    Differing,
    Peer,
    PeerTable,
)
from hpml_jobs.checks.result import Observation, check, names
from hpml_jobs.core.check_result import Affected, Level, Tier
from hpml_jobs.core.conditions import CONDITIONS, REMARKS, Conditions
from hpml_jobs.core.formulas import relative_iqr
from hpml_jobs.core.gpus import POWER_CAP
from hpml_jobs.core.strategies import Device
from hpml_jobs.core.text import Share, counted, duration_text, percent_text

CONDITION_NAMES = ", ".join(condition.name for condition in CONDITIONS)
REMARK_NAMES = ", ".join(remark.name for remark in REMARKS)
POWER_CLOCK_LIMIT = Share(0.9)
SCATTER_LIMIT = Share(0.10)


@check("conditions", Level.WARN, Tier.TABLE, Affected.TIME)
def other_conditions(peer: Peer, table: PeerTable) -> list[Observation | None]:
    """The cell was measured with other hardware or software than the cells of its table, so no
    ratio of the two is a speedup. One outlier is named, not all the others with it. Another patch
    of Python, operating system, kernel or container hardly changes a number, so the cells share the
    table; it is only in the list where a condition differs too.

    Limit: the same {CONDITION_NAMES}; and the same {REMARK_NAMES}
    Fix: measure again what differs (rerun=true), or measure the table in one go, with one
    installation (rerun=true)
    """
    conditions = _differing(
        peer,
        peer.conditions,
        table.conditions,
        "hardware and software",
        "measure again what differs (rerun=true)",
    )
    remarks = _differing(
        peer,
        peer.remarks,
        table.remarks,
        "Python and operating system",
        "measure the table in one go, with one installation (rerun=true)",
    )
    if remarks and conditions and not conditions.holds:
        remarks = remarks._replace(tier=Tier.LIST)
    return [conditions, remarks]


def _differing(
    peer: Peer, conditions: Conditions, values: ByValue, what: str, remedy: str
) -> Observation | None:
    """Return in which conditions a peer differs from the others of its table."""
    if not conditions or len(values.peers) < 2:
        return None
    others = [dict(value) for value in values.other_values(peer)]
    if not others:
        same = counted(len(values.peers) - 1, "other cell")
        return Observation(True, f"the same {what} as {same} of the table")
    differing = values.differing(peer)
    differences = [
        f"{name} {value} (theirs {_distinct(other[name] for other in others)})"
        for name, value in conditions
        if any(other[name] != value for other in others)
    ]
    return Observation(
        not differing.is_outlier_of(values.peers),
        f"differs from {_names(differing)} in {', '.join(differences)}",
        remedy,
    )


def _names(differing: Differing) -> str:
    return names((peer.slug for peer in differing.first), differing.number)


def _distinct(values: Iterable[object]) -> str:
    return " | ".join(dict.fromkeys(map(str, values)))


@check("efficiency", Level.FAIL, Tier.NUMBER, Affected.TIME)
def too_efficient(peer: Peer, table: PeerTable) -> Observation | None:
    """N GPUs are more than N times as fast as one: the baseline was disturbed, or the batches
    differ. Medians over the runs of a row and of its baseline are compared. A warning if data
    loading of the baseline explains it, with a single run, and if the bootstrap interval of the
    efficiency reaches below the limit. Single runs pass if that of their blocks of iterations does.

    Limit: an efficiency of {EFFICIENCY_LIMIT:g}
    Fix: measure the cell and its baseline again (rerun=true)
    """
    if peer.is_baseline:  # it may be the one that was disturbed
        efficiencies = table.efficiencies(peer)
    else:
        efficiencies = [reached] if (reached := table.efficiency(peer)) else []
    if not efficiencies:
        return None
    greatest = max(efficiencies, key=lambda reached: reached.with_loading)
    limit = f"(limit {EFFICIENCY_LIMIT:g})"
    if peer.is_baseline:
        text = f"{greatest.peer.slug} reaches an efficiency of {greatest} against it {limit}"
    else:
        units = "GPUs" if peer.place.device is Device.CUDA else "processes"
        text = f"efficiency is {greatest} over {peer.place.gpus} {units} {limit}"
        if greatest.without_loading is not None:
            text += f", {greatest.without_loading:.3g} without data loading"
    if noise := greatest.of_one_run:
        text += f"; [{noise.low:.3g}, {noise.high:.3g}] by the scatter within single runs"
    above = [reached for reached in efficiencies if reached.is_too_high]
    is_explained = all(reached.is_explained for reached in above)
    return Observation(
        not above,
        text,
        "increase loader_workers=, the baseline waits for its data" if is_explained else "",
        None if any(reached.is_certain for reached in above) else Level.WARN,
    )


@check("loader-workers", Level.WARN, Tier.TABLE, Affected.TIME)
def other_loader_workers(peer: Peer, table: PeerTable) -> Observation | None:
    """The cell has another number of loader workers per GPU than its baseline, or than other
    strategies on as many GPUs (dp has them for all its GPUs together, ddp for each).

    Limit: the same number of loader workers per GPU
    Fix: compare train_s, or set loader_workers= so that the totals match
    """
    loaders = table.loaders(peer)
    if not peer.record.ranks or len(loaders.peers) < 2:
        return None
    differing = loaders.differing(peer)
    workers, gpus = counted(peer.workers, "loader worker"), counted(peer.place.gpus, "GPU")
    text = f"{workers} in total for {gpus}"
    if differing.number:
        having = (f"{other.slug} has {other.workers}" for other in differing.first)
        text += f"; {names(having, differing.number)}"
    return Observation(not differing.number, text)


def threads_text(counts: Sequence[int]) -> str:
    """Return numbers of threads in words.

    >>> threads_text([1]), threads_text([1, 8])
    ('1 thread per process', '1 or 8 threads per process')
    """
    word = "thread" if list(counts) == [1] else "threads"
    return f"{' or '.join(map(str, counts))} {word} per process"


@check("threads", Level.WARN, Tier.NUMBER, Affected.TIME, Affected.SPLIT)
def other_threads(peer: Peer, table: PeerTable) -> list[Observation | None]:
    """Processes computed with another number of threads than the cell asks for: ranks differ in
    compute time. Or with another number than in the other cells of the table: more threads compute
    faster, so no ratio is a speedup.

    Limit: exactly threads=, in every process, and the same number in all cells
    Fix: unset OMP_NUM_THREADS in the job's environment, or resubmit all cells with one threads=
    """
    if not peer.threads:
        return []
    cell, text = peer.record.cell, threads_text(peer.threads)
    remedy = "unset OMP_NUM_THREADS in the job's environment"
    if cell.script and len(peer.threads) == 1:
        remedy = f"set threads={peer.threads[0]}, as the script does"
    as_requested = peer.threads == (cell.threads,)
    alone = Observation(as_requested, f"{text}, threads={cell.threads}", remedy)
    threads = table.threads
    differing = threads.differing(peer)
    if not differing.number:
        return [alone]
    theirs = _distinct(count for other in threads.other_values(peer) for count in other)
    beside = Observation(
        not differing.is_outlier_of(threads.peers),
        f"{text}, {_names(differing)} had {theirs}",
        "resubmit all cells with one threads=",
    )
    return [alone, beside]


@check("scatter", Level.WARN, Tier.NUMBER, Affected.TIME)
def scattered_repeats(peer: Peer, table: PeerTable) -> Observation | None:
    """Repeats of the cell differ widely: a single run means little.

    Limit: IQR is {SCATTER_LIMIT} of the median
    Fix: use more repeats=, on a quiet machine
    """
    times_s = table.runs_s[peer.place]
    if len(times_s) < 2:
        return None
    spread = relative_iqr(times_s)
    return Observation(
        spread <= SCATTER_LIMIT,
        f"{len(times_s)} runs from {min(times_s):.4g} to {max(times_s):.4g} s, IQR is "
        f"{percent_text(spread)} of the median (limit {SCATTER_LIMIT})",
    )


@check("power-cap", Level.WARN, Tier.TABLE, Affected.TIME, Affected.SPLIT)
def slow_by_power(peer: Peer, table: PeerTable) -> Observation | None:
    """A GPU at its power limit was slower than those of the other cells: its limit is lower, or it
    is warmer. At the limit alone nothing is wrong, many GPUs are under load.

    Limit: {POWER_CLOCK_LIMIT} of the median SM clock of the table's cells
    Fix: measure again on another node, or compare cells of one node only
    """
    cards = [card for card in peer.record.cards if card.clock_mhz is not None]
    usual = table.median_clock_mhz
    if not cards or usual is None:
        return None
    clocks = [card.clock_mhz or 0 for card in cards if POWER_CAP in card.reasons]
    if not clocks:
        return Observation(True, f"0 of {counted(len(cards), 'GPU')} at the power limit")
    return Observation(
        min(clocks) >= POWER_CLOCK_LIMIT * usual,
        f"{counted(len(clocks), 'GPU')} at the power limit, at {min(clocks)} MHz or more; the "
        f"median of {names(table.clocked)} is {usual:.0f} MHz",
    )


@check("other-days", Level.WARN, Tier.TABLE, Affected.TIME)
def measured_on_another_day(peer: Peer, table: PeerTable) -> Observation | None:
    """The cell was measured on another day than the others of its table: machines change from day
    to day.

    Limit: {APART_LIMIT.days} day between the starts
    Fix: measure the table in one go (rerun=true)
    """
    starts = table.starts
    if peer.started is None or len(starts.peers) < 2:
        return None
    differing = starts.differing(peer)
    farthest = max(peer.started - starts.starts[0], starts.starts[-1] - peer.started)
    apart = duration_text(farthest.total_seconds())
    limit = f"(limit {APART_LIMIT.days} day)"
    text = f"started within {apart} of the other cells {limit}"
    if differing.number:
        text = f"started up to {apart} from {_names(differing)} {limit}"
    return Observation(not differing.is_outlier_of(starts.peers), text)


@check("epoch-samples", Level.FAIL, Tier.NUMBER, Affected.TIME)
def other_epoch(peer: Peer, table: PeerTable) -> Observation | None:
    """An epoch of a script has another number of samples than on one GPU, mostly because each
    process passes over all of the data: the speedup compares epochs of different work.

    Limit: the samples of the baseline's epoch, within a batch of each process
    Fix: let the script share the data out (DistributedSampler), or use window=A,B, by which equal
    samples are compared
    """
    record = peer.record
    if record.cell.script is None or record.work_samples:
        return None
    counted_here = record.samples
    baselines = (other.record for other in table.baselines(peer))
    baseline = next((other for other in baselines if not other.work_samples), None)
    if baseline is None or counted_here is None:
        return None
    theirs = baseline.samples or 0
    return Observation(
        abs(counted_here - theirs) <= record.cell.global_batch,
        f"an epoch has {counted_here:,} samples, on one GPU {theirs:,}",
    )
