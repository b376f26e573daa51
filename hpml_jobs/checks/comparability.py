"""May a cell be compared with the others of its table? Checks that need its neighbours."""

from collections.abc import Callable, Iterable
from datetime import timedelta
from statistics import median

from hpml_jobs.checks.concurrency import Meanwhile, meanwhile, overlap, shared_devices
from hpml_jobs.checks.limits import EFFICIENCY_LIMIT, RESIDUAL_MATCH, SCATTER_LIMIT
from hpml_jobs.checks.peer_table import Table
from hpml_jobs.checks.peers import Peer, neighbour
from hpml_jobs.checks.result import CheckResult, Level, judge, names, warn
from hpml_jobs.core.formulas import efficiency, relative_iqr, speedup
from hpml_jobs.core.record import Record
from hpml_jobs.core.text import percent_text

WHOLE_SECONDS = 3
"""So many imported timings without a fraction of a second are no accident."""


def of_study(records: Iterable[Record]) -> dict[str, tuple[CheckResult, ...]]:
    """By slug, the checks on measured (or imported) records beside each other."""
    study = [neighbour(record) for record in records]
    members: dict[tuple[object, ...], list[Peer]] = {}
    for one in study:
        members.setdefault(one.table, []).append(one)
    tables = {key: Table(cells) for key, cells in members.items()}
    others = meanwhile(study)
    found = {}
    for me in study:
        table = tables[me.table]
        told = [check(me, table) for check in IN_TABLE]
        if len(study) > 1:
            told += [check(me, others) for check in IN_STUDY]
        found[me.slug] = tuple(result for result in told if result is not None)
    return found


def conditions(me: Peer, table: Table) -> CheckResult | None:
    """The same hardware and software as the cells it is compared with."""
    everyone = table.conditions.everyone
    if not me.conditions or everyone.known < 2:
        return None
    theirs = [dict(other) for other in everyone.others(me)]
    if not theirs:
        found = f"the same hardware and software as {everyone.known - 1} neighbours"
        return warn("conditions", holds=True, found=found, advice="")
    told = [
        f"{what} {value} (theirs {_distinct(other[what] for other in theirs)})"
        for what, value in me.conditions
        if any(other[what] != value for other in theirs)
    ]
    return warn(
        "conditions",
        holds=not table.conditions.odd(me),
        found=f"differs from {everyone.unlike(me).names} in {', '.join(told)}",
        advice="no ratio of the two is a speedup; measure again what differs (rerun=true)",
    )


def _distinct(values: Iterable[object]) -> str:
    return " | ".join(dict.fromkeys(map(str, values)))


def efficient(me: Peer, table: Table) -> CheckResult | None:
    """N GPUs are at most 1.05 N times as fast as one, or data loading explains it."""
    gpus, ones = me.place.gpus, table.baselines.get(me.place.batch)
    if gpus < 2 or not ones:
        return None
    found = efficiency(speedup(median(one.epoch_s for one in ones), me.epoch_s), gpus)
    words = f"efficiency {found:.3g} over {gpus} GPUs (limit {EFFICIENCY_LIMIT})"
    trained = [one.train_s for one in ones if one.train_s is not None]
    explained = False
    if trained and me.train_s:
        without = efficiency(speedup(median(trained), me.train_s), gpus)
        explained = without <= EFFICIENCY_LIMIT
        words += f", {without:.3g} without data loading"
    return judge(
        "efficiency",
        holds=found <= EFFICIENCY_LIMIT,
        found=words,
        advice="one GPU waited for its data, N loaders did not; take more loader_workers="
        if explained
        else "N GPUs cannot do more than N times the work of one; was the baseline disturbed, or "
        "were the batches others? measure both again (rerun=true)",
        otherwise=Level.WARN if explained else Level.FAIL,
    )


def loader_workers(me: Peer, table: Table) -> CheckResult | None:
    """As many loader workers per GPU as the baseline and as other strategies on as many GPUs.

    DP has them for all its GPUs together, a process of DDP for itself.
    """
    compared = table.loaders(me)
    if not me.record.ranks or compared.known < 2:
        return None
    unlike = compared.unlike(me)
    found = f"{me.workers} loader workers in all for {me.place.gpus} GPUs"
    if unlike.total:
        theirs = (f"{other.slug} has {other.workers}" for other in unlike.first)
        found += f"; {names(theirs, unlike.total)}"
    return warn(
        "loader-workers",
        holds=not unlike.total,
        found=found,
        advice="data is loaded at another rate per GPU; compare train_s, or give "
        "loader_workers= so that totals match",
    )


