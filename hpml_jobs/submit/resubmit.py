"""Cells of a study sent again, from what the study itself keeps of them."""

from collections.abc import Callable, Iterable

import msgspec

from hpml_jobs import __version__
from hpml_jobs.core.cluster import Cluster, Launcher, Shape, check_inventory
from hpml_jobs.errors import HpmlError, UsageError
from hpml_jobs.plan import machine
from hpml_jobs.plan.plan import Plan, PlannedCell
from hpml_jobs.slurm import commands
from hpml_jobs.slurm.states import Outcome
from hpml_jobs.study.cell_state import CellState
from hpml_jobs.study.manifest import History
from hpml_jobs.study.study import Study
from hpml_jobs.submit.selection import superseding

LOST = (Outcome.NODE_FAIL, Outcome.PREEMPTED)
"""What the cluster did to a cell, and the cell not to itself."""

KINDS: dict[str, tuple[Outcome, ...]] = {
    "failed": (Outcome.FAILED, Outcome.INVALID),
    "oom": (Outcome.OOM,),
    "timeout": (Outcome.TIMEOUT,),
    "missing": (Outcome.MISSING, Outcome.UNKNOWN),
    "cancelled": (Outcome.CANCELLED,),
    "lost": LOST,
}
"""What can be asked for by name, and the outcomes it means."""


class Changes(msgspec.Struct, frozen=True, kw_only=True):
    """What is asked of SLURM differently this time: a time limit, GB of memory per node."""

    minutes: int | None = None
    mem_gb: int | None = None

    def __post_init__(self) -> None:
        """Refuse what no cluster could do."""
        for name, value in (("minutes", self.minutes), ("mem", self.mem_gb)):
            if value is not None and value < 1:
                raise UsageError(f"--{name} {value}: must be 1 or more")

    def of(self, shape: Shape) -> Shape:
        """A shape with the changes made."""
        return msgspec.structs.replace(
            shape,
            minutes=self.minutes or shape.minutes,
            mem_gb_per_node=self.mem_gb or shape.mem_gb_per_node,
        )


def of_kinds(states: Iterable[CellState], kinds: Iterable[str]) -> list[CellState]:
    """The states that stand where the kinds say."""
    outcomes = {outcome for kind in kinds for outcome in KINDS[kind]}
    return [state for state in states if state.outcome in outcomes]


def sendable(states: Iterable[CellState]) -> list[CellState]:
    """Without the cells that are measured, or under way."""
    return [state for state in states if not (state.outcome.active or state.outcome is Outcome.OK)]


def within_retries(
    states: Iterable[CellState], history: History, retries: int
) -> tuple[list[CellState], tuple[str, ...]]:
    """Lost cells that may be sent once more, and the nodes that lost cells so far."""
    lost = of_kinds(states, ("lost",))
    failed = [state.node for state in lost if state.outcome is Outcome.NODE_FAIL and state.node]
    nodes = tuple(dict.fromkeys([*history.excluded, *failed]))
    return [state for state in lost if history.retries.get(state.slug, 0) < retries], nodes


def plan_again(study: Study, states: list[CellState], changes: Changes) -> Plan:
    """A plan of the cells in these states, with the changes made to what they ask for.

    Cells that shared an allocation do so again, and a report that was to come after them comes.

    Raises:
        HpmlError: the study does not know what a cell asked for.
        UsageError: the cluster cannot be asked for this.
    """
    cluster = study.kept_cluster()
    if cluster.launcher is Launcher.SLURM:
        machine.check_can_send(cluster.name)
    history = study.history()
    plan = Plan(
        Study(study.root.resolve()),  # jobs start in any folder
        cluster,
        [],
        pack=any(state.job in history.shared for state in states),
        collect_after=bool(history.closing),
    )
    check = _checker(cluster)
    for state in states:
        file = study.cell(state.slug).read()
        if file.shape is None:
            raise HpmlError(
                f"{study.cell(state.slug).cell_json} does not say what the cell asks of SLURM: "
                "give the command that made the study once more"
            )
        shape = changes.of(file.shape)
        check(shape)
        again = msgspec.structs.replace(file, shape=shape, hpml_jobs=__version__, supersedes=None)
        one = PlannedCell(again, shape)
        plan.cells.append(superseding(plan, one) if state.recorded else one)
    return plan


def _checker(cluster: Cluster) -> Callable[[Shape], None]:
    """What refuses shapes that this cluster cannot be asked for."""
    nodes = list(commands.inventory()) if cluster.launcher is Launcher.SLURM else []

    def check(shape: Shape) -> None:
        longest = machine.longest_minutes(shape, cluster) if nodes else None
        if longest is not None and shape.minutes > longest:
            raise UsageError(f"--minutes {shape.minutes}: this partition gives {longest:g} at most")
        if nodes:
            check_inventory(shape, cluster, nodes)

    return check
