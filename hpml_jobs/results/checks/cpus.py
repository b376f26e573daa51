"""Does a cell have a CPU for each of its processes and loader workers?"""

from collections import defaultdict
from typing import NamedTuple

from hpml_jobs.core.check_result import TIMES, Level, Tier
from hpml_jobs.core.disturbance import ALLOCATED_CPUS
from hpml_jobs.core.record import Record
from hpml_jobs.core.text import counted, whole_number
from hpml_jobs.results.checks.result import Observation, check


class HostProcesses(NamedTuple):
    """A host's CPUs and the cell's processes there."""

    host: str
    cpus: int
    processes: int

    @property
    def is_oversubscribed(self) -> bool:
        """Whether processes have to take turns."""
        return self.cpus < self.processes

    @property
    def text(self) -> str:
        """The figures in words."""
        processes = counted(self.processes, "process", "processes")
        return f"{processes} on {counted(self.cpus, 'CPU')} of {self.host}"


def _busiest_host(record: Record) -> HostProcesses | None:
    """Return the host with the fewest CPUs per process; None where a rank's CPUs are unknown."""
    allowed: dict[str, set[int]] = defaultdict(set)
    processes: dict[str, int] = defaultdict(int)
    for rank in record.ranks:
        if not rank.affinity:
            return None
        allowed[rank.host] |= {*rank.affinity}
        processes[rank.host] += 1
    slurm = record.facts.slurm if record.facts else {}
    most = whole_number(slurm.get(ALLOCATED_CPUS, ""))
    hosts = [
        HostProcesses(host, min(len(cpus), most or len(cpus)), processes[host])
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
    host = _busiest_host(record)
    if host is None:
        return None
    taken = ", so speedups here measure the scheduler" if host.is_oversubscribed else ""
    return Observation(not host.is_oversubscribed, f"{host.text}{taken}")
