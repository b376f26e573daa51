"""Checks of the command doctor, on real outputs of SLURM commands."""

import json

from hpml_jobs.cli.main import run
from hpml_jobs.core.answers import Finding, NodeAnswer, Severity, ok, problem
from hpml_jobs.doctor import controller, examine, node_job
from hpml_jobs.doctor.self_test import self_test_plan, self_test_result
from hpml_jobs.plan.resolve import make_plan
from hpml_jobs.plan.sweep import expand
from hpml_jobs.slurm.jobs import JobState
from hpml_jobs.study.files import encode, write_whole
from hpml_jobs.study.manifest import ManifestEvent, ManifestLine
from hpml_jobs.study.study import Study
from tests.unit.builders import a_record
from tests.unit.cli.test_lazy_imports import login_node as run_on_login_node
from tests.unit.study_builder import write_record


def by_name(findings):
    return {finding.about: finding for finding in findings}


def test_slurm_commands_on_path_are_ok(slurm):
    for name in controller.COMMANDS:
        slurm.set_output(name, "slurm-wlm 22.05.8\n")
    assert controller.check_commands().level is Severity.OK
    slurm.remove_command("sbatch")
    finding = controller.check_commands()
    assert (finding.level, finding.seen) == (Severity.PROBLEM, "sbatch not on PATH")


def test_controller_down_is_a_problem(slurm):
    slurm.set_output("scontrol", "Slurmctld(primary) at hal is UP\nClusterName = hal\n")
    assert controller.check_controller().seen.startswith("cluster hal answers")
    slurm.set_output("scontrol", "Slurmctld(primary) at hal is DOWN\n")
    finding = controller.check_controller()
    assert finding.level is Severity.PROBLEM
    assert "is DOWN" in finding.seen


def test_accounting_disabled_is_a_warning(slurm):
    slurm.set_output("sacct", err="Slurm accounting storage is disabled\n", code=1)
    assert controller.check_accounting().level is Severity.WARNING
    slurm.set_output("sacct")
    assert controller.check_accounting().level is Severity.OK


def test_nodes_are_listed(slurm):
    nodes = controller.check_nodes()
    assert nodes.seen.startswith("2 nodes x 4 rtx8000, 1 node x 4 v100, 1 node without")


def test_no_node_is_a_problem(slurm):
    slurm.set_output("sinfo")
    assert controller.check_nodes().level is Severity.PROBLEM


def test_outputs_that_cannot_be_written_are_a_problem(tmp_path):
    assert examine.check_outputs(tmp_path / "new").level in (
        Severity.OK,
        Severity.WARNING,
    )
    file = tmp_path / "file"
    file.write_text("")
    refused = examine.check_outputs(file / "studies")
    assert (refused.level, refused.remedy[-12:]) == (Severity.PROBLEM, "outputs=PATH")


