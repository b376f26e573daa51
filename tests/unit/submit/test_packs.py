"""Cells that share an allocation: one sbatch, a step for each."""

import os
import shlex
import subprocess

import pytest

from hpml_jobs.plan import machine
from hpml_jobs.submit.job_requests import JobKind
from tests.unit.plans import plan_with_folder, requests_of, script_of, send_cells

NINE = ("gpus=1,2,4", "batch=32,128,512")


def step_lines(text):
    return [
        shlex.split(line)[1:] for line in text.splitlines() if line.startswith("cell ")
    ]


def plan_of_one_request(*overrides):
    plan = plan_with_folder(*overrides)
    (request,) = requests_of(plan)
    return plan, request


def test_pack_of_nine_cells_is_one_job_of_largest_shape(slurm):
    plan, request = plan_of_one_request(*NINE, "pack=true", "minutes=20")
    assert request.kind is JobKind.PACK
    assert (
        request.shape.nodes,
        request.shape.gpus_per_node,
        request.shape.cpus_per_node,
    ) == (
        1,
        4,
        16,
    )
    assert request.shape.minutes == 9 * (20 + 1)
    jobs = send_cells(plan)
    assert len(slurm.scripts) == 1
    assert len(jobs) == 9
    assert set(jobs.values()) == {"101"}
    assert plan.study.history().jobs == jobs
    assert slurm.scripts[0] == script_of(plan, request)


def test_pack_runs_each_cell_as_step_with_its_share(slurm):
    plan, request = plan_of_one_request(*NINE, "pack=true", "gpu_type=v100")
    by_name = {slug: options for slug, *options in step_lines(script_of(plan, request))}
    assert (
        list(by_name)
        == [planned.cell.slug for planned in request.cells]
        != sorted(by_name)
    )
    for planned in plan.cells:
        gpus = planned.cell.gpus
        assert by_name[planned.cell.slug] == [
            *("--nodes=1", f"--cpus-per-task={4 * gpus}", f"--gres=gpu:v100:{gpus}"),
            *(f"--mem={32 * gpus}G", "--time=30", "--ntasks=1"),
        ]


def test_packs_stay_within_longest_time_limit(slurm, monkeypatch):
    monkeypatch.setattr(machine, "longest_minutes", lambda *_: 70)
    plan = plan_with_folder("gpus=1", "repeats=5", "pack=true", "minutes=30")
    requests = requests_of(plan)
    assert [len(request.cells) for request in requests] == [2, 2, 1]
    assert all(request.shape.minutes <= 70 for request in requests)


def test_pack_gpu_hours_are_those_of_the_allocation(slurm):
    plan = plan_with_folder(*NINE, "minutes=20")
    apart = sum(request.gpu_hours for request in requests_of(plan))
    assert apart == pytest.approx(3 * (1 + 2 + 4) * 20 / 60)
    packed = plan._replace(pack=True)
    (request,) = requests_of(packed)
    assert request.gpu_hours == pytest.approx(4 * 9 * 21 / 60)


SRUN = """\
#!/bin/sh
echo "$@" >> {folder}/calls
count=$(grep -c . {folder}/calls)
if [ $count -le {refused} ]; then exit 1; fi
for word in "$@"; do case $word in --output=*) log=${{word#--output=}} ;; esac; done
: > "$(echo "$log" | sed s/%j/17/)"
exit {code}
"""


@pytest.mark.parametrize(
    ("srun", "expected"),
    [
        ({"refused": 0, "code": 0}, (1, 0)),
        ({"refused": 2, "code": 0}, (3, 0)),
        ({"refused": 0, "code": 1}, (1, 1)),
        ({"refused": 9, "code": 0}, (6, 1)),
    ],
)
def test_step_that_was_not_created_is_tried_again(slurm, tmp_path, srun, expected):
    """A step whose log exists was created, and is never run twice."""
    plan, request = plan_of_one_request("gpus=1", "batch=32", "repeats=1", "pack=true")
    tools = tmp_path / "step"
    tools.mkdir()
    for name, text in {
        "srun": SRUN.format(folder=tools, **srun),
        "sleep": "#!/bin/sh\n",
    }.items():
        (tools / name).write_text(text)
        (tools / name).chmod(0o755)
    done = subprocess.run(
        ["/bin/bash", "-c", script_of(plan, request)],
        env={
            "PATH": f"{tools}:/usr/bin:/bin",
            "SLURM_JOB_ID": "17",
            "HOME": os.environ["HOME"],
        },
        check=False,
    )
    calls = (tools / "calls").read_text().splitlines()
    assert (len(calls), done.returncode) == expected
