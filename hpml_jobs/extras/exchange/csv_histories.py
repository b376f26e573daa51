"""Histories of runs, rows of their epochs or steps (as W&B exports them), as rows of timings."""

from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import NamedTuple

from hpml_jobs.core.errors import HpmlError, UsageError
from hpml_jobs.core.formulas import iterations
from hpml_jobs.core.strategies import Strategy
from hpml_jobs.core.text import counted
from hpml_jobs.extras.exchange import csv_columns
from hpml_jobs.extras.exchange.csv_columns import SECONDS, STAMPS, Rules
from hpml_jobs.extras.exchange.csv_names import (
    ANY_NAME,
    EXAMPLE,
    NamePattern,
    name_pattern,
)
from hpml_jobs.extras.exchange.csv_rows import (
    ColumnSpec,
    CsvRow,
    CsvSelection,
    Fault,
    FieldError,
    Rows,
    names_text,
    number,
    select,
    whole,
)
from hpml_jobs.extras.exchange.csv_times import (
    SECOND_RUN,
    RunTime,
    Stamp,
    by_seconds,
    by_steps,
    resolution,
)
from hpml_jobs.results.rows import by_key

_STEPS = (
    *(
        "step",
        "iteration",
        "iter",
        "global_step",
        "trainer/global_step",
        "train/global_step",
    ),
    "_step",
)
_ALIASES = {"step": _STEPS, "timestamp": STAMPS, "seconds": SECONDS}
"""Other names of columns: those of W&B (_), PyTorch Lightning, Hugging Face, and of timings."""


def instant(text: str) -> float:
    """Read a time: seconds since any moment, or a date and time (ISO 8601).

    Without a zone it is in UTC, which has no daylight saving time.

    Raises:
        FieldError: it is neither.
    """
    if ":" not in text:
        return number(text)
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise FieldError("expected seconds, or a date and time (ISO 8601)") from None
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()


_OF_RUN = {
    "run": ColumnSpec(str, required=True),
    "epoch": ColumnSpec(number, may_be_zero=True),
    "seconds": ColumnSpec(number),
    "step": ColumnSpec(whole, may_be_zero=True),
    "timestamp": ColumnSpec(instant, may_be_zero=True),
    "loss": csv_columns.COLUMNS["loss"],
    "accuracy": csv_columns.COLUMNS["accuracy"],
}
_NOT_OF_CELL = {
    "rate",
    "unit",
    "epoch_s",
    "train_s",
    "compute_s",
    "comm_s",
    "date",
    *_OF_RUN,
}
_OF_CELL = {
    name: spec._replace(required=False)
    for name, spec in csv_columns.COLUMNS.items()
    if name not in _NOT_OF_CELL
}
"""Columns of timings that a history may have too, and that names of runs may have."""

_CELL_COLUMNS = (
    "gpus",
    "batch",
    "strategy",
    "nodes",
    "gpus_per_node",
    "model",
    "gpu_model",
)
"""Columns that tell the cells of runs apart."""


class _History(NamedTuple):
    """A run: its name, its first line, the fields of its cell and of its last row, its time."""

    name: str
    line: int
    cell: dict[str, str]
    last: dict[str, str]
    time: RunTime


def is_history(table: Rows) -> bool:
    """Return whether a file is a history of runs, not a row for each cell.

    Raises:
        HpmlError: it has steps or epochs, but no column that says of which run.
    """
    names = table.named()
    has_rows_of_runs = bool(names & {"epoch", *_STEPS})
    has_cells = {"gpus", "batch"} <= names and bool(names & {"epoch_s", "rate"})
    if "run" in names:
        return has_rows_of_runs or not has_cells
    if has_rows_of_runs and not has_cells:
        raise HpmlError(
            f"{table.header}: a history needs a column run, the name of each row's run; the file "
            f"has {names_text(table.columns)}"
        )
    return False


def read_history(table: Rows, rules: Rules) -> CsvSelection:
    """Return the runs of a history as rows of timings, with remarks on them.

    What a run's cell is comes from columns, or from its name by the pattern of `rules`. Its time is
    that of `by_seconds` or `by_steps`.

    Raises:
        HpmlError: there are neither seconds nor time stamps, or nothing says what cells are.
        UsageError: the pattern of names is invalid.
    """
    table = _with_aliases(table)
    pattern = ANY_NAME if rules.names is None else name_pattern(rules.names, _OF_CELL)
    _check_columns(table, pattern.columns)
    elsewhere = {"loss", "accuracy", *pattern.columns}
    selected, remarks = select(table, _OF_RUN | _OF_CELL, elsewhere)
    faults, runs = [*selected.faults], list[_History]()
    for name, rows in by_key((_run_name(row), row) for row in selected.rows).items():
        try:
            runs.append(_run(name, rows, pattern, rules))
        except FieldError as error:
            faults.append(Fault(rows[0].line, f"run {name}: {error}"))
    _check_iterations(runs, rules)
    by_cell = by_key((_cell_key(run), run) for run in runs).values()
    rows = [_row(run, n) for members in by_cell for n, run in enumerate(members)]
    rows.sort(key=lambda row: row.line)
    columns = tuple(csv_columns.COLUMNS)
    remarks += [_cell_text(members) for members in by_cell]
    return CsvSelection(
        selected._replace(columns=columns, rows=rows, faults=faults),
        remarks + list(_remarks(runs)),
    )


