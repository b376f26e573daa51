"""What other programs did to an epoch or a later step of a cell, from the system's accounts.

Foreign CPU is derived: on each host the busy time of the CPUs that the ranks may use, less the CPU
time of the ranks with their loader workers.
"""

from collections.abc import Iterable, Sequence
from enum import StrEnum
from math import inf, sqrt
from typing import NamedTuple

from hpml_jobs.core.measurements import Epoch, Role, Scheduling, Step
from hpml_jobs.core.rank import Rank
from hpml_jobs.core.record import Record
from hpml_jobs.core.strategies import Device
from hpml_jobs.core.text import Share, percent_text, whole_number
from hpml_jobs.core.value import by_key, cached_on_value

FOREIGN_LIMIT = Share(0.05)
"""Share of the allocation's CPU time that other processes may use."""

TICK_S = 0.01
"""The resolution of /proc/stat, per CPU."""

FOREIGN_LEAST_S = 0.1
"""CPU-seconds of others that are counted at all: ten ticks."""

PAUSE_LEAST_S = 0.1
"""Shortest pause of an iteration that a stopped process shows."""

WITHHELD_LIMIT = Share(0.05)
"""Share of the CPU time in demand that a hypervisor or a CPU quota may withhold.

Idle CPUs lose nothing: in the capacity of 64 CPUs with one process the loss would vanish.
"""

RUN_QUEUE_LIMIT = Share(0.10)
"""Share of an epoch in which the threads of a rank may be ready to run without a CPU."""

WITHHELD_MOST = Share(0.25)
"""Share of an epoch that outside causes may withhold before its time is not the cell's any more."""

GLOO_THREADS = 2
"""Threads of a rank on CPUs that may run beside it: gloo adds and moves messages in its own."""

ALLOCATED_CPUS = "SLURM_CPUS_ON_NODE"


class HostCpu(NamedTuple):
    """The CPUs of one host during one epoch: `cpus` are the cell's, seconds are CPU-seconds.

    `busy_s` was used by all processes, `foreign_s` by those of others; `stolen_s` was withheld by
    the hypervisor from processes that were ready to run. None: not reported.
    """

    host: str
    cpus: int
    window_s: float
    busy_s: float | None
    foreign_s: float | None
    stolen_s: float | None

    @property
    def capacity_s(self) -> float:
        """CPU-seconds that the cell's CPUs had in the epoch."""
        return self.cpus * self.window_s

    @property
    def resolution_s(self) -> float:
        """The error of the CPU-seconds: each CPU counts its own ticks."""
        return TICK_S * sqrt(self.cpus)


class CauseKind(StrEnum):
    """An outside cause of a slow epoch."""

    STOPPED = "stopped"
    FOREIGN = "foreign"
    STOLEN = "stolen"
    THROTTLED = "throttled"
    RUN_QUEUE = "run_queue"


class OutsideCause(NamedTuple):
    """A measured outside cause, and the figures in words.

    `share` is the most that it can have taken of the epoch: CPU-seconds per second, which can
    exceed 1, but no more than ranks waited where that is known. `withheld` is the share of the
    epoch that it withheld from the cell, 0 where that is not known.
    """

    kind: CauseKind
    text: str
    share: float
    withheld: float


class _Account(NamedTuple):
    """The accounts of a rank; a step after the epochs has no epoch."""

    rank: Rank
    epoch: Epoch | None
    scheduling: Scheduling

    @property
    def waited(self) -> float | None:
        """The share of the window in which a thread of the rank, or a loader it waits for, waited.

        The mean over its computing threads, which wait for each other.
        """
        if self.scheduling.run_queue_s is None:
            return None
        loaders_s = self.scheduling.loader_run_queue_s or 0.0
        stall_s = self.epoch.stall_s if self.epoch else 0.0
        waited_s = self.scheduling.run_queue_s / self.rank.threads
        waited_s += min(loaders_s, stall_s)
        return min(1.0, waited_s / self.scheduling.window_s)


def foreign_cpu_share(record: Record, role: Role | Step = Role.TIMED) -> float | None:
    """Return the share of the cell's CPU time that other processes used: of the worst host.

    None where it was not measured. It is below zero by rounding only.
    """
    shares = [
        host.foreign_s / host.capacity_s
        for host in host_cpus(record, role)
        if host.foreign_s is not None and host.capacity_s > 0
    ]
    return max(shares, default=None)


@cached_on_value
def outside_causes(record: Record, role: Role | Step) -> tuple[OutsideCause, ...]:
    """Return the measured outside causes that disturbed an epoch or a step, the gravest first."""
    accounts = _accounts(record, role)
    hosts = host_cpus(record, role)
    return (
        *_stops(accounts),
        *_foreign(accounts, hosts),
        *_stolen(hosts),
        *_throttled(accounts),
        *_run_queues(record, accounts, hosts),
    )


def explains(record: Record, share: float, role: Role = Role.TIMED) -> bool:
    """Return whether an outside cause of an epoch can have taken this share of it."""
    return any(cause.share >= share for cause in outside_causes(record, role))


