"""The archive of a study, for publication: its files without personal data, with their hashes.

    NAME/README.txt      what it is, how it is read, what was replaced and left out
    NAME/SHA256SUMS      the hash of every other file, as sha256sum -c reads it
    NAME/archive.json    `ArchiveNote`
    NAME/…               study.json, manifest.jsonl, cells/, report/, … as in the study's folder

The same study gives the same bytes: names are sorted, times are those in the records.
"""

import gzip
import hashlib
import io
import re
import tarfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from hpml_jobs import __version__
from hpml_jobs.core.errors import HpmlError
from hpml_jobs.core.script import REMOVED
from hpml_jobs.core.text import counted, unix_time
from hpml_jobs.core.value import Value, decode_json
from hpml_jobs.study.cell_folder import CellFolder
from hpml_jobs.study.files import (
    MANIFEST_BYTES,
    encode,
    read_bytes,
    reason_of,
    write_whole,
)
from hpml_jobs.study.redaction import ACCOUNT, EMAIL, HOME, USER, Redactor, names_in
from hpml_jobs.study.study import COMMANDS, README, SUMS, Study

SCHEMA = 1
"""Version of the archive. 1: first."""


class ArchiveNote(Value, frozen=True, kw_only=True):
    """archive.json: what an archive contains. `measured` is when the first and last cell ended."""

    study: str
    cells: int
    records: int
    measured: tuple[str, str] | None
    measured_with: tuple[str, ...]  # versions of hpml_jobs and torch
    anonymous: bool = False
    left_out: tuple[str, ...] = ()
    hpml_jobs: str = __version__
    schema: int = SCHEMA


def readme(note: ArchiveNote) -> str:
    """Return README.txt."""
    dates = (
        f", measured {note.measured[0][:10]} to {note.measured[1][:10]}"
        if note.measured
        else ""
    )
    hosts = (
        "Host names and UUIDs (of GPUs and boots) were replaced as well, each by one of its own."
        if note.anonymous
        else "Host names are kept, because figures are compared by host."
    )
    left_out = "".join(f"  {line}\n" for line in note.left_out)
    return f"""\
Study {note.study} of hpml_jobs
{"=" * (len(note.study) + 19)}

{counted(note.cells, "cell")}, {note.records} with a record{dates}.
Measured with: {", ".join(note.measured_with) or "not reported"}.
Packed by hpml_jobs {note.hpml_jobs}, archive schema {note.schema}.

Files
  report/              page, pictures and tables; begin with report.html
  cells/*/cell.json    settings of each cell
  cells/*/record.json  raw values of every rank; iterations.npz has every iteration
  manifest.jsonl       submissions; commands.txt has their command lines
  archive.json         this page for programs
  {SUMS}           SHA-256 of every other file

Use
  sha256sum -c {SUMS}       (in this folder) checks the files
  hpml-jobs import FILE.tar.gz   makes a study of it, for collect, choose, report and status

Replaced
  Home folders are {HOME}, login names in paths {USER}, accounts {ACCOUNT}, email
  addresses {EMAIL}, passwords and tokens {REMOVED}.
  Of SLURM's environment only what describes the allocation was kept.
  {hosts}
  The settings of a cell are not changed, because its name is their hash; only secrets in the
  arguments of a script are.

Left out
  Files of submitit, Python stacks and locks; logs and traces, unless they were asked for.
{left_out}"""


_PART = r"\w[\w.-]{0,254}"
MEMBERS = re.compile(
    rf"{re.escape(README)}|{SUMS}|archive\.json|study\.json|cluster\.json|seen\.json"
    rf"|manifest\.jsonl|commands\.txt|report(/{_PART}){{1,3}}|slurm/{_PART}_log\.(err|out)"
    rf"|cells/{_PART}/(cell\.json|record\.json|iterations\.npz|attempts/current"
    rf"|attempts/{_PART}/{_PART}\.(json|npz|txt|json\.gz))",
    re.ASCII,
)
"""The files that an archive may have, below the folder of the study."""

_VERSIONS = ("hpml_jobs", "torch")
"""The facts of a record that say what it was measured with."""

_TEXTS = frozenset((".txt", ".md", ".tex", ".csv", ".svg", ".html", ".out", ".err"))
_BINARIES = frozenset((".png", ".npz", ".gz", ".pdf"))


class PackOptions(NamedTuple):
    """What goes into an archive beside records, report and commands."""

    anonymous: bool = False
    logs: bool = False
    traces: bool = False


class Packed(NamedTuple):
    """An archive that was written: its size, its files, secrets removed by file."""

    size: int
    files: int
    note: ArchiveNote
    secrets: dict[str, int]


