"""`python -m tests.gpu`: machines without a GPU, parts that fail, take too long or end the run."""

import errno
import os
import signal
import subprocess
import sys
import time
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.gpu import __main__ as command
from tests.gpu import machine, part_run
from tests.gpu.catalog import part_named
from tests.gpu.figures import Figure, Results, findings
from tests.patience import PATIENCE_S, wait_until

FP16 = part_named("fp16")

MACHINE = '{"card":"NVIDIA H200","torch":"2.14.1"}'
FIGURE = '{"key":"finite_sgd","value":1}'
WRITE = f"""printf '%s\\n' '{MACHINE}' '{FIGURE}' > "$5/figures.jsonl" """


@pytest.fixture
def python(tmp_path, monkeypatch):
    """Put a shell script in Python's place; $5 is the folder of the part."""

    def replace(script):
        path = tmp_path / "python"
        path.write_text(f"#!/bin/sh\n{script}\n")
        path.chmod(0o755)
        monkeypatch.setattr(sys, "executable", str(path))

    monkeypatch.setattr(part_run, "local_gpus", lambda: ("NVIDIA H200",))
    return replace


def test_part_that_takes_too_long_keeps_its_figures(python, tmp_path):
    python(f"{WRITE}; sleep 600")
    result = part_run.run_part(FP16._replace(minutes=0.05), tmp_path / "log")
    assert result.failure == "stopped after 0.05 minutes"
    assert result.machine.card == "NVIDIA H200"
    assert result.figures == (Figure(key="finite_sgd", value=1),)
    visit = part_run.Visit(end_s=time.monotonic() + 3, is_short=True)
    cut = part_run.run_part(FP16, tmp_path / "log", visit=visit)
    assert cut.failure == "stopped after 3 s by --budget"
    assert cut.series == "NVIDIA H200, short, interrupted"
    assert findings(FP16, cut) == []


CARD_PRESENT = """\
import runpy, sys
from tests.gpu import machine
machine.why_no_card = machine.why_in_use = lambda: None
results, sys.executable = sys.argv[1:]
sys.argv = ["gpu", "fp16", "values", "--results", results]
runpy.run_module("tests.gpu", run_name="__main__")
"""
"""The command on a machine with a card, with another program in Python's place."""


@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGTERM, 130), (signal.SIGKILL, -9)]
)
def test_interrupted_visit_keeps_the_figures_so_far(number, code, python, tmp_path):
    real, results = sys.executable, tmp_path / "gpu.json"
    python(f"echo $$ >> {tmp_path}/pids; {WRITE}; sleep 600")
    words = [real, "-c", CARD_PRESENT, str(results), sys.executable]
    with subprocess.Popen(words, cwd=part_run.ROOT) as visit:
        wait_until(
            lambda: Results.read(results).parts,
            "a figure is kept",
            has_ended=lambda: visit.poll() is not None,
        )
        visit.send_signal(number)
        assert visit.wait(PATIENCE_S) == code
    (pid,) = map(int, (tmp_path / "pids").read_text().split())
    if number is signal.SIGKILL:
        os.killpg(pid, number)
    else:
        assert not Path(f"/proc/{pid}").exists()
    (run,) = Results.read(results).parts
    assert (run.part, run.is_interrupted) == ("fp16", True)
    assert run.figures == (Figure(key="finite_sgd", value=1),)


def test_part_that_fails_says_the_last_line_of_its_log(python, tmp_path, monkeypatch):
    """Its process has the path of the machine's packages behind the checkout."""
    monkeypatch.setenv("PYTHONPATH", "/site")
    python("echo Traceback >&2; echo $PYTHONPATH >&2; exit 1")
    result = part_run.run_part(FP16, tmp_path / "log")
    assert result.failure == f"exit code 1: {part_run.ROOT}{os.pathsep}/site"
    assert "fp16\nTraceback\n" in (tmp_path / "log").read_text()
    assert (result.machine.card, result.figures) == (None, ())


@pytest.fixture
def run(monkeypatch, capsys):
    """Run the command here, on a machine with a card; its exit code, output and errors."""
    monkeypatch.setattr(command.signal, "signal", lambda *_: None)
    monkeypatch.setattr(machine, "why_no_card", lambda: None)
    monkeypatch.setattr(machine, "why_in_use", lambda: None)

    def run(*words):
        monkeypatch.setattr(sys, "argv", ["gpu", *map(str, words)])
        with pytest.raises(SystemExit) as stopped:
            command.main()
        return stopped.value.code, *capsys.readouterr()

    return run


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["fp61"], "no such part: fp61; use events, "),
        (["fp16", "--budget", "20"], "no part fits; fp16 needs 32 s with the 20 s for"),
        (["fp16", "--budget", "nan"], "'nan' is no number of seconds"),
    ],
)
def test_wrong_words_end_with_one_line(words, message, run, python):
    code, _, errors = run(*words)
    assert code == 2
    assert message in errors
    assert errors.count("\n") == 1


