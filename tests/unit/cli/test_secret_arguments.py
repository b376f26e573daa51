"""A secret in the arguments of a script leaves neither in a file for others nor in a table."""

import shlex

import pytest

from hpml_jobs.cli.main import run
from hpml_jobs.core.cell import Outcome
from hpml_jobs.core.script import Script
from hpml_jobs.study.arguments import PublicArguments
from tests.unit.builders import a_cell, a_record
from tests.unit.study_builder import StudyBuilder

SECRETS = {
    "--wandb-key {}": "40aae51",
    "--pw {}": "Tr0ub4dor",
    "--auth {}": "dXNlcjpwYXNzd29yZA==",
    "--license={}": "1A2B-3C4D-5E6F",
    "--cookie {}": "sid=8f7e6d5c4b3a2918",
    "--hubToken {}": "correcthorse",
    "--oauth2-token {}": "correct-horse",
    "--db postgres://bob:{}@db/x": "hunter2x",
    "logger.api.key={}": "swordfish",
    '--json \'{{"auth": "{}"}}\'': "open-sesame",
    "--login-pass '{}'": "two words",
    "--db-password {}": "31415926",
    "--proxy-auth {}": "ada:pass;word,and}more",
    "--pin={}": "4711081",
    "--upload {}": "ghp_abcdefghijklmnopqrstuv1",
}
"""Arguments with a secret in the place of `{}`, and the secret."""

ARGS = "--batch {batch} --max-tokens 4096 --lr 1e-4 --tokenizer gpt2 "


def write_study(folder, secrets=SECRETS):
    """A study of a script, two cells measured and one failed, whose arguments have secrets."""
    args = ARGS + " ".join(form.format(secret) for form, secret in secrets.items())
    script = Script(path="train.py", args=args)
    builder = StudyBuilder(folder / "mine")
    for gpus in (1, 2):
        builder.with_record(
            a_record(a_cell(gpus=gpus, batch=32, script=script), epoch_s=8 / gpus)
        )
    failed = a_cell(gpus=4, batch=64, script=script)
    builder.with_cell(failed, Outcome.FAILED).sent_as("101_0", "101_1", "101_2")
    builder.end_attempt(
        64, "101_2", Outcome.FAILED, reason=f"unrecognized arguments: {args}"
    )
    words = [
        "hpml-jobs",
        "-m",
        "gpus=1,2,4",
        "batch=32,64",
        "script=train.py",
        f"args={args}",
    ]
    builder.study.add_command(shlex.join(words))
    return builder.study


def texts_of(folder):
    """Every text below a folder, by file."""
    for path in sorted(path for path in folder.rglob("*") if path.is_file()):
        content = path.read_bytes().decode(errors="replace")
        yield str(path.relative_to(folder)), content


COMMANDS = (
    "collect mine --to {to}",
    "collect mine --all --to {to}",
    "collect mine --json --to {to}",
    "collect mine --to {to}",
    "collect mine --handin {to}/handin",
    "compare mine --save {to}/reference.json",
)


@pytest.mark.parametrize("command", COMMANDS)
def test_no_secret_of_the_arguments_is_published(tmp_path, capfd, command):
    write_study(tmp_path / "outputs")
    public = tmp_path / "public"
    public.mkdir()
    words = command.format(to=public).split()
    code = run([*words, "--outputs", str(tmp_path / "outputs")])
    printed = capfd.readouterr()
    assert code == 0, printed.err
    texts = {"stdout": printed.out, "stderr": printed.err, **dict(texts_of(public))}
    assert any("[removed" in text for text in texts.values()) or not any(
        public.iterdir()
    )
    for file, text in texts.items():
        plain = text.replace("\\", "").replace("&quot;", '"').replace("\n", " ")
        for form, secret in SECRETS.items():
            assert secret not in plain, (file, form)


def test_cell_with_another_name_is_refused_unless_a_secret_is_gone():
    cell = a_cell(script=Script(path="train.py", args="--batch {batch}"))
    assert cell.has_slug(cell.slug) and not cell.has_slug(cell.slug[:-1] + "x")
    public = a_cell(
        script=Script(path="train.py", args="--batch {batch} --key [removed]")
    )
    assert public.has_slug(cell.slug) and not public.has_slug(
        cell.slug.replace("4gpu", "2gpu")
    )


@pytest.mark.parametrize("form", SECRETS)
def test_what_follows_the_name_of_a_secret_is_removed(form):
    public = PublicArguments([ARGS + form.format(SECRETS[form])])
    shown = public.text(ARGS + form.format(SECRETS[form]))
    assert shown.startswith(ARGS) and SECRETS[form] not in shown
    assert public.text(shown) == shown


def test_cells_with_other_secrets_stay_apart():
    public = PublicArguments(["--token abcd", "--token abce"])
    assert public.text("--token abcd") == "--token [removed-1]"
    assert public.text("--token abce") == "--token [removed-2]"


@pytest.mark.parametrize(
    ("arguments", "public"),
    [
        (r'--password "Aa\"Bb9Cc" --tag x', "--password [removed] --tag x"),
        (
            "--h 'Authorization: Bearer mF9abcB5f4zz'",
            "--h 'Authorization: Bearer [removed]'",
        ),
        (r'--c "{\"password\": \"correct\"}"', """--c '{"password": "[removed]"}'"""),
        (
            "--dbPass x1 --sshpass x1 --basicauth x1",
            "--dbPass [removed] --sshpass [removed] --ba",
        ),
        ("--token abcd1efgh --of abcd1efghIJ", "--token [removed] --of [removed]IJ"),
        *(
            (text, text)
            for text in (
                "--password= --lr 0.1 --max-tokens 4096 --tokenizer gpt2 --keypoints coco",
                "--monkey gorilla --author bob --monitor val_loss --passes 3 --pass true",
                "--key {seed} 'unclosed",
            )
        ),
    ],
)
def test_arguments_are_read_word_by_word(arguments, public):
    assert PublicArguments([arguments]).text(arguments).startswith(public)