def equal_threads(me: Peer, table: Table) -> CheckResult | None:
    """As many threads per process as in the cells it is compared with."""
    everyone = table.threads.everyone
    if not me.threads or everyone.known < 2:
        return None
    unlike = everyone.unlike(me)
    found = f"{_distinct(me.threads)} threads per process"
    if unlike.total:
        theirs = _distinct(count for other in everyone.others(me) for count in other)
        found += f", {unlike.names} had {theirs}"
    return warn(
        "equal-threads",
        holds=not table.threads.odd(me),
        found=found,
        advice="a process with more threads computes faster, so no ratio is a speedup; send all "
        "cells with one threads=",
    )


def scatter(me: Peer, table: Table) -> CheckResult | None:
    """Repeats of the cell agree: IQR / median of their epochs is at most 10 %."""
    times_s = table.runs_s[me.place]
    if len(times_s) < 2:
        return None
    spread = relative_iqr(times_s)
    return warn(
        "scatter",
        holds=spread <= SCATTER_LIMIT,
        found=f"{len(times_s)} runs from {min(times_s):.4g} to {max(times_s):.4g} s, IQR "
        f"{percent_text(spread)} of the median (limit {percent_text(SCATTER_LIMIT)})",
        advice="one run of it means little; take more repeats=, on a quiet machine",
    )


def other_days(me: Peer, table: Table) -> CheckResult | None:
    """Measured within 24 hours of the cells it is compared with."""
    everyone = table.days.everyone
    if me.begun is None or everyone.known < 2:
        return None
    far = everyone.unlike(me)
    longest = everyone.longest(me.begun) / timedelta(days=1)
    found = f"measured at most {longest:.1f} days from its neighbours (limit 1)"
    if far.total:
        found = f"measured up to {longest:.1f} days from {far.names} (limit 1)"
    return warn(
        "other-days",
        holds=not table.days.odd(me),
        found=found,
        advice="machines change from day to day; measure the table in one go (rerun=true)",
    )


def lab_residual(me: Peer, table: Table) -> CheckResult | None:
    """Imported computation is not the baseline's time divided by N."""
    told, gpus = me.record.imported, me.place.gpus
    ones = [other.record.imported for other in table.baselines.get(me.place.batch, ())]
    if told is None or told.compute_s is None or told.comm_s is None or gpus < 2 or not ones:
        return None
    shares = [t / gpus for one in ones if one for t in (one.epoch_s, one.train_s) if t]
    equal = [share for share in shares if abs(told.compute_s / share - 1) <= RESIDUAL_MATCH]
    return warn(
        "lab-residual",
        holds=not equal,
        found=f"compute_s is {told.compute_s:.4g} s, the baseline's time / {gpus} is "
        f"{(equal or shares)[0]:.4g} s",
        advice="that is a definition and not a measurement: comm_s is then the rest, whatever "
        "took it",
    )


def resolution(me: Peer, table: Table) -> CheckResult | None:
    """Imported timings have fractions of a second."""
    told, whole = len(table.imported_s), table.whole_seconds
    if me.record.imported is None or told < WHOLE_SECONDS:
        return None
    error = 0.5 / me.epoch_s
    return warn(
        "resolution",
        holds=not whole,
        found=f"{'none' if whole else 'some'} of {told} timings has a fraction of a second",
        advice=f"taken with a clock of 1 s, so this one is uncertain by {percent_text(error)}",
    )


IN_TABLE: tuple[Callable[[Peer, Table], CheckResult | None], ...] = (
    conditions,
    efficient,
    loader_workers,
    equal_threads,
    scatter,
    other_days,
    lab_residual,
    resolution,
)
"""Against the cells of the same table, in the order they are told."""

IN_STUDY: tuple[Callable[[Peer, Meanwhile], CheckResult | None], ...] = (
    overlap,
    shared_devices,
)
"""Against every cell of the study."""
