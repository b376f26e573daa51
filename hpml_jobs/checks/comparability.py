"""May a cell be compared with the others of its table? Checks that need its peers."""

from collections.abc import Iterable, Sequence
from datetime import timedelta

from hpml_jobs.checks.concurrency import CONCURRENCY, concurrent_cells
from hpml_jobs.checks.gpus import slow_by_power
from hpml_jobs.checks.limits import (
    APART_LIMIT,
    EFFICIENCY_LIMIT,
    LEAST_TIMINGS,
    RESIDUAL_MATCH,
    SCATTER_LIMIT,
)
from hpml_jobs.checks.peer_table import ByValue, Differing, Efficiency, PeerTable
from hpml_jobs.checks.peers import Peer, peer_of
from hpml_jobs.checks.quality import threads_text
from hpml_jobs.checks.result import (
    Affected,
    Check,
    CheckResult,
    Level,
    Observation,
    Tier,
    check,
    names,
)
from hpml_jobs.core.cell import Cell
from hpml_jobs.core.conditions import CONDITIONS, REMARKS, Conditions
from hpml_jobs.core.formulas import relative_iqr
from hpml_jobs.core.record import Record
from hpml_jobs.core.strategies import Device
from hpml_jobs.core.text import counted, duration_text, percent_text

DAY = timedelta(days=1)


def check_peers(records: Iterable[Record]) -> dict[str, tuple[CheckResult, ...]]:
    """Return by slug the checks on measured (or imported) records beside each other."""
    places: dict[Cell, Cell] = {}  # one object per place: equal ones are compared key by key
    study = [
        peer._replace(place=places.setdefault(peer.place, peer.place))
        for peer in map(peer_of, records)
    ]
    members: dict[tuple[object, ...], list[Peer]] = {}
    for peer in study:
        members.setdefault(peer.table, []).append(peer)
    tables = {key: PeerTable(peers) for key, peers in members.items()}
    concurrent = concurrent_cells(study)
    results = {}
    for peer in study:
        checked = [check(peer, tables[peer.table]) for check in COMPARABILITY]
        if len(study) > 1:
            checked += [check(peer, concurrent) for check in CONCURRENCY]
        results[peer.slug] = tuple(result for result in checked if result is not None)
    return results


@check(
    "conditions",
    Level.WARN,
    meaning="The cell was measured with other hardware or software than the cells of its table, so "
    "no ratio of the two is a speedup. One outlier is named, not all the others with it.",
    limit=f"the same {', '.join(condition.name for condition in CONDITIONS)}",
    remedy="measure again what differs (rerun=true)",
    tier=Tier.TABLE,
    affects={Affected.TIME},
)
def other_conditions(peer: Peer, table: PeerTable) -> Observation | None:
    """Warn if hardware or software differ from the cells it is compared with."""
    return _differing(peer, peer.conditions, table.conditions, "hardware and software")


def _differing(
    peer: Peer, conditions: Conditions, values: ByValue, what: str
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
    )


@check(
    "system",
    Level.WARN,
    meaning="The cell was measured with another patch of Python, operating system, kernel or "
    "container than the cells of its table. These hardly change a number, so the cells share it.",
    limit=f"the same {', '.join(remark.name for remark in REMARKS)}",
    remedy="measure the table in one go, with one installation (rerun=true)",
    tier=Tier.TABLE,
    affects={Affected.TIME},
    explained_by={"conditions"},
)
def other_system(peer: Peer, table: PeerTable) -> Observation | None:
    """Warn if Python's patch, operating system, kernel or container differ from the others."""
    return _differing(peer, peer.remarks, table.remarks, "Python and operating system")


def _names(differing: Differing) -> str:
    return names((peer.slug for peer in differing.first), differing.number)


def _distinct(values: Iterable[object]) -> str:
    return " | ".join(dict.fromkeys(map(str, values)))


