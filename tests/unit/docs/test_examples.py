"""Every command and all Python that --help, README.md and docs/ show run, in the page's order."""

import doctest
import itertools
import math
import re
import shlex
import shutil
import webbrowser
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from torch import nn

from hpml_jobs.cli.main import COMMANDS, functions_of_commands, run
from hpml_jobs.core.cluster import Cluster, Launcher
from hpml_jobs.core.strategies import Device
from hpml_jobs.study.files import encode, write_whole
from tests.unit.builders import CPU, PUBLISHED_S, a_cell, lab_cell, lab_record
from tests.unit.golden.studies import quantized
from tests.unit.study.test_published_page import WANDB
from tests.unit.study_builder import StudyBuilder
from tests.unit.training_runs import write_curves

ROOT = Path(__file__).parents[3]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


def examples_of(text):
    """Return the words of the commands, and the blocks of Python, of a page in their order."""
    examples = []
    for kind, block in re.findall(r"^```(\w*)\n(.*?)^```$", text, re.DOTALL | re.M):
        if kind in ("", "bash"):
            examples += commands_of(block)
        elif kind in ("python", "pycon"):
            examples.append(block)
    return examples


def commands_of(block):
    """Return the words of the commands in a block."""
    text = block.replace("\\\n", "")
    lines = re.findall(r"^(?:hpml-jobs|python -m hpml_jobs)\b.*$", text, re.M)
    return [
        shlex.split(line.replace("-m hpml_jobs", ""), comments=True)[1:]
        for line in lines
    ]


HELP = [
    command.__doc__.partition("Example: ")[2]
    for command in functions_of_commands().values()
]
EXAMPLES = {
    "--help": [shlex.split(" ".join(line.split()))[1:] for line in HELP],
    **{str(page.relative_to(ROOT)): examples_of(page.read_text()) for page in PAGES},
}

IMPORTED = {"math": math, "nn": nn, "pd": pd, "wandb": WANDB}
"""Names that the Python of a page does not import itself."""


NODES = """\
gr001|gpu:a100:8|48|190000|main
gr002|gpu:a100:8|48|190000|main
gr003|gpu:rtx8000:4|48|190000|main
b-1|gpu:l4:1|12|48000|g2-standard-12
b-2|gpu:l4:2|24|96000|g2-standard-24
b-4|gpu:l4:4|48|192000|g2-standard-48
"""

NOT_RUN = {
    "run": "trains (tests/unit/cli/test_local_runs.py)",
    "doctor": "sends a job (tests/journeys/test_doctor_journey.py)",
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
    quantized(StudyBuilder(outputs / "quantize"))
    assert run(["collect", "quantize", "--outputs", str(outputs)]) == 0
    demo = StudyBuilder(outputs / "demo")
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
        write_whole(
            builder.study.cluster, encode(Cluster(name=name, launcher=Launcher(name)))
        )
    for source, names in {
        demo: ("table4", "transformers", "hw5", "laptop"),
        repeated: ("after", "digits-old", "digits-new", "scaling"),
        large: ("STUDY",),
    }.items():
        for name in names:
            shutil.copytree(source.study.root, outputs / name)
    gallery = ROOT / "docs" / "gallery" / "cifar10.tar.gz"
    shutil.unpack_archive(gallery, outputs, filter="data")
    for name in ("FILE.csv", "timings.csv"):
        shutil.copy(ROOT / "docs" / "published.csv", folder / name)
    np.savez(
        folder / "iterations.npz", stall_s=np.zeros((2, 10)), last_stall_s=np.zeros(2)
    )
    (folder / "docs").symlink_to(ROOT / "docs")
    (folder / "train.py").write_text("import torch\n")
    return folder


def fault_of_command(words, capsys):
    """Run a command; return what it prints if it fails, else None."""
    line = shlex.join(words)
    if any(re.match(beginning, line) for beginning in NOT_RUN):
        return None
    code = run(words)
    printed = capsys.readouterr()
    return f"{line}: {code} {(printed.err or printed.out)[-300:]}" if code else None


def fault_of_python(block, names):
    """Run Python with the names of the blocks before it; return how it fails, else None."""
    if block.startswith(">>>"):
        return fault_of_doctest(block, names)
    try:
        exec(block, names)  # noqa: S102 - the page's own code
    except Exception as fault:
        return f"{block}: {fault!r}"
    return None


def fault_of_doctest(block, names):
    """Run examples with their output; return how they fail, else None."""
    test = doctest.DocTestParser().get_doctest(block, names, "page", None, None)
    runner = doctest.DocTestRunner(optionflags=doctest.NORMALIZE_WHITESPACE)
    printed = []
    runner.run(test, out=printed.append, clear_globs=False)
    names.update(test.globs)
    return "".join(printed) or None


@pytest.mark.parametrize(
    "page", [page for page, examples in EXAMPLES.items() if examples]
)
def test_examples_run_on_the_study_that_they_name(
    page, desk, slurm, capsys, monkeypatch
):
    slurm.set_cluster_name("any")
    slurm.set_output("sinfo", NODES)
    shutil.copytree(desk, "copy", symlinks=True)
    monkeypatch.chdir("copy")
    monkeypatch.setattr(webbrowser, "open", print)
    names = {"__name__": "page", **IMPORTED}
    faults = []
    for example in EXAMPLES[page]:
        if isinstance(example, str):
            faults.append(fault_of_python(example, names))
        else:
            faults.append(fault_of_command(words_to_run(example), capsys))
    assert not any(faults), "\n".join(filter(None, faults))
