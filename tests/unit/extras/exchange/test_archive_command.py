"""Commands archive and import: the same study comes back, without personal data."""

import gzip
import hashlib
import io
import json
import re
import shutil
import tarfile
from pathlib import Path

import msgspec
import pytest

from hpml_jobs.cli.main import run
from hpml_jobs.core.cell import Outcome
from hpml_jobs.core.cluster import Cluster
from hpml_jobs.core.record import Attempt, Neighbours
from hpml_jobs.extras.exchange import unpack as unpacking
from hpml_jobs.extras.exchange.archive import PackOptions, pack
from hpml_jobs.report.files import json_tables
from hpml_jobs.report.folder import write_tables
from hpml_jobs.report.page.contents import contents as contents_of_page
from hpml_jobs.report.page.formats import html_document
from hpml_jobs.report.report import make_report
from hpml_jobs.slurm.jobs import JobState
from hpml_jobs.status.states import cell_states
from hpml_jobs.study.files import encode, write_whole
from hpml_jobs.study.redaction import Names, Redactor
from hpml_jobs.study.selection import find
from hpml_jobs.study.snapshot import read_snapshots
from hpml_jobs.study.study import Study
from tests.unit.builders import V100, a_cell, a_record
from tests.unit.study_builder import StudyBuilder

SLURM_FACTS = {
    "SLURM_CPUS_PER_TASK": "6",
    "SLURM_JOB_USER": "ada17",
    "SLURM_JOB_ACCOUNT": "pr_123_secret",
    "SLURM_SUBMIT_DIR": "/scratch/ada17/hpml",
    "SLURM_JOB_NODELIST": "gr001",
    "MY_TOKEN": "abcdef",
}

PERSONAL = re.compile(rb"ada17|pr_123_secret|boris|hunter2|ada@uni|hf_abcdefghij")


def build(outputs):
    """A study on SLURM with one record, a cell that failed, and traces of its user everywhere."""
    builder = StudyBuilder(outputs / "mine")
    cell = a_cell(gpus=1, batch=128)
    facts = msgspec.structs.replace(
        V100, slurm=SLURM_FACTS, container="/scratch/ada17/x.sif"
    )
    record = a_record(cell, "101_0.r0", facts=facts)
    neighbours = Neighbours(jobs=1, same_user=0, users=("boris",))
    attempt = msgspec.structs.replace(record.attempt, neighbours=neighbours)
    builder.with_record(msgspec.structs.replace(record, attempt=attempt))
    places = {"data_root": "/home/ada17/data", "code_root": "/gpfs/home/ada17/code"}
    builder.with_cell(a_cell(gpus=2, batch=128), **places).sent_as("101_0", "101_1")
    study = builder.study
    failed = study.cell(builder.slug)
    attempt = failed.attempt("101_1.r0")
    about = Attempt(id="101_1.r0", job="101_1", started="2026-10-01T10:00:00+00:00")
    write_whole(attempt.about, encode(about))
    write_whole(failed.current, b"101_1.r0")
    end = {
        "attempt": msgspec.to_builtins(about),
        "outcome": "failed",
        "reason": "No file /home/ada17/data/a, WANDB_TOKEN=hunter2hunter2",
        "traceback": "ada@uni.edu in /scratch/ada17/x.py",
    }
    write_whole(attempt.end, encode(end))
    write_whole(attempt.root / "log.txt", b"login with hf_abcdefghijklmnopqrstuvwxyz\n")
    states = {
        "101_0": JobState(job="101_0", state="COMPLETED", node="gr001"),
        "101_1": JobState(job="101_1", state="FAILED", node="gr001", exit_code="1:0"),
    }
    write_whole(study.slurm_answers, encode(states))
    setup = ("export WANDB_API_KEY=hunter2hunter2", "module load x")
    study.write_cluster(Cluster(name="greene", account="pr_123_secret", setup=setup))
    study.add_command(
        "hpml-jobs -m gpus=1,2 cluster.account=pr_123_secret outputs=/home/ada17/o"
    )
    return builder


