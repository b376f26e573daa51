"""`python -m tests.gpu`: wrong names, machines without a GPU, parts that fail or take too long."""

import sys

import pytest

from tests.gpu import __main__ as command
from tests.gpu import machine
from tests.gpu.catalog import part_named
from tests.gpu.figures import Figure

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


def test_part_that_takes_too_long_keeps_its_figures(python, monkeypatch):
    monkeypatch.setattr(command, "local_gpus", lambda: ("NVIDIA H200",))
    python(f"""printf '%s\\n' '{MACHINE}' '{FIGURE}' > "$5/figures.jsonl"; sleep 60""")
    result = command.run_part(THREADS._replace(minutes=0.01))
    assert result.failure == "stopped after 0.01 minutes"
    assert result.machine.card == "NVIDIA H200"
    assert result.figures == (Figure(key="same_on_ms", value=1.5),)
    assert result.seconds < 30


def test_part_that_fails_says_the_last_line_of_its_log(python):
    python("echo Traceback >&2; echo 'RuntimeError: CUDA error' >&2; exit 1")
    result = command.run_part(THREADS)
    assert result.failure == "exit code 1: RuntimeError: CUDA error"
    assert result.machine.card is None
    assert result.figures == ()


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (["threds"], 2, "no such part: threds"),
        ([], "no GPU here; python -m tests.gpu --rehearse runs the parts on the CPU", ""),
    ],
)
def test_wrong_name_and_no_card_end_with_the_reason(words, code, message, monkeypatch, capsys):
    monkeypatch.setattr(machine, "why_no_card", lambda: "no GPU here")
    monkeypatch.setattr(command.signal, "signal", lambda *_: None)
    monkeypatch.setattr(sys, "argv", ["gpu", *words])
    with pytest.raises(SystemExit) as stopped:
        command.main()
    assert stopped.value.code == code
    assert message in capsys.readouterr().err


def test_rehearsal_is_not_kept_and_findings_are_failures_only(python, monkeypatch, capsys):
    python(f"""printf '%s\\n' '{MACHINE}' '{FIGURE}' > "$5/figures.jsonl" """)
    kept = []
    monkeypatch.setattr(command, "keep", lambda *result: kept.append(result))
    monkeypatch.setattr(command.signal, "signal", lambda *_: None)
    monkeypatch.setattr(sys, "argv", ["gpu", "threads", "--rehearse"])
    with pytest.raises(SystemExit) as stopped:
        command.main()
    assert stopped.value.code == 0
    assert kept == []
    assert "the figures mean nothing" in capsys.readouterr().out
