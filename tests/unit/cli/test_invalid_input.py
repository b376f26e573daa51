"""Invalid input: one line that names it, exit code 1 or 2, nothing submitted or changed."""

import os
import pwd
import shlex
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

import hpml_jobs
from hpml_jobs.cli.main import run
from hpml_jobs.core.answers import NO_TORCH_CODE
from hpml_jobs.plan.sweep import expand
from hpml_jobs.study.files import encode, write_whole
from hpml_jobs.study.study import Study
from tests.unit.builders import a_cell, a_record
from tests.unit.study_builder import StudyBuilder, write_record

DIGITS = "workload=digits"

USAGE = [
    # ---- numbers ----
    ("iterations=1", "iterations=1: must be 2 or more"),
    ("iterations=9 data.limit=9", "iterations=9 with data.limit=9: both give the length of a cell"),
    (
        "iterations=60 batch=512 workload=digits",
        "iterations=60: an epoch has 40 full ones (20,480 images, batch=512 on gpus=1): use iterat",
    ),
    ("gpus=0", "gpus=0: must be 1 or more"),
    ("gpus=-1", "gpus=-1: must be 1 or more"),
    ("gpus=two", "gpus=two: a whole number is needed"),
    ("gpus=2.5", "gpus=2.5: a whole number is needed"),
    ("gpus=", "gpus=: a whole number is needed"),
    ("gpus=5", "gpus=5 does not divide over 2 nodes of 4 (rtx8000); take gpus=8"),
    ("gpus=4 nodes=3", "gpus=4 does not divide over nodes=3"),
    ("nodes=0", "nodes=0: must be 1 or more"),
    ("batch=0", "batch=0: must be 1 or more"),
    ("gpus=4 batch=5121", "5,120 images of one GPU (20,480 over gpus=4); take batch<=5120"),
    ("gpus=2 batch=1025 data.limit=2048", "1,024 images of one GPU (2,048 over gpus=2)"),
    ("minutes=0", "minutes=0: must be 1 or more"),
    ("minutes=99 cluster.max_minutes=60", "cluster=greene allows at most 60"),
    ("seed=-1", "seed=-1: must be 0 or more"),
    ("threads=0", "threads=0: must be 1 or more"),
    ("repeats=0", "repeats=0: must be 1 or more"),
    ("data.limit=0", "data.limit=0: must be 1 or more"),
    ("workload=synthetic workload.images=0", "workload.images=0: must be 1 or more"),
    ("gpus=2.0", "gpus=2.0: a whole number is needed"),
    ("-m gpus=[1,2]", "a whole number is needed; for several cells, sweep it: -m gpus=1,2"),
    ("-m gpus=1,two", "gpus=two: a whole number is needed"),
    ("batch=1e2", "batch=1e2: a whole number is needed"),
    ("batch=null", "batch=null: a whole number is needed"),
    ("minutes=1:00:00", "minutes=1:00:00: a whole number of minutes is needed"),
    ("minutes=0.5", "minutes=0.5: a whole number of minutes is needed"),
    ("evaluate=yes", "evaluate=yes: true or false is needed"),
    ("evaluate=1", "evaluate=1: true or false is needed"),
    ("seed=9223372036854775808", "seed=9223372036854775808: must be less than 2^63"),
    ("cluster.mem_gb_per_gpu=-1", "cluster.mem_gb_per_gpu=-1: must be 1 or more"),
    ("cluster.array_parallelism=0", "cluster.array_parallelism=0: must be 1 or more"),
    ("cluster.link_gb_per_s=0", "cluster.link_gb_per_s=0: must be more than 0"),
    (
        "+cluster.cancel_below_utilization={gh*:101}",
        "cluster.cancel_below_utilization={gh*: 101}: give a percentage from 1 to 100",
    ),
    ("cluster.link_gb_per_s={h200:0}", "cluster.link_gb_per_s.h200=0: must be more than 0; null"),
    ("cluster.peak_tflop_per_s=0", "peak_tflop_per_s=0: must be more than 0; null: by GPU and"),
    ("cluster.gpu_hours_budget=-1", "cluster.gpu_hours_budget=-1: must be 0 or more"),
    ("cluster.gpu_types.v100=0", "cluster.gpu_types.v100=0: must be 1 or more"),
    ("workload.classes=2", "workload.classes=2: workload.data=digits has classes=10; leave"),
    ("workload.image_size=64", "image_size=64: workload.data=digits has image_size=32; leave"),
    ("workload.parameters=7", "workload.model=digits_cnn with 10 classes has 26,154; leave"),
    ("workload=synthetic workload.model=lenet workload.image_size=64", "model=lenet accepts 32"),
    ("workload.model=resnet", "or your own pkg.mod:name; did you mean resnet18?"),
    ("workload.classes=0", "workload.classes=0: must be 1 or more"),
    (
        "-m gpus=1,2,4 nodes=1,2",
        "nodes=2: leave nodes= out for as few nodes as hold the GPUs, or submit one line per "
        "nodes= to the same study: -m gpus=1,2,4 nodes=1, then -m gpus=2,4 nodes=2",
    ),
    # ---- more than the cluster has: sbatch would take it and wait for ever ----
    ("gpus=12", "a cell needs 3 nodes with rtx8000 of 4 GPUs each; 2 of the"),
    ("gpus=3 nodes=3", "a cell needs 3 nodes with rtx8000"),
    ("gpus=8 nodes=1", "1 node with rtx8000 of 8 GPUs each; none of the"),
    ("loader_workers=100", "of 101 CPUs each; none of the"),
    ("cluster.mem_gb_per_gpu=999", "of 999 GB of memory each; none of the"),
    # ---- words that do not exist ----
    ("strategy=horovod", "strategy=horovod: choose one of single, dp, ddp"),
    ("strategy=DDP", "gather_scatter, zero1, fsdp; did you mean ddp?"),
    ("device=CPU", "device=CPU: choose one of cuda, cpu; did you mean cpu?"),
    ("GPUS=2", "unknown key GPUS: did you mean gpus?"),
    ("limit=2", "unknown key limit: did you mean data.limit?"),
    ("workload.optimizer=adam", "workload.optimizer=adam: choose one of sgd, adamw, or your own"),
    ("-m gpus=1, 2", "cannot read 'gpus=1,': a blank follows the comma; write gpus=1,2 as one"),
    ("gpus:2", "cannot read 'gpus:2'; write gpus=2"),
    ("gpus 2", "cannot read 'gpus'; write gpus=2"),
    ("--gpus 2", "No such option: --gpus. Write gpus=2"),
    ("--loader-workers=2", "Write loader_workers=2"),
    ("--dryrun gpus=2", "Write --dry-run"),
    ("outputs=", "outputs=: name the folder of the studies"),
    ("gpu=2", "unknown key gpu: did you mean gpus?"),
    ("cluster.acount=x", "unknown key cluster.acount: did you mean cluster.account?"),
    ("workload=resnet", "workload=resnet: choose one of auto, custom, digits"),
    ("cluster=grene", "cluster=grene: choose one of auto, burst, greene"),
    ("grid=labs", "shuffling, smoke, workers; did you mean lab?"),
    ("device=tpu", "device=tpu: choose one of cuda, cpu"),
    ("cluster.isolate=perhaps", "cluster.isolate=perhaps: choose one of off, serial, exclusive"),
    ("workload.data=imagenet", "workload.data=imagenet: choose one of cifar10, digits, folder"),
    ("sumbit", "sumbit is not a command; did you mean submit?"),
    ("watch --help", "watch is not a command; did you mean status --watch?"),
    ("watch mine", "watch is not a command; did you mean status --watch?"),
    ("unpack mine.tar.gz", "unpack is not a command; did you mean import FILE.tar.gz?"),
    ("reference list", "reference is not a command; did you mean compare --save?"),
    ("refrence save golden", "refrence is not a command; did you mean compare --save?"),
    ("grade course", "grade is not a command; did you mean list course/*/?"),
    ("graed", "graed is not a command; did you mean list course/*/?"),
    ("help grade", "grade is not a command; did you mean list course/*/?"),
    ("=3", "cannot read '=3'; expected key=value"),
    ("+nonsense=3", "unknown key nonsense: hpml-jobs help keys lists the keys"),
    ("gpus=2 gpus=4", "gpus is given twice"),
    ("gpus=1,2", "gpus=1,2 is a sweep: add -m"),
    ("-m gpus=range(3,1)", "no cell: a range is empty"),
    ("-m strategy=glob(*)", "strategy=glob(*): list the values"),
    ("-m study=a,b", "study= cannot be swept: a study has only one"),
    ("-m cluster.account=a,b", "cluster.KEY= cannot be swept: a study has only one"),
    ("-m cluster=greene,torch", "a study runs on one cluster"),
    ("--config-dir nowhere gpus=2", "--config-dir nowhere: there is no such folder"),
    # ---- strategies that would measure something else ----
    ("strategy=dp gpus=8", "strategy=dp with nodes=2: DataParallel is one process on one node"),
    ("strategy=dp gpus=2 nodes=2", "strategy=dp with nodes=2"),
    ("strategy=dp gpus=2 device=cpu", "on a CPU it silently runs one replica"),
    ("strategy=single gpus=2", "strategy=single with gpus=2"),
    ("baseline=dp", "baseline=dp: the baseline is single (the plain loop) or ddp"),
    # ---- what is learnt ----
    ("workload.lr=-1", "workload.lr=-1: must be 0 or more"),
    ("recipe=goyall", "recipe=goyall: choose one of auto, cosine, goyal, plain, scaled, warmup; "),
    (
        "gpus=2 recipe=warmup recipe.warmup_epochs=9",
        "warming up takes 9 epochs, the cell trains epochs=3",
    ),
    ("recipe.warmup_epochs=2", "recipe.warmup_epochs=2 with recipe.scaled=false"),
    ("gpus=2 sync_buffers=syncbn", "sync_buffers=syncbn with protocol=full"),
    ("gpus=2 strategy=allreduce sync_buffers=on", "only ddp can choose, allreduce is sync_buffers"),
    ("gpus=2 strategy=fsdp sync_buffers=on", "only ddp can choose, fsdp is sync_buffers=off"),
    ("gpus=2 strategy=zero1 sync_buffers=off", "only ddp can choose, zero1 is sync_buffers=on"),
    ("gpus=2 reshard=false", "reshard=false: no cell gathers parameters; use strategy=fsdp"),
    ("gpus=1 strategy=fsdp reshard=false", "reshard=false: no cell gathers parameters"),
    ("gpus=2 sync_buffers=maybe", "sync_buffers=maybe: choose one of on, off, syncbn"),
    ("gpus=2 quantize.calibration=8", "quantize with strategy=ddp: it works on one trained model"),
    ("quantize.calibration=8", "it understands lenet, lenet_bias, or your own pkg.mod:build"),
    ("quantize.calibration=0", "quantize.calibration=0: activations are profiled on 1 training"),
    ("quantize.percentile=0 quantize.calibration=1", "quantize.percentile=0: must be above 0"),
    ("gpus=1 set_epoch=false", "set_epoch=false: no cell has ranks that share the data"),
    ("gpus=1 sync_buffers=off", "sync_buffers=off: no cell has several ranks; use strategy=ddp"),
    ("quantize.per_channel=true", "quantize.per_channel without quantize.calibration"),
    # ---- names that are paths ----
    ("study=../../x", "study='../../x' is not a name"),
    ("study=a/b", "study='a/b' is not a name"),
    ("study=..", "study='..' is not a name"),
    (f"study={'x' * 300}", "has 300 characters: use at most 100"),
    # ---- what a cluster refuses ----
    ("cluster=torch", "cluster=torch needs an account: add cluster.account=torch_pr_"),
    ("cluster=burst", "cluster=burst needs an account: add cluster.account=ece_gy_9143-"),
    (
        "cluster=burst cluster.account=a cluster.partition=main cluster.shared_with_login=true",
        "cluster.partition=main: cluster=burst rejects jobs that name a partition",
    ),
    ("cluster.partition=nope", "partition nope does not exist here: cpu, main"),
    (
        "cluster=burst cluster.account=a gpu_type=a100 gpus=4 nodes=1 "
        "cluster.shared_with_login=true",
        "no partition of 4 a100",
    ),
    ("gpu_type=h200", "gpu_type=h200: cluster=greene has a100, h100, rtx8000, v100"),
    ("gpu_type=RTX8000", "cluster=greene has a100, h100, rtx8000, v100; did you mean rtx8000?"),
    ("gpu_type=a100", "gpu_type=a100: SLURM has only rtx8000, v100 here"),
    ("gpu_type=a100|h100", "gpu_type=a100|h100: a study on a mix of GPU types compares nothing"),
    ("gpu_type=any", "gpu_type=any: a study on a mix of GPU types"),
    ("cluster=slurm", "cluster=slurm has GPU types rtx8000, v100: name one, gpu_type="),
    # ---- Hydra's own launchers ----
    (
        "hydra/launcher=submitit_slurm",
        "submits the jobs itself, without a Hydra launcher",
    ),
    (
        "hydra.launcher.gpus_per_node=4",
        "submits the jobs itself, without a Hydra launcher",
    ),
    # ---- sizes without end ----
    ("-m batch=range(1,1000000000)", "batch=range(1,1000000000) has more than 100,000 values"),
    ("-m gpus=1,2 seed=range(0,60000)", "120,000 cells are more than 100,000"),
    ("repeats=1000000000", "1,000,000,000 cells are more than 100,000: submit fewer"),
    # ---- words that Hydra's grammar does not have ----
    ("~workload", "~workload: a study needs one; name it, workload=NAME"),
    ("study=étude", "study='étude' is not a name: use letters, digits"),
    ("gpus=~1", "gpus='~1': a whole number is needed"),
    ("+foo=1", "unknown key foo: hpml-jobs help keys lists the keys"),
    ("+cluster.foo=1", "unknown key cluster.foo: hpml-jobs help keys lists the keys"),
    # ---- own code without its names ----
    (
        "workload=custom workload.model=main.py",
        "main.py: name a function of the module, e.g. workload.model=main:build",
    ),
    ("workload=custom", "workload.model has no value; add workload.model="),
]