def withheld_share(record: Record) -> float:
    """Return the share of the timed epoch that all outside causes withheld from the cell, below 1.

    Ranks wait for the slowest one, so of each kind only the greatest share counts. Waiting for a
    CPU is the same time whatever took the CPU: one kind.
    """
    shares = by_key(
        (cause.kind not in _WAITING and cause.kind, cause.withheld)
        for cause in outside_causes(record, Role.TIMED)
    )
    return min(0.99, sum(map(max, shares.values())))


_WAITING = (CauseKind.FOREIGN, CauseKind.THROTTLED, CauseKind.RUN_QUEUE)


@cached_on_value
def host_cpus(record: Record, role: Role | Step) -> list[HostCpu]:
    """Return the CPUs of every host of the cell during one epoch; empty if not measured."""
    accounts = _accounts(record, role)
    by_host = by_key((account.rank.host, account) for account in accounts)
    slurm = record.facts.slurm if record.facts else {}
    allocated = slurm.get(ALLOCATED_CPUS, "")
    return [
        _host_cpu(host, accounts, whole_number(allocated))
        for host, accounts in by_host.items()
    ]


def _accounts(record: Record, role: Role | Step) -> list[_Account]:
    return [account for rank in record.ranks if (account := _account(rank, role))]


def _account(rank: Rank, role: Role | Step) -> _Account | None:
    epoch = rank.epoch(role) if isinstance(role, Role) else None
    scheduling = epoch.scheduling if epoch else None
    if role is Step.MICROBENCHMARK:
        scheduling = rank.microbenchmark_scheduling
    if scheduling is None or scheduling.window_s <= 0:
        return None
    return _Account(rank, epoch, scheduling)


def _host_cpu(
    host: str, accounts: Sequence[_Account], allocated: int | None
) -> HostCpu:
    """Return the CPUs of one host; CPUs of the masks that the job was not given are not its own."""
    window_s = max(account.scheduling.window_s for account in accounts)
    holders = _mask_holders(accounts)
    if not holders:
        return HostCpu(host, 0, window_s, busy_s=0.0, foreign_s=None, stolen_s=None)
    masked = sum(len(account.rank.affinity) for account in holders)
    cpus = masked if allocated is None else min(masked, allocated)
    cell_s = _total(account.scheduling.cpu_s for account in accounts)
    busy_s = _total(account.scheduling.busy_s for account in holders)
    foreign_s = None
    if cell_s is not None and busy_s is not None:
        foreign_s = busy_s - cell_s
        if masked > cpus:  # others may use the CPUs that the job was not given
            foreign_s = max(0.0, foreign_s - (masked - cpus) * window_s)
    stolen_s = _total(account.scheduling.stolen_s for account in holders)
    return HostCpu(host, cpus, window_s, busy_s, foreign_s, stolen_s)


def _mask_holders(accounts: Sequence[_Account]) -> list[_Account]:
    """Return one rank for each distinct mask, so that no CPU counts twice; none if masks overlap.

    Ranks of a host share one mask or have disjoint ones; a mask inside another is left out.
    """
    holders: list[_Account] = []
    for account in sorted(accounts, key=lambda account: -len(account.rank.affinity)):
        mask = {*account.rank.affinity}
        if not mask:
            return []
        shared = [holder for holder in holders if mask & {*holder.rank.affinity}]
        if any(not mask <= {*holder.rank.affinity} for holder in shared):
            return []
        if not shared:
            holders.append(account)
    return holders


def _total(values: Iterable[float | None]) -> float | None:
    """Return the sum; None if a value is not known."""
    total = 0.0
    for value in values:
        if value is None:
            return None
        total += value
    return total


def _stops(accounts: Sequence[_Account]) -> list[OutsideCause]:
    """Return the ranks that were stopped: continued by a signal, and with a pause to show for it.

    SLURM sends SIGCONT with other signals to processes that were not stopped.
    """
    causes = []
    for account in accounts:
        continued_s, epoch = account.scheduling.continued_s, account.epoch
        slow, steps = (epoch.slow, epoch.steps) if epoch else (None, None)
        if not continued_s or _longest_pause_s(epoch) < PAUSE_LEAST_S:
            continue
        times, longest = f" {len(continued_s)} times", "the longest "
        if len(continued_s) == 1:
            times = longest = ""
        lasted, share = "", 0.0
        if slow and steps and slow.longest_s > 2 * steps.median_s:
            lasted = f", {longest}for about {slow.longest_s - steps.median_s:.2g} s"
            # others wait for it
            share = max(a.epoch.slow_share for a in accounts if a.epoch)
        rank = account.rank
        text = f"rank {rank.rank} on {rank.host} was stopped{times}{lasted}"
        causes.append(OutsideCause(CauseKind.STOPPED, text, share, share))
    return causes


def _longest_pause_s(epoch: Epoch | None) -> float:
    """Return the longest time above the median iteration; infinite where it is not known."""
    if epoch is None or epoch.slow is None or epoch.steps is None:
        return inf
    first_s = epoch.stalls.first_s if epoch.stalls else inf
    return max(epoch.slow.longest_s - epoch.steps.median_s, first_s)


