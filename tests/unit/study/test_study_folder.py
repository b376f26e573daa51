"""A study's folder: its name, its schema, its manifest, and how it is found again."""

import resource

import pytest

from hpml_jobs.core.errors import HpmlError, UsageError
from hpml_jobs.core.validation import InvalidRecordError
from hpml_jobs.study.manifest import ManifestEvent, ManifestLine
from hpml_jobs.study.selection import check_name, find
from hpml_jobs.study.study import Study
from tests.unit.builders import a_cell, a_record
from tests.unit.study_builder import write_record


def manifest_line(happening, *cells, batch="b1", jobs=()):
    return ManifestLine(happening=happening, batch=batch, cells=cells, jobs=jobs)


@pytest.fixture
def study(tmp_path):
    made = Study(tmp_path / "outputs" / "mine")
    made.create()
    return made


@pytest.mark.parametrize(
    "name",
    ["", "..", "../x", "/abs", ".x", "a\n"],
)
def test_name_that_could_be_a_path_is_refused(name):
    with pytest.raises(UsageError, match=r"is not a name"):
        check_name(name)


def test_study_of_newer_version_is_refused_and_unchanged(study):
    about = '{"schema": 2, "hpml_jobs": "9.1", "new": [1]}'
    study.about.write_text(about)
    with pytest.raises(HpmlError, match=r"has schema 2, .* use hpml_jobs 9.1"):
        study.create()
    assert study.about.read_text() == about


def test_manifest_gives_latest_job_of_a_cell(study):
    study.append(manifest_line(ManifestEvent.SENDING, "a", "b"))
    study.append(manifest_line(ManifestEvent.SENT, "a", "b", jobs=("17_0", "17_1")))
    study.append(manifest_line(ManifestEvent.REFUSED, "b", batch="b2"))
    study.append(manifest_line(ManifestEvent.SENT, "a", batch="b3", jobs=("18",)))
    assert study.history().jobs == {"a": "18", "b": "17_1"}
    assert all(each.time for each in study.lines())


def test_manifest_truncated_last_line_is_skipped_safely(study):
    """A truncated last line is skipped and does not swallow the next line written."""
    study.append(manifest_line(ManifestEvent.SENT, "a", jobs=("17",)))
    with study.manifest.open("ab") as file:
        file.write(b'{"happening":"sent","batch":"b2","cel')
    assert study.history().jobs == {"a": "17"}
    study.append(manifest_line(ManifestEvent.SENT, "b", batch="b3", jobs=("18",)))
    assert study.history().jobs == {"a": "17", "b": "18"}


def test_manifest_line_without_room_is_an_error(study):
    study.append(manifest_line(ManifestEvent.SENT, "a", jobs=("17",)))
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    room = study.manifest.stat().st_size + 20
    resource.setrlimit(resource.RLIMIT_FSIZE, (room, limits[1]))
    try:
        with pytest.raises(HpmlError, match=r"manifest\.jsonl"):
            study.append(manifest_line(ManifestEvent.SENT, "b", jobs=("18",)))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert study.history().jobs == {"a": "17"}


def test_manifest_foreign_lines_are_skipped(study):
    study.manifest.write_bytes(b'\n{"happening": "\xff"}\n[]\n')
    study.append(manifest_line(ManifestEvent.SENT, "a", jobs=("17",)))
    assert study.history().jobs == {"a": "17"}


def test_record_of_another_cell_is_rejected(study):
    folder = study.cell(a_cell().slug)
    assert folder.read_record() is None
    write_record(folder, a_record(a_cell(batch=128)))
    with pytest.raises(InvalidRecordError, match=r"is the record of ddp-4gpu-b128"):
        folder.read_record()
    write_record(folder, a_record(a_cell()))
    assert folder.read_record() == a_record(a_cell())


def test_study_is_found_by_name_or_most_recently_submitted(tmp_path):
    outputs = tmp_path / "outputs"
    for name in ("old", "new"):
        study = Study(outputs / name)
        study.create()
        study.append(manifest_line(ManifestEvent.SENDING, "a"))
    (outputs / "not a study").mkdir()
    assert find(outputs, None).name == "new"
    assert find(outputs, "old").name == "old"
    with pytest.raises(
        HpmlError, match=r"no study other in .*outputs \(studies: new, old\)"
    ):
        find(outputs, "other")


def test_renamed_study_names_itself_in_its_commands(study):
    """The commands of a copy would else add cells to the study that it was copied from."""
    study.add_command("hpml-jobs -m gpus=1,2 'args=--out study=x' study=mine")
    study.add_command("hpml-jobs gpus=4")
    copy = Study(study.root.rename(study.root.with_name("again")))
    commands = (
        "hpml-jobs -m gpus=1,2 'args=--out study=x' study=again",
        "hpml-jobs gpus=4",
    )
    assert copy.commands() == commands
