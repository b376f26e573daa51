"""Python API for notebooks: a study's cells, tables, iterations and states as DataFrames.

    import hpml_jobs
    study = hpml_jobs.open_study("demo")
    study.cells()

Nothing is written: a study that you may only read can be opened.
"""

import warnings
from collections import Counter
from functools import cached_property
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING

from hpml_jobs.core.cell import Outcome
from hpml_jobs.core.errors import HpmlError
from hpml_jobs.core.strategies import Baseline
from hpml_jobs.core.text import counted
from hpml_jobs.extras.notebook import frames
from hpml_jobs.plan.user_config import user_outputs
from hpml_jobs.report.choose.rules import MIN_EFFICIENCY, Wish
from hpml_jobs.report.choose.table import choices
from hpml_jobs.report.report import Report, ReportOptions, make_report
from hpml_jobs.results.cells import cell_results
from hpml_jobs.status.states import study_status
from hpml_jobs.study.selection import find, matching
from hpml_jobs.study.snapshot import RecordCache
from hpml_jobs.study.study import Study

if TYPE_CHECKING:
    import pandas as pd


def open_study(
    study: str | PathLike[str] | None = None,
    outputs: str | PathLike[str] | None = None,
    baseline: str = Baseline.SINGLE,
) -> "OpenStudy":
    """Open a study and read it: its records, and SLURM's answers for its unfinished cells.

    `study` is a name or the path of a study's folder; without it, the most recently submitted one
    is opened. `outputs` is the folder of the studies; by default that of the commands. Speedups are
    against one GPU; with `baseline="smallest"`, where there is no such cell, against the smallest
    measured size.

    Raises:
        HpmlError: there is no such study, it cannot be read, or there is no such baseline; the
            message is that of the commands.
    """
    if baseline not in set(Baseline):
        raise HpmlError(f"baseline={baseline}: choose one of {', '.join(Baseline)}")
    word = None if study is None else str(study)
    if isinstance(study, PathLike) and "/" not in str(study):
        word = f"./{study}"
    folder = user_outputs() if outputs is None else Path(outputs)
    return OpenStudy(find(folder.expanduser(), word), Baseline(baseline))


class OpenStudy:
    """A study as it was when it was opened; `refresh()` reads it again.

    Every DataFrame is the caller's own: it may be changed. Columns have their units in their names
    and are explained in docs/notebook.md; a number that is not known is NaN.
    """

    def __init__(self, study: Study, baseline: Baseline = Baseline.SINGLE) -> None:
        self._study = study
        self._baseline = baseline
        self._cache = RecordCache()
        self.refresh()

    @property
    def name(self) -> str:
        """The study's name."""
        return self._study.name

    @property
    def folder(self) -> Path:
        """The study's folder."""
        return self._study.root

    def refresh(self) -> "OpenStudy":
        """Read the study again, and ask SLURM for unfinished cells; return the study.

        Records that did not change are not decoded again. If the manifest cannot be read, a warning
        says so: jobs that only it names are missing.
        """
        self._status = study_status(self._study, cache=self._cache)
        for name in ("_report", "_sheets"):
            self.__dict__.pop(name, None)
        if self._status.fault:
            warnings.warn(
                f"{self._status.fault}; jobs that only it names are missing",
                stacklevel=2,
            )
        return self

    def cells(self) -> "pd.DataFrame":
        """Return a row per run, those without numbers too: the columns of cells.csv.

        Settings of the cell (gpus, batch, strategy, …), outcome and reason, measured times of the
        timed epoch (epoch_s, train_s, compute_s, comm_exposed_s, …), samples_per_s, speedup and
        efficiency of its row in the tables (medians over its runs), loss and accuracy, the worst
        level of its data-quality checks, and all facts of hardware and software.
        """
        return self._sheets["cells"].copy()

    def tables(self) -> "pd.DataFrame":
        """Return the tables of the report: label, title, number of rows."""
        return frames.titles(self._report, self._sheets)

    def table(self, label: str) -> "pd.DataFrame":
        """Return a table, unrounded; `tables()` lists the labels, such as table1 and scaling.

        Rows of all condition groups are in it, with the group's number. `table1-ddp` is Table 1 of
        one strategy.

        Raises:
            HpmlError: the study has no such table.
        """
        return frames.table(self._sheets, label)

    def iterations(self, cell: str) -> "pd.DataFrame":
        """Return a row per iteration and rank of a cell: slug, rank, epoch, role, iteration, …

        `cell` is its name or a pattern such as `ddp-4gpu-*`; of a pattern, cells without numbers
        are left out. Iterations count from 1 over all epochs of training. step_s is the duration in
        seconds, loss the training loss of the rank, lr the learning rate.

        Raises:
            HpmlError: no cell matches, none has numbers, or one has no valid iterations.npz.
        """
        states = {state.slug: state for state in self._status.states}
        results = cell_results(self._status.snapshots, states)
        return frames.iterations(matching(results, cell, self.name))

    def states(self) -> "pd.DataFrame":
        """Return the state of every cell with its reason, job and node.

        SLURM was asked for unfinished cells when the study was opened; `refresh()` asks again.
        queued_s and elapsed_s are seconds of the cell's job, done is the finished share of the
        training, left_s the extrapolated rest.
        """
        return frames.states(self._status.states)

    def choose(
        self,
        *,
        min_efficiency: float | None = None,
        epochs: int | None = None,
        gpu_hours_budget: float | None = None,
        deadline_min: float | None = None,
    ) -> "pd.DataFrame":
        """Return the measured cells with what an epoch takes and costs, the fastest first.

        The keys are those of the command choose, and so are the defaults. `why` says which cell
        to ask for, which is fastest and cheapest, and why the others were not chosen. Efficiencies
        are against the best cell of the smallest size.

        Raises:
            HpmlError: a number is not above zero, a limit is given without epochs, or no cell has
                numbers.
        """
        wish = Wish(
            min_efficiency=MIN_EFFICIENCY if min_efficiency is None else min_efficiency,
            epochs=epochs,
            gpu_hours_budget=gpu_hours_budget,
            deadline_min=deadline_min,
        )
        study = self._study
        cluster, commands = study.last_cluster(), study.commands()
        of_groups = choices(
            self._status.snapshots, wish, cluster, commands, study=study.name
        )
        if not of_groups:
            raise HpmlError(
                f"no cell of study {self.name} has a number; states() shows why"
            )
        return frames.choice(
            self._report, (of_group.document for of_group in of_groups)
        )

    @cached_property
    def _report(self) -> Report:
        study = self._study
        options = ReportOptions(study.last_cluster(), study.commands(), self._baseline)
        return make_report(
            self.name, self._status.snapshots, self._status.states, options
        )

    @cached_property
    def _sheets(self) -> "dict[str, pd.DataFrame]":
        return frames.sheets(self._report)

    def __repr__(self) -> str:
        counts = Counter(state.outcome for state in self._status.states)
        cells = (
            ", ".join(f"{counts[o]} {o.value}" for o in Outcome if counts[o]) or "none"
        )
        number = counted(counts.total(), "cell")
        return f"study {self.name} in {self.folder.parent}: {number} ({cells})"