@pytest.fixture(scope="module")
def original(tmp_path_factory):
    """The folder of a study with its report; tests only read it."""
    outputs = tmp_path_factory.mktemp("original")
    builder = build(outputs)
    report = builder.collect()
    write_tables(report, builder.study.report)
    # without pictures, which have no names in them
    page = html_document(contents_of_page(report, {}))
    write_whole(builder.study.report / "report.html", page.encode())
    return outputs


@pytest.fixture(scope="module")
def archived(original, tmp_path_factory):
    """The archive of that study, made once."""
    file = tmp_path_factory.mktemp("archive") / "mine.tar.gz"
    pack(Study(original / "mine"), file, PackOptions())
    return file


@pytest.fixture
def packed(archived, laptop):
    """The archive of the study in the current folder, on a machine without SLURM."""
    return Path(shutil.copy(archived, laptop))


def contents(file):
    """The files of an archive by name."""
    with tarfile.open(file) as tar:
        return {member.name: tar.extractfile(member).read() for member in tar}


def fault_of(capsys, *words):
    capsys.readouterr()
    code = run([*words])
    fault = capsys.readouterr().err
    assert fault.count("\n") == 1, fault
    return code, fault


def test_archive_and_unpack_keep_tables(laptop, capsys):
    builder = StudyBuilder(laptop / "outputs" / "mine")
    for gpus in (1, 2):
        builder.with_record(
            a_record(a_cell(gpus=gpus, batch=128), f"10{gpus}_0.r0", 8 / gpus)
        )
    write_whole(builder.study.report / "tables.json", b"{}")  # no report is made anew
    assert run(["archive", "mine"]) == 0
    assert run(["import", "mine.tar.gz", "--outputs", "other"]) == 0
    assert "2 cells, 2 with a record; all hashes match" in capsys.readouterr().out
    documents = []
    for outputs in ("outputs", "other"):
        selected = find(Path(outputs), "mine")
        report = make_report(
            "mine", read_snapshots(selected.cells()), cell_states(selected)
        )
        documents.append(json_tables.document(report))
    assert documents[0] == documents[1]


def test_unpacked_study_has_the_same_states(packed, laptop):
    for words in (["import", str(packed)], ["status"], ["choose"]):
        assert run(words) == 0
    ok, failed = cell_states(Study(laptop / "outputs" / "mine"))
    assert (ok.outcome, failed.outcome) == (Outcome.OK, Outcome.FAILED)
    assert failed.reason.startswith("No file /home/user/data/a, WANDB_TOKEN=[removed]")


def test_import_names_the_study_of_commands_without_a_name(packed, laptop, capsys):
    assert run(["import", str(packed)]) == 0
    name = find(Path("outputs"), None).name
    shown = capsys.readouterr().out
    assert "commands without the name" not in shown
    assert shown.endswith(f"hpml-jobs collect {name}\n")
    shutil.rmtree(Path("outputs") / name)
    later = StudyBuilder(Path("outputs") / "later").with_record(a_record(a_cell()))
    later.sent_as("local-1-1")
    assert run(["import", str(packed)]) == 0
    shown = capsys.readouterr().out
    assert "commands without the name of a study mean later\n" in shown
    assert shown.endswith(f"hpml-jobs collect {name}\n")


def test_archive_has_no_personal_data_and_no_secret(original, laptop, capsys):
    assert run(["archive", "mine", "--outputs", str(original)]) == 0
    files = contents("mine.tar.gz")
    assert {
        "mine/README.txt",
        "mine/commands.txt",
        "mine/report/tables.md",
    } <= files.keys()
    assert [name for name, text in files.items() if PERSONAL.search(text)] == []
    assert b"cluster.account=account outputs=/home/user/o" in files["mine/commands.txt"]
    record = json.loads(next(t for n, t in files.items() if n.endswith("/record.json")))
    assert record["facts"]["slurm"] == {
        "SLURM_CPUS_PER_TASK": "6",
        "SLURM_JOB_NODELIST": "gr001",
    }
    assert record["attempt"]["neighbours"]["users"] == ["user"]
    assert "log.txt" not in " ".join(files)
    warned = capsys.readouterr().err
    assert "cluster.json: 1 value that looks like a password or token removed" in warned


