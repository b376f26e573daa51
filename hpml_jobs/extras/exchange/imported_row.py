"""Plausibility check of imported timings, as a CSV file reports them."""

from hpml_jobs.checks.comparison import ComparedRun
from hpml_jobs.checks.result import Observation, check
from hpml_jobs.core.check_result import TIMES, Affected, Level, Tier
from hpml_jobs.core.formulas import iterations
from hpml_jobs.core.measurements import Imported
from hpml_jobs.core.record import Record
from hpml_jobs.core.text import Share, percent_text

UNACCOUNTED_LIMIT = Share(0.02)
RESIDUAL_MATCH = Share(1e-3)
LEAST_TIMINGS = 3


@check("imported-row", Level.FAIL, Tier.NUMBER, *TIMES)
def implausible_row(run: ComparedRun) -> list[Observation | None]:
    """The numbers of an imported row contradict each other: some of them are wrong. Its
    iterations are not those of so many images, GPUs and images per GPU (Tables 1 to 3). A part of
    the epoch is longer than the epoch (Tables 1 and 2). Computation and communication do not add up
    to train_s: time is counted twice or not at all (Table 2; without train_s, missing time may be
    data loading: a warning). Warnings: compute_s is the baseline's time divided by N, a definition,
    not a measurement, and comm_s is then the rest, whatever took it (Tables 2 and 3); all timings
    are whole seconds, so they were taken with a clock of 1 s (Table 1, in one line).

    Limit: ceil(ceil(images / gpus) / batch) iterations; a sum within {UNACCOUNTED_LIMIT} of train_s
    Fix: correct the row as the reason says, or import measured timings with fractions of a second
    """
    record, imported = run.record, run.record.imported
    if imported is None:
        return []
    of_split: list[Observation | None] = []
    compute_s, comm_s = imported.compute_s, imported.comm_s
    if compute_s is not None and comm_s is not None:
        of_split = [_sum(imported, compute_s, comm_s), _residual(run, compute_s)]
    return [
        _iterations(record, imported),
        _parts(imported),
        *of_split,
        _resolution(run, imported),
    ]


def _iterations(record: Record, imported: Imported) -> Observation | None:
    cell = record.cell
    images = cell.workload.images
    if imported.iterations is None or images is None:
        return None
    expected = iterations(images, cell.gpus, cell.batch)
    as_global = {
        iterations(images, 1, cell.batch),
        iterations(images, cell.gpus, max(1, cell.batch // cell.gpus)),
    }
    is_global = cell.gpus > 1 and imported.iterations in as_global
    return Observation(
        imported.iterations == expected,
        f"{imported.iterations:,} iterations are reported, {cell.gpus} x {cell.batch} of "
        f"{images:,} images make {expected:,}",
        "use batch_is=global, it looks like a global batch"
        if is_global
        else "correct the batch, data set or number of GPUs of the row",
    )


def _parts(imported: Imported) -> Observation | None:
    columns = {
        "train_s": imported.train_s,
        "compute_s": imported.compute_s,
        "comm_s": imported.comm_s,
    }
    parts = {name: part_s for name, part_s in columns.items() if part_s is not None}
    if not parts:
        return None
    name, longest_s = max(parts.items(), key=lambda part: part[1])
    return Observation(
        longest_s <= imported.epoch_s,
        f"{name} is {longest_s:.4g} s of an epoch of {imported.epoch_s:.4g} s",
        "correct the units: seconds per epoch, not per iteration",
        affects=frozenset((Affected.TIME, Affected.SPLIT)),
    )


def _sum(imported: Imported, compute_s: float, comm_s: float) -> Observation | None:
    name, whole_s = "train_s", imported.train_s
    if whole_s is None:
        name, whole_s = "epoch_s", imported.epoch_s
    if not whole_s:
        return None
    gap = (whole_s - compute_s - comm_s) / whole_s
    may_be_loading = gap > 0 and imported.train_s is None
    return Observation(
        abs(gap) <= UNACCOUNTED_LIMIT,
        f"compute_s and comm_s are {percent_text(abs(gap))} {'less' if gap > 0 else 'more'} than "
        f"{name} (limit {UNACCOUNTED_LIMIT})",
        "add train_s, the rest may be data loading"
        if may_be_loading
        else "correct compute_s or comm_s",
        Level.WARN if may_be_loading else None,
        Tier.TABLE,
        frozenset((Affected.SPLIT,)),
    )


def _residual(run: ComparedRun, compute_s: float) -> Observation | None:
    gpus, baseline = run.row.gpus, run.baseline
    if gpus < 2 or baseline is None:
        return None
    times_s = [
        time_s
        for timing in baseline.runs
        for time_s in (timing.epoch_s, timing.train_s)
    ]
    shares = [time_s / gpus for time_s in times_s if time_s]
    equal = [share for share in shares if abs(compute_s / share - 1) <= RESIDUAL_MATCH]
    return Observation(
        not equal,
        f"compute_s is {compute_s:.4g} s, the baseline's time / {gpus} is "
        f"{(equal or shares)[0]:.4g} s",
        "import measured compute_s and comm_s, or none",
        Level.WARN,
        affects=frozenset((Affected.SPLIT, Affected.BANDWIDTH)),
    )


def _resolution(run: ComparedRun, imported: Imported) -> Observation | None:
    rows = [other.record.imported for other in run.table.runs]
    times_s = [row.epoch_s for row in rows if row and row.rate is None]
    if imported.rate is not None or len(times_s) < LEAST_TIMINGS:
        return None
    with_fraction = [time_s for time_s in times_s if time_s != round(time_s)]
    if with_fraction:
        return Observation(
            True, f"some of {len(times_s)} timings have a fraction of a second"
        )
    return Observation(
        False,
        f"none of {len(times_s)} timings has a fraction of a second, so this one is uncertain by "
        f"{percent_text(0.5 / imported.epoch_s)}",
        "import timings with fractions of a second",
        Level.WARN,
        Tier.TABLE,
        frozenset((Affected.TIME,)),
    )
