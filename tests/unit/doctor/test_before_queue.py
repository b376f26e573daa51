"""What the login node knows to fail is refused before anything is sent."""

import pytest

from hpml_jobs.cli.main import run

WORDS = ("cluster=greene", "workload=digits", "study=mine", "gpus=1")

LAB = "greene|lab|normal,long\ngreene|old|normal\n"


@pytest.fixture
def login(slurm, tmp_path):
    """A login node with accounts; return a function that submits."""
    slurm.set_output("sacctmgr", LAB)
    bare = tmp_path / "bare-python"
    bare.write_text('#!/bin/sh\necho \'{"python": "3.12", "hpml-jobs": "0"}\'\n')
    bare.chmod(0o755)
    return lambda *words: run([*WORDS, *words])


@pytest.mark.parametrize(
    "fault",
    [
        (
            "cluster.container.image={folder}/no.sif",
            "no.sif does not exist; correct cluster.cont",
        ),
        ("cluster.python={folder}/no/python", "does not run: [Errno 2]"),
        ("cluster.python={folder}/bare-python", "this is hpml-jobs"),
        (
            "cluster.account=nope",
            "nope is not among your accounts (yours: lab, old); use cluster.a",
        ),
        (
            "+cluster.sbatch.qos=nope",
            "nope is not a QOS of yours (normal, long); use cluster.sbatch.qos=normal",
        ),
    ],
)
def test_wrong_name_is_one_line_and_nothing_is_sent(
    login, slurm, tmp_path, capsys, fault
):
    word, said = fault
    assert login(word.format(folder=tmp_path)) == 2
    error = capsys.readouterr().err.strip().splitlines()[-1]
    assert error.startswith("hpml-jobs: ")
    assert said in error
    assert slurm.scripts == []
    assert not (tmp_path / "desk" / "outputs").exists()


@pytest.mark.parametrize("word", ["cluster.account=LAB", "+cluster.sbatch.qos=long"])
def test_names_of_the_user_are_accepted(login, slurm, word):
    assert login(word) == 0
    assert len(slurm.scripts) == 1


def test_unknown_accounts_refuse_nothing(login, slurm):
    slurm.set_output("sacctmgr", err="sacctmgr: error: no database\n", code=1)
    assert login("cluster.account=mine", "+cluster.sbatch.qos=any") == 0


def test_followup_job_that_sbatch_rejects_sends_no_cell(login, slurm, capsys):
    text = (slurm.bin / "sbatch").read_text()
    refusal = 'case "$*" in *test-only*) echo "Memory specification" >&2; exit 1;; esac'
    (slurm.bin / "sbatch").write_text(text.replace("\n", f"\n{refusal}\n", 1))
    assert login("collect_after=true") == 2
    assert (
        "sbatch rejects the follow-up job: Memory specification"
        in capsys.readouterr().err
    )
    assert slurm.scripts == []
    assert login() == 0
