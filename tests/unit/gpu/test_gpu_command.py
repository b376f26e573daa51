"""`python -m tests.gpu`: wrong names, machines without a GPU, parts that fail or take too long."""

import errno
import os
import signal
import subprocess
import sys
import tarfile
import time
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.gpu import __main__ as command
from tests.gpu import bench, machine, part_run
from tests.gpu.catalog import part_named
from tests.gpu.figures import Figure, Machine, Results, findings
from tests.gpu.parts import endings, threads
from tests.gpu.rehearsal import rehearsal
from tests.gpu.sizes import SHORT, Sizes

THREADS = part_named("threads")

MACHINE = '{"card":"NVIDIA H200","torch":"2.14.1"}'
FIGURE = '{"key":"same_on_ms","value":1.5}'


@pytest.fixture
def python(tmp_path, monkeypatch):
    """Put a shell script in Python's place; $5 is the folder of the part."""

    def replace(script):
        path = tmp_path / "python"
        path.write_text(f"#!/bin/sh\n{script}\n")
        path.chmod(0o755)
        monkeypatch.setattr(sys, "executable", str(path))

    return replace


def test_part_that_takes_too_long_keeps_its_figures(python, tmp_path, monkeypatch):
    monkeypatch.setattr(part_run, "local_gpus", lambda: ("NVIDIA H200",))
    python(f"""printf '%s\\n' '{MACHINE}' '{FIGURE}' > "$5/figures.jsonl"; sleep 60""")
    result = part_run.run_part(THREADS._replace(minutes=0.01), tmp_path / "log")
    assert result.failure == "stopped after 0.01 minutes"
    assert result.machine.card == "NVIDIA H200"
    assert result.figures == (Figure(key="same_on_ms", value=1.5),)
    assert result.seconds < 30


CARD_PRESENT = """\
import runpy, sys
from tests.gpu import machine
machine.why_no_card = machine.why_in_use = lambda: None
results, sys.executable = sys.argv[1:]
sys.argv = ["gpu", "threads", "values", "--results", results]
runpy.run_module("tests.gpu", run_name="__main__")
"""
"""The command on a machine with a card, with another program in Python's place."""


@pytest.mark.parametrize(
    ("number", "code"),
    [(signal.SIGTERM, 130), (signal.SIGINT, 130), (signal.SIGKILL, -9)],
)
def test_interrupted_visit_keeps_the_figures_so_far(number, code, python, tmp_path):
    real, results = sys.executable, tmp_path / "gpu.json"
    script = f"""printf '%s\\n' '{MACHINE}' '{FIGURE}' > "$5/figures.jsonl"; sleep 60"""
    python(f"echo $$ >> {tmp_path}/pids; {script}")
    words = [real, "-c", CARD_PRESENT, str(results), sys.executable]
    with subprocess.Popen(
        words, cwd=part_run.ROOT, stdout=subprocess.PIPE, text=True
    ) as visit:
        await_figure(results)
        visit.send_signal(number)
        output, _ = visit.communicate(timeout=60)
    (pid,) = map(int, (tmp_path / "pids").read_text().split())
    if number is signal.SIGKILL:
        os.killpg(pid, number)
    else:
        assert not Path(f"/proc/{pid}").exists()
        assert "threads: interrupted by a signal" in output
    (run,) = Results.read(results).parts
    assert (run.part, run.is_interrupted) == ("threads", True)
    assert run.figures == (Figure(key="same_on_ms", value=1.5),)
    assert visit.returncode == code


def await_figure(results, limit_s=60):
    deadline = time.monotonic() + limit_s
    while not Results.read(results).parts:
        assert time.monotonic() < deadline
        time.sleep(0.1)


def test_part_that_fails_says_the_last_line_of_its_log(python, tmp_path):
    python("echo Traceback >&2; echo 'RuntimeError: CUDA error' >&2; exit 1")
    result = part_run.run_part(THREADS, tmp_path / "log")
    assert result.failure == "exit code 1: RuntimeError: CUDA error"
    assert (
        "threads\nTraceback\nRuntimeError: CUDA error\n"
        in (tmp_path / "log").read_text()
    )
    assert result.machine.card is None
    assert result.figures == ()


SITE = "/somewhere/site"


def test_processes_keep_the_path_of_packages_behind_the_checkout(
    python, tmp_path, monkeypatch
):
    monkeypatch.setenv("PYTHONPATH", SITE)
    python("echo $PYTHONPATH; exit 1")
    paths = [
        part_run.run_part(THREADS, tmp_path / "log").failure.removeprefix(
            "exit code 1: "
        )
    ]
    paths.append(
        bench.run_command(["sh", "-c", "echo $PYTHONPATH"], {}, 60).output.strip()
    )
    monkeypatch.setattr(
        endings,
        "job_command",
        lambda _: ["sh", "-c", f"echo $PYTHONPATH > {tmp_path}/job"],
    )
    with rehearsal(tmp_path) as on_cpu:
        list(endings._ended(on_cpu, "killed", signal.SIGKILL))
    paths.append((tmp_path / "job").read_text().strip())
    assert paths == [f"{part_run.ROOT}{os.pathsep}{SITE}"] * 3


