"""`hpml-jobs help WORD` for every key and value: what it prints, and that its example works."""

import re
import shlex

import pytest

from hpml_jobs.cli.entries import Entries
from hpml_jobs.cli.entries import examples as own_examples
from hpml_jobs.cli.help import all_keys, explanations
from hpml_jobs.cli.main import run
from hpml_jobs.core.paths import conf_folder
from hpml_jobs.plan.key_types import choices_of

FOLDERS = [conf_folder()]
DOCS = all_keys(FOLDERS)

pytestmark = pytest.mark.whole


def help_on(capsys, word):
    """The lines of an entry by their names, and its title."""
    assert run(["help", word]) == 0
    title, *lines = capsys.readouterr().out.splitlines()
    return title, {
        line[2:11].strip(): line[12:] for line in lines if line[2:11].strip()
    }


def test_entry_of_a_key_says_all_about_it(capsys):
    title, rows = help_on(capsys, "minutes")
    assert title == "minutes"
    assert rows == {
        "meaning": "time limit of each cell, minutes",
        "type": "a whole number",
        "default": "30",
        "example": "hpml-jobs plan minutes=60",
        "more": "docs/commands.md#keys-of-a-study",
    }


def test_entry_of_a_key_lists_what_its_words_mean(capsys):
    assert run(["help", "strategy"]) == 0
    shown = capsys.readouterr().out
    assert re.search(r"zero1 +ZeRO-1: ddp with ZeroRedundancyOptimizer", shown)
    assert "docs/keys.md#strategies" in shown


def test_entry_of_a_key_of_a_group_names_the_choice_of_its_default(capsys):
    _, rows = help_on(capsys, "cluster.partition")
    assert rows["default"] == "null (with cluster=slurm)"


@pytest.mark.parametrize(
    ("word", "titles"),
    [
        ("partition", ["cluster.partition", "cluster.gpu_request=partition"]),
        ("strategies", ["strategy"]),
        ("ddp", ["strategy=ddp"]),
        ("strategy=ddp", ["strategy=ddp"]),
        ("digits", ["workload=digits", "workload.data=digits"]),
        ("lab", ["grid=lab", "protocol=lab"]),
        ("greene", ["cluster=greene"]),
        ("goyal", ["recipe=goyal"]),
        ("ladder", ["ladder.start", "ladder.factor", "grid=ladder"]),
        ("stop", ["stop, kill, scancel, delete, disk", "stop"]),
    ],
)
def test_a_word_has_the_entries_of_all_its_meanings(word, titles, capsys):
    assert run(["help", word]) == 0
    shown = capsys.readouterr().out
    assert [line for line in shown.splitlines() if line[:1].strip()] == titles


CHECKS = ("disturbed", "imbalance", "imported-row", "gpu-utilization")


@pytest.mark.parametrize("word", [*explanations(), *CHECKS, "cells", "ranks"])
def test_a_term_is_explained_in_two_to_six_lines(word, capsys):
    assert run(["help", word]) == 0
    first, *_ = capsys.readouterr().out.split("\n\n")
    title, *lines = first.splitlines()
    assert word.removesuffix("s") in title
    assert 2 <= len(lines) <= 6
    assert all(len(line) < 80 for line in lines)


def test_a_term_that_is_a_check_and_a_key_has_all_its_meanings(capsys):
    assert run(["help", "efficiency"]) == 0
    shown = capsys.readouterr().out
    assert "The speedup divided by the number of GPUs" in shown
    assert "Limit: an efficiency of 105 %. Fix: measure the cell" in shown
    assert run(["help", "study"]) == 0
    assert "example   hpml-jobs plan study=first" in capsys.readouterr().out