def last_line(capsys):
    """The error: the last line, the only one that begins with the program's name."""
    shown = capsys.readouterr().err.splitlines()
    errors = [line for line in shown if line.startswith("hpml-jobs: ")]
    assert errors == shown[-1:]
    assert "Traceback" not in "".join(shown)
    return errors[0]


def flat(values, prefix=""):
    """Every key of nested settings, dotted, with its value."""
    for key, value in values.items():
        if isinstance(value, dict):
            yield from flat(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value


def with_workload(words):
    """The words of a row; the digits unless it names a workload."""
    return [*words.split(), *([] if "workload=" in words else [DIGITS])]


@pytest.mark.parametrize(("words", "message"), USAGE, ids=[words for words, _ in USAGE])
def test_usage_error_is_one_line_with_exit_code_2(
    words,
    message,
    slurm,
    working_folder,
    capsys,
):
    assert run(with_workload(words)) == 2
    assert message in last_line(capsys)
    assert slurm.scripts == []
    assert list(working_folder.iterdir()) == []


FLOATS = (
    *("probe_s", "workload.lr", "workload.momentum", "workload.weight_decay"),
    *("recipe.warmup_epochs", "quantize.percentile"),
    *("cluster.link_gb_per_s", "cluster.peak_tflop_per_s"),
    *("cluster.gpu_hours_budget", "cluster.confirm_gpu_hours"),
)


@pytest.mark.parametrize("value", ["nan", "inf", "-inf"])
@pytest.mark.parametrize("key", FLOATS)
def test_nan_and_inf_are_refused_for_every_number(key, value, slurm, working_folder, capsys):
    assert run([DIGITS, f"{key}={value}"]) == 2
    assert last_line(capsys) == f"hpml-jobs: {key}={value}: must be a finite number"
    assert list(working_folder.iterdir()) == []


def test_every_key_with_a_fraction_is_tried_with_nan(slurm):
    (settings,) = expand([DIGITS], multirun=False).settings
    keys = {name for name, value in flat(msgspec.to_builtins(settings)) if isinstance(value, float)}
    unset = {"cluster.link_gb_per_s", "cluster.peak_tflop_per_s"}
    unset |= {"cluster.gpu_hours_budget", "cluster.confirm_gpu_hours"}
    assert keys | unset == set(FLOATS)


def test_blanks_around_equals_sign_are_named(slurm, capsys):
    assert run([DIGITS, "gpus = 2"]) == 2
    assert last_line(capsys).endswith("write gpus=2, without blanks around =")


@pytest.mark.parametrize("words", ["gpus=0", "study=../x", "cluster=torch", "gpus=12"])
def test_plan_usage_error_creates_no_folder(words, slurm, working_folder, capsys):
    assert run(["plan", *with_workload(words)]) == 2
    assert last_line(capsys)
    assert list(working_folder.iterdir()) == []


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("gpus=8 nodes=2", "nodes=2: cluster=local is one machine; use nodes=1"),
        ("gpus=2 device=cuda", "gpus=2 with device=cuda: this machine has 0 GPUs"),
        ("gpus=2 strategy=dp", "on a CPU it silently runs one replica"),
    ],
)
def test_impossible_on_this_machine_is_refused(words, message, laptop, capsys):
    assert run(with_workload(words)) == 2
    assert message in last_line(capsys)
    assert list(laptop.iterdir()) == []


