"""Which records a page is of: a stamp in its head, which a copy of the page keeps."""

import hashlib
import re
from collections.abc import Iterable
from pathlib import Path

from hpml_jobs.core.record import Record
from hpml_jobs.report.report import Report
from hpml_jobs.study.files import read_from

_STAMP = re.compile(rb'<meta name="records" content="(\w+)">')

HEAD_BYTES = 2_000
"""The stamp is among so many first bytes of a page."""


def records_of(report: Report) -> list[Record]:
    """Return the records of a report."""
    results = (result for group in report.sources for result in group.cells)
    return [result.record for result in results if result.record]


def stamp(records: Iterable[Record]) -> str:
    """Return a text of 16 characters that other records do not have."""
    lines = {f"{record.slug} {record.attempt.id} {record.attempt.ended}\n" for record in records}
    return hashlib.sha256("".join(sorted(lines)).encode()).hexdigest()[:16]


def is_outdated(page: Path, records: Iterable[Record]) -> bool:
    """Return whether a page is of other records; of none, and of older versions, it is unknown."""
    match = _STAMP.search(read_from(page, 0, HEAD_BYTES))
    return match is not None and match[1].decode() != stamp(records)
