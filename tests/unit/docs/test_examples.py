"""Every command that --help, README.md and docs/ show runs on the study that it names."""

import itertools
import re
import shlex
import shutil
import webbrowser
from pathlib import Path

import pytest

from hpml_jobs.cli.commands import COMMANDS, function_of
from hpml_jobs.cli.main import run
from hpml_jobs.core.cluster import Cluster, Launcher
from hpml_jobs.core.strategies import Device
from hpml_jobs.study.files import encode, write_whole
from tests.unit.builders import CPU, PUBLISHED_S, a_cell, lab_cell, lab_record
from tests.unit.report.training.test_curves import write_curves
from tests.unit.study_builder import StudyBuilder

ROOT = Path(__file__).parents[3]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


def commands_of(text):
    """Return the words of the commands in the bash blocks of a page."""
    fences = re.findall(r"^```(\w*)\n(.*?)^```$", text, re.DOTALL | re.M)
    blocks = "".join(block for kind, block in fences if kind in ("", "bash"))
    lines = re.findall(r"^(?:hpml-jobs|python -m hpml_jobs)\b.*$", blocks.replace("\\\n", ""), re.M)
    return [shlex.split(line.replace("-m hpml_jobs", ""), comments=True)[1:] for line in lines]


HELP = [
    function_of(command).__doc__.partition("Example: ")[2].split(" >>")[0] for command in COMMANDS
]
EXAMPLES = {
    "--help": [shlex.split(" ".join(line.split()))[1:] for line in HELP],
    **{str(page.relative_to(ROOT)): commands_of(page.read_text()) for page in PAGES},
}


NODES = """\
gr001|gpu:a100:8|48|190000|main
gr002|gpu:a100:8|48|190000|main
gr003|gpu:rtx8000:4|48|190000|main
"""

NOT_RUN = {
    "completion": "sets a variable (tests/unit/cli/test_completion.py)",
    "fetch": "downloads",
    "run": "trains (tests/unit/cli/test_local_runs.py)",
    "doctor": "sends a job (tests/journeys/test_doctor_journey.py)",
    "export .* wandb": "needs wandb (tests/long/test_exports.py)",
    "list 'course/": "needs students' folders (tests/unit/cli/test_choose_and_list.py)",
    "plan .*data.root=": "needs a folder of images (tests/unit/cli/test_image_folders.py)",
    "plan .*workload=(custom|mygpt)": "needs code (test_own_code_page.py, test_ranks.py)",
}
"""Commands by their beginning, with the reason or the test that runs them."""


def words_to_run(words):
    """Return a command without what a reader replaces; a submission becomes a plan."""
    words = words if words and words[0] in COMMANDS else ["plan", *words]
    if words[0] == "plan" and not any(word.startswith("cluster=") for word in words):
        words = [*words, "gpu_type=a100"]  # the default that `init` writes
    return ["2" if word == "N" else word for word in words if word != "…"]


@pytest.fixture(scope="module")
def desk(tmp_path_factory):
    """A folder with the studies that the docs name, as records and as tables of rates."""
    folder = tmp_path_factory.mktemp("examples")
    outputs = folder / "outputs"
    demo = StudyBuilder(outputs / "digits-local")
    for (gpus, batch), epoch_s in PUBLISHED_S.items():
        cell = a_cell(gpus=gpus, batch=batch, device=Device.CPU)
        write_curves(demo, demo.with_record(lab_record(cell, epoch_s, facts=CPU)).slug)
    repeated = StudyBuilder(outputs / "before")
    for gpus, repeat in itertools.product((1, 2), range(4)):
        repeated.with_record(lab_record(lab_cell(gpus, 32, repeat=repeat), 20.0 / gpus))
    large = StudyBuilder(outputs / "my-study").with_published_study()
    for batch in (32, 128, 512):
        large.with_record(lab_record(lab_cell(8, batch, nodes=2), 10.0))
    for builder, name in ((demo, "local"), (large, "slurm")):
        write_whole(builder.study.cluster, encode(Cluster(name=name, launcher=Launcher(name))))
    for source, names in {
        demo: ("table4", "quantize", "transformers"),
        repeated: ("after", "digits-old", "digits-new"),
        large: ("STUDY",),
    }.items():
        for name in names:
            shutil.copytree(source.study.root, outputs / name)
    archive = str(ROOT / "docs" / "gallery" / "cifar10.tar.gz")
    assert run(["import", archive, "--outputs", str(outputs)]) == 0
    for name in ("FILE.csv", "timings.csv"):
        shutil.copy(ROOT / "docs" / "published.csv", folder / name)
    rates = (ROOT / "docs" / "choose_predict.md").read_text().partition("```\nmodel,")[2]
    (folder / "rates.csv").write_text("model," + rates.partition("```")[0])
    runs = {"single-1gpu-b128-x1": 0.07, "ddp-4gpu-b128-x2": 0.09}
    stamps = [f"{name},{n},{n * step_s}" for name, step_s in runs.items() for n in range(500)]
    (folder / "h.csv").write_text("\n".join(["run,global_step,_timestamp", *stamps]))
    (folder / "docs").symlink_to(ROOT / "docs")
    (folder / "train.py").write_text("import torch\n")
    return folder


@pytest.mark.parametrize("page", [page for page, examples in EXAMPLES.items() if examples])
def test_examples_run_on_the_study_that_they_name(page, desk, slurm, capsys, monkeypatch):
    slurm.set_cluster_name("any")
    slurm.set_output("sinfo", NODES)
    shutil.copytree(desk, "copy", symlinks=True)
    monkeypatch.chdir("copy")
    monkeypatch.setattr(webbrowser, "open", print)
    faults = []
    for words in map(words_to_run, EXAMPLES[page]):
        line = shlex.join(words)
        if any(re.match(beginning, line) for beginning in NOT_RUN):
            continue
        code = run(words)
        printed = capsys.readouterr()
        if code:
            faults.append(f"{line}: {code} {(printed.err or printed.out)[-300:]}")
    assert not faults, "\n".join(faults)
