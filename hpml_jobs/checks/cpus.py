"""Does a cell have a CPU for each of its processes and loader workers?"""

from collections import defaultdict
from typing import NamedTuple

from hpml_jobs.checks.result import Observation, check
from hpml_jobs.core.check_result import TIMES, Affected, Level, Tier
from hpml_jobs.core.disturbance import (
    ALLOCATED_CPUS,
    CauseKind,
    outside_causes,
    run_queue_share,
)
from hpml_jobs.core.record import Record
from hpml_jobs.core.text import Share, counted, percent_text, whole_number

LOADER_WAIT_LIMIT = Share(0.05)


class HostProcesses(NamedTuple):
    """A host's CPUs and the cell's processes there; `workers` loader workers belong to each."""

    host: str
    cpus: int
    processes: int
    workers: int

    @property
    def is_oversubscribed(self) -> bool:
        """Whether processes have to take turns."""
        return self.cpus < self.processes

    @property
    def is_shared(self) -> bool:
        """Whether processes and their loader workers have to take turns."""
        return self.cpus < self.processes * (self.workers + 1)

    @property
    def text(self) -> str:
        """The figures in words."""
        processes = counted(self.processes, "process", "processes")
        return f"{processes} on {counted(self.cpus, 'CPU')} of {self.host}"


def busiest_host(record: Record) -> HostProcesses | None:
    """Return the host with the fewest CPUs per process; None where a rank's CPUs are unknown."""
    return record.kept("busiest host", None, lambda: _busiest_host(record))


def _busiest_host(record: Record) -> HostProcesses | None:
    allowed: dict[str, set[int]] = defaultdict(set)
    processes: dict[str, int] = defaultdict(int)
    for rank in record.ranks:
        if not rank.affinity:
            return None
        allowed[rank.host] |= {*rank.affinity}
        processes[rank.host] += 1
    slurm = record.facts.slurm if record.facts else {}
    most = whole_number(slurm.get(ALLOCATED_CPUS, ""))
    workers = max((rank.loader_workers for rank in record.ranks), default=0)
    hosts = [
        HostProcesses(host, min(len(cpus), most or len(cpus)), processes[host], workers)
        for host, cpus in allowed.items()
    ]
    return min(
        hosts, key=lambda host: (host.cpus / host.processes, host.host), default=None
    )


OVERSUBSCRIBED = "oversubscribed"


@check(OVERSUBSCRIBED, Level.WARN, Tier.NUMBER, *TIMES)
def oversubscribed(record: Record) -> Observation | None:
    """Processes take turns on too few CPUs: times and speedups at this number of processes measure
    the operating system's scheduler.

    Limit: a CPU for each process of a host
    Fix: use as many processes as CPUs at most (gpus=), or more CPUs
    """
    host = busiest_host(record)
    if host is None:
        return None
    taken = ", so speedups here measure the scheduler" if host.is_oversubscribed else ""
    return Observation(not host.is_oversubscribed, f"{host.text}{taken}")


@check("loader-cpus", Level.WARN, Tier.TABLE, Affected.TIME, Affected.SPLIT)
def too_few_cpus_for_loading(record: Record) -> Observation | None:
    """Loader workers and processes share CPUs, and the processes waited for a CPU. Not judged where
    the cell is oversubscribed, and where other programs took the CPUs.

    Limit: they wait for {LOADER_WAIT_LIMIT} of the epoch
    Fix: decrease loader_workers= or use more CPUs
    """
    host = busiest_host(record)
    share = run_queue_share(record)
    if host is None or share is None or host.is_oversubscribed:
        return None
    if any(cause.kind is not CauseKind.RUN_QUEUE for cause in outside_causes(record)):
        return None
    text = f"{host.text} with {counted(host.workers, 'loader worker')} each"
    if not host.is_shared:
        return Observation(True, f"{text}: a CPU for each of them", share=share)
    return Observation(
        share <= LOADER_WAIT_LIMIT,
        f"{text}, and threads waited for a CPU for {percent_text(share)} of the epoch "
        f"(limit {LOADER_WAIT_LIMIT})",
        share=share,
    )