@check(
    "efficiency",
    Level.FAIL,
    meaning="N GPUs are more than N times as fast as one: the baseline was disturbed, or the "
    "batches differ. Medians over the runs of a row and of its baseline are compared. A warning "
    "if data loading of the baseline explains it, with a single run, and if the bootstrap interval "
    "of the efficiency reaches below the limit: the scatter of the runs may explain it.",
    limit=f"an efficiency of {EFFICIENCY_LIMIT:g}",
    remedy="measure the cell and its baseline again (rerun=true)",
    tier=Tier.NUMBER,
    affects={Affected.TIME},
)
def too_efficient(peer: Peer, table: PeerTable) -> Observation | None:
    """Fail if N GPUs are more than 1.05 N times as fast as one; warn if that may be explained."""
    if not table.baselines(peer):
        return None
    if peer.is_baseline:
        return _slow_baseline(table.efficiencies(peer))
    reached = table.efficiency(peer)
    if reached is None:
        return None
    units = "GPUs" if peer.place.device is Device.CUDA else "processes"
    text = f"efficiency is {_reached(reached)} over {peer.place.gpus} {units} {_EFFICIENCY}"
    if reached.without_loading is not None:
        text += f", {reached.without_loading:.3g} without data loading"
    return _efficient([reached], text)


def _slow_baseline(efficiencies: Sequence[Efficiency]) -> Observation | None:
    """Return the same of a baseline: it may be the one that was disturbed."""
    if not efficiencies:
        return None
    greatest = max(efficiencies, key=lambda reached: reached.with_loading)
    above = [reached for reached in efficiencies if reached.is_too_high]
    text = (
        f"{greatest.peer.slug} reaches an efficiency of {_reached(greatest)} against it "
        f"{_EFFICIENCY}"
    )
    return _efficient(above, text)


_EFFICIENCY = f"(limit {EFFICIENCY_LIMIT:g})"


def _reached(reached: Efficiency) -> str:
    """Return an efficiency with its interval, where it has one."""
    interval = reached.interval
    between = f" [{interval.low:.3g}, {interval.high:.3g}]" if interval else ""
    return f"{reached.with_loading:.3g}{between}"


def _efficient(above: Sequence[Efficiency], text: str) -> Observation:
    """Return the observation of cells that may be above the limit."""
    is_explained = all(reached.is_explained for reached in above)
    return Observation(
        not any(reached.is_too_high for reached in above),
        text,
        "increase loader_workers=, the baseline waits for its data" if is_explained else "",
        None if any(reached.is_certain for reached in above) else Level.WARN,
    )


@check(
    "loader-workers",
    Level.WARN,
    meaning="The cell has another number of loader workers per GPU than its baseline, or than "
    "other strategies on as many GPUs (dp has them for all its GPUs together, ddp for each).",
    limit="the same number of loader workers per GPU",
    remedy="compare train_s, or set loader_workers= so that the totals match",
    tier=Tier.TABLE,
    affects={Affected.TIME},
)
def other_loader_workers(peer: Peer, table: PeerTable) -> Observation | None:
    """Warn if loader workers per GPU differ from the baseline's or from other strategies'."""
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


@check(
    "equal-threads",
    Level.WARN,
    meaning="Processes computed with another number of threads than in the other cells: more "
    "threads compute faster, so no ratio is a speedup.",
    limit="the same number of threads per process",
    remedy="resubmit all cells with one threads=",
    tier=Tier.NUMBER,
    affects={Affected.TIME, Affected.SPLIT},
)
def unequal_threads(peer: Peer, table: PeerTable) -> Observation | None:
    """Warn if processes have other threads than in the cells it is compared with."""
    threads = table.threads
    if not peer.threads or len(threads.peers) < 2:
        return None
    differing = threads.differing(peer)
    text = threads_text(peer.threads)
    if differing.number:
        theirs = _distinct(count for other in threads.other_values(peer) for count in other)
        text += f", {_names(differing)} had {theirs}"
    return Observation(not differing.is_outlier_of(threads.peers), text)