@pytest.fixture
def run(monkeypatch, capsys):
    """Run the command here, on a machine with a card; its exit code, output and errors."""
    monkeypatch.setattr(command.signal, "signal", lambda *_: None)
    monkeypatch.setattr(machine, "why_no_card", lambda: None)
    monkeypatch.setattr(machine, "why_in_use", lambda: None)
    monkeypatch.setattr(part_run, "local_gpus", lambda: ("NVIDIA H200",))

    def run(*words):
        monkeypatch.setattr(sys, "argv", ["gpu", *map(str, words)])
        with pytest.raises(SystemExit) as stopped:
            command.main()
        return stopped.value.code, *capsys.readouterr()

    return run


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["threds"], "no such part: threds; use events, "),
        (
            ["threads", "nvml", "--budget", "20"],
            "--budget 20: no part fits; nvml needs 30 s with the 20 s for the end: use --budget 30",
        ),
        (["nvml", "--budget", "-1"], "'-1' is no number of seconds, for example 520"),
        (["nvml", "--budget", "nan"], "'nan' is no number of seconds"),
    ],
)
def test_wrong_words_end_with_one_line(words, message, run):
    code, _, errors = run(*words)
    assert code == 2
    assert message in errors
    assert errors.count("\n") == 1


@pytest.mark.parametrize(
    ("why", "reason", "remedy"),
    [
        (
            "why_no_card",
            "no GPU here",
            "; python -m tests.gpu --rehearse runs the parts on the CPU",
        ),
        ("why_in_use", "other processes use 9 GB of GPU 0: end them", ""),
    ],
)
def test_no_card_and_a_card_in_use_end_with_the_reason(
    why, reason, remedy, run, monkeypatch
):
    monkeypatch.setattr(machine, why, lambda: reason)
    assert run() == (reason + remedy, "", "")


@pytest.mark.parametrize(
    ("used", "reason"),
    [
        (3e9, "other processes use 3.0 GB of GPU 1: end them, see nvidia-smi"),
        (1e9, None),
    ],
)
def test_card_in_use_is_the_one_that_torch_sees_first(used, reason, monkeypatch):
    nvml = SimpleNamespace(
        nvmlDeviceGetMemoryInfo=lambda handle: SimpleNamespace(
            used=used if handle == "b" else 0
        )
    )
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1")
    monkeypatch.setattr(machine, "nvml_session", lambda: nullcontext(nvml))
    monkeypatch.setattr(machine, "gpus_by_uuid", lambda _: {"GPU-0": "a", "GPU-1": "b"})
    assert machine.why_in_use() == reason


def test_results_that_cannot_be_kept_are_refused_before_a_part(
    run, tmp_path, monkeypatch
):
    def refuse(_handle):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", refuse)
    results = tmp_path / "gpu.json"
    code, output, errors = run("threads", "--results", results)
    assert (code, output) == (2, "")
    assert errors == (
        f"python -m tests.gpu: {results} cannot be written: No space left on device; name another "
        "file by --results (or --cells)\n"
    )


def test_budget_leaves_out_what_does_not_fit_and_runs_shorter_parts(
    run, python, tmp_path
):
    figures = f"""printf '%s\\n' '{MACHINE}' '{FIGURE}' > "$5/figures.jsonl" """
    python(f'echo "$@" > {tmp_path}/words; {figures}')
    results = tmp_path / "gpu.json"
    words = ("accuracy", "threads", "--budget", 60, "--short", "--results", results)
    code, output, _ = run(*words)
    assert "accuracy: left out, 40 s are left, and it needs 100" in output
    assert "threads: at most 0.66" in output
    assert (tmp_path / "words").read_text().split()[-1] == "--short"
    (part,) = Results.read(results).parts
    assert (part.part, part.series) == ("threads", "NVIDIA H200, short")
    assert code == 1  # three figures were not measured
    assert "\n4 findings\n" in output


def test_part_that_the_budget_cuts_is_interrupted_and_no_finding(
    python, tmp_path, monkeypatch
):
    monkeypatch.setattr(part_run, "local_gpus", lambda: ("NVIDIA H200",))
    python(f"""printf '%s\\n' '{MACHINE}' '{FIGURE}' > "$5/figures.jsonl"; sleep 60""")
    visit = part_run.Visit(end_s=time.monotonic() + 1, is_short=True)
    result = part_run.run_part(THREADS, tmp_path / "log", visit=visit)
    assert result.failure == "stopped after 1 s by --budget"
    assert result.series == "NVIDIA H200, short, interrupted"
    assert findings(THREADS, result) == []


