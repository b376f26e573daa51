"""Parts of a gap from sums of seconds, where an epoch cannot be replayed."""

from collections.abc import Mapping, Sequence
from typing import Any

from hpml_jobs.core import formulas
from hpml_jobs.core.rank import least_waiting
from hpml_jobs.core.record import Record
from hpml_jobs.report.scaling.causes import EACH_OTHER, GapCause
from hpml_jobs.results.figures import Figures
from hpml_jobs.results.rows import Row

EPOCH, COMPUTE = "epoch", "compute"

Seconds = Mapping[str, float]
"""The known seconds of the timed epoch of one run, or medians: `epoch`, `compute` and by cause."""


def seconds_of(row: Row, figures: Figures) -> Seconds:
    """Return the known seconds of a run.

    What is measured in the instrumented epoch is its share of the timed one. The exchange has
    packing by hand in it; without phases it is what the epoch without exchange saves, waiting too.
    """
    instrumented_s = {
        GapCause.EXCHANGE: figures.others_exchange_s,
        GapCause.WAITING: figures.others_waiting_s,
        COMPUTE: figures.others_compute_s,
    }
    known_s: dict[str, float | None] = {
        EPOCH: figures.epoch_s,
        GapCause.LOADER: figures.others_stall_s,
        GapCause.CPUS: figures.others_run_queue_s,
    }
    if figures.overhead is not None:
        of_timed = 1 / (1 + figures.overhead)
        known_s |= {name: s and s * of_timed for name, s in instrumented_s.items()}
    else:
        known_s[GapCause.EXCHANGE] = figures.comm_cost_s
    if row.gpus == 1:
        known_s |= {GapCause.EXCHANGE: 0.0, GapCause.WAITING: 0.0}
    return {name: s for name, s in known_s.items() if s is not None}


def parts(
    times: Mapping[str, Any], reference: Mapping[str, Any], ideal: float
) -> dict[Any, Any]:
    """Return what each known cause takes of the ideal speedup; they sum to ideal - speedup.

    Only what the reference does not spend as well is lost, and waiting for a CPU only where it
    makes computation longer: a rank that waits for others needs no CPU meanwhile.

    Times are numbers, or arrays of one per draw; there NaN is what is not known.
    """
    import numpy as np  # noqa: PLC0415  (only where there is a gap)

    beyond_s = {
        name: formulas.beyond_ideal_s(times[name], reference[name], ideal)
        for name in times
        if name in reference
    }
    whole_s = beyond_s.pop(EPOCH)
    longer_s = beyond_s.pop(COMPUTE, None)
    if GapCause.CPUS in beyond_s:
        queued_s = beyond_s.pop(GapCause.CPUS)
        beyond_s |= (
            {} if longer_s is None else {GapCause.CPUS: np.minimum(queued_s, longer_s)}
        )
    if GapCause.WAITING in beyond_s and longer_s is not None:
        # What the late rank does, the reference does as well: the others compute less instead.
        # Unlike minimum, fmin takes 0 where it is not known how much longer they compute.
        beyond_s[GapCause.WAITING] = beyond_s[GapCause.WAITING] + np.fmin(0.0, longer_s)
    lost_s = {
        cause: np.maximum(0.0, beyond_s[cause])
        for cause in GapCause
        if cause in beyond_s
    }
    lost_s[GapCause.UNEXPLAINED] = whole_s - sum(map(np.nan_to_num, lost_s.values()))
    return {
        cause: formulas.lost_speedup(s, times[EPOCH], ideal)
        for cause, s in lost_s.items()
    }


def late_rank(figures: Figures, records: Sequence[Record]) -> str:
    """Return the rank that the others wait for, or that they wait for each other."""
    number = least_waiting(record.ranks for record in records)
    if number is None or figures.waiting_s is None or figures.others_waiting_s is None:
        return ""
    if figures.waiting_s > figures.others_waiting_s / 2:
        return EACH_OTHER
    hosts = {rank.host for record in records if (rank := record.rank_of(number))}
    return f"rank {number} on {hosts.pop()}" if len(hosts) == 1 else f"rank {number}"
