"""Real studies of version 0.4.0 (tests/data): still read, collected, skipped when finished."""

import csv
import json
import os
import shlex
import shutil
from pathlib import Path
from typing import Any

import pytest

from hpml_jobs.cli.main import run
from hpml_jobs.core.cell import decode_cell_file
from hpml_jobs.core.validation import decode

ROOT = Path(__file__).parents[3]
STUDIES = ROOT / "tests" / "data" / "studies-0.4.0"
EXPECTED = ROOT / "tests" / "data" / "expected-0.4.0"
NAMES = ("import-040", "learning-040", "local-040", "slurm-040")
SLUGS: dict[str, Any] = json.loads((EXPECTED / "slugs.json").read_text())


COMMANDS = [
    pytest.param(
        command["words"],
        command["cells"],
        id=f"{name}-{number}",
    )
    for name in NAMES
    for number, command in enumerate(SLUGS[name]["finished"])
]
FINISHED = [
    command for command in COMMANDS if "workload=custom" not in command.values[0]
]
OWN_CODE = [command for command in COMMANDS if "workload=custom" in command.values[0]]
CELLS = sorted(STUDIES.glob("*/cells/*"))

NAMES_IN_040 = """
TooMuch = OutOfMemoryModel
SleepsOnce = SleepsOnFirstRun
"""
"""The names by which the studies call models of the journeys' user code."""

RENAMED_TABLES = {"verdicts": "checks"}
RENAMED_COLUMNS = {"verdict": "result"}


def expected(name):
    """What 0.4.0 said of one of its studies."""
    return json.loads((EXPECTED / f"{name}.json").read_text())


@pytest.fixture
def desk(laptop):
    """A folder with copies of the studies and of what their commands need."""
    outputs = laptop / "outputs"
    shutil.copytree(STUDIES, outputs)
    for name, milliseconds in json.loads((outputs / "times.json").read_text()).items():
        os.utime(outputs / name, ns=(milliseconds * 10**6,) * 2)  # Git keeps no times
    user_code = (ROOT / "tests" / "journeys" / "user_code.py").read_text()
    (laptop / "owncode.py").write_text(user_code + NAMES_IN_040)
    shutil.copytree(ROOT / "tests" / "journeys" / "conf", laptop / "conf")
    return laptop


def answer(capsys, *words):
    """The JSON that a command prints."""
    assert run([*words, "--json"]) == 0, capsys.readouterr().err
    return json.loads(capsys.readouterr().out)


def number(text):
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            pass
    return text


CHANGED_CHECKS = {
    "overhead": "judges a timed epoch that is longer than the instrumented one as well",
    "drift": "judged by ten blocks of iterations, which records of 0.4.0 do not have",
    "loader-bound": "judged on the rank with the largest stall",
    "efficiency": "a warning with single runs: their scatter may explain it",
}
"""Checks that are gone or judge otherwise since 0.4.0, with the reason; new checks may be added."""

JOINED_CHECKS = {
    "equal-threads": "threads",
    "system": "conditions",
}
"""Checks that are a part of another one now; what a part found is a result of its own."""

LEAST_WAITING = "of the rank that waits least, not of the rank with the longest epoch"
MOST_STALLED = (
    "of the rank with the largest stall, not of the rank with the longest epoch"
)
RESIDUAL = "by images, and from train_s of the rank with the largest stall"
PHASES = ("stall", "h2d", "forward", "backward", "comm_exposed", "optimizer")

CORRECTED: dict[str, dict[str, str]] = {
    "communication": {
        **dict.fromkeys(
            ("comm_exposed_s", "comm_forward_s", "comm_total_s"), LEAST_WAITING
        ),
        **dict.fromkeys(("overlap_s", "overlap"), LEAST_WAITING),
        "comm_residual_s": RESIDUAL,
    },
    "phases": dict.fromkeys(
        ("closure", "pack_s", *(f"phase_{phase}_s" for phase in PHASES)), LEAST_WAITING
    ),
    "scaling": {
        **dict.fromkeys(("train_s", "stall_s"), MOST_STALLED),
        "weak_efficiency": "the ratio of median steps; it was efficiency x N I_N / I_1",
    },
    "table2": {
        **dict.fromkeys(
            ("batch_32_compute_s", "batch_32_comm_exposed_s"), LEAST_WAITING
        ),
        **{
            f"batch_{batch}_{name}_residual_s": RESIDUAL
            for batch in (32, 64, 128, 512)
            for name in ("compute", "comm")
        },
    },
    "table3": {
        f"batch_{batch}_bus_residual_gb_per_s": RESIDUAL for batch in (32, 64, 128, 512)
    },
}
"""Columns of each table whose numbers are computed otherwise since 0.4.0, with the reason."""

MOVED: dict[str, dict[str, str]] = {
    "phases": {
        f"phase_{phase}_{end}_s": "ranges over ranks went: iterations.npz has each rank"
        for phase in PHASES
        for end in ("least", "most")
    },
    "scaling": {
        "karp_flatt": "of a fixed global batch, which a serial fraction needs",
        "images_per_s": "units_per_s",
    },
}
"""Columns of each table that mean something else since 0.4.0, with the reason."""


