"""Shell completion of commands, options, studies, keys and choices, in a real bash."""

import inspect
import os
import pty
import shutil
import subprocess
import sys

import pytest

from hpml_jobs.cli.commands import COMMANDS, COMPLETION_VARIABLE, PROGRAM, function_of
from hpml_jobs.cli.main import run
from hpml_jobs.study.files import write_whole

BASH = shutil.which("bash")

pytestmark = pytest.mark.skipif(BASH is None, reason="there is no bash")

RESULT = "it became: "


def complete_in_bash(program, *lines):
    """What becomes of lines, each typed up to a Tab, in an interactive bash with the script."""
    commands = program.folder / "bin"
    commands.mkdir()
    (commands / PROGRAM).write_text(
        f'#!/bin/sh\nexec "{sys.executable}" -m hpml_jobs "$@"\n'
    )
    (commands / PROGRAM).chmod(0o755)
    start = program.folder / "rc"
    start.write_text(program.ok("completion", "bash"))
    environment = program.environment | {
        "PATH": f"{commands}:{os.environ['PATH']}",
        "TERM": "dumb",
        "INPUTRC": os.devnull,
        "HISTFILE": "",
    }
    terminal, its_end = pty.openpty()
    shell = subprocess.Popen(
        [str(BASH), "--noprofile", "--rcfile", str(start), "-i"],
        cwd=program.folder,
        env=environment,
        stdin=its_end,
        stdout=its_end,
        stderr=its_end,
        start_new_session=True,
    )
    os.close(its_end)
    home, end = b"\x01", b"\x05"  # what was completed becomes the words of an echo
    for line in lines:
        echo = (
            home + f"echo '{RESULT[:4]}''{RESULT[4:]}'".encode() + b"'" + end + b"'\n"
        )
        os.write(terminal, line.encode() + b"\t" + echo)
    os.write(terminal, b"exit\n")
    shown = b""
    while part := _read_terminal(terminal):
        shown += part
    os.close(terminal)
    shell.wait()
    said = shown.decode(errors="replace").replace("\r", "").splitlines()
    return [line.removeprefix(RESULT) for line in said if line.startswith(RESULT)]


def _read_terminal(terminal):
    try:
        return os.read(terminal, 65536)
    except OSError:  # bash has left
        return b""


@pytest.mark.whole
def test_bash_completes_commands_options_studies_and_keys(program):
    cells = program.folder / "outputs" / "mine-2026" / "cells"
    (cells / "single-1gpu-b32-x").mkdir(parents=True)
    for name in ("train.py", "sub/part.py", "sub/notes.txt", "timings.csv"):
        write_whole(program.folder / name, b"")
    assert complete_in_bash(
        program,
        "hpml-jobs stat",
        "hpml-jobs status --stri",
        "hpml-jobs status mi",
        "hpml-jobs collect mi",
        "hpml-jobs cluster=gree",
        "hpml-jobs -m gpus=1,2 strategy=ddp,gath",
        "hpml-jobs probe",
        "hpml-jobs plan cluster.acco",
        "hpml-jobs grid=lad",
        "hpml-jobs workload=syn",
        "hpml-jobs cluster.isolate=ex",
        "hpml-jobs script=tr",
        "hpml-jobs script=su",
        "hpml-jobs script=sub/",
        "hpml-jobs study=mi",
        "hpml-jobs help zer",
        "hpml-jobs status mine-2026 sing",
        "hpml-jobs remove ",
        "hpml-jobs choose mine-2026 min",
        "hpml-jobs collect baseline=sm",
        "hpml-jobs import tim",
        "hpml-jobs import timings.csv batch",
    ) == [
        "hpml-jobs status ",
        "hpml-jobs status --strict ",
        "hpml-jobs status mine-2026 ",
        "hpml-jobs collect mine-2026 ",
        "hpml-jobs cluster=greene ",
        "hpml-jobs -m gpus=1,2 strategy=ddp,gather_scatter ",
        "hpml-jobs probe_s=",
        "hpml-jobs plan cluster.account",
        "hpml-jobs grid=ladder ",
        "hpml-jobs workload=synthetic ",
        "hpml-jobs cluster.isolate=exclusive ",
        "hpml-jobs script=train.py ",
        "hpml-jobs script=sub/",
        "hpml-jobs script=sub/part.py ",
        "hpml-jobs study=mine-2026 ",
        "hpml-jobs help zero1 ",
        "hpml-jobs status mine-2026 single-1gpu-b32-x ",
        "hpml-jobs remove mine-2026 ",
        "hpml-jobs choose mine-2026 min_efficiency=",
        "hpml-jobs collect baseline=smallest ",
        "hpml-jobs import timings.csv ",
        "hpml-jobs import timings.csv batch_is=",
    ]


