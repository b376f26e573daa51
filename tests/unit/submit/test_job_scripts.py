"""Scripts of every kind of job, run by bash: cluster.setup, the steps' environment, signals."""

import subprocess

import msgspec
import pytest

from hpml_jobs.study.study import Study
from hpml_jobs.submit.scripts import followup_script
from hpml_jobs.submit.send import job_id
from tests.patience import PATIENCE_S
from tests.unit.plans import plan_with_folder, requests_of, script_of

KINDS = (
    *("array", "pack", "follow-up"),
    pytest.param(
        "doctor",
    ),
)

SRUN = """\
#!/bin/sh
while [ "${1#-}" != "$1" ]; do shift; done
exec "$@"
"""
"""srun without SLURM: it runs the program."""

PYTHON = """\
#!/bin/sh
echo "started with LOUD=$LOUD"
"""


def job_script(kind, *words):
    """Return the script of a job of this kind."""
    words = ("cluster=greene", "study=mine", "gpus=1", *words)
    plan = plan_with_folder(*words, f"pack={kind == 'pack'}")
    if kind == "follow-up":
        return followup_script(plan, ["17"])
    if kind == "doctor":
        from hpml_jobs.doctor import node_job  # noqa: PLC0415

        study = Study(plan.study.root.parent / "doctor")
        exchange = node_job._write_request(study, plan.cells[0])
        return node_job._script(plan, study, plan.cells[0], exchange)
    return script_of(plan, requests_of(plan)[0])


@pytest.fixture
def run_job(slurm, tmp_path):
    """Return a function that runs a job's script with these lines of cluster.setup."""
    python = tmp_path / "fake-python"
    for path, text in ((python, PYTHON), (slurm.bin / "srun", SRUN)):
        path.write_text(text)
        path.chmod(0o755)
    environment = {
        "PATH": f"{slurm.bin}:/usr/bin:/bin",
        "SLURM_JOB_ID": "17",
        "HOME": "/",
    }

    def run(kind, *setup):
        lines = msgspec.json.encode(setup).decode()
        script = tmp_path / "job.sh"
        script.write_text(
            job_script(kind, f"cluster.setup={lines}", f"cluster.python={python}")
        )
        command = ["/bin/bash", str(script)]
        return subprocess.run(
            command,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
            timeout=PATIENCE_S,
        )

    return run


@pytest.mark.parametrize("kind", KINDS)
def test_failing_line_of_setup_ends_every_job_and_is_named(run_job, kind):
    done = run_job(kind, "true", "module load nosuch", "export LOUD=1")
    assert done.returncode == 127
    assert done.stderr.splitlines()[-1] == (
        "hpml-jobs: a line of cluster.setup ended the job with exit code 127: module load nosuch"
    )
    assert "started" not in done.stdout


@pytest.mark.parametrize(
    ("setup", "code", "line"),
    [
        (["exit 3"], 3, "exit 3"),
        (["exit 0"], 1, "exit 0"),
        (["set -euo pipefail", "false | true"], 1, "false | true"),
        (["(exit 6)"], 6, "(exit 6)"),
        (["echo 'a"], None, "echo 'a"),
    ],
)
def test_ends_of_setup_are_named(run_job, setup, code, line):
    done = run_job("array", *setup)
    assert done.returncode != 0
    assert code in (None, done.returncode)
    # a job that measured nothing has failed
    shown = 0 if line == "exit 0" else done.returncode
    assert done.stderr.rstrip().endswith(f"with exit code {shown}: {line}")
    assert "started" not in done.stdout


@pytest.mark.parametrize(
    "setup",
    [
        ["export LOUD=1"],
        ["# a comment", "", "false || true", "export LOUD=1"],
        ["if true; then", "export LOUD=1", "else", "exit 1", "fi"],
        ["read -r LOUD <<END", "1", "END", "export LOUD"],
    ],
)
@pytest.mark.parametrize("kind", ["array", "pack"])
def test_setup_that_succeeds_reaches_the_step(run_job, kind, setup):
    done = run_job(kind, *setup)
    assert (done.returncode, done.stdout) == (0, "started with LOUD=1\n"), done.stderr


@pytest.mark.parametrize("kind", ["pack", "follow-up"])
def test_options_of_the_setup_end_with_it(run_job, kind):
    """Else `set -e` would end a shared job at its first failed cell."""
    ended = run_job(kind, "set -euo pipefail", "export LOUD=1")
    text = job_script(kind, 'cluster.setup=["set -e"]')
    restored = text.index('eval "$hpml_options"')
    assert ended.returncode == 0, ended.stderr
    assert text.index("hpml_options=$(set +o)") < restored < text.index("-m hpml_jobs")


@pytest.mark.parametrize("kind", KINDS)
def test_every_step_gets_the_environment_of_its_job(slurm, kind):
    steps = [
        line
        for line in job_script(kind).splitlines()
        if line.strip().startswith("srun ")
    ]
    assert len(steps) == (kind != "follow-up")
    assert all("--export=ALL" in step for step in steps)


@pytest.mark.parametrize(
    ("minutes", "signal"),
    [(1, None), (5, "USR2@75"), (30, "USR2@90")],
)
def test_warning_before_the_limit_fits_it(slurm, minutes, signal):
    lines = job_script("array", f"minutes={minutes}").splitlines()
    assert [line for line in lines if "--signal" in line] == (
        [f"#SBATCH --signal={signal}"] if signal else []
    )


def test_excluded_nodes_of_user_and_retry_are_joined(slurm):
    plan = plan_with_folder("cluster=greene", "gpus=1", "+cluster.sbatch.exclude=gr007")
    (request,) = requests_of(plan)
    text = script_of(plan, request._replace(exclude=("gr001", "gr002")))
    assert "#SBATCH --exclude=gr001,gr002,gr007\n" in text
    assert "#SBATCH --exclude=gr007\n" in script_of(plan, request)


@pytest.mark.parametrize(
    ("printed", "job"),
    [
        ("Submitted batch job 17\n", "17"),
        ("Submitted batch job 4711 was your last\nSubmitted batch job 17\r\n", "17"),
        ("Welcome to b!\n17;b\n", "17"),
        ("4711\nsbatch: Submitted batch job 17\n", "17"),
        ("4711\nJob 17 submitted\n", None),
        ("see ticket 12\nfor job 17\n", None),
    ],
)
def test_job_id_is_of_the_line_that_has_it(printed, job):
    assert job_id(printed) == job
