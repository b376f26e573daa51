"""Commands of what goes in and out: archive and import."""

import contextlib
import re
import shlex
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from hpml_jobs.cli.completion import files
from hpml_jobs.cli.console import print_json, print_note
from hpml_jobs.cli.options import Json, Outputs, StudyName, find_study, study_words
from hpml_jobs.core.cell import CellFile
from hpml_jobs.core.errors import HpmlError, UsageError
from hpml_jobs.core.paths import resolve_path, typed_path
from hpml_jobs.core.strategies import Baseline
from hpml_jobs.core.text import PROGRAM, counted, nearest, with_command
from hpml_jobs.extras.exchange.unjudged import unjudged_options
from hpml_jobs.study.files import read_bytes, reading
from hpml_jobs.study.selection import check_name, find
from hpml_jobs.study.study import Study

if TYPE_CHECKING:
    from hpml_jobs.extras.exchange.csv_columns import Rules
    from hpml_jobs.extras.exchange.csv_records import ImportChanges
    from hpml_jobs.report.report import Report

SUFFIX = ".tar.gz"

PAGE = "report.html"


def archive(
    study: StudyName = None,
    outputs: Outputs = None,
    to: Annotated[
        Path | None,
        typer.Option(
            "--to", metavar="FILE", help="file to write; default: ./STUDY.tar.gz"
        ),
    ] = None,
    anonymous: Annotated[
        bool,
        typer.Option("--anonymous", help="replace the names of hosts and UUIDs too"),
    ] = False,
    logs: Annotated[
        bool, typer.Option("--logs", help="include the logs of jobs and cells")
    ] = False,
    traces: Annotated[
        bool, typer.Option("--traces", help="include the profiler's traces (large)")
    ] = False,
    json: Json = False,
) -> None:
    """Pack a study into one file for publication: records, settings, report, hashes.

    Home folders, login names in paths, accounts, email addresses, passwords and tokens are replaced
    (docs/share.md). The same study gives the same bytes. hpml-jobs import makes a study of it.

    Example: hpml-jobs archive demo --to results.tar.gz
    """
    from hpml_jobs.extras.exchange.archive import PackOptions, pack

    if traces and anonymous:
        raise UsageError(
            "--traces with --anonymous: traces are not searched for names; leave one out"
        )
    selected = find_study(study, outputs)
    file = Path(f"{selected.name}{SUFFIX}") if to is None else typed_path(to)
    if not is_archive(file):
        raise UsageError(
            f"--to {file}: it becomes a {SUFFIX} file, so give it a name that ends so"
        )
    options = PackOptions(anonymous=anonymous, logs=logs, traces=traces)
    for line in _unjudged(selected):
        print(line, file=sys.stderr)
    with tempfile.TemporaryDirectory() as folder:
        report = _new_report(selected, Path(folder))
        packed = pack(selected, file, options, report)
    _warn(selected, packed.secrets, packed.note.left_out, is_new=report is not None)
    if json:
        print_json({"file": str(file), "bytes": packed.size, "note": packed.note})
        return
    cells = f"{counted(packed.note.cells, 'cell')}, {packed.note.records} with a record"
    print(
        f"written: {file} ({packed.size / 1e6:.3g} MB, {packed.files} files; {cells})"
    )
    if not anonymous and selected.manifest.exists():  # else it was imported
        print(
            "it has the names of the hosts that measured, to compare figures by host; to replace "
            "them before you publish it, add --anonymous"
        )
    command = f"{PROGRAM} import {shlex.quote(str(file))} --outputs imported"
    print(with_command("to make a study of it, in another folder", command))


def _unjudged(study: Study) -> Iterator[str]:
    """Yield a line on the arguments of scripts that may be secrets and stay in the archive."""
    scripts = (file.cell.script for file in _cell_files(study))
    arguments = {script.args for script in scripts if script}
    options = sorted(
        {option for text in arguments for option in unjudged_options(text)}
    )
    if options:
        yield (
            f"kept in args=: the values of {', '.join(options)}: if one is a secret, do not "
            "publish this archive; give secrets to the script in variables of the environment"
        )


def _cell_files(study: Study) -> Iterator[CellFile]:
    for folder in study.cells():
        with contextlib.suppress(HpmlError):
            yield folder.read()


def _new_report(study: Study, folder: Path) -> Path | None:
    """Make the study's report in `folder` if it has no page; None if it has one."""
    if (study.report / PAGE).is_file():
        return None
    from hpml_jobs.report.folder import write_all

    write_all(_report(study), folder)
    return folder


def _report(study: Study) -> "Report":
    from hpml_jobs.report.report import make_report
    from hpml_jobs.status.states import study_status

    status = study_status(study)
    return make_report(study.name, status.snapshots, status.states)