def test_archive_of_the_same_study_has_the_same_bytes(original, packed, laptop):
    shutil.copytree(original, "copy", copy_function=shutil.copyfile)  # with other times
    assert run(["archive", "mine", "--outputs", "copy", "--to", "b.tar.gz"]) == 0
    assert (laptop / "b.tar.gz").read_bytes() == packed.read_bytes()
    with tarfile.open(packed) as tar:
        assert {(m.uid, m.gid, m.uname, m.mode) for m in tar} == {(0, 0, "", 0o644)}


def test_archive_sums_are_those_of_every_file(packed):
    files = contents(packed)
    lines = files.pop("mine/SHA256SUMS").decode().splitlines()
    digests = {
        f"mine/{name}": digest for digest, name in (line.split("  ") for line in lines)
    }
    assert digests == {
        name: hashlib.sha256(text).hexdigest() for name, text in files.items()
    }


def test_archive_anonymous_replaces_hosts_and_logs_are_optional(original, laptop):
    words = ["archive", "mine", "--outputs", str(original)]
    assert run([*words, "--anonymous", "--logs"]) == 0
    files = contents("mine.tar.gz")
    assert not any(b"gr001" in text for text in files.values())
    assert any(b'"host-1"' in text for text in files.values())
    (log,) = (text for name, text in files.items() if name.endswith("/log.txt"))
    assert log == b"login with [removed]\n"


def test_archive_of_an_unpacked_study_has_the_same_files(packed, laptop):
    assert run(["import", str(packed)]) == 0
    assert run(["archive", "mine", "--to", "again.tar.gz"]) == 0
    assert (laptop / "again.tar.gz").read_bytes() == packed.read_bytes()


def test_archive_leaves_out_what_unpack_would_refuse(laptop, capsys):
    builder = StudyBuilder(laptop / "outputs" / "mine").with_record(
        a_record(a_cell(gpus=1))
    )
    report = builder.study.report
    for name in ("report.html", "notes (old).md", "program.exe", ".cache.json"):
        write_whole(report / name, b"{}")
    (report / "link.md").symlink_to("/etc/passwd")
    write_whole(builder.study.slurm_answers, b'{"\xff": 1}')
    assert run(["archive", "mine"]) == 0
    assert [
        line for line in capsys.readouterr().err.splitlines() if "left out" in line
    ] == [
        "left out: seen.json: neither JSON, text nor a picture",
        "left out: report/link.md: a link",
        "left out: report/notes (old).md: no file of a study",
        "left out: report/program.exe: neither JSON, text nor a picture",
    ]
    assert run(["import", "mine.tar.gz", "--outputs", "other"]) == 0
    assert [path.name for path in Path("other/mine/report").iterdir()] == [
        "report.html"
    ]


@pytest.mark.parametrize("name", ["x.zip", "x", "x.tar", "x.gz"])
def test_archive_that_import_would_not_read_is_not_written(
    original, laptop, capsys, name
):
    words = ("archive", "mine", "--outputs", str(original), "--to", name)
    assert fault_of(capsys, *words)[0] == 2
    assert not (laptop / name).exists()


def test_archive_never_overwrites_a_file(packed, original, capsys):
    before = packed.read_bytes()
    code, fault = fault_of(capsys, "archive", "mine", "--outputs", str(original))
    assert (code, packed.read_bytes()) == (1, before)
    assert "--to FILE" in fault


def test_archive_makes_a_report_where_there_is_none(laptop):
    StudyBuilder(laptop / "outputs" / "mine").with_record(a_record(a_cell(gpus=1)))
    assert run(["archive", "mine"]) == 0
    assert "mine/report/tables.md" in contents("mine.tar.gz")
    assert not Path("outputs/mine/report").exists()


def test_archive_of_an_empty_study_is_refused(laptop, capsys):
    StudyBuilder(laptop / "outputs" / "empty")
    code, fault = fault_of(capsys, "archive", "empty")
    assert code == 1
    assert "has no cell to archive" in fault


def test_archive_refuses_a_secret_that_a_cell_is_named_after(laptop, capsys):
    workload = msgspec.structs.replace(a_cell().workload, name="x token=hunter2hunter2")
    builder = StudyBuilder(laptop / "outputs" / "mine")
    builder.with_record(a_record(a_cell(workload=workload)))
    write_whole(builder.study.report / "tables.json", b"{}")
    code, fault = fault_of(capsys, "archive", "mine")
    assert code == 1
    assert "looks like a password or token" in fault
    assert not (laptop / "mine.tar.gz").exists()


