"""May a cell be compared with the others of its table? Checks that need its neighbours."""

from collections.abc import Callable, Iterable, Sequence
from statistics import median, quantiles

from hpml_jobs.formulas import efficiency, speedup
from hpml_jobs.record import Record
from hpml_jobs.verdicts import neighbours
from hpml_jobs.verdicts.judgement import Level, Verdict, judge, names, percent, warn
from hpml_jobs.verdicts.neighbours import Neighbour, baselines, neighbour, odd

EFFICIENCY_LIMIT = 1.05
SCATTER_LIMIT = 0.10
RESIDUAL_MATCH = 1e-3

WHOLE_SECONDS = 3
"""So many imported timings without a fraction of a second are no accident."""

Check = Callable[[Neighbour, Sequence[Neighbour]], Verdict | None]


def of_study(records: Iterable[Record]) -> dict[str, tuple[Verdict, ...]]:
    """By slug, the verdicts on measured (or imported) records beside each other."""
    study = [neighbour(record) for record in records]
    tables: dict[tuple[object, ...], list[Neighbour]] = {}
    for one in study:
        tables.setdefault(one.table, []).append(one)
    found = {}
    for me in study:
        here = [other for other in tables[me.table] if other is not me]
        told = [check(me, here) for check in IN_TABLE if here]
        everyone = [other for other in study if other is not me]
        told += [check(me, everyone) for check in IN_STUDY if everyone]
        found[me.slug] = tuple(verdict for verdict in told if verdict is not None)
    return found


def conditions(me: Neighbour, others: Sequence[Neighbour]) -> Verdict | None:
    """The same hardware and software as the cells it is compared with."""
    others = [other for other in others if other.conditions]
    if not me.conditions or not others:
        return None
    unlike = [other for other in others if other.conditions != me.conditions]
    if not unlike:
        found = f"the same hardware and software as {len(others)} neighbours"
        return warn("conditions", holds=True, found=found, advice="")
    mine = dict(me.conditions)
    differing = {
        what: value
        for what, value in mine.items()
        if any(dict(other.conditions)[what] != value for other in unlike)
    }
    told = [
        f"{what} {_word(value)} (theirs {_words(dict(o.conditions)[what] for o in unlike)})"
        for what, value in differing.items()
    ]
    return warn(
        "conditions",
        holds=not odd(me, unlike, others),
        found=f"differs from {names(other.slug for other in unlike)} in {', '.join(told)}",
        advice="no ratio of the two is a speedup; measure again what differs (rerun=true)",
    )


def _word(value: object) -> str:
    match value:
        case None | "":
            return "not known"
        case bool():
            return "on" if value else "off"
        case _:
            return str(value)


def _words(values: Iterable[object]) -> str:
    return " | ".join(dict.fromkeys(_word(value) for value in values))


def efficient(me: Neighbour, others: Sequence[Neighbour]) -> Verdict | None:
    """N GPUs are at most 1.05 N times as fast as one, or data loading explains it."""
    cell = me.record.cell
    ones = [other.record for other in baselines(me, others)]
    if cell.gpus < 2 or not ones:
        return None
    one_s = median(record.epoch_s for record in ones)
    found = efficiency(speedup(one_s, me.record.epoch_s), cell.gpus)
    words = f"efficiency {found:.3g} over {cell.gpus} GPUs (limit {EFFICIENCY_LIMIT})"
    trained = [record.train_s for record in ones if record.train_s is not None]
    explained = False
    if trained and me.record.train_s:
        without = efficiency(speedup(median(trained), me.record.train_s), cell.gpus)
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


def loader_workers(me: Neighbour, others: Sequence[Neighbour]) -> Verdict | None:
    """As many loader workers per GPU as the baseline and as other strategies on as many GPUs.

    DP has them for all its GPUs together, a process of DDP for itself.
    """
    cell = me.record.cell
    rivals = [o for o in others if o.place.batch == cell.batch and o.place.gpus == cell.gpus]
    compared = [other for other in [*baselines(me, others), *rivals] if other.record.ranks]
    if not me.record.ranks or not compared:
        return None
    unlike = {
        other.slug: other.workers
        for other in compared
        if other.workers * cell.gpus != me.workers * other.place.gpus
    }
    found = f"{me.workers} loader workers in all for {cell.gpus} GPUs"
    if unlike:
        found += f"; {names(f'{slug} has {total}' for slug, total in unlike.items())}"
    return warn(
        "loader-workers",
        holds=not unlike,
        found=found,
        advice="data is loaded at another rate per GPU; compare train_s, or give "
        "loader_workers= so that totals match",
    )


def equal_threads(me: Neighbour, others: Sequence[Neighbour]) -> Verdict | None:
    """As many threads per process as in the cells it is compared with."""
    others = [other for other in others if other.threads]
    if not me.threads or not others:
        return None
    unlike = [other for other in others if other.threads != me.threads]
    found = f"{_words(me.threads)} threads per process"
    if unlike:
        theirs = _words(count for other in unlike for count in other.threads)
        found += f", {names(other.slug for other in unlike)} had {theirs}"
    return warn(
        "equal-threads",
        holds=not odd(me, unlike, others),
        found=found,
        advice="a process with more threads computes faster, so no ratio is a speedup; send all "
        "cells with one threads=",
    )


def scatter(me: Neighbour, others: Sequence[Neighbour]) -> Verdict | None:
    """Repeats of the cell agree: IQR / median of their epochs is at most 10 %."""
    times_s = [o.record.epoch_s for o in others if o.place == me.place] + [me.record.epoch_s]
    if len(times_s) < 2:
        return None
    first, middle, third = quantiles(times_s, n=4, method="inclusive")
    spread = (third - first) / middle
    return warn(
        "scatter",
        holds=spread <= SCATTER_LIMIT,
        found=f"{len(times_s)} runs from {min(times_s):.4g} to {max(times_s):.4g} s, IQR "
        f"{percent(spread)} of the median (limit {percent(SCATTER_LIMIT)})",
        advice="one run of it means little; take more repeats=, on a quiet machine",
    )


def lab_residual(me: Neighbour, others: Sequence[Neighbour]) -> Verdict | None:
    """Imported computation is not the baseline's time divided by N."""
    told, gpus = me.record.imported, me.record.cell.gpus
    ones = [other.record.imported for other in baselines(me, others)]
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


def resolution(me: Neighbour, others: Sequence[Neighbour]) -> Verdict | None:
    """Imported timings have fractions of a second."""
    told = [one.record.imported.epoch_s for one in (me, *others) if one.record.imported]
    if me.record.imported is None or len(told) < WHOLE_SECONDS:
        return None
    whole = all(epoch_s == round(epoch_s) for epoch_s in told)
    error = 0.5 / me.record.epoch_s
    return warn(
        "resolution",
        holds=not whole,
        found=f"{'none' if whole else 'some'} of {len(told)} timings has a fraction of a second",
        advice=f"taken with a clock of 1 s, so this one is uncertain by {percent(error)}",
    )


IN_TABLE: tuple[Check, ...] = (
    conditions,
    efficient,
    loader_workers,
    equal_threads,
    scatter,
    neighbours.other_days,
    lab_residual,
    resolution,
)
"""Against the cells of the same table, in the order they are told."""

IN_STUDY: tuple[Check, ...] = (neighbours.overlap, neighbours.shared_devices)
"""Against every cell of the study."""