def test_cluster_on_laptop_is_planned_but_not_submitted(laptop, capsys):
    assert run([DIGITS, "cluster=greene"]) == 2
    assert "cluster=greene: sbatch and srun not on PATH; submit from a login" in last_line(capsys)
    assert run(["plan", DIGITS, "cluster=greene"]) == 0
    assert "#SBATCH --gres=gpu:rtx8000:1" in capsys.readouterr().out
    assert list(laptop.iterdir()) == []


def test_login_node_without_sbatch_does_not_train(laptop, monkeypatch, capsys):
    monkeypatch.undo()
    monkeypatch.chdir(laptop)
    monkeypatch.setenv("PATH", str(laptop))
    monkeypatch.setenv("SLURM_CONF", "/somewhere/slurm.conf")
    monkeypatch.delenv("SLURM_JOB_ID", raising=False)
    assert run([DIGITS]) == 2
    assert "sbatch is not on PATH, but SLURM_CONF shows" in last_line(capsys)
    assert list(laptop.iterdir()) == []


# ---- data that is not there ----


def a_python(folder, words, code=1):
    """A job's Python that fails as the worker's `prepare` does: with its reason as last line."""
    path = folder.parent / "python"
    traceback = f"echo 'Traceback (most recent call last):' >&2\necho {shlex.quote(words)} >&2\n"
    path.write_text(f"#!/bin/sh\n{traceback}exit {code}\n")
    path.chmod(0o755)
    return f"cluster.python={path}"