def test_unpack_keeps_an_existing_study(packed, capsys):
    assert run(["import", str(packed)]) == 0
    note = Path("outputs/mine/note")
    note.write_text("mine")
    code, fault = fault_of(capsys, "import", str(packed))
    assert code == 1
    assert "--outputs FOLDER" in fault
    assert note.read_text() == "mine"
    assert [path.name for path in Path("outputs").iterdir()] == ["mine"]


def test_unpacked_study_asks_no_slurm_and_gets_no_cells(archived, slurm, capsys):
    assert run(["import", str(archived)]) == 0
    slurm.set_output("sacct", "101_0|RUNNING|0:0|n1|1|1|1|1|30||00:00:00\n")
    assert run(["status", "mine"]) == 0
    assert "2 cells: 1 ok, 1 failed" in capsys.readouterr().out
    assert slurm.calls("sacct") + slurm.calls("squeue") == []
    code, fault = fault_of(capsys, "resubmit", "mine", "--failed")
    assert code == 1
    assert "is from an archive and gets no new cells" in fault


def test_unpacked_study_that_was_running_is_missing(laptop):
    builder = StudyBuilder(laptop / "outputs" / "mine").with_batches(32, 64)
    builder.sent_as("101_0", "101_1").begin_attempt(32, "101_0")
    write_whole(
        builder.study.slurm_answers,
        encode({"101_0": JobState(job="101_0", state="RUNNING")}),
    )
    write_whole(builder.study.report / "tables.json", b"{}")
    assert run(["archive", "mine"]) == 0
    assert run(["import", "mine.tar.gz", "--outputs", "other"]) == 0
    states = cell_states(find(Path("other"), "mine"))
    assert {state.outcome for state in states} == {Outcome.MISSING}
    assert (
        "(last known state: running); the study was archived before" in states[0].reason
    )


# ---- damaged and hostile archives ----


def rewritten(packed, change):
    """Write the archive again with its members changed: change(name, content, header)."""
    file = packed.with_name("hostile.tar.gz")
    with tarfile.open(packed) as tar, tarfile.open(file, "w:gz") as new:
        for member in tar:
            content = tar.extractfile(member).read()
            content = change(member, content)
            if content is not None:
                member.size = len(content)
                new.addfile(member, io.BytesIO(content))
    return file


def renamed(old, new):
    def change(member, content):
        member.name = member.name.replace(old, new)
        return content

    return change


def edited(member, content):
    return (
        content.replace(b"8.0", b"7.0")
        if member.name.endswith("/record.json")
        else content
    )


def as_link(member, content):
    if member.name.endswith("/commands.txt"):
        member.type, member.linkname = tarfile.SYMTYPE, "/etc/passwd"
        return b""
    return content


def as_device(member, content):
    if member.name.endswith("/commands.txt"):
        member.type = tarfile.CHRTYPE
        return b""
    return content


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            lambda m, c: b"x\n" if m.name.endswith("SHA256SUMS") else c,
            "line 1 of SHA256SUMS",
        ),
        (edited, "was changed after it was packed (SHA-256)"),
        (
            lambda m, c: None if m.name.endswith("cell.json") else c,
            "cell.json is missing",
        ),
        (renamed("mine/commands.txt", "/etc/cron.d/x"), "is no file of a study"),
        (renamed("mine/commands.txt", "mine/../../x"), "is no file of a study"),
        (
            renamed("mine/commands.txt", "mine/report/../../../x"),
            "is no file of a study",
        ),
        (
            renamed("mine/commands.txt", "mine/slurm/1_submitted.pkl"),
            "is no file of a study",
        ),
        (renamed("mine/commands.txt", "mine/\x1b[31m"), "is no file of a study"),
        (renamed("mine/commands.txt", "yours/commands.txt"), "is not below mine/"),
        (renamed("mine/commands.txt", "mine/study.json"), "is in it twice"),
        (renamed("mine/", "../"), "is not the name of a study"),
        (as_link, "is a link or a device"),
        (as_device, "is a link or a device"),
    ],
)
def test_unpack_refuses_hostile_archives_in_one_line(change, message, packed, capsys):
    code, fault = fault_of(capsys, "import", str(rewritten(packed, change)))
    assert code == 1
    assert message in fault
    assert list(Path("outputs").iterdir()) == []
    assert not Path("commands.txt").exists()