def _run_name(row: CsvRow) -> str:
    return " ".join(row.fields.get("run", "").split())


def _check_iterations(runs: Sequence[_History], rules: Rules) -> None:
    """Refuse one number of iterations for runs with several global batches."""
    sizes = {int(run.cell["gpus"]) * int(run.cell["batch"]) for run in runs}
    if rules.iterations and len(sizes) > 1 and not rules.batch_is_global:
        raise UsageError(
            f"iterations={rules.iterations}: the runs have global batches of {min(sizes)} to "
            f"{max(sizes)} samples, so their epochs differ: give images=, or a column iterations"
        )


def _with_aliases(table: Rows) -> Rows:
    """Return the table with its columns of steps and times under the names that are read.

    A name of the user is taken before that of W&B, which begins with _ .

    Raises:
        HpmlError: there are two such names.
    """
    lower = {name.lower(): name for name in table.columns}
    names = {name: name for name in table.columns}
    for column, aliases in _ALIASES.items():
        present = [alias for alias in aliases if alias in lower]
        users = [alias for alias in present if not alias.startswith("_")] or present
        if len(users) > 1:
            raise HpmlError(
                f"{table.header}: {' and '.join(users)} are both a column {column}: leave one out"
            )
        names |= {lower[alias]: column for alias in users}
    return table.renamed(names)


def _check_columns(table: Rows, of_names: Sequence[str]) -> None:
    """Check that there are times, and that GPUs and batch are in columns or names, not in both."""
    names = table.named()
    if twice := [name for name in of_names if name in names]:
        raise UsageError(
            f"{table.header}: {twice[0]} is a column and in names=: leave one out"
        )
    missing = [name for name in ("gpus", "batch") if name not in {*names, *of_names}]
    if missing:
        run = next((row.fields["run"] for row in table.rows if "run" in row.fields), "")
        columns = "columns" if len(missing) > 1 else "the column"
        raise HpmlError(
            f"{table.header}: names of runs ({run}) are not read without a pattern: add "
            f"{columns} {' and '.join(missing)}, or e.g. {EXAMPLE}"
        )
    if {"seconds", "step"} <= names:
        raise HpmlError(
            f"{table.header}: seconds beside step are of an epoch or of a step: leave the column "
            "step out, or give the column timestamp of each step"
        )
    if names.isdisjoint({"seconds", "timestamp"}):
        raise HpmlError(
            f"{table.header}: a history of runs without times: add the column timestamp of each "
            "step (W&B: export _timestamp), or seconds of each epoch"
        )


def _run(
    name: str, rows: Sequence[CsvRow], pattern: NamePattern, rules: Rules
) -> _History:
    """Return a run.

    Raises:
        FieldError: its name does not fit the pattern, its cell changes, or its time is not known.
    """
    if not name:
        raise FieldError("the column run is blank")
    texts = CsvRow(rows[0].line, pattern.read(name) | _common_fields(rows))
    cell = {
        column: str(_read(_OF_CELL[column], column, texts)) for column in texts.fields
    }
    missing = [column for column in ("gpus", "batch") if column not in cell]
    if missing:
        raise FieldError(f"{' and '.join(missing)} is missing")
    if any("seconds" in row.fields for row in rows):
        epochs, lines = _numbers(rows, "epoch"), [row.line for row in rows]
        order = list(zip(epochs, lines, strict=True))
        time = by_seconds(
            list(zip(lines, epochs, _numbers(rows, "seconds"), strict=True))
        )
    else:
        stamps = _stamps(rows)
        order = [(stamp.epoch_number, stamp.step) for stamp in stamps]
        time = by_steps(stamps, *_iterations(cell, rules))
    last = max(zip(order, rows, strict=True))[1]
    return _History(name, rows[0].line, cell, last.fields, time)


def _stamps(rows: Sequence[CsvRow]) -> list[Stamp]:
    """Return the time stamps of a run's rows."""
    epochs: Sequence[float | None] = [None] * len(rows)
    if any("epoch" in row.fields for row in rows):
        epochs = _numbers(rows, "epoch")
    steps, times = _numbers(rows, "step"), _numbers(rows, "timestamp")
    stamps = []
    for row, epoch, step, at_s in zip(rows, epochs, steps, times, strict=True):
        last_digit_s = resolution(row.fields["timestamp"])
        stamps.append(Stamp(row.line, epoch, int(step), at_s, last_digit_s))
    return stamps