@pytest.mark.parametrize("why", ["why_no_card", "why_in_use"])
def test_no_card_and_a_card_in_use_end_with_the_reason(why, run, monkeypatch):
    monkeypatch.setattr(machine, why, lambda: "no free GPU")
    code, output, _ = run()
    assert code.startswith("no free GPU")
    assert output == ""


def test_card_in_use_is_the_one_that_torch_sees_first(monkeypatch):
    used = {"a": 0, "b": 3e9}
    nvml = SimpleNamespace(
        nvmlDeviceGetMemoryInfo=lambda handle: SimpleNamespace(used=used[handle])
    )
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1")
    monkeypatch.setattr(machine, "nvml_session", lambda: nullcontext(nvml))
    monkeypatch.setattr(machine, "gpus_by_uuid", lambda _: {"GPU-0": "a", "GPU-1": "b"})
    assert machine.why_in_use().startswith("other processes use 3.0 GB of GPU 1")
    used["b"] = 1e9
    assert machine.why_in_use() is None


def test_results_that_cannot_be_kept_are_refused_before_a_part(
    run, tmp_path, monkeypatch
):
    def refuse(_handle):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", refuse)
    code, output, errors = run("fp16", "--results", tmp_path / "gpu.json")
    assert (code, output) == (2, "")
    assert "gpu.json cannot be written: No space left on device; name another" in errors


def test_budget_leaves_out_what_does_not_fit_and_runs_shorter_parts(
    run, python, tmp_path
):
    python(f'echo "$@" > {tmp_path}/words; {WRITE}')
    results = tmp_path / "gpu.json"
    words = ("cells", "fp16", "--budget", 79, "--short", "--results", results)
    code, output, _ = run(*words)
    assert "cells: left out, 59 s are left, and it needs 60" in output
    assert (tmp_path / "words").read_text().split()[-1] == "--short"
    (part,) = Results.read(results).parts
    assert (part.part, part.series) == ("fp16", "NVIDIA H200, short")
    assert code == 1  # three figures were not measured
    assert "\n3 findings\n" in output


def test_rehearsal_is_not_kept(run, python, tmp_path, monkeypatch):
    python(WRITE)
    kept = []
    monkeypatch.setattr(command, "keep", lambda *result: kept.append(result))
    code, output, _ = run("fp16", "--rehearse", "--results", tmp_path / "gpu.json")
    assert (code, kept) == (0, [])
    assert "the figures mean nothing" in output


def test_wrong_pixels_end_the_run_unless_it_keeps_going(run, python, tmp_path):
    results = tmp_path / "gpu.json"
    for pixels, options, parts in (
        (2, [], ["values"]),
        (2, ["--keep-going"], ["values", "fp16"]),
        (0, [], ["values", "fp16"]),
    ):
        figures = f'{{"key":"pixels","value":{pixels}}}\\n{{"key":"losses","value":0}}'
        python(f"""printf '{MACHINE}\\n{figures}\\n' > "$5/figures.jsonl" """)
        results.unlink(missing_ok=True)
        _, output, _ = run("values", "fp16", *options, "--results", results)
        assert [part.part for part in Results.read(results).parts] == parts
        assert ("later parts would measure nothing" in output) is (len(parts) == 1)


VISIT = part_run.ROOT / "tests" / "gpu" / "visit.sh"


@pytest.fixture
def visit(tmp_path):
    """Run visit.sh with some variables."""

    def run(**variables):
        place = {"PYTHON": sys.executable, "OUT": f"{tmp_path}/out"}
        return subprocess.run(
            ["bash", str(VISIT), "--help"],
            env=os.environ | place | {"TMPDIR": str(tmp_path)} | variables,
            capture_output=True,
            text=True,
            check=False,
        )

    return run


def test_visit_sees_the_carried_wheels_and_the_packages_of_the_machine(
    wheels, visit, tmp_path
):
    done = visit(WHEELS=str(wheels))
    assert (done.returncode, done.stderr) == (0, "")
    assert "--budget SECONDS" in done.stdout
    (python,) = tmp_path.glob("*/env/bin/python")
    modules = "import carried, torch, hpml_jobs.core, tests.gpu"
    subprocess.run([python, "-c", modules], cwd=tmp_path, check=True)


def test_visit_without_torch_ends_with_one_line(visit):
    done = visit(PYTHON="false")
    message = "visit.sh: false has no torch: name one that has by PYTHON=\n"
    assert (done.returncode, done.stderr) == (2, message)
