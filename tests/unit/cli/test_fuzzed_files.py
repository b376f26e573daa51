"""Every file that is read, damaged at random: no command ends in a traceback."""

import json
import shutil
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, configuration, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from hpml_jobs.cli import jobs as resubmission
from hpml_jobs.cli.main import run
from hpml_jobs.core.cell import Outcome
from hpml_jobs.slurm import commands
from hpml_jobs.status import cancel, query, states
from hpml_jobs.study.cell_folder import Progress, RankError
from hpml_jobs.study.files import encode, write_whole
from tests.unit.plans import plan_of
from tests.unit.slurm_output import sacct_line, squeue_line
from tests.unit.study_builder import StudyBuilder

EXAMPLES = 30
"""Examples of `make test`, in about 10 s."""

COMMANDS = (
    ("collect", "mine"),
    ("logs", "mine", "*"),
    ("cancel", "mine"),
    ("resubmit", "mine", "*"),
    (
        "plan",
        "-m",
        "gpus=1,4",
        "batch=32,64",
        "cluster=greene",
        "workload=digits",
        "study=mine",
    ),
)

ACCOUNTED = sacct_line("17_0", "COMPLETED") + sacct_line("17_1", "FAILED")
QUEUED = "JOBID|STATE\n" + squeue_line("17_3", "RUNNING", node="gr001")


def without_processes(*command):
    """What SLURM answers, without a process for every question."""
    texts = {"sacct": ACCOUNTED, "squeue": QUEUED}
    return commands.CommandAnswer(0, texts.get(command[0], ""), "")


@pytest.fixture
def template(slurm, working_folder, tmp_path, monkeypatch):
    """A study with every kind of file: measured, failed, lost, running cells."""
    configuration.set_hypothesis_home_dir(tmp_path / "hypothesis")
    for module in (cancel, query, states):
        monkeypatch.setattr(module, "ask_slurm", without_processes)
    monkeypatch.setattr(resubmission, "deliver", lambda study, choose, *_: choose())
    builder = StudyBuilder(working_folder / "outputs" / "mine").with_batches(
        32, 64, 128, 256
    )
    builder.sent_as("17_0", "17_1", "17_2", "17_3")
    for batch, job in ((64, "17_1"), (128, "17_2")):
        builder.end_attempt(
            batch, job, Outcome.FAILED, "rank 1: no", rank=1, traceback="no"
        )
    builder.begin_attempt(256, "17_3")
    builder.end_attempt(32, "17_0", Outcome.OK)
    write_errors(builder.folder(64).attempt("17_1.r0"))
    running = Progress(
        epoch=1, epochs=3, role="warmup", since="2026-10-01T10:00:00+00:00"
    )
    write_whole(
        builder.folder(256).attempt("17_3.r0").progress,
        encode(replace(running, last_s=9)),
    )
    builder.study.write_cluster(plan_of("cluster=greene", "gpu_type=v100").cluster)
    assert run(["status", "mine"]) == 0
    shutil.copytree(builder.study.root, working_folder / "whole")
    return working_folder / "whole"


def write_errors(paths):
    """Write a rank's error and a log."""
    error = RankError(
        rank=1, oom=False, reason="no", traceback="ValueError: no", time_ns=1
    )
    write_whole(paths.errors / "rank1.json", encode(error))
    write_whole(paths.log_of(0), b"some text\n" * 50)


# ---- damage ----

HOSTILE_VALUES = (
    *(
        None,
        True,
        [],
        {},
        "",
        0,
        -1,
        10**30,
        -(10**400),
        1e308,
        -1e-308,
        0.5,
        [[]],
        [None],
        {"": 0},
    ),
    *(
        "../../x",
        "\0",
        "x" * 5000,
        "é",
        "0001-01-01",
        "9999-12-31T23:59:59",
        "17_3",
        "ok",
        "nan",
    ),
)


