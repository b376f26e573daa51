"""Weights & Biases: offline runs, which `wandb sync` uploads later from where there is a network.

No login, no request. The package's own process writes the runs; they are its format.
"""

import os
import shlex
import shutil
from pathlib import Path

from hpml_jobs.core.cell import Outcome
from hpml_jobs.extras.exchange.runs import ExportedRun, ExportedStudy, Written, needs

# Read when the package is imported; with error reporting it looks up a host even if offline.
os.environ |= {
    "WANDB_MODE": "offline",
    "WANDB_ERROR_REPORTING": "false",
    "WANDB_SILENT": "true",
}

with needs("wandb"):
    import wandb


def write(study: ExportedStudy, folder: Path) -> Written:
    """Write an offline run per record into FOLDER/wandb, in place of one with the same id."""
    folder.mkdir(parents=True, exist_ok=True)
    for run in study.runs:
        for earlier in folder.glob(f"wandb/offline-run-*-{run.id}"):
            shutil.rmtree(earlier)
        _write_run(run, folder)
    files = f"{shlex.quote(str(folder))}/wandb/offline-run-*"
    return Written(f"{len(study.runs)} offline runs", f"wandb sync {files}")


def _write_run(run: ExportedRun, folder: Path) -> None:
    settings = wandb.Settings(
        console="off",
        disable_code=True,
        disable_git=True,
        save_code=False,
        x_disable_machine_info=True,  # of this machine, which is not the one that measured
        x_disable_meta=True,
        x_disable_stats=True,
        x_save_requirements=False,
        x_start_time=run.started_s,
    )
    with wandb.init(
        id=run.id,
        name=run.name,
        project="hpml_jobs",
        group=run.study,
        tags=list(run.tags),
        config=run.config,
        dir=str(folder),
        settings=settings,
    ) as offline:
        for row in run.history:
            place = {"iteration/epoch": row.epoch, "iteration/at_s": row.at_s}
            offline.log({**row.values, **place}, step=row.iteration)
        offline.summary.update(run.summary)
        offline.finish(exit_code=0 if run.outcome is Outcome.OK else 1)
