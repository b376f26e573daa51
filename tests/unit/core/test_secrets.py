"""Secrets: what follows their names is hidden in all that is shown of a study."""

import shlex

import pytest

from hpml_jobs.cli.main import run
from hpml_jobs.core.cell import Outcome
from hpml_jobs.core.script import Script
from hpml_jobs.core.secrets import hide_in_command, hide_secrets
from hpml_jobs.lab import handin
from tests.unit.builders import a_cell, a_record
from tests.unit.study_builder import StudyBuilder

HIDDEN = {
    "--wandb-key 40aae51 --lr 1": "--wandb-key *** --lr 1",
    "--auth=dXNlcjpwYXNz== x": "--auth=*** x",
    "--hubToken x1y --apiKey x1y": "--hubToken *** --apiKey ***",
    "logger.api.key=swordfish": "logger.api.key=***",
    "--login-password 'two words'": "--login-password ***",
    "--db-password 31415926": "--db-password ***",
    "export HF_TOKEN=abcd": "export HF_TOKEN=***",
    "SECRET: abcd": "SECRET: ***",
    "['--token', 'abcd']": "['--token', ***]",
    '--json \'{"credential": "abcd"}\'': "--json '{\"credential\": ***}'",
    r'--c "{\"password\": \"abcd\"}"': r'--c "{\"password\": ***}"',
}
SHOWN = (
    "--max-tokens 4096 --key 5 --key {seed} --lr 1e-4 --tokenizer gpt2 --keypoints coco",
    "--monkey gorilla --author bob --monitor val_loss --use-auth --password= --lr 0.1",
    "ddp-4gpu-b512-digits-1a2b3c: the token is missing, token: 4,096 per GPU",
)


@pytest.mark.parametrize("text", HIDDEN)
def test_what_follows_the_name_of_a_secret_is_hidden(text):
    assert hide_secrets(text) == hide_secrets(HIDDEN[text]) == HIDDEN[text]


@pytest.mark.parametrize("text", SHOWN)
def test_numbers_and_other_words_are_shown(text):
    assert hide_secrets(text) == text


def test_a_command_is_hidden_word_by_word():
    words = ["hpml-jobs", "args=--password 'two words'", "study=x", "gpus=1"]
    hidden = "hpml-jobs 'args=--password ***' study=x gpus=1"
    assert hide_in_command(shlex.join(words)) == hidden
    assert hide_in_command(hidden) == hidden


ARGS = "--batch {batch} --lr 1e-4 --token abcd1efgh --db-password 'correct horse'"

COMMANDS = (
    "status mine",
    "collect mine --all --to {to}",
    "collect mine --handin {to}/handin --name Ada",
    "compare mine --save {to}/reference.json",
)


@pytest.mark.parametrize("command", COMMANDS)
def test_no_secret_of_a_study_is_printed_or_written(
    tmp_path, capfd, monkeypatch, command
):
    monkeypatch.setattr(handin, "print_pdf", lambda *_: None)
    script = Script(path="train.py", args=ARGS)
    builder = StudyBuilder(tmp_path / "outputs" / "mine")
    for gpus in (1, 2):
        cell = a_cell(gpus=gpus, batch=32, script=script)
        builder.with_record(a_record(cell, epoch_s=8 / gpus))
    failed = a_cell(gpus=4, batch=64, script=script)
    builder.with_cell(failed, Outcome.FAILED).sent_as("101_0", "101_1", "101_2")
    reason = f"unrecognized arguments: {ARGS}"
    builder.end_attempt(64, "101_2", Outcome.FAILED, reason=reason)
    words = ["hpml-jobs", "-m", "gpus=1,2,4", "script=train.py", f"args={ARGS}"]
    builder.study.add_command(shlex.join(words))
    public = tmp_path / "public"
    public.mkdir()
    words = command.format(to=public).split()
    assert run([*words, "--outputs", str(tmp_path / "outputs")]) == 0
    files = [path for path in public.rglob("*") if path.is_file()]
    contents = [path.read_bytes().decode(errors="replace") for path in files]
    for text in (*capfd.readouterr(), *contents):
        assert "abcd1efgh" not in text
        assert "correct horse" not in text