def test_choices_of_the_users_own_configs_have_entries(working_folder, capsys):
    (working_folder / "grid").mkdir()
    (working_folder / "grid" / "mine.yaml").write_text("# three batches\nblocks: []\n")
    assert run(["help", "mine", "--config-dir", str(working_folder)]) == 0
    assert "meaning   three batches" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("word", "message"),
    [
        ("gpu", "no help on gpu: did you mean hpml-jobs help gpus?"),
        ("stratgy", "no help on stratgy: did you mean hpml-jobs help strategy?"),
        ("colect", "no help on colect: did you mean hpml-jobs help collect?"),
        (
            "help",
            "help on what? e.g. hpml-jobs help gpus; hpml-jobs --help lists the commands",
        ),
        (
            "true",
            "no help on true: name a command, a key, a value, a term of docs/words.md, or keys",
        ),
        ("teacher", "docs/README.md lists the pages by task"),
    ],
)
def test_a_word_without_help_gets_the_right_guess(word, message, capsys):
    assert run(["help", word]) == 2
    shown = capsys.readouterr()
    assert message in shown.err
    assert shown.err.count("\n") == 1
    assert not shown.out


@pytest.mark.parametrize(
    ("phrase", "title"),
    [
        ("gpu hours", "cost, price, money, budget, gpu-hours"),
        ("learning rate", "workload.lr"),
        ("LR", "workload.lr"),
        ("batch size", "batch"),
        ("world size", "rank, process, processes, world_size"),
        ("how many gpus", "gpus"),
        ("what is efficiency", "efficiency"),
        ("why is it too slow", "gap, why, slow, bottleneck, waiting"),
        ("out of memory", "oom, memory"),
    ],
)
def test_several_words_have_the_entries_of_the_phrase_or_of_each(phrase, title, capsys):
    assert run(["help", *phrase.split()]) == 0
    shown = capsys.readouterr().out
    assert shown.startswith(f"{title}\n")
    assert shown.count("The gap is the ideal") <= 1


def test_words_without_help_get_the_nearest_of_each(capsys):
    assert run(["help", "how", "to", "cancl", "it"]) == 2
    shown = capsys.readouterr().err
    assert "no help on how to cancl it: did you mean hpml-jobs help cancel?" in shown


@pytest.mark.parametrize("key", DOCS)
def test_every_key_has_an_entry(key):
    entry = Entries(FOLDERS).entry(key)
    assert entry.startswith(f"{key}\n")
    assert not re.search(r"=(null|\{\}|\[\]|\?\?\?)$", entry, re.MULTILINE) or key == (
        "workload.parameters"
    )


def test_every_page_that_an_entry_names_has_that_heading():
    root = conf_folder().parent
    for doc in DOCS.values():
        file, _, heading = doc.page.partition("#")
        if not file:
            continue
        headings = re.findall(r"^#+ (.*)", (root / file).read_text(), re.MULTILINE)
        links = [
            re.sub(r"[^\w -]", "", text.lower()).replace(" ", "-") for text in headings
        ]
        assert not heading or heading in links, doc


def examples():
    """The words of the example of every key and of every value."""
    entries = Entries(FOLDERS)
    words = [*DOCS, *(f"{key}={word}" for key in DOCS for word in choices_of(key))]
    for word in dict.fromkeys(words):
        yield from re.findall(r"example +hpml-jobs (plan .*)", entries.entry(word))


OF_THIS_MACHINE = re.compile(
    "is missing or damaged|has no folder train|needs a partition|needs an account|ClusterName is"
    "|has only rtx8000|no partition of|does not exist here|compute capability"
)
"""Refusals of what another machine has: data, a partition, an account, another type of GPU."""

SOME = (
    "gpus",
    "strategy",
    "args",
    "window",
    "recipe.drop_epochs",
    "cluster.sbatch",
)


@pytest.fixture
def own_files(working_folder):
    """The files that examples name."""
    (working_folder / "train.py").write_text("import torch\n")
    (working_folder / "mine.py").write_text(
        "def build(width=1): ...\ndef data(): ...\ndef loss(outputs, targets): ...\n"
        "def schedule(steps): ...\n"
    )


@pytest.mark.parametrize("command", [f"plan {own_examples()[key]}" for key in SOME])
@pytest.mark.usefixtures("own_files", "slurm")
def test_examples_work_on_a_login_node(command, capsys):
    assert run(shlex.split(command)) == 0, capsys.readouterr().err


@pytest.mark.long
@pytest.mark.parametrize("command", dict.fromkeys(examples()))
@pytest.mark.usefixtures("composed_once", "own_files", "slurm")
def test_every_example_works_on_a_login_node(command, capsys):
    code = run(shlex.split(command))
    words = capsys.readouterr().err
    assert code == 0 or OF_THIS_MACHINE.search(words), words