@pytest.mark.parametrize(
    ("words", "python", "message"),
    [
        (
            "workload=resnet18_cifar10 workload.data=folder data.root=pictures",
            (),
            "pictures has no folder train; workload.data=folder needs train/CLASS/IMAGE",
        ),
        (
            "workload=resnet18_cifar10 data.root=images",
            ("URLError: no route to host",),
            "no route to host; on a machine with internet and the jobs' Python, run:\n"
            "hpml-jobs fetch workload=resnet18_cifar10 data.root=",
        ),
        (
            "workload=resnet18_cifar10",
            ("ModuleNotFoundError: no such module", NO_TORCH_CODE),
            "this Python has no torch (set cluster.python= or a container to the jobs' Python)",
        ),
        (
            "workload=custom workload.model=nowhere:build workload.data=nowhere:data",
            ("ModuleNotFoundError: No module named 'nowhere'",),
            "custom: ModuleNotFoundError: No module named 'nowhere'",
        ),
    ],
    ids=["folder", "fetch", "no-torch", "own-code"],
)
def test_missing_data_or_code_is_named_with_exit_code_1(
    words,
    python,
    message,
    slurm,
    capsys,
):
    desk = Path.cwd()
    arguments = [*words.split(), a_python(desk, *python)] if python else words.split()
    assert run(arguments) == 1
    assert message in capsys.readouterr().err
    assert slurm.scripts == []
    assert list(desk.iterdir()) == []