@pytest.mark.whole
@pytest.mark.parametrize("command", COMMANDS)
def test_every_argument_of_a_study_completes(command):
    """An argument named STUDY, or with keys, has a completion."""
    for parameter in inspect.signature(function_of(command)).parameters.values():
        for argument in getattr(parameter.annotation, "__metadata__", ()):
            named = {"STUDY", "[STUDY]", "KEY=VALUE", "PATTERN"} & {
                *str(argument.metavar).split()
            }
            is_option = bool(argument.param_decls)
            assert not named or is_option or argument.autocompletion, parameter


def test_keys_of_a_command_that_are_typed_as_options(capsys):
    assert run(["choose", "--min-efficiency", "0.5"]) == 2
    assert capsys.readouterr().err.endswith("Write min_efficiency=0.5\n")


@pytest.mark.parametrize(
    ("words", "remedy"),
    [
        ("collect --baseline", "Write baseline=VALUE, e.g. baseline=smallest"),
        ("choose --baseline", "baseline=VALUE is a key of collect and report"),
        ("status --gpus 2", "gpus=VALUE is a key of predict and submissions"),
    ],
)
def test_an_option_that_is_a_key_of_other_commands_names_them(words, remedy, capsys):
    assert run(words.split()) == 2
    assert remedy in capsys.readouterr().err


def completions(program, *typed):
    """What Tab offers after words."""
    program.environment |= {
        COMPLETION_VARIABLE: "complete_bash",
        "COMP_WORDS": "\n".join(["hpml-jobs", *typed]),
        "COMP_CWORD": str(len(typed)),
    }
    return program.ok().split()


def test_help_offers_pages_first_and_terms_by_their_letters(program):
    offered = completions(program, "help", "")
    assert offered[:4] == ["keys", "workloads", "clusters", "grids"]
    assert "fsdp" not in offered
    assert {"fsdp", "fetch"} <= {*completions(program, "help", "f")}
    assert completions(program, "help", "telem") == ["telemetry"]


def test_export_offers_its_formats_after_a_study(program):
    (program.folder / "outputs" / "mine" / "cells").mkdir(parents=True)
    assert completions(program, "export", "")[0] == "mine"
    formats = ["wandb", "mlflow", "tensorboard"]
    assert completions(program, "export", "mine", "") == formats


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_other_shells_get_a_completion_script(program, shell):
    script = program.ok("completion", shell)
    assert PROGRAM in script
    assert f"{COMPLETION_VARIABLE}=complete_{shell}" in script


def test_fish_completes_from_the_whole_line(program):
    program.environment |= {
        COMPLETION_VARIABLE: "complete_fish",
        "_TYPER_COMPLETE_FISH_ACTION": "get-args",
        "_TYPER_COMPLETE_ARGS": "hpml-jobs workload=dig",
    }
    assert program.ok().split() == ["workload=digits"]


def test_user_configs_complete_without_heavy_imports(program):
    (program.folder / "mine" / "cluster").mkdir(parents=True)
    (program.folder / "mine" / "cluster" / "hal.yaml").write_text("name: hal\n")
    program.environment |= {
        COMPLETION_VARIABLE: "complete_bash",
        "COMP_WORDS": "\n".join(
            ["hpml-jobs", "plan", "--config-dir", "mine", "cluster", "=", "h"]
        ),
        "COMP_CWORD": "6",
        "PYTHONPROFILEIMPORTTIME": "1",
    }
    done = program()
    assert done.stdout.split() == ["hal"]
    loaded = {line.rpartition("|")[2].strip() for line in done.stderr.splitlines()}
    assert "hpml_jobs.cli.completion" in loaded
    assert not {"hydra", "omegaconf", "torch", "pandas", "submitit"} & loaded