def test_rehearsal_is_not_kept_and_findings_are_failures_only(
    python, tmp_path, monkeypatch, capsys
):
    python(f"""printf '%s\\n' '{MACHINE}' '{FIGURE}' > "$5/figures.jsonl" """)
    kept = []
    monkeypatch.setattr(command, "keep", lambda *result: kept.append(result))
    monkeypatch.setattr(command.signal, "signal", lambda *_: None)
    results = tmp_path / "gpu.json"
    monkeypatch.setattr(
        sys, "argv", ["gpu", "threads", "--rehearse", "--results", str(results)]
    )
    with pytest.raises(SystemExit) as stopped:
        command.main()
    assert stopped.value.code == 0
    assert kept == []
    assert "the figures mean nothing" in capsys.readouterr().out


VALUES = '{"key":"pixels","value":PIXELS}\\n{"key":"losses","value":0}'


@pytest.fixture
def visit(python, tmp_path, monkeypatch, capsys):
    """Run two parts on a card with pixels wrong by a number; the parts kept, and the output."""

    def run(pixels, *options):
        figures = VALUES.replace("PIXELS", str(pixels))
        python(f"""printf '{MACHINE}\\n{figures}\\n' > "$5/figures.jsonl" """)
        monkeypatch.setattr(machine, "why_no_card", lambda: None)
        monkeypatch.setattr(machine, "why_in_use", lambda: None)
        monkeypatch.setattr(command.signal, "signal", lambda *_: None)
        results = tmp_path / "gpu.json"
        words = ["values", "threads", *options, "--results", str(results)]
        monkeypatch.setattr(sys, "argv", ["gpu", *words])
        with pytest.raises(SystemExit):
            command.main()
        return [
            part.part for part in Results.read(results).parts
        ], capsys.readouterr().out

    return run


def test_wrong_pixels_end_the_run_unless_it_keeps_going(visit, tmp_path):
    for pixels, options, runs in ((2, [], 1), (2, ["--keep-going"], 2), (0, [], 2)):
        parts, output = visit(pixels, *options)
        assert parts[-runs:] == ["values", "threads"][:runs]
        assert ("later parts would measure nothing" in output) is (runs == 1)
        assert f"send {tmp_path / 'gpu.json'} and {tmp_path / 'gpu.log'}" in output


def test_files_of_cells_are_added_to_an_archive(python, tmp_path):
    python(
        'mkdir -p "$5/cells/x"; touch "$5/cells/x/trace-rank0.json.gz" "$5/cells/x/weights.pt"'
    )
    visit = part_run.Visit(cells=tmp_path / "cells.tar")
    for name in ("threads", "nvml"):
        part_run.run_part(part_named(name), tmp_path / "log", visit=visit)
    with tarfile.open(tmp_path / "cells.tar") as cells:
        assert cells.getnames() == [
            "threads/cells/x/trace-rank0.json.gz",
            "nvml/cells/x/trace-rank0.json.gz",
        ]


def test_short_part_measures_with_the_sizes_of_a_visit(tmp_path, monkeypatch):
    sizes = []
    monkeypatch.setattr(part_run, "die_with_parent", lambda: None)
    monkeypatch.setattr(machine, "why_no_card", lambda: None)
    monkeypatch.setattr(machine, "read_machine", lambda: Machine(card="NVIDIA H200"))
    monkeypatch.setattr(
        threads, "measure", lambda bench: sizes.append(bench.sizes) or []
    )
    for is_short in (True, False):
        part_run.measure_part(THREADS, tmp_path, rehearse=False, is_short=is_short)
    assert sizes == [SHORT, Sizes()]


VISIT = part_run.ROOT / "tests" / "gpu" / "visit.sh"


def visit_script(tmp_path, **variables):
    environment = {
        "PYTHON": sys.executable,
        "OUT": str(tmp_path / "out"),
        "TMPDIR": str(tmp_path),
    }
    return subprocess.run(
        ["bash", str(VISIT), "--help"],
        env=os.environ | environment | variables,
        capture_output=True,
        text=True,
        check=False,
    )


def test_visit_sees_the_carried_wheels_and_the_packages_of_the_machine(
    wheels, tmp_path
):
    done = visit_script(tmp_path, WHEELS=str(wheels))
    assert (done.returncode, done.stderr) == (0, "")
    assert "--budget SECONDS" in done.stdout
    (python,) = tmp_path.glob("*/env/bin/python")
    modules = "import carried, torch, hpml_jobs.core, tests.gpu"
    subprocess.run([python, "-c", modules], cwd=tmp_path, check=True)


@pytest.mark.parametrize(
    ("variables", "message"),
    [
        ({"WHEELS": "/nowhere"}, "no wheels in /nowhere: name their folder by WHEELS="),
        ({"PYTHON": "false"}, "false has no torch: name one that has by PYTHON="),
        ({"BUDGET": "8m"}, "BUDGET=8m is no number of seconds, for example 520"),
    ],
)
def test_visit_with_a_wrong_variable_ends_with_one_line(variables, message, tmp_path):
    done = visit_script(tmp_path, **variables)
    assert (done.returncode, done.stderr) == (2, f"visit.sh: {message}\n")