def test_folder_without_images_is_named(slurm, working_folder, capsys):
    (working_folder / "pictures" / "train" / "cats").mkdir(parents=True)
    assert run(["workload=resnet18_cifar10", "workload.data=folder", "data.root=pictures"]) == 1
    assert "no images in" in last_line(capsys)
    assert slurm.scripts == []


def test_missing_account_is_reported_before_download(slurm, working_folder, capsys):
    assert run(["cluster=torch", "workload=resnet18_cifar10"]) == 2
    shown = capsys.readouterr().err
    assert "needs an account" in shown
    assert "downloading" not in shown


# ---- folders ----


def test_unwritable_outputs_folder_is_named(slurm, working_folder, capsys):
    (working_folder / "outputs").write_text("a file stands here")
    assert run([DIGITS]) == 1
    assert "cannot be written: Not a directory; give another with outputs=PATH" in last_line(capsys)
    assert (working_folder / "outputs").read_text() == "a file stands here"
    assert slurm.scripts == []


def test_unwritable_cell_file_is_named(slurm, working_folder, capsys):
    assert run([DIGITS, "study=mine"]) == 0
    capsys.readouterr()
    study = Study(working_folder / "outputs" / "mine")
    (folder,) = study.cells()
    folder.cell_json.unlink()
    folder.root.rmdir()
    folder.root.write_text("a file stands here")
    assert run([DIGITS, "study=mine"]) == 1
    assert "cell.json cannot be written" in last_line(capsys)
    assert len(slurm.scripts) == 1