def _warn(
    study: Study, secrets: dict[str, int], left_out: tuple[str, ...], *, is_new: bool
) -> None:
    """Say what was removed or left out, and that a page is of other records."""
    for name, count in secrets.items():
        values, look = counted(count, "value"), "looks" if count == 1 else "look"
        print(
            f"{name}: {values} that {look} like a password or token removed",
            file=sys.stderr,
        )
    for line in left_out:
        print(f"left out: {line}", file=sys.stderr)
    if not is_new and _is_outdated(study):
        print(
            with_command(
                "warning: the page in the archive is of other records; to write it again",
                f"{PROGRAM} report {study_words(study)}",
            ),
            file=sys.stderr,
        )


def _is_outdated(study: Study) -> bool:
    from hpml_jobs.report.page.contents import is_outdated
    from hpml_jobs.study.snapshot import read_snapshots

    snapshots = read_snapshots(study.cells())
    records = [snapshot.record for snapshot in snapshots if snapshot.record]
    return is_outdated(study.report / PAGE, records)


def _import_archive(file: Path, outputs: Path | None, *, json: bool) -> None:
    """Make a study from an archive.

    SLURM is not asked about the cells of such a study, and no cell can be submitted to it.
    """
    from hpml_jobs.extras.exchange.unpack import unpack

    if not file.exists():
        raise HpmlError(f"{file} does not exist")
    study, note = unpack(file, _folder(outputs))
    if json:
        print_json({"study": study.name, "folder": str(study.root), "note": note})
        return
    cells = f"{counted(note.cells, 'cell')}, {note.records} with a record"
    print(f"study {study.name} in {study.root}: {cells}; all hashes match")
    _print_next(study)


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


def files_and_keys(incomplete: str) -> list[str]:
    """Return the files that can be imported, and the keys of timings, that begin so."""
    key, equals, value = incomplete.partition("=")
    if equals:
        return [
            f"{key}={word}" for word in WORDS.get(key, ()) if word.startswith(value)
        ]
    names = [f"{name}=" for name in KEYS if name.startswith(incomplete)]
    return files(".csv", SUFFIX)(incomplete) + names


FileAndKeys = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="FILE [KEY=VALUE]...",
        help="timings (study=NAME is needed) or an archive (.tar.gz); of timings also: "
        "batch_is=per_gpu|global rate_of=all|gpu unit=images/s|samples/s|tokens/s|s/iteration "
        "images=N samples=N iterations=N parameters=N gpus_per_node=N names=PATTERN",
        autocompletion=files_and_keys,
    ),
]


def import_(
    words: FileAndKeys = None, outputs: Outputs = None, json: Json = False
) -> None:
    """Make a study from timings of another program: rows of gpus,batch,epoch_s or gpus,batch,rate.

    Or from histories of runs: run,epoch,seconds, or run,step,timestamp as W&B exports them. Their
    GPUs and batch are in columns, or in their names by a pattern: names='{gpus}gpu_bs{batch}*'.

    Or from an archive that hpml-jobs archive made (FILE.tar.gz): the hash of every file is checked,
    and a study of the same name is not changed.

    The unit of a rate is images/s, samples/s, tokens/s or s/iteration. Optional columns: unit,
    strategy, nodes, gpus_per_node, train_s, compute_s, comm_s, repeat, parameters, images (or
    samples), iterations, loss, accuracy, model, gpu_model, date. Missing values are unknown, and
    the tables say so. See docs/share.md.

    Example: hpml-jobs import docs/published.csv study=published
    """
    from hpml_jobs.extras.exchange.csv_records import read_timings, write_study
    from hpml_jobs.extras.exchange.csv_remarks import remarks

    file, values = _parsed(words or [])
    if is_archive(file):
        _import_archive(file.expanduser(), outputs, json=json)
        return
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
    if is_archive(file) and values:
        raise UsageError(
            f"{next(iter(values))}=: an archive has its own name and values; leave it out"
        )
    if file.suffix.lower() in _ARCHIVES and not is_archive(file):
        raise UsageError(
            f"{file}: import takes a {SUFFIX} of {PROGRAM} archive, or a CSV file"
        )
    needs_name = not is_archive(file) and "study" not in values
    if needs_name and not file.exists():
        raise HpmlError(f"{file} does not exist")
    if needs_name:
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


_ARCHIVES = (".zip", ".tar", ".gz", ".bz2", ".xz", ".zst", ".7z", ".rar")


def is_archive(file: Path) -> bool:
    """Return whether a file is a study that was packed."""
    return file.name.endswith((SUFFIX, ".tgz"))


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