@st.composite
def damaged_bytes(draw, content):
    """Content that is cut, flipped, replaced in part, doubled, or in another encoding."""
    at = draw(st.integers(0, max(0, len(content) - 1)))
    match draw(st.sampled_from(("cut", "flip", "insert", "twice", "utf16", "other"))):
        case "cut":
            return content[:at]
        case "flip":
            return content[:at] + bytes([draw(st.integers(0, 255))]) + content[at + 1 :]
        case "insert":
            return content[:at] + draw(st.binary(max_size=8)) + content[at:]
        case "twice":
            return content + content
        case "utf16":
            return content.decode("latin-1").encode("utf-16")
        case _:
            return draw(st.binary(max_size=40))


def places(value, place=()):
    """The path of every value inside a JSON document."""
    yield place
    keys = (
        list(value)
        if isinstance(value, dict)
        else range(len(value) if type(value) is list else 0)
    )
    for key in keys:
        yield from places(value[key], (*place, key))


@st.composite
def damaged_json(draw, content):
    """A document in which some values are replaced, and a key is doubled or removed."""
    document = json.loads(content)
    for _ in range(draw(st.integers(1, 3))):
        *path, key = draw(st.sampled_from([p for p in places(document) if p] or [(0,)]))
        parent = document
        for step in path:
            parent = parent[step]
        if not isinstance(parent, dict | list) or not parent:
            break
        action = draw(
            st.sampled_from(("replace", "replace", "replace", "remove", "add"))
        )
        if action == "replace":
            parent[key] = draw(st.sampled_from(HOSTILE_VALUES))
        elif action == "remove":
            del parent[key]
        elif isinstance(parent, dict):
            parent["another"] = draw(st.sampled_from(HOSTILE_VALUES))
        else:
            parent += parent
    text = json.dumps(document).encode()
    return text.replace(b"{", b'{"schema": 5, ', 1) if draw(st.booleans()) else text


@st.composite
def damaged_file(draw, path):
    """The damaged content of a file."""
    content = path.read_bytes()
    if path.suffix == ".jsonl":
        lines = content.splitlines()
        number = draw(st.integers(0, len(lines) - 1))
        lines[number] = draw(
            st.one_of(damaged_json(lines[number]), damaged_bytes(lines[number]))
        )
        return b"\n".join(lines) + b"\n"
    if path.suffix == ".json":
        return draw(
            st.one_of(
                damaged_json(content), damaged_json(content), damaged_bytes(content)
            )
        )
    return draw(damaged_bytes(content))


def test_damaged_files_end_no_command_in_a_traceback(template, working_folder, capsys):
    files = sorted(
        path.relative_to(template) for path in template.rglob("*") if path.is_file()
    )
    files = [path for path in files if path.parts[0] != "slurm"]
    assert {path.name for path in files} >= {
        *(
            "study.json",
            "manifest.jsonl",
            "seen.json",
            "cluster.json",
            "cell.json",
            "record.json",
        ),
        *(
            "current",
            "attempt.json",
            "end.json",
            "progress.json",
            "log.txt",
        ),
    }
    study = working_folder / "outputs" / "mine"
    whole = {path: (template / path).read_bytes() for path in files}

    @settings(
        max_examples=EXAMPLES,
        derandomize=True,
        database=None,
        deadline=None,
        suppress_health_check=list(HealthCheck),
        phases=[Phase.generate],
    )
    @given(st.data())
    def damage_and_run(data):
        path = data.draw(st.sampled_from(files))
        content = data.draw(damaged_file(template / path))
        rewrite(study, whole | {path: content})
        for words in (("status", "mine"), data.draw(st.sampled_from(COMMANDS))):
            code = run([*words])
            out, err = capsys.readouterr()
            assert code in (0, 1, 2), words
            assert "Traceback" not in out + err
            assert code == 0 or err.splitlines()[-1].startswith("hpml-jobs: "), err

    damage_and_run()


def rewrite(study: Path, contents):
    """Make a study's files what they are to be, and remove all others."""
    for path in study.rglob("*"):
        if path.is_file() and path.relative_to(study) not in contents:
            path.unlink()
    for path, content in contents.items():
        file = study / path
        if not file.exists() or file.read_bytes() != content:
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(content)
