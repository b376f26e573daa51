"""The gallery: its tar file is a study that this version reads, and the pages say what it gives."""

import re
import shutil
from pathlib import Path
from statistics import median

import pytest

from hpml_jobs.cli.main import run
from hpml_jobs.core.measurements import Role
from hpml_jobs.report.report import make_report
from hpml_jobs.results.gap.causes import GapCause
from hpml_jobs.results.gap.replay import replays
from hpml_jobs.study.snapshot import read_snapshots
from hpml_jobs.study.study import Study

DOCS = Path(__file__).parents[3] / "docs"


def shown(page, section):
    """The printed lines of a section's text blocks, without the blocks' excerpt marks."""
    text = (
        (DOCS / page).read_text().partition(f"# {section}\n")[2].partition("\n## ")[0]
    )
    blocks = re.findall(r"^```text\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    return [[part.strip("\n") for part in block.split("…\n")] for block in blocks]


def printed(capsys):
    return "\n".join(line.rstrip() for line in capsys.readouterr().out.splitlines())


@pytest.fixture(scope="module")
def outputs(tmp_path_factory):
    """A folder with the study of the gallery, unpacked."""
    folder = tmp_path_factory.mktemp("gallery") / "outputs"
    shutil.unpack_archive(DOCS / "gallery" / "cifar10.tar.gz", folder, filter="data")
    return folder


def test_page_shows_what_collect_says_of_the_gallery(outputs, capsys, monkeypatch):
    monkeypatch.chdir(outputs.parent)
    assert run(["collect", "cifar10", "--to", "report"]) == 0
    text = printed(capsys)
    (parts,) = shown("results.md", "Example")
    assert len(parts) > 1
    for part in parts:
        assert part in text


@pytest.mark.parametrize("batch", [16, 32])
def test_epoch_replayed_without_exchange_is_as_the_one_without_exchange(batch, outputs):
    """The study has the answer: four runs of 2 processes, each with an epoch without exchange."""
    study = Study(outputs / "cifar10")
    (group,) = make_report("cifar10", read_snapshots(study.cells()), states=()).groups
    single, parallel = (
        [r for r in group.source.cells if (r.cell.gpus, r.cell.batch) == (gpus, batch)]
        for gpus in (1, 2)
    )
    shares = replays(parallel, single, ideal=2).of_row
    records = {result.slug: result.record for result in parallel}
    replayed_s = [
        shares[slug][frozenset({GapCause.EXCHANGE})] * record.epoch_s
        for slug, record in records.items()
    ]
    unsynced_s = [
        max(rank.epoch(Role.UNSYNCED).epoch_s for rank in record.ranks)
        for record in records.values()
    ]
    assert min(unsynced_s) <= median(replayed_s) <= max(unsynced_s)
