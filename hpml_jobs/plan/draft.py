"""`PlanDraft`: what is known of a plan between two steps of `make_plan`."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import msgspec

from hpml_jobs.core.cluster import Cluster
from hpml_jobs.core.workload import Workload
from hpml_jobs.plan.cells import CellDraft, PlannedCell, ResolvedWorkload
from hpml_jobs.plan.data import data_root
from hpml_jobs.plan.settings import Settings, Sweep
from hpml_jobs.study.study import Study

Notify = Callable[[str], None]


class GivenWorkload(NamedTuple):
    """A workload as it was given, and the folder that its data is in."""

    workload: Workload
    root: Path


def given_workload(settings: Settings) -> GivenWorkload:
    """Return the workload of one combination."""
    workload = msgspec.structs.replace(settings.workload, limit=settings.data.limit)
    return GivenWorkload(workload, data_root(settings.data.root, settings.cluster))


@dataclass(frozen=True, kw_only=True)
class PlanDraft:
    """What is known of a plan so far; each step of `make_plan` adds to it.

    `sending`: the cells will be submitted, else one runs in this process. `fetch`: missing data is
    downloaded, and this machine must be able to submit. `notify` says a decision. `drafts` become
    `cells`; `origins` says where the value of each key comes from.
    """

    sweep: Sweep
    sending: bool
    fetch: bool
    notify: Notify
    cluster: Cluster
    origins: Mapping[str, str]
    drafts: tuple[CellDraft, ...] = ()
    study: Study | None = None
    workloads: Mapping[GivenWorkload, ResolvedWorkload] = field(default_factory=dict)
    cells: tuple[PlannedCell, ...] = ()

    @property
    def named_study(self) -> Study:
        """The study, once it has a name."""
        if self.study is None:
            raise ValueError("the study has no name yet")
        return self.study