def _foreign(
    accounts: Sequence[_Account], hosts: Iterable[HostCpu]
) -> list[OutsideCause]:
    """Return the hosts on whose CPUs other processes used too much of the time.

    Where CPUs are free that takes nothing from the cell: its ranks do not wait.
    """
    causes = []
    for host in hosts:
        if host.foreign_s is None or host.foreign_s - host.resolution_s <= max(
            FOREIGN_LEAST_S, FOREIGN_LIMIT * host.capacity_s
        ):
            continue
        here = [account for account in accounts if account.rank.host == host.host]
        waits = [waited for account in here if (waited := account.waited) is not None]
        queues_s = [
            s.run_queue_s + (s.loader_run_queue_s or 0.0)
            for account in here
            if (s := account.scheduling).run_queue_s is not None
        ]
        most = max(queues_s) / host.window_s if queues_s else inf
        text, share = _loss("other programs used", host, host.foreign_s)
        withheld = min(host.foreign_s / host.capacity_s, max(waits, default=0.0))
        causes.append(OutsideCause(CauseKind.FOREIGN, text, min(share, most), withheld))
    return causes


def _stolen(hosts: Iterable[HostCpu]) -> list[OutsideCause]:
    """Return the hosts whose hypervisor withheld too much of the time in demand."""
    return [
        OutsideCause(
            CauseKind.STOLEN,
            *_loss("other virtual machines took", host, host.stolen_s),
            host.stolen_s / (host.busy_s + host.stolen_s),
        )
        for host in hosts
        if host.stolen_s is not None
        and host.busy_s is not None
        and host.stolen_s >= FOREIGN_LEAST_S
        and host.stolen_s - host.resolution_s
        > WITHHELD_LIMIT * (host.busy_s + host.stolen_s)
    ]


def _loss(words: str, host: HostCpu, seconds: float) -> tuple[str, float]:
    """Return CPU-seconds of a host in words, and per second."""
    share = seconds / host.window_s
    return f"{words} {share:.2g} of {host.cpus} CPUs on {host.host}", share


def _throttled(accounts: Iterable[_Account]) -> list[OutsideCause]:
    """Return the rank whose control group withheld the most, if it withheld too much."""
    withheld = []
    for account in accounts:
        throttled_s = account.scheduling.throttled_s or 0.0
        used_s = account.scheduling.cpu_s
        if used_s is not None and throttled_s > FOREIGN_LEAST_S:
            withheld.append(
                (throttled_s / (throttled_s + used_s), throttled_s, account)
            )
    if not withheld:
        return []
    share, throttled_s, account = max(withheld, key=lambda entry: entry[0])
    if share <= WITHHELD_LIMIT:
        return []
    text = (
        f"a CPU quota (cgroup) of rank {account.rank.rank} on {account.rank.host} withheld "
        f"{throttled_s:.2g} CPU-seconds"
    )
    per_s = throttled_s / account.scheduling.window_s
    return [OutsideCause(CauseKind.THROTTLED, text, per_s, share)]


def _run_queues(
    record: Record, accounts: Sequence[_Account], hosts: Iterable[HostCpu]
) -> list[OutsideCause]:
    """Return the rank that waited longest for a CPU, where the cell alone does not explain it.

    A thread that wakes up often waits for each wake-up: what others used of the CPUs is the most
    that each of the rank's threads can have waited for them.
    """
    by_host = {host.host: host for host in hosts}
    causes = []
    for account in accounts:
        rank, scheduling = account.rank, account.scheduling
        host, runnable = by_host[rank.host], _runnable(rank, record)
        ranks = sum(other.host == rank.host for other in record.ranks)
        if scheduling.run_queue_s is None or host.cpus < ranks * runnable:
            continue
        waited_s = min(scheduling.run_queue_s, runnable * _others_s(host, scheduling))
        share = waited_s / scheduling.window_s
        if share > RUN_QUEUE_LIMIT and waited_s > FOREIGN_LEAST_S:
            part = percent_text(round(share, 2))
            text = f"rank {rank.rank} on {rank.host} waited for a CPU for {part} of the time"
            withheld = min(account.waited or 0.0, share)
            causes.append(OutsideCause(CauseKind.RUN_QUEUE, text, share, withheld))
    return [max(causes, key=lambda cause: cause.share)] if causes else []


def _others_s(host: HostCpu, scheduling: Scheduling) -> float:
    """Return the CPU-seconds that the cell did not get on a host; infinite if not known."""
    if host.foreign_s is None or host.stolen_s is None:
        return inf
    used_s = max(0.0, host.foreign_s) + host.stolen_s
    return used_s + (scheduling.throttled_s or 0.0)  # without control groups none


def _runnable(rank: Rank, record: Record) -> int:
    """Return how many threads of a rank may run at once: backward and gloo have their own."""
    threads = 1 if rank.threads == 1 else 2 * rank.threads
    has_gloo = record.cell.device is Device.CPU and len(record.ranks) > 1
    return threads + rank.loader_workers + (GLOO_THREADS if has_gloo else 0)
