"""The sides of a comparison: a study, or a stored reference, by its name or path."""

from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from hpml_jobs.cli.options import find_study, history_of, outputs_of
from hpml_jobs.core.text import nearest
from hpml_jobs.errors import HpmlError, UsageError
from hpml_jobs.study.selection import all_studies, check_name
from hpml_jobs.study.study import Study

if TYPE_CHECKING:
    from hpml_jobs.report.compare.reference import Reference

FOLDER = "references"
"""The folder of stored references, next to the studies."""

SUFFIX = ".json"


class Side(NamedTuple):
    """A study with its folder, or the file of a stored reference."""

    path: Path
    study: Study | None = None

    @property
    def where(self) -> Path:
        """The folder of the study, or the file."""
        return self.path.resolve()

    def numbers(self) -> "Reference":
        """Return its numbers, under the name of the study or of the reference.

        Raises:
            HpmlError: it has none, or cannot be read.
        """
        from hpml_jobs.report.compare.reference import read_reference, reference_of
        from hpml_jobs.study.snapshot import read_study

        if self.study is not None:
            return reference_of(self.study.name, read_study(self.study, history_of(self.study)))
        return msgspec.structs.replace(read_reference(self.path), study=self.path.stem)


def of_study(study: Study) -> Side:
    """Return a study as a side."""
    return Side(study.root, study)


def reference_path(name: str, outputs: Path) -> Path:
    """Return the file of a reference: a path as it is, a name in the folder of references.

    Raises:
        UsageError: it is no name.
    """
    if is_path(name):
        return Path(name).expanduser()
    try:
        return outputs / FOLDER / f"{check_name(name)}{SUFFIX}"
    except UsageError as fault:
        raise UsageError(
            f"{name!r} is not the name of a study or reference: use letters, digits, '.', '_' and "
            f"'-'; a path has a / or ends in {SUFFIX}"
        ) from fault


def is_path(word: str) -> bool:
    """Return whether a word is the path of a reference's file, not a name."""
    return "/" in word or word.endswith(SUFFIX)


def reference_names(outputs: Path) -> list[str]:
    """Return the names of the stored references."""
    return sorted(file.stem for file in (outputs / FOLDER).glob(f"*{SUFFIX}"))


def side_of(word: str | None, outputs: Path | None) -> Side:
    """Return the study or the reference of a word; without one the most recently submitted study.

    Raises:
        HpmlError: there is none of this name; the message names the nearest.
        UsageError: the name is that of a study and of a reference.
    """
    if word is None:
        return of_study(find_study(None, outputs))
    root = Path(word.removeprefix("study=")).expanduser()
    if "/" in word and (root / "cells").is_dir():
        study = Study(root.resolve())
        study.check_schema()
        return of_study(study)
    if is_path(word):
        if not Path(word).expanduser().is_file():
            raise HpmlError(f"{word}: there is no such study folder or reference file")
        return Side(Path(word).expanduser())
    return _named(word.removeprefix("study="), outputs_of(outputs))


def _named(name: str, outputs: Path) -> Side:
    file = reference_path(name, outputs)
    studies = sorted(study.name for study in all_studies(outputs))
    if name in studies and file.is_file():
        raise UsageError(
            f"{name} is a study and a reference: give its path, {outputs / name} or {file}"
        )
    if file.is_file():
        return Side(file)
    if name not in studies:
        references = reference_names(outputs)
        near = nearest(name, [*studies, *references])
        hint = f"; did you mean {near}?" if near else ""
        raise HpmlError(
            f"no study or reference {name} in {outputs}{hint} (studies: {_list(studies)}; "
            f"references: {_list(references)})"
        )
    return of_study(find_study(name, outputs))


def _list(names: list[str]) -> str:
    return ", ".join(names) or "none"