@pytest.mark.parametrize(
    "words",
    [[DIGITS], ["plan", DIGITS], ["status", "mine"], ["collect", "mine"], ["logs", "mine"]],
    ids=lambda words: words[0].split("=")[0],
)
def test_study_of_newer_schema_is_refused_and_unchanged(words, slurm, working_folder, capsys):
    study = Study(working_folder / "outputs" / "mine")
    study.create()
    study.about.write_text('{"schema": 7, "hpml_jobs": "9.9"}')
    before = sorted(study.root.rglob("*"))
    assert run([*words, "study=mine"] if DIGITS in words else words) == 1
    assert "has schema 7, this hpml_jobs" in (error := last_line(capsys))
    assert "use hpml_jobs 9.9" in error
    assert sorted(study.root.rglob("*")) == before
    assert slurm.scripts == []


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (["status"], 1, "no study in outputs: submit one first"),
        (["status", "nothing"], 1, "no study nothing in outputs (studies: none)"),
        (["collect", "../x"], 2, "study='../x' is not a name"),
        (["run", "-m", "gpus=1,2", DIGITS], 2, "run is for one cell, these are 2"),
        (["run", "--index", "3", DIGITS], 2, "--index 3: this sweep has cells 0 to 0"),
    ],
)
def test_commands_on_missing_study_report_it(words, code, message, slurm, capsys):
    assert run(words) == code
    assert message in last_line(capsys)
    assert list(Path.cwd().iterdir()) == []
    assert slurm.scripts == []


# ---- a record that is half written ----


