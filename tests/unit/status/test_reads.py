"""Every file of a study is opened and decoded at most once per command."""

import sys
from collections import Counter
from pathlib import Path

import pytest

from hpml_jobs.cli.main import run
from hpml_jobs.core.cell import Outcome
from hpml_jobs.results.checks import study as checks
from hpml_jobs.status import watch
from hpml_jobs.status.watch import watch_study
from hpml_jobs.study import cell_folder
from hpml_jobs.study.manifest import ManifestEvent
from tests.unit.slurm_output import sacct_line, squeue_line
from tests.unit.study_builder import StudyBuilder

_opened: list[str] | None = None


def _note_open(event, arguments):
    if _opened is not None and event == "open" and arguments[1] in ("r", "rb"):
        _opened.append(str(arguments[0]))


# it cannot be removed, so it only notes while a test wants it
sys.addaudithook(_note_open)


@pytest.fixture
def reads(monkeypatch, builder):
    """How often each file below the study's folder is opened, and each record decoded."""
    decodings = Counter()

    def counting(decode):
        def decode_and_count(text, place):
            decodings[
                "decode " + str(Path(place).resolve().relative_to(builder.study.root))
            ] += 1
            return decode(text, place)

        return decode_and_count

    for name in ("decode", "decode_cell_file"):
        monkeypatch.setattr(cell_folder, name, counting(getattr(cell_folder, name)))
    monkeypatch.setattr(sys.modules[__name__], "_opened", [])
    return decodings


def opened(study):
    """How often each file of the study was opened, folders and files of the report aside."""
    paths = (Path(name).resolve() for name in _opened or ())
    inside = [path for path in paths if study in path.parents and path.is_file()]
    return Counter(
        str(path.relative_to(study)) for path in inside if "report" not in path.parts
    )


@pytest.fixture
def builder(slurm, working_folder):
    """Cells with a record, failed, timed out and running; one whose sbatch was interrupted."""
    made = StudyBuilder(working_folder / "outputs" / "mine").with_batches(
        32, 64, 128, 256, 512
    )
    made.with_event(ManifestEvent.SENDING, batches=(512,))
    made.sent_as("17_0", "17_1", "17_2", "17_3", batches=(32, 64, 128, 256))
    made.end_attempt(32, "17_0", Outcome.OK)
    made.end_attempt(
        64, "17_1", Outcome.FAILED, "rank 1: no", rank=1, traceback="ValueError: no"
    )
    made.begin_attempt(256, "17_3")
    slurm.set_output(
        "sacct",
        sacct_line("17_0", "COMPLETED")
        + sacct_line("17_1", "FAILED")
        + sacct_line("17_2", "TIMEOUT"),
    )
    slurm.set_output("squeue", squeue_line("17_3", "RUNNING", node="gr001"))
    return made


@pytest.mark.parametrize("command", ["status", "collect"])
def test_command_reads_each_file_once(command, builder, reads, capsys):
    assert run([command, "mine"]) == 0, capsys.readouterr().err
    counts = opened(builder.study.root)
    cells = {f"cells/{cell.slug}/cell.json" for cell in builder.cells}
    assert counts.keys() >= cells | {"manifest.jsonl", "study.json"}
    assert {name: count for name, count in counts.items() if count > 1} == {}
    assert reads.keys() == {
        f"decode {name}" for name in counts if name in cells | records(builder)
    }
    assert set(reads.values()) == {1}


def records(builder):
    """The paths of the records that exist."""
    paths = builder.study.root.glob("cells/*/record.json")
    return {str(path.relative_to(builder.study.root)) for path in paths}


@pytest.mark.parametrize("command", ["status", "collect"])
def test_checks_are_computed_once(command, builder, monkeypatch):
    calls = Counter()
    check_record = checks.check_record

    def counting(record):
        calls[record.slug] += 1
        return check_record(record)

    monkeypatch.setattr(checks, "check_record", counting)
    assert run([command, "mine"]) == 0
    assert calls == {builder.cells[0].slug: 1}


def test_watch_decodes_a_record_again_only_if_replaced(
    slurm,
    builder,
    reads,
    monkeypatch,
):
    refreshes = []
    first = builder.cells[0].slug

    def pause(_seconds):
        refreshes.append(reads[f"decode cells/{first}/record.json"])
        if len(refreshes) == 3:
            builder.publish_record(32, "17_0.r1")
            slurm.set_output("squeue")
            slurm.set_output("sacct", sacct_line("17_3", "FAILED"))

    monkeypatch.setattr(watch, "sleep", pause)
    status = watch_study(builder.study, 0.01, lambda *_: None)
    assert refreshes == [1, 1, 1]
    assert reads[f"decode cells/{first}/record.json"] == 2
    assert reads[f"decode cells/{builder.cells[1].slug}/cell.json"] == 1
    (record,) = (snapshot.record for snapshot in status.snapshots if snapshot.record)
    assert record.attempt.id == "17_0.r1"