class _Member(NamedTuple):
    """A file of the archive; `documents` is its JSON: one value, or one of each line."""

    name: str
    content: bytes
    documents: tuple[dict[str, Any], ...] = ()

    @property
    def document(self) -> dict[str, Any]:
        """Its JSON, that of its first line; empty if it has none."""
        return self.documents[0] if self.documents else {}

    @property
    def is_text(self) -> bool:
        """Whether it can have names in it."""
        return Path(self.name).suffix not in _BINARIES


def pack(
    study: Study, file: Path, options: PackOptions, report: Path | None = None
) -> Packed:
    """Write the archive of a study; `report` is a folder with the report, by default its own.

    Raises:
        HpmlError: the study has no cell, a file of it cannot be read or keeps a secret, or `file`
            exists or cannot be written.
    """
    if file.exists():
        raise HpmlError(f"{file} exists: remove it, or write another with --to FILE")
    left_out: list[str] = []
    members = list(_members(study, options, report or study.report, left_out))
    if not any(member.name.endswith("/cell.json") for member in members):
        raise HpmlError(f"study {study.name} has no cell to archive")
    redactor = _redactor(members, options)
    contents = {member.name: _redacted(member, redactor) for member in members}
    _refuse_secrets(contents, redactor)
    note = _note(study, members, options, left_out)
    contents["archive.json"] = encode(note)
    contents[README] = readme(note).encode()
    contents[SUMS] = sums(contents)
    packed = _tar(study.name, contents, _times(members, note))
    try:
        write_whole(file, packed, parents=False)
    except OSError as fault:
        raise HpmlError(f"{file} cannot be written: {reason_of(fault)}") from fault
    secrets = {name: count for name, count in redactor.secrets.items() if count}
    return Packed(len(packed), len(contents), note, secrets)


def sums(contents: dict[str, bytes]) -> bytes:
    """Return the lines of SHA256SUMS."""
    digests = {
        name: hashlib.sha256(content).hexdigest() for name, content in contents.items()
    }
    return "".join(f"{digests[name]}  {name}\n" for name in sorted(digests)).encode()


# ---- the files ----


def _members(
    study: Study, options: PackOptions, report: Path, left_out: list[str]
) -> Iterator[_Member]:
    """Yield every file of the archive, read; note in `left_out` what cannot go in."""
    for name, path in _paths(study, options, report):
        if path.is_symlink():
            left_out.append(f"{name}: a link")
            continue
        if not path.is_file():
            continue
        if not MEMBERS.fullmatch(name):
            left_out.append(f"{name}: no file of a study")
            continue
        try:
            content = read_bytes(path, MANIFEST_BYTES)
        except OSError as fault:
            left_out.append(f"{name}: {reason_of(fault)}")
            continue
        member = _parsed(name, content)
        if member is None:
            left_out.append(f"{name}: neither JSON, text nor a picture")
        else:
            yield member


def _paths(
    study: Study, options: PackOptions, report: Path
) -> Iterator[tuple[str, Path]]:
    """Yield the name in the archive and the path of each file that belongs to it."""
    for path in (
        *(study.about, study.cluster, study.commands_file),
        *(study.manifest, study.slurm_answers),
    ):
        yield path.name, path
    for path in sorted(report.rglob("[!.]*")):
        yield f"report/{path.relative_to(report).as_posix()}", path
    if options.logs:
        logs = (*study.slurm.glob("*_log.err"), *study.slurm.glob("*_log.out"))
        for path in sorted(logs):
            yield f"slurm/{path.name}", path
    for cell in study.cells():
        for path in _files_of(cell, options):
            yield f"cells/{cell.slug}/{path.relative_to(cell.root).as_posix()}", path


def _files_of(cell: CellFolder, options: PackOptions) -> Iterator[Path]:
    """Yield the files of a cell; its attempts have no numbers of their own beside a record."""
    yield from (cell.cell_json, cell.record_json, cell.iterations, cell.current)
    for attempt in cell.all_attempts():
        yield from (attempt.about, attempt.end)
        if not cell.record_json.exists():
            yield from (attempt.record, attempt.iterations)
        if options.logs:
            yield from attempt.logs()
        if options.traces:
            yield from sorted(attempt.root.glob("trace-rank*.json.gz"))


def _parsed(name: str, content: bytes) -> _Member | None:
    """Return a file by its kind; JSON that is damaged is a text. None for an unknown kind."""
    suffix = Path(name).suffix
    if suffix in (".json", ".jsonl"):
        values = content.splitlines() if suffix == ".jsonl" else [content]
        try:
            content.decode()
            return _Member(
                name, content, tuple(decode_json(v, dict[str, Any]) for v in values)
            )
        except UnicodeDecodeError:
            return None
        except ValueError:
            return _Member(name, content)
    is_known = suffix in _TEXTS | _BINARIES or name.endswith("/current")
    return _Member(name, content) if is_known else None


