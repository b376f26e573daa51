"""TensorBoard: event files with scalars by iteration, key numbers, and hyperparameters.

A folder per run; torch and TensorFlow are not needed.
"""

import shlex
from collections.abc import Iterable
from pathlib import Path

from hpml_jobs.extras.exchange.runs import ExportedRun, ExportedStudy, Written, needs

with needs("tensorboard"):
    from tensorboard.compat.proto.event_pb2 import Event
    from tensorboard.compat.proto.summary_pb2 import Summary
    from tensorboard.plugins.hparams import summary_v2 as hparams
    from tensorboard.summary.writer.event_file_writer import EventFileWriter

SUMMARY = "summary"
"""Tags of key numbers begin with it: `summary/epoch_s`."""


SUFFIX = ".hpml_jobs"
"""The end of the names of our files, by which an export finds those of an earlier one."""


def write(study: ExportedStudy, folder: Path) -> Written:
    """Write a folder of events per run, and the list of hyperparameters; replace earlier ones."""
    runs = study.runs
    names = sorted({name for run in runs for name in run.config})
    metrics = sorted({name for run in runs for name in run.summary})
    experiment = hparams.hparams_config_pb(
        hparams=[hparams.HParam(name, _domain(name, runs)) for name in names],
        metrics=[hparams.Metric(f"{SUMMARY}/{name}") for name in metrics],
        time_created_secs=min(run.started_s for run in runs),
    )
    _write_events(
        folder / study.name, [Event(wall_time=runs[0].started_s, summary=experiment)]
    )
    for run in runs:
        _write_events(folder / study.name / run.name, _events(run))
    command = f"tensorboard --logdir {shlex.quote(str(folder))}"
    return Written(f"{len(runs)} runs as event files", command)


def _domain(name: str, runs: Iterable[ExportedRun]) -> hparams.Discrete:
    """Return the values of a setting in all runs: TensorBoard offers them as filters."""
    values = {run.config[name] for run in runs if name in run.config}
    if not all(isinstance(value, bool | str) for value in values):
        values = {float(value) for value in values}
    return hparams.Discrete(sorted(values))


def _write_events(folder: Path, events: Iterable[Event]) -> None:
    """Write one file of events into a folder, in place of those of an earlier export."""
    if folder.is_dir():
        for path in folder.glob(f"events.out.tfevents.*{SUFFIX}"):
            path.unlink()
    writer = EventFileWriter(str(folder), filename_suffix=SUFFIX)
    for event in events:
        writer.add_event(event)
    writer.close()


def _events(run: ExportedRun) -> Iterable[Event]:
    start_s, end_s = run.started_s, run.ended_s
    session = hparams.hparams_pb(run.config, trial_id=run.id, start_time_secs=start_s)
    yield Event(wall_time=start_s, summary=session)
    for row in run.history:
        yield _scalars(start_s + row.at_s, row.iteration, row.values)
    summary = {f"{SUMMARY}/{name}": value for name, value in run.summary.items()}
    yield _scalars(end_s, 0, summary)


def _scalars(moment_s: float, step: int, values: dict[str, float]) -> Event:
    scalars = [
        Summary.Value(tag=tag, simple_value=value) for tag, value in values.items()
    ]
    return Event(wall_time=moment_s, step=step, summary=Summary(value=scalars))
