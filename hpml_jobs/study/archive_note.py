"""What an archive says of itself: archive.json for programs, README.txt for people."""

from hpml_jobs import __version__
from hpml_jobs.core.text import counted
from hpml_jobs.core.value import Value
from hpml_jobs.study.redaction import ACCOUNT, EMAIL, HOME, REMOVED, USER

SCHEMA = 1
"""Version of the archive. 1: first."""

README, SUMS = "README.txt", "SHA256SUMS"


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
        f", measured {note.measured[0][:10]} to {note.measured[1][:10]}" if note.measured else ""
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
  The settings of a cell are not changed, because its name is their hash.

Left out
  Files of submitit, Python stacks and locks; logs and traces, unless they were asked for.
{left_out}"""