@pytest.mark.parametrize("folder", CELLS, ids=lambda path: path.name)
def test_cells_and_records_keep_slug_and_hash(folder):
    text = (folder / "cell.json").read_bytes()
    cell = decode_cell_file(text, "cell.json").cell
    facts = SLUGS[folder.parent.parent.name]["cells"][folder.name]
    assert (cell.slug, cell.digest) == (folder.name, facts["digest"])
    if (folder / "record.json").exists():
        record = decode((folder / "record.json").read_bytes(), "record.json")
        assert (record.slug, record.cell) == (folder.name, cell)


@pytest.mark.parametrize("name", NAMES)
def test_status_gives_the_same_states(desk, name, capsys):
    states = {cell["slug"]: cell for cell in answer(capsys, "status", name)["cells"]}
    wanted = expected(name)["status"]
    assert states.keys() == wanted.keys()
    for slug, facts in wanted.items():
        same = {
            key: value
            for key, value in facts.items()
            if key not in ("reason", "warning")
        }
        # by then the end was the time of a file, later than that of the record, if there is one
        if (elapsed_s := same.pop("elapsed_s", None)) is not None:
            assert states[slug]["elapsed_s"] in (
                None,
                pytest.approx(elapsed_s, abs=1),
            ), slug
        assert {key: states[slug][key] for key in same} == pytest.approx(same), slug
        assert bool(states[slug]["reason"]) == bool(facts["reason"]), slug


COMPARED = ("conditions", "efficiency", "threads")
"""Checks that compare the runs of a condition group."""


@pytest.mark.parametrize("name", NAMES)
def test_checks_of_records_give_the_same_levels(desk, name, capsys):
    cells = {cell["slug"]: cell for cell in answer(capsys, "status", name)["cells"]}
    for slug, levels in expected(name)["checks"].items():
        results = sorted(
            (check["check"], check["level"]) for check in cells[slug]["checks"]
        )
        kept: dict[str, set[str]] = {}
        for check, level in levels.items():
            if check not in CHANGED_CHECKS:
                kept.setdefault(JOINED_CHECKS.get(check, check), set()).add(level)
        # its groups of loader workers and threads are not compared now
        if name == "local-040":
            kept = {
                check: levels for check, levels in kept.items() if check not in COMPARED
            }
        violated = {
            check: levels - {"pass"} or levels for check, levels in kept.items()
        }
        wanted = sorted(
            (check, level) for check, levels in violated.items() for level in levels
        )
        assert [result for result in results if result[0] in kept] == wanted, slug


def without_prose(value):
    """A number, a name, or "" for a sentence: messages may be reworded."""
    return "" if isinstance(value, str) and " " in value else value


@pytest.mark.parametrize("name", NAMES)
def test_collect_writes_the_same_numbers(desk, name, capsys):
    assert run(["collect", name, "--all"]) == 0, capsys.readouterr().err
    report = desk / "outputs" / name / "report"
    for label, sheet in expected(name)["sheets"].items():
        with (report / f"{RENAMED_TABLES.get(label, label)}.csv").open() as file:
            head, *rows = csv.reader(file)
        columns = [RENAMED_COLUMNS.get(column, column) for column in sheet["columns"]]
        moved = MOVED.get(label, {})
        kept = [column for column in columns if column not in moved]
        same_names = [
            column for column in head if column in columns and column not in moved
        ]
        assert sorted(same_names) == sorted(kept), label
        same = [column for column in kept if column not in CORRECTED.get(label, {})]
        for row, wanted in zip(rows, sheet["rows"], strict=True):
            line = dict(zip(head, map(number, row), strict=True))
            old = dict(zip(columns, wanted, strict=True))
            assert [without_prose(line[column]) for column in same] == pytest.approx(
                [without_prose(old[column]) for column in same]
            ), label


def kept(outputs):
    """What a submission that sends nothing must leave alone: records, manifests, attempts."""
    wanted = ("record.json", "manifest.jsonl", "current", "end.json", "attempt.json")
    return {
        path: path.read_bytes() for path in outputs.rglob("*") if path.name in wanted
    }


@pytest.mark.parametrize(("words", "cells"), FINISHED)
def test_finished_cells_are_skipped(
    words,
    cells,
    desk,
    request,
    capsys,
):
    """Commands of which 0.4.0 said that all cells are finished; syncbn is refused on CPUs now."""
    fake = request.getfixturevalue("slurm") if "cluster=rig" in words else None
    before = kept(desk / "outputs")
    code = run(shlex.split(words))
    printed = capsys.readouterr()
    assert code == (2 if "syncbn" in words else 0), printed.err
    assert code or str(cells) in printed.out
    assert kept(desk / "outputs") == before
    assert fake is None or fake.scripts == []


@pytest.mark.parametrize(("words", "cells"), OWN_CODE)
def test_cells_with_own_code_are_new(words, cells, desk, request, capsys):
    """0.4.0 did not record the code, so it is unknown whether the cells ran today's."""
    if "cluster=rig" in words:
        request.getfixturevalue("slurm")
    before = kept(desk / "outputs")
    assert run(["plan", *shlex.split(words), "--json"]) == 0
    shown = capsys.readouterr()
    assert {row["why"] for row in json.loads(shown.out)["cells"]} == {"new"}
    assert "code was not recorded since " in shown.err
    assert kept(desk / "outputs") == before