def long_header():
    """A pax header of 100,000 digits, which Python's own reader may read for minutes."""
    header = tarfile.TarInfo("mine/x")
    header.type, header.size = tarfile.XHDTYPE, 100_000
    return gzip.compress(header.tobuf(tarfile.USTAR_FORMAT) + b"0" * 100_352, mtime=0)


LONG_HEADER = long_header()


@pytest.mark.parametrize(
    "content",
    [b"", b"no archive", gzip.compress(b"x" * 4000, mtime=0), LONG_HEADER, None],
    ids=["empty", "text", "gzip", "long header", "absent"],
)
def test_unpack_refuses_other_files_in_one_line(content, packed, capsys):
    file = Path("other.tar.gz")
    file.write_bytes(packed.read_bytes()[:-2000] if content is None else content)
    code, fault = fault_of(capsys, "import", str(file))
    assert code == 1
    assert "hpml-jobs: other.tar.gz" in fault


def test_unpack_refuses_a_bomb(packed, capsys, monkeypatch):
    monkeypatch.setattr(unpacking, "ALWAYS_BYTES", 1000)
    bomb = rewritten(
        packed, lambda m, c: b" " * 10**7 if m.name.endswith("tables.md") else c
    )
    code, fault = fault_of(capsys, "import", str(bomb))
    assert code == 1
    assert "unpacks to more than 100 times its size" in fault


def test_unpack_refuses_a_newer_archive(packed, capsys, monkeypatch):
    monkeypatch.setattr(unpacking, "SCHEMA", 0)
    code, fault = fault_of(capsys, "import", str(packed))
    assert code == 1
    assert "its schema is 1" in fault


# ---- redaction ----


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("see /home/eve/x and /Users/eve", "see /home/user/x and /Users/user"),
        ("/vast/ada17/data", "/vast/user/data"),
        ("/vast/ada17x/data", "/vast/ada17x/data"),
        ("export HF_TOKEN=abcd1234", "export HF_TOKEN=[removed]"),
        ("curl https://me:pass@host/x", "curl https://me:[removed]@host/x"),
        pytest.param(
            "." * 10**5 + "a" * 10**5, "." * 10**5 + "a" * 10**5, id="long words"
        ),
        ("workload.model=my_token:build", "workload.model=my_token:build"),
        ("password: 'hunter2hunter2'", "password: '[removed]'"),
        ('{"api_key":"hunter2hunter2"}', '{"api_key":"[removed]"}'),
        ("--api-key abcdefgh --gpus 2", "--api-key [removed] --gpus 2"),
        (
            "1,200 tokens/s; token: 4,096 per GPU",
            "1,200 tokens/s; token: 4,096 per GPU",
        ),
        (
            "2 other jobs (users: eve, boris-b); x",
            "2 other jobs (users: user, user); x",
        ),
        ("CANCELLED by 1002 (eve), job 17", "CANCELLED, job 17"),
        ("Invalid account pr_123", "Invalid account account"),
        (r"Invalid account pr\_123 in LaTeX", "Invalid account account in LaTeX"),
        ("sbatch --account physics x.sh", "sbatch --account account x.sh"),
        ("#SBATCH --account=physics", "#SBATCH --account=account"),
    ],
)
def test_redactor_replaces_names_and_secrets_only(text, expected):
    names = Names(frozenset(("ada17",)), frozenset(("pr_123", "physics")), ())
    redactor = Redactor(names, anonymous=False)
    assert redactor.text(text, "a") == expected
    assert redactor.text(expected, "a") == expected


def test_redactor_keeps_the_identity_of_a_cell():
    names = Names(frozenset(("digits",)), frozenset(), ("digits", "gr1"))
    document = {"cell": {"workload": {"data": "/home/ada/x"}}, "host": "digits"}
    redactor = Redactor(names, anonymous=True)
    assert redactor.document(document, "cell.json") == document | {"host": "host-1"}
    assert (
        redactor.text("gr1.site.org at 10.1.2.3, gr10", "log")
        == "host-2 at 0.0.0.0, gr10"
    )