def _redactor(members: Sequence[_Member], options: PackOptions) -> Redactor:
    documents: list[Any] = []
    texts = []
    for member in members:
        if member.documents:
            documents += member.documents
        elif member.is_text:
            texts.append(member.content.decode(errors="replace"))
    return Redactor(names_in(documents, texts), anonymous=options.anonymous)


def _redacted(member: _Member, redactor: Redactor) -> bytes:
    """Return a file's content without personal data; unchanged content keeps its bytes."""
    if not member.is_text:
        return member.content
    if member.documents:
        return _redacted_json(member, redactor)
    text = member.content.decode(errors="replace")
    redact = redactor.text
    if member.name.endswith(".csv"):
        redact = redactor.sheet
    elif member.name == COMMANDS:
        redact = redactor.commands
    return redact(text, member.name).encode()


def _redacted_json(member: _Member, redactor: Redactor) -> bytes:
    redacted = tuple(
        redactor.document(value, member.name) for value in member.documents
    )
    if redacted == member.documents:
        return member.content
    is_lines = member.name.endswith(".jsonl")
    return b"".join(map(_json_line, redacted)) if is_lines else encode(redacted[0])


def _json_line(document: Any) -> bytes:
    return msgspec.json.encode(document) + b"\n"


def _refuse_secrets(contents: dict[str, bytes], redactor: Redactor) -> None:
    """Refuse secrets in what must not change: the settings that a cell is named after."""
    before = redactor.secrets.copy()
    for name, content in contents.items():
        if name.endswith(("/cell.json", "/record.json")):
            redactor.text(content.decode(errors="replace"), name)
            if redactor.secrets[name] > before[name]:
                raise HpmlError(
                    f"{name}: its settings contain what looks like a password or token, and a cell "
                    "is named after its settings: measure it under settings without"
                )


# ---- what is said about them ----


def _note(
    study: Study,
    members: Sequence[_Member],
    options: PackOptions,
    left_out: Sequence[str],
) -> ArchiveNote:
    records = [
        m.documents[0]
        for m in members
        if m.name.endswith("/record.json") and m.documents
    ]
    versions, ended = set(), []
    for record in records:
        facts = _part(record, "facts")
        versions |= {f"{name} {facts[name]}" for name in _VERSIONS if name in facts}
        if end := _part(record, "attempt").get("ended"):
            ended.append(str(end))
    return ArchiveNote(
        study=study.name,
        cells=sum(member.name.endswith("/cell.json") for member in members),
        records=len(records),
        measured=(min(ended), max(ended)) if ended else None,
        measured_with=tuple(sorted(versions)),
        anonymous=options.anonymous,
        left_out=tuple(left_out),
    )


def _part(document: dict[str, Any], name: str) -> dict[str, Any]:
    """Return a part of a file's JSON; empty if it is missing or damaged."""
    part = document.get(name)
    return part if isinstance(part, dict) else {}


# ---- the file ----


def _times(members: Sequence[_Member], note: ArchiveNote) -> dict[str, float]:
    """Return the time of each file that has one in it; under "" the time of all others."""
    _, last = note.measured or ("", "")
    times = {"": unix_time(last) or 0.0}
    for member in members:
        moment = _time(member)
        if moment is not None:
            times[member.name] = moment
    return times


def _time(member: _Member) -> float | None:
    """Return when the attempt that wrote a file began or ended; None if the file does not say."""
    attempt = member.document.get("attempt", member.document)
    key = "started" if member.name.endswith("/attempt.json") else "ended"
    text = attempt.get(key) if isinstance(attempt, dict) else None
    return unix_time(text) if isinstance(text, str) else None


def _tar(top: str, contents: dict[str, bytes], times: dict[str, float]) -> bytes:
    """Return the compressed archive."""
    buffer = io.BytesIO()
    with (
        gzip.GzipFile(filename="", fileobj=buffer, mode="wb", mtime=0) as compressed,
        tarfile.open(fileobj=compressed, mode="w", format=tarfile.PAX_FORMAT) as tar,
    ):
        for name in sorted(contents):
            member = tarfile.TarInfo(f"{top}/{name}")
            member.size = len(contents[name])
            member.mtime = int(max(0.0, times.get(name, times[""])))
            member.mode = 0o644
            tar.addfile(member, io.BytesIO(contents[name]))
    return buffer.getvalue()