@check(
    "scatter",
    Level.WARN,
    meaning="Repeats of the cell differ widely: a single run means little.",
    limit=f"IQR is {percent_text(SCATTER_LIMIT)} of the median",
    remedy="use more repeats=, on a quiet machine",
    tier=Tier.NUMBER,
    affects={Affected.TIME},
)
def scattered_repeats(peer: Peer, table: PeerTable) -> Observation | None:
    """Warn if the inter-quartile range of repeats exceeds 10 % of their median."""
    times_s = table.runs_s(peer)
    if len(times_s) < 2:
        return None
    spread = relative_iqr(times_s)
    return Observation(
        spread <= SCATTER_LIMIT,
        f"{len(times_s)} runs from {min(times_s):.4g} to {max(times_s):.4g} s, IQR is "
        f"{percent_text(spread)} of the median (limit {percent_text(SCATTER_LIMIT)})",
    )


@check(
    "other-days",
    Level.WARN,
    meaning="The cell was measured on another day than the others of its table: machines change "
    "from day to day.",
    limit=f"{APART_LIMIT / DAY:g} day between the starts",
    remedy="measure the table in one go (rerun=true)",
    tier=Tier.TABLE,
    affects={Affected.TIME},
)
def measured_on_another_day(peer: Peer, table: PeerTable) -> Observation | None:
    """Warn if it started more than a day from the cells it is compared with."""
    starts = table.starts
    if peer.started is None or len(starts.peers) < 2:
        return None
    differing = starts.differing(peer)
    farthest = max(peer.started - starts.starts[0], starts.starts[-1] - peer.started)
    apart = duration_text(farthest.total_seconds())
    limit = f"(limit {APART_LIMIT / DAY:g} day)"
    text = f"started within {apart} of the other cells {limit}"
    if differing.number:
        text = f"started up to {apart} from {_names(differing)} {limit}"
    return Observation(not differing.is_outlier_of(starts.peers), text)


@check(
    "lab-residual",
    Level.WARN,
    meaning="The imported computation time is the baseline's time divided by N: a definition, not "
    "a measurement. comm_s is then the rest, whatever took it.",
    limit=f"more than {percent_text(RESIDUAL_MATCH)} from the baseline's time / N",
    remedy="import measured compute_s and comm_s, or none",
    tier=Tier.NUMBER,
    affects={Affected.SPLIT, Affected.BANDWIDTH},
)
def derived_computation(peer: Peer, table: PeerTable) -> Observation | None:
    """Warn if imported computation is the baseline's time divided by N."""
    imported, gpus = peer.record.imported, peer.place.gpus
    if imported is None or imported.compute_s is None or imported.comm_s is None:
        return None
    baselines = [other.record.imported for other in table.baselines(peer)]
    if gpus < 2 or not baselines:
        return None
    shares = [
        t / gpus for timing in baselines if timing for t in (timing.epoch_s, timing.train_s) if t
    ]
    equal = [share for share in shares if abs(imported.compute_s / share - 1) <= RESIDUAL_MATCH]
    return Observation(
        not equal,
        f"compute_s is {imported.compute_s:.4g} s, the baseline's time / {gpus} is "
        f"{(equal or shares)[0]:.4g} s",
    )


@check(
    "resolution",
    Level.WARN,
    meaning="All imported timings are whole seconds: they were taken with a clock of 1 s.",
    limit=f"a fraction of a second in at least one of {LEAST_TIMINGS} timings or more",
    remedy="import timings with fractions of a second",
    tier=Tier.TABLE,
    affects={Affected.TIME},
)
def whole_seconds(peer: Peer, table: PeerTable) -> Observation | None:
    """Warn if all imported timings are whole seconds."""
    timings, is_whole = len(table.imported_s), table.whole_seconds
    imported = peer.record.imported
    if imported is None or imported.rate is not None or timings < LEAST_TIMINGS:
        return None
    if not is_whole:
        return Observation(True, f"some of {timings} timings have a fraction of a second")
    return Observation(
        False,
        f"none of {timings} timings has a fraction of a second, so this one is uncertain by "
        f"{percent_text(0.5 / peer.epoch_s)}",
    )


COMPARABILITY: tuple[Check[[Peer, PeerTable]], ...] = (
    other_conditions,
    other_system,
    too_efficient,
    other_loader_workers,
    unequal_threads,
    scattered_repeats,
    slow_by_power,
    measured_on_another_day,
    derived_computation,
    whole_seconds,
)
"""Beside the cells of the same table, in the order of the report."""
