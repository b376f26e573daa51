"""A submission: where its logs are, and what it requests for each block."""

import json

from submitit.core.utils import JobPaths

from hpml_jobs.cli.main import run
from tests.unit.plans import plan_with_folder, requests_of, script_of

WORDS = ("-m", "gpus=1,2", "workload=digits", "study=mine", "cluster=greene")


def test_logs_are_where_submitit_looks_for_them(slurm):
    """submitit's runner writes its result, and we read the logs, by the job's id and the task."""
    plan = plan_with_folder("gpus=1,2", "study=mine")
    (request, *_) = requests_of(plan)
    paths = JobPaths(plan.study.slurm, job_id="17", task_id=0)
    text = script_of(plan, request).replace("%j", "17")
    assert f"#SBATCH --output={paths.stdout}\n#SBATCH --error={paths.stderr}\n" in text
    assert plan.study.slurm_log("17", 0) == paths.stderr


BLOCKS = """\
blocks:
- {name: Q1, gpus: [1], batch: [8, 16]}
- {name: Q2, gpus: [1, 2], batch: [16]}
"""


def test_preview_says_cells_and_hours_of_each_block(slurm, working_folder, capsys):
    (working_folder / "grid").mkdir()
    (working_folder / "grid" / "two.yaml").write_text(BLOCKS)
    words = ["plan", "grid=two", "--config-dir", ".", *WORDS[2:], "minutes=60"]
    assert run([*words, "--json"]) == 0
    blocks = json.loads(capsys.readouterr().out)["blocks"]
    assert [(b["block"], b["cells"], b["gpu_hours"]) for b in blocks] == [
        ("Q1", 2, 2),
        ("Q2", 1, 2),  # another one is that of Q1
    ]