def test_truncated_record_is_shown_and_cell_resubmitted(slurm, working_folder, capsys):
    words = ["-m", "gpus=1,2", "batch=512", DIGITS, "study=mine"]
    assert run(words) == 0
    study = Study(working_folder / "outputs" / "mine")
    whole, half = study.cells()
    write_record(whole, a_record(whole.read().cell))
    text = encode(a_record(half.read().cell))
    half.record_json.write_bytes(text[: len(text) // 2])
    capsys.readouterr()

    assert run(["status", "mine"]) == 0
    assert "is not a whole record: Input data was truncated" in capsys.readouterr().out

    assert run(["collect", "mine"]) == 0
    shown = capsys.readouterr().out
    assert "ddp-2gpu-b512" in shown
    assert "not a whole record" in " ".join(shown.split())

    assert run(words) == 0
    shown = capsys.readouterr().out
    assert "invalid before" in shown
    assert "submitted 1 cell" in shown
    assert len(slurm.scripts) == 3
    assert list(study.history().jobs) == [whole.slug, half.slug]


def test_home_folder_is_expanded_without_quotes(laptop, monkeypatch, capsys):
    monkeypatch.setenv("HOME", str(laptop))
    assert run(["plan", DIGITS, "cluster=local", "outputs=~/runs"]) == 0
    assert f"in {laptop}/runs/digits-local" in capsys.readouterr().out


@pytest.mark.parametrize("name", ["random.py", "select/__init__.py"])
def test_file_named_as_a_module_of_python_is_refused(name, laptop, capsys):
    write_whole(laptop / name, b"")
    assert run([DIGITS, "cluster=local"]) == 2
    assert f"{laptop}/{name.partition('/')[0]} has the name of a module of Python" in last_line(
        capsys
    )


def test_folder_that_was_removed_is_named(laptop, capsys):
    gone = laptop / "gone"
    gone.mkdir()
    os.chdir(gone)
    gone.rmdir()
    assert run(["status"]) == 1
    assert last_line(capsys) == "hpml-jobs: the current folder was removed: cd to another one"


def test_full_device_for_the_output_is_one_line(laptop):
    program = "import sys; from hpml_jobs.cli.main import run; sys.exit(run(['--help']))"
    with Path("/dev/full").open("w") as full:
        ended = subprocess.run(
            [sys.executable, "-c", program],
            stdout=full,
            stderr=subprocess.PIPE,
            env=os.environ | {"PYTHONPATH": str(Path(hpml_jobs.__file__).parents[1])},
            text=True,
            check=False,
        )
    assert (ended.returncode, ended.stderr) == (
        1,
        "hpml-jobs: the output: No space left on device\n",
    )


def test_user_without_home_folder_has_no_defaults(laptop, monkeypatch, capsys):
    for name in ("HOME", "XDG_CONFIG_HOME", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(pwd, "getpwuid", lambda uid: {}[uid])
    assert run(["plan", DIGITS, "cluster=local"]) == 0
    assert run(["plan", DIGITS, "cluster=local", "outputs=~/x"]) == 2
    assert "~/x: there is no such home folder; write the whole path" in last_line(capsys)


def test_name_of_a_study_alone_submits_nothing_into_it(slurm, working_folder, capsys):
    StudyBuilder(working_folder / "outputs" / "mine").with_record(a_record(a_cell()))
    assert run(["study=mine"]) == 2
    fault = capsys.readouterr().err
    assert "study mine exists; to add a cell to it, name the cell" in fault
    assert fault.endswith("; to see it:\nhpml-jobs status mine\n")
    assert slurm.scripts == []


@pytest.mark.parametrize(
    ("words", "shown"),
    [
        (["resubmit", "mine", "--failed", "--minutes=abc"], "'abc': a whole number is needed"),
        (["choose", "mine", "min_efficiency=70"], "must be 1 (100%) or less; write 0.7 or 70%"),
    ],
)
def test_values_of_options_are_named_in_our_words(words, shown, slurm, working_folder, capsys):
    StudyBuilder(working_folder / "outputs" / "mine").with_record(a_record(a_cell()))
    assert run(words) == 2
    message = last_line(capsys)
    assert "a whole number is needed" in message or shown in message
    assert "Write minutes" not in message


@pytest.mark.parametrize("words", [["collect", "-h"], ["version"], ["choose", "-h"]])
def test_usual_words_for_help_and_version_work(words, laptop, capsys):
    assert run(words) == 0
    assert capsys.readouterr().out
