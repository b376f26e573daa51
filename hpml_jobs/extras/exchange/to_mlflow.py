"""MLflow: runs in an SQLite store, with one experiment per study."""

import os
import shlex
import time
from pathlib import Path

from hpml_jobs.core.cell import Outcome
from hpml_jobs.extras.exchange.runs import ExportedRun, ExportedStudy, Written, needs

# Read when the package is imported: it would report its use, and each step of making the store.
os.environ |= {"MLFLOW_DISABLE_TELEMETRY": "true", "MLFLOW_LOGGING_LEVEL": "WARNING"}

with needs("mlflow-skinny sqlalchemy alembic"):
    import alembic  # noqa: F401 - the store is migrated with it
    import sqlalchemy  # noqa: F401 - mlflow imports it when the store is opened
    from mlflow import MlflowClient
    from mlflow.entities import Metric, Param

RUN_ID = "hpml_jobs.id"
"""The tag by which an earlier export of a run is found; MLflow chooses its own ids."""

DATABASE = "mlflow.db"
METRICS, PARAMS = 1_000, 100
"""The most of each that MLflow takes at once."""


def write(study: ExportedStudy, folder: Path) -> Written:
    """Write a run per record into FOLDER/mlflow.db; of earlier ones, key numbers are updated."""
    folder.mkdir(parents=True, exist_ok=True)
    folder = folder.resolve()
    uri = f"sqlite:///{folder / DATABASE}"
    client = MlflowClient(tracking_uri=uri)
    experiment = client.get_experiment_by_name(study.name)
    if experiment is None:
        artifacts = (folder / "artifacts").as_uri()
        place = client.create_experiment(study.name, artifact_location=artifacts)
    else:
        place = experiment.experiment_id
    for run in study.runs:
        _write_run(client, place, run)
    return Written(
        f"{len(study.runs)} runs", f"mlflow ui --backend-store-uri {shlex.quote(uri)}"
    )


def _write_run(client: MlflowClient, experiment: str, run: ExportedRun) -> None:
    earlier = client.search_runs([experiment], f"tags.`{RUN_ID}` = '{run.id}'")
    if earlier:
        number = earlier[0].info.run_id
        logged = earlier[0].data.metrics
        moment_s = time.time()  # the latest value of a metric is shown
    else:
        number = _new_run(client, experiment, run)
        logged = {}
        moment_s = run.ended_s
    changed = {
        name: value for name, value in run.summary.items() if logged.get(name) != value
    }
    _log(
        client,
        number,
        [_metric(name, value, moment_s) for name, value in changed.items()],
    )
    status = "FINISHED" if run.outcome is Outcome.OK else "FAILED"
    client.set_terminated(number, status, end_time=round(1_000 * run.ended_s))


def _new_run(client: MlflowClient, experiment: str, run: ExportedRun) -> str:
    """Return MLflow's id of a new run with its parameters and history."""
    tags = {RUN_ID: run.id, "study": run.study, "workload": run.workload}
    new_run = client.create_run(
        experiment,
        start_time=round(1_000 * run.started_s),
        tags={**tags, "outcome": run.outcome.value},
        run_name=run.name,
    )
    number: str = new_run.info.run_id
    params = [Param(name, str(value)) for name, value in run.config.items()]
    for at in range(0, len(params), PARAMS):
        client.log_batch(number, params=params[at : at + PARAMS])
    history = [
        _metric(name, value, run.started_s + row.at_s, row.iteration)
        for row in run.history
        for name, value in row.values.items()
    ]
    _log(client, number, history)
    return number


def _log(client: MlflowClient, number: str, metrics: list[Metric]) -> None:
    for at in range(0, len(metrics), METRICS):
        client.log_batch(number, metrics=metrics[at : at + METRICS])


def _metric(name: str, value: float, moment_s: float, step: int = 0) -> Metric:
    return Metric(name, float(value), round(1_000 * moment_s), step)
