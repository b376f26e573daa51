"""Command import."""

import re
import shlex
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from hpml_jobs.cli.console import print_json, print_note
from hpml_jobs.cli.options import Json, Outputs, study_words
from hpml_jobs.core.errors import HpmlError, UsageError
from hpml_jobs.core.paths import resolve_path
from hpml_jobs.core.strategies import Baseline
from hpml_jobs.core.text import PROGRAM, counted, nearest, with_command
from hpml_jobs.study.files import read_bytes, reading
from hpml_jobs.study.selection import check_name, find
from hpml_jobs.study.study import Study

if TYPE_CHECKING:
    from hpml_jobs.extras.exchange.csv_columns import Rules
    from hpml_jobs.extras.exchange.csv_records import ImportChanges


def _print_next(study: Study, key: str = "") -> None:
    """Print the next command, and which other study is meant by commands without a name."""
    latest = find(study.root.parent, None)
    if latest.root != study.root:
        print(f"commands without the name of a study mean {latest.name}")
    command = f"{PROGRAM} collect {study_words(study)}{key}"
    print(with_command("next", command))


KEYS = (
    "study",
    "batch_is",
    "rate_of",
    "unit",
    "images",
    "samples",
    "iterations",
    "parameters",
    "gpus_per_node",
    "names",
)

WORDS = {"batch_is": ("per_gpu", "global"), "rate_of": ("all", "gpu")}
"""The values of keys that are words; the first is the default."""


FileAndKeys = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="FILE [KEY=VALUE]...",
        help="timings, study=NAME; also: "
        "batch_is=per_gpu|global rate_of=all|gpu unit=images/s|samples/s|tokens/s|s/iteration "
        "images=N samples=N iterations=N parameters=N gpus_per_node=N names=PATTERN",
    ),
]


def import_(
    words: FileAndKeys = None, outputs: Outputs = None, json: Json = False
) -> None:
    """Make a study from timings of another program: rows of gpus,batch,epoch_s or gpus,batch,rate.

    Or from histories of runs: run,epoch,seconds, or run,step,timestamp as W&B exports them. Their
    GPUs and batch are in columns, or in their names by a pattern: names='{gpus}gpu_bs{batch}*'.

    The unit of a rate is images/s, samples/s, tokens/s or s/iteration. Optional columns: unit,
    strategy, nodes, gpus_per_node, train_s, compute_s, comm_s, repeat, parameters, images (or
    samples), iterations, loss, accuracy, model, gpu_model, date. Missing values are unknown, and
    the tables say so. See docs/share.md.

    Example: hpml-jobs import docs/published.csv study=published
    """
    from hpml_jobs.extras.exchange.csv_records import read_timings, write_study
    from hpml_jobs.extras.exchange.csv_remarks import remarks

    file, values = _parsed(words or [])
    rules = _rules(values)
    study = Study(_folder(outputs) / check_name(values["study"]))
    with reading(file):
        content = read_bytes(file.expanduser())
    records = read_timings(content, file.name, rules, print_note)
    changes = write_study(study, records, file.name)
    for sentence in remarks(records, rules):
        print(sentence, file=sys.stderr)
    if json:
        print_json(
            {"study": study.name, "folder": str(study.root), **changes._asdict()}
        )
        return
    _print_changes(changes, file.name)
    print(f"study {study.name} in {study.root}")
    sizes = {record.cell.gpus for record in records}
    key = ""
    if 1 not in sizes and len(sizes) > 1:
        key = f" baseline={Baseline.SMALLEST.value}"
    _print_next(study, key)


def _rules(values: Mapping[str, str]) -> "Rules":
    """Return how the rows of a file are read, by the keys that were given."""
    from hpml_jobs.extras.exchange.csv_columns import Rules, read_unit

    rules = Rules(
        batch_is_global=_word(values, "batch_is") == "global",
        rate_is_per_gpu=_word(values, "rate_of") == "gpu",
        unit=read_unit(values["unit"]).value if "unit" in values else None,
        images=_count(values, "images") or _count(values, "samples"),
        iterations=_count(values, "iterations"),
        parameters=_count(values, "parameters"),
        gpus_per_node=_count(values, "gpus_per_node"),
        names=values.get("names"),
    )
    if {"images", "samples"} <= values.keys():
        raise UsageError("images= and samples= are the same: give one of them")
    return rules


def _print_changes(changes: "ImportChanges", file: str) -> None:
    by_change = changes._asdict()
    parts = [f"{len(slugs)} {change}" for change, slugs in by_change.items() if slugs]
    rows = len(changes.new) + len(changes.replaced) + len(changes.unchanged)
    print(f"imported {counted(rows, 'row')} of {file}: {', '.join(parts)}")
    for slug in changes.removed:
        print(f"removed {slug}: its row is gone")


def _parsed(words: list[str]) -> tuple[Path, dict[str, str]]:
    """Return the file to import, and the values of the keys that were given."""
    files, values = [], dict[str, str]()
    for word in words:
        key, is_pair, value = word.partition("=")
        if is_pair and key.isidentifier():
            _check_pair(key, value, values)
            values[key] = value
        else:
            files.append(word)
    if len(files) != 1:
        names = " and ".join(files) or "none"
        raise UsageError(
            f"import needs one file, {names} given: import FILE.csv study=NAME"
        )
    file = Path(files[0])
    if file.name.endswith((".tar.gz", ".tgz")):
        unpack = shlex.join(["tar", "xzf", str(file), "-C", "outputs"])
        raise UsageError(f"{file} is an archive; it becomes a study by: {unpack}")
    if not file.exists():
        raise HpmlError(f"{file} does not exist")
    if "study" not in values:
        raise UsageError(f"import {files[0]}: name the new study with study=NAME")
    return file, values


def _check_pair(key: str, value: str, values: Mapping[str, str]) -> None:
    """Refuse an unknown key, one that is among the `values` before it, and one without a value."""
    if key not in KEYS:
        near = nearest(key, KEYS)
        hint = f"did you mean {near}?" if near else f"keys are {', '.join(KEYS)}"
        raise UsageError(f"unknown key {key}: {hint}")
    if key in values:
        raise UsageError(f"{key} is given twice")
    if not value:
        raise UsageError(f"{key}= has no value")


def _count(values: Mapping[str, str], key: str) -> int | None:
    """Return the value of a key that is a count; None if it was not given."""
    text = values.get(key)
    if text is None:
        return None
    if not re.fullmatch(r"[1-9]\d{0,17}", text, re.ASCII):
        raise UsageError(f"{key}={text}: expected a whole number of 1 or more")
    return int(text)


def _word(values: Mapping[str, str], key: str) -> str:
    """Return the value of a key that is one of some words."""
    text = values.get(key, WORDS[key][0])
    if text not in WORDS[key]:
        raise UsageError(f"{key}={text}: choose one of {', '.join(WORDS[key])}")
    return text


def _folder(outputs: Path | None) -> Path:
    """Return the folder that a study is made in: the option's, else that of the user's config."""
    from hpml_jobs.plan.user_config import user_outputs

    return resolve_path(user_outputs() if outputs is None else outputs)
