"""The gallery: its archive is a study that this version reads, and its page says what it gives."""

from pathlib import Path

import pytest

from hpml_jobs.cli.main import run

GALLERY = Path(__file__).parents[3] / "docs" / "gallery"


@pytest.fixture(scope="module")
def outputs(tmp_path_factory):
    """A folder with the study of the gallery, unpacked."""
    folder = tmp_path_factory.mktemp("gallery")
    assert run(["unpack", str(GALLERY / "cifar10.tar.gz"), "--outputs", str(folder)]) == 0
    return folder


@pytest.mark.parametrize("words", [(), ("epochs=90", "deadline_min=20")])
def test_gallery_shows_what_choose_says(words, outputs, capsys):
    assert run(["choose", "cifar10", *words, "--outputs", str(outputs)]) == 0
    lines = [line.rstrip() for line in capsys.readouterr().out.strip().splitlines()]
    assert "\n".join(lines) in (GALLERY / "README.md").read_text()


def test_gallery_page_is_complete_without_network():
    text = (GALLERY / "report.html").read_text()
    assert "<script" not in text
    assert "Content-Security-Policy" in text
    assert 'src="http' not in text
    assert "cifar10" in text