def _common_fields(rows: Sequence[CsvRow]) -> dict[str, str]:
    """Return the fields of a run's cell, which must be the same in all rows that have them."""
    common: dict[str, tuple[int, str]] = {}
    for row in rows:
        for column in _OF_CELL.keys() & row.fields.keys():
            line, text = common.setdefault(column, (row.line, row.fields[column]))
            if text != row.fields[column]:
                raise FieldError(
                    f"{column} is {text} in line {line} and {row.fields[column]} in line "
                    f"{row.line}, but a run has one: {SECOND_RUN}"
                )
    return {column: text for column, (_, text) in common.items()}


def _numbers(rows: Sequence[CsvRow], column: str) -> list[float]:
    """Return the numbers of a column, which each of a run's rows must have."""
    missing = sum(column not in row.fields for row in rows)
    if missing == len(rows):
        raise FieldError(
            f"it has no {column}: give run,epoch,seconds or run,step,timestamp"
        )
    if missing:
        raise FieldError(
            f"{column} is missing in {missing} of {counted(len(rows), 'row')}: fill it in, or "
            "leave these rows out"
        )
    return [float(_read(_OF_RUN[column], column, row)) for row in rows]


def _read(spec: ColumnSpec, column: str, row: CsvRow) -> float | int | str:
    text = row.fields[column]
    try:
        return spec.read(text)
    except FieldError as error:
        raise FieldError(f"line {row.line}: {column}={text}: {error}") from error


def _iterations(cell: Mapping[str, str], rules: Rules) -> tuple[int | None, str]:
    """Return the iterations of an epoch, None if nothing says them, and what says them."""
    given = cell.get("iterations", rules.iterations)
    if given is not None:
        return int(given), "iterations is"
    images = cell.get("images", cell.get("samples", rules.images))
    if images is None:
        return None, ""
    gpus, batch = int(cell["gpus"]), int(cell["batch"])
    if rules.batch_is_global:
        batch = max(1, batch // gpus)
    words = f"{images} images on {counted(gpus, 'GPU')} with batch {batch} make"
    return iterations(int(images), gpus, batch), words


def _cell_key(run: _History) -> tuple[str | None, ...]:
    """Return what is equal for repeats of a cell; one GPU has no strategy."""
    values = {column: run.cell.get(column) for column in _CELL_COLUMNS}
    if run.cell["gpus"] == "1":
        values["strategy"] = None
    return tuple(values.values())


def _row(run: _History, repeat: int) -> CsvRow:
    """Return a run as a row of timings."""
    figures = {"epoch_s": str(run.time.epoch_s)}
    if run.time.iterations is not None:
        figures["iterations"] = str(run.time.iterations)
    for name in ("loss", "accuracy"):
        if name in run.last:
            figures[name] = run.last[name]
    return CsvRow(run.line, {"repeat": str(repeat)} | run.cell | figures)


def _cell_text(runs: Sequence[_History]) -> str:
    """Return the cell of runs, and their names."""
    cell = runs[0].cell
    words = [counted(int(cell["gpus"]), "GPU"), f"batch {cell['batch']}"]
    if cell["gpus"] != "1":
        words.append(cell.get("strategy", Strategy.DDP.value))
    words += [cell[name] for name in ("model", "gpu_model") if name in cell]
    if "nodes" in cell:
        words.append(counted(int(cell["nodes"]), "node"))
    names = "run" if len(runs) == 1 else "runs"
    return f"{', '.join(words)}: {names} {', '.join(run.name for run in runs)}"


def _remarks(runs: Sequence[_History]) -> Iterator[str]:
    """Yield how the times of runs were found."""
    yield from _notes(runs)
    steps = [
        run.time.epoch_s / run.time.iterations for run in runs if run.time.iterations
    ]
    if steps:
        yield (
            f"the time of an epoch is that of a step ({min(steps):.3g} to {max(steps):.3g} s) "
            "times its iterations"
        )
    if (every := max((run.time.every for run in runs), default=1)) > 1:
        yield (
            f"rows are up to {every} steps apart: a pause between all of them, such as a "
            "validation as often as the rows, counts as training"
        )
    single = sum(run.time.has_warmup for run in runs)
    if single:
        yield f"{single} of {counted(len(runs), 'run')} with one epoch: it includes the warm-up"
    if len(runs) > single:
        yield "the first epoch of a run is its warm-up, and its time the median of the others"


def _notes(runs: Sequence[_History]) -> Iterator[str]:
    """Yield each note on the times of runs once, with the names of these runs."""
    by_note: dict[str, list[str]] = {}
    for run in runs:
        for note in run.time.notes:
            by_note.setdefault(note, []).append(run.name)
    for note, names in by_note.items():
        yield note if len(names) == len(runs) > 1 else f"run {', '.join(names)}: {note}"
