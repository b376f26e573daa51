"""References: the numbers of a study in a small file, written and read."""

from collections.abc import Iterable
from pathlib import Path

import msgspec

from hpml_jobs.core.upgrades import decode_upgraded
from hpml_jobs.core.validation import out_of_range
from hpml_jobs.errors import HpmlError
from hpml_jobs.report.compare.reference import SCHEMA, UPGRADES, Reference, reference_group
from hpml_jobs.report.frame.captions import setting, work_text
from hpml_jobs.report.frame.cells import cell_results
from hpml_jobs.report.report import complete_groups
from hpml_jobs.study.files import encode, write_whole
from hpml_jobs.study.reader import read_bytes, reason_of
from hpml_jobs.study.snapshot import FolderSnapshot


def reference_of(study: str, snapshots: Iterable[FolderSnapshot]) -> Reference:
    """Return the numbers of a study.

    Raises:
        HpmlError: no cell has a number.
    """
    results = cell_results(snapshots, {})
    records = [result.record for result in results if result.record and result.measured]
    groups = complete_groups(results)
    reference = Reference(
        study=study,
        measured=max((record.attempt.ended for record in records), default=""),
        groups=tuple(
            reference_group(group, setting(group), work_text(group.work)) for group in groups
        ),
    )
    if not reference.has_numbers:
        raise HpmlError(
            f"no cell of study {study} has a number; hpml-jobs status {study} shows why"
        )
    return reference


def write_reference(reference: Reference, path: Path) -> None:
    """Write a reference file; the same numbers give the same bytes.

    Raises:
        HpmlError: it cannot be written.
    """
    try:
        write_whole(path, encode(reference))
    except OSError as fault:
        raise HpmlError(f"reference {path} cannot be written: {fault.strerror}") from fault


def read_reference(path: Path) -> Reference:
    """Return the content of a reference file.

    Raises:
        HpmlError: it cannot be read, is damaged, or a newer version wrote it.
    """
    try:
        reference = decode_upgraded(read_bytes(path), Reference, SCHEMA, UPGRADES)
        fault = out_of_range(msgspec.to_builtins(reference))
        if fault:
            raise ValueError(fault)
        if not reference.has_numbers:
            raise ValueError("it has no numbers")
    except (OSError, ValueError) as fault:
        raise HpmlError(
            f"reference {path} cannot be read: {reason_of(fault)}; save it again with hpml-jobs "
            "compare --save"
        ) from fault
    return reference