def test_doctor_on_laptop_prints_json(laptop, capsys):
    assert run(["doctor", "--no-job", "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["ok"]
    about = {finding["about"]: finding["seen"] for finding in answer["findings"]}
    assert about["cluster"].startswith("no sbatch on PATH")
    assert "20,480 training images" in about["data"]
    assert list(laptop.iterdir()) == []


def test_data_set_not_downloaded_is_a_warning(slurm, working_folder):
    sweep = expand(["workload=resnet18_cifar10", "cluster=greene"], multirun=False)
    plan = make_plan(sweep, fetch=False, notify=lambda _: None)
    finding = examine._check_data(plan)
    assert (finding.level, finding.seen) == (
        Severity.WARNING,
        f"CIFAR-10 is not in {working_folder / 'data'}",
    )
    assert finding.remedy == "nothing to do: a submission downloads it"
    folder = working_folder / "data" / "cifar-10-batches-py"
    folder.mkdir(parents=True)
    for name in (*(f"data_batch_{number}" for number in range(1, 6)), "test_batch"):
        (folder / name).write_bytes(b"")
    there = examine._check_data(plan)
    assert (there.level, there.seen.endswith(f" in {working_folder / 'data'}")) == (
        Severity.OK,
        True,
    )


def test_data_that_a_submission_downloads_is_no_problem_of_the_node(
    laptop, monkeypatch, capsys
):
    findings = [problem("node data", "CIFAR-10 is missing"), ok("scratch", "/tmp")]
    monkeypatch.setattr(node_job, "check_this_machine", lambda _plan: findings)
    assert run(["doctor", "workload=resnet18_cifar10", "cluster=local"]) == 0
    out = capsys.readouterr().out
    assert "warning data" in out
    assert "node data" not in out
    assert "scratch" in out


def test_doctor_without_sbatch_is_problem_and_bad_usage_exit_2(
    laptop, monkeypatch, capsys
):
    """A missing sbatch is a problem; invalid arguments are a usage error."""
    monkeypatch.setattr("hpml_jobs.plan.machine.cluster_sign", lambda: "SLURM_CONF")
    assert run(["doctor"]) == 1
    assert "problem cluster        sbatch is not on PATH" in capsys.readouterr().out
    monkeypatch.setattr("hpml_jobs.plan.machine.cluster_sign", lambda: None)
    assert run(["doctor", "clutser=greene"]) == 2


def test_doctor_with_problem_sends_no_job(laptop, capsys):
    (laptop / "file").write_text("")
    assert run(["doctor", "cluster=local", "outputs=file"]) == 1
    shown = capsys.readouterr().out
    assert "problem outputs" in shown
    assert "diagnostic job not submitted → fix the problems above first" in shown
    assert shown.splitlines()[-1].endswith("1 warning, 1 problem: fix the problems")


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


def test_node_job_without_answer_reports_end_of_log(tmp_path):
    study = Study(tmp_path / "doctor")
    study.slurm.mkdir(parents=True)
    (study.slurm / "7_doctor_log.err").write_text(
        "python: No module named hpml_jobs\nsrun: error: gr001: task 0: Exited with exit code 1\n"
    )
    finding = node_job._no_answer(
        study, JobState(job="7", state="FAILED", node="gr001"), 600
    )
    assert finding.level is Severity.PROBLEM
    assert finding.seen.endswith("FAILED on gr001: python: No module named hpml_jobs")
    assert finding.remedy.startswith("install hpml-jobs")
    ended = JobState(job="7", state="COMPLETED", node="gr001")
    finding = node_job._no_answer(study, ended, 600)
    assert (
        finding.seen
        == f"gr001 wrote into {study.slurm}, and this machine does not see it"
    )
    waits = JobState(job="7", state="PENDING", reason="Priority")
    finding = node_job._no_answer(study, waits, 600)
    assert (finding.level, "after 10 min" in finding.seen) == (Severity.WARNING, True)


def test_node_answer_is_read_whole_or_not_at_all(tmp_path):
    exchange = node_job.NodeFiles(tmp_path / "asked.json", tmp_path / "answer.json")
    assert exchange.read() is None
    answer = NodeAnswer(
        written_s=1.5, findings=(Finding(about="x", level=Severity.OK, seen="y"),)
    )
    write_whole(exchange.answer, encode(answer))
    assert exchange.read() == answer
    exchange.remove()
    assert list(tmp_path.iterdir()) == []


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


def test_self_test_on_gpus_includes_dp_with_synthetic_data(slurm):
    plan = plan_self_test("cluster=greene", gpus=4)
    assert {cell.cell.strategy.value for cell in plan.cells} == {
        "ddp",
        "allreduce_flat",
        "dp",
    }
    assert {cell.cell.workload.data for cell in plan.cells} == {"synthetic"}
    assert {cell.shape.gpus_per_node for cell in plan.cells} == {4}


def test_self_test_epoch_has_800_iterations_on_each_gpu(slurm):
    (cell, *_) = plan_self_test("cluster=greene", gpus=4).cells
    assert cell.cell.workload.images == 800 * 64 * 4
    (cell, *_) = plan_self_test("cluster=greene", "workload.images=6400", gpus=4).cells
    assert cell.cell.workload.images == 6400


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
