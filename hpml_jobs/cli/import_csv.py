"""The command that takes in timings measured elsewhere: import."""

import os
import re
import sys
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

from hpml_jobs.cli.console import print_json
from hpml_jobs.cli.options import Json, outputs_words
from hpml_jobs.core.text import counted
from hpml_jobs.errors import HpmlError, UsageError
from hpml_jobs.study.study import Study, check_name

if TYPE_CHECKING:
    from hpml_jobs.importer.write_study import Change

KEYS = ("study", "outputs", "batch_is", "images", "parameters")

BATCH_IS = ("per_gpu", "global")

FileAndKeys = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="FILE.csv study=NAME",
        help="also: batch_is=per_gpu|global images=N parameters=N outputs=PATH",
    ),
]


class Asked(NamedTuple):
    """The command line: the file, and the values of the keys that were given."""

    file: Path
    values: dict[str, str]

    def whole(self, key: str) -> int | None:
        """A count, if it was given."""
        text = self.values.get(key)
        if text is None:
            return None
        if not re.fullmatch(r"[1-9]\d{0,17}", text, re.ASCII):
            raise UsageError(f"{key}={text}: expected a whole number of 1 or more")
        return int(text)


def import_(words: FileAndKeys = None, json: Json = False) -> None:
    """Timings measured elsewhere become a study: rows of gpus,batch,epoch_s (docs/published.md).

    More columns: strategy, nodes, train_s, compute_s, comm_s, repeat, parameters, images,
    iterations, model, gpu_model, date. What is not told is unknown, and the tables say so.

    Example: hpml-jobs import docs/published.csv study=published
    """
    from hpml_jobs.importer.records import Rules, read_timings
    from hpml_jobs.importer.remarks import remarks
    from hpml_jobs.importer.write_study import settle

    asked = _parse(words or [])
    rules = Rules(
        batch_is_global=_batch_is_global(asked.values.get("batch_is", BATCH_IS[0])),
        images=asked.whole("images"),
        parameters=asked.whole("parameters"),
    )
    study = Study(_outputs(asked) / check_name(asked.values["study"]))
    records = read_timings(_content(asked.file), asked.file.name, rules)
    change = settle(study, records, asked.file.name)
    for sentence in remarks(records, rules):
        print(sentence, file=sys.stderr)
    if json:
        print_json({"study": study.name, "folder": str(study.root), **change._asdict()})
    else:
        _show(study, asked, change)


def _parse(words: list[str]) -> Asked:
    files, values = [], {}
    for word in words:
        key, is_pair, value = word.partition("=")
        if not is_pair or not key.isidentifier():
            files.append(word)
        elif key not in KEYS:
            near = get_close_matches(key, KEYS, n=1)
            hint = f"did you mean {near[0]}?" if near else f"import knows {', '.join(KEYS)}"
            raise UsageError(f"unknown key {key}: {hint}")
        elif key in values:
            raise UsageError(f"{key} is given twice")
        elif not value:
            raise UsageError(f"{key}= has no value")
        else:
            values[key] = value
    if len(files) != 1:
        told = " and ".join(files) or "none is named"
        raise UsageError(f"import takes one file ({told}): hpml-jobs import FILE.csv study=NAME")
    if "study" not in values:
        raise UsageError(f"import {files[0]}: name its study, study=NAME")
    return Asked(Path(files[0]), values)


def _batch_is_global(text: str) -> bool:
    if text not in BATCH_IS:
        raise UsageError(f"batch_is={text}: choose one of {', '.join(BATCH_IS)}")
    return text == "global"


def _outputs(asked: Asked) -> Path:
    from hpml_jobs.plan.user_config import personal_outputs

    text = asked.values.get("outputs")
    folder = Path(os.path.expandvars(text)) if text else personal_outputs()
    return folder.expanduser().resolve()


def _content(file: Path) -> bytes:
    try:
        return file.expanduser().read_bytes()
    except OSError as fault:
        raise HpmlError(f"{file} cannot be read: {fault.strerror}") from fault


def _show(study: Study, asked: Asked, change: "Change") -> None:
    told = [f"{len(slugs)} {what}" for what, slugs in change._asdict().items() if slugs]
    rows = len(change.new) + len(change.replaced) + len(change.unchanged)
    print(f"imported {counted(rows, 'row')} of {asked.file.name}: {', '.join(told)}")
    for slug in change.removed:
        print(f"removed, its row is gone: {slug}")
    print(f"study {study.name} in {study.root}")
    outputs = asked.values.get("outputs")
    where = outputs_words(Path(outputs) if outputs else None)
    print(f"next: hpml-jobs collect {study.name}{where}")
