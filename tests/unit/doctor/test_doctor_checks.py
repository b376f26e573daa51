"""Checks of the command doctor, on real outputs of SLURM commands."""

import json

from hpml_jobs.cli.main import run
from hpml_jobs.core.answers import Severity
from hpml_jobs.doctor import controller, node_job
from hpml_jobs.doctor.self_test import self_test_plan, self_test_result
from hpml_jobs.study.files import encode, write_whole
from hpml_jobs.study.manifest import ManifestEvent, ManifestLine
from tests.unit.builders import a_record
from tests.unit.cli.test_lazy_imports import login_node as run_on_login_node
from tests.unit.study_builder import write_record


def by_name(findings):
    return {finding.about: finding for finding in findings}


def test_controller_down_is_a_problem(slurm):
    slurm.set_output("scontrol", "Slurmctld(primary) at hal is UP\nClusterName = hal\n")
    assert controller.check_controller().seen.startswith("cluster hal answers")
    slurm.set_output("scontrol", "Slurmctld(primary) at hal is DOWN\n")
    finding = controller.check_controller()
    assert finding.level is Severity.PROBLEM
    assert "is DOWN" in finding.seen


def test_nodes_that_slurm_does_not_use_are_named_with_the_reason(slurm):
    assert "down" not in controller.check_nodes().seen
    (slurm.folder / "sinfo.reasons").write_text("2 (gr[001-002]: Not responding)\n")
    finding = controller.check_nodes()
    assert finding.seen.startswith("2 nodes x 4 rtx8000")
    assert finding.seen.endswith("; down or drained: 2 (gr[001-002]: Not responding)")


def test_doctor_on_laptop_prints_json(laptop, capsys):
    assert run(["doctor", "--no-job", "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["ok"]
    about = {finding["about"]: finding["seen"] for finding in answer["findings"]}
    assert about["cluster"].startswith("no sbatch on PATH")
    assert "20,480 training images" in about["data"]
    assert list(laptop.iterdir()) == []


def test_doctor_without_sbatch_is_problem_and_bad_usage_exit_2(
    laptop, monkeypatch, capsys
):
    """A missing sbatch is a problem; invalid arguments are a usage error."""
    monkeypatch.setattr("hpml_jobs.plan.machine.cluster_sign", lambda: "SLURM_CONF")
    assert run(["doctor"]) == 1
    assert "problem cluster        sbatch is not on PATH" in capsys.readouterr().out
    monkeypatch.setattr("hpml_jobs.plan.machine.cluster_sign", lambda: None)
    assert run(["doctor", "clutser=greene"]) == 2


def test_clock_difference_within_resolution_is_ok():
    assert (
        node_job._check_clock(written_s=100.5, absent_s=100, read_s=101).level
        is Severity.OK
    )
    # or a slow disk
    assert (
        node_job._check_clock(written_s=80, absent_s=100, read_s=101).level
        is Severity.OK
    )
    ahead = node_job._check_clock(written_s=161, absent_s=100, read_s=101)
    assert (ahead.level, "60 s ahead of" in ahead.seen) == (Severity.WARNING, True)
    behind = node_job._check_clock(written_s=10, absent_s=100, read_s=101)
    assert "90 s behind" in behind.seen


def plan_self_test(*words, gpus=2):
    return self_test_plan(list(words), gpus, None, lambda _: None)


def test_self_test_study_uses_user_overrides_first(laptop):
    plan = plan_self_test("batch=32", "study=mine")
    assert plan.study.name == "mine"
    assert {cell.cell.strategy.value for cell in plan.cells} == {
        "ddp",
        "allreduce_flat",
    }
    assert {cell.cell.batch for cell in plan.cells} == {32}
    assert {cell.cell.workload.name for cell in plan.cells} == {"digits"}


def test_self_test_on_one_gpu_adds_ddp_and_dp(slurm):
    plan = plan_self_test("cluster=greene", gpus=1)
    assert [cell.cell.strategy.value for cell in plan.cells] == ["single", "ddp", "dp"]
    assert len({cell.slug for cell in plan.cells}) == 3
    assert {(cell.cell.gpus, cell.cell.processes) for cell in plan.cells} == {(1, 1)}
    chosen = plan_self_test("cluster=greene", "strategy=ddp", gpus=1)
    assert [cell.cell.strategy.value for cell in chosen.cells] == ["single"]


def write_measured(plan, job, *, sent_as="101"):
    """The plan's cells sent, each with a record that a job left."""
    plan.study.create()
    slugs = tuple(cell.slug for cell in plan.cells)
    jobs = tuple(f"local-{sent_as}-{index}" for index in range(len(slugs)))
    line = ManifestLine(happening=ManifestEvent.SENT, batch="b", cells=slugs, jobs=jobs)
    plan.study.append(line)
    for index, cell in enumerate(plan.cells):
        folder = plan.study.cell(cell.slug)
        write_whole(folder.cell_json, encode(cell.file))
        left = a_record(cell.cell, attempt=f"local-{job}-{index}.r0")
        write_record(folder, left)


def test_self_test_report_lists_checks_without_private_names(laptop):
    """The text to share names no user, path or host."""
    plan = plan_self_test()
    write_measured(plan, "101")
    result = self_test_result(plan, 2)
    assert result.block.startswith("==== hpml_jobs")
    for check in ("closure", "messages", "replicas"):
        assert f"  {check} " in result.block
    assert "2 of 2 cells measured" in result.block
    for private in (str(laptop), "gr001"):
        assert private not in result.block


def test_self_test_ignores_records_of_earlier_runs(laptop):
    plan = plan_self_test()
    write_measured(plan, "100", sent_as="101")
    result = self_test_result(plan, 2)
    assert not result.is_passed
    assert "there is only the record of an earlier run" in result.block
    assert "0 of 2 cells measured" in result.block


def test_doctor_runs_without_torch(laptop):
    shown, end = run_on_login_node("doctor", "--no-job", "cluster=local", "device=cpu")
    assert end["code"] == 0, shown
    assert shown.splitlines()[-1].endswith("you can submit studies")
    assert not {"pandas", "numpy", "matplotlib"} & set(end["loaded"])
