"""Every benchmark starts and shows its help: nothing else runs them all."""

import runpy
import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[1] / "benchmarks"
SCRIPTS = [
    path
    for path in sorted(FOLDER.glob("*.py"))
    if path.stem not in ("intervals", "jobs")
]


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.stem)
def test_benchmark_shows_its_help(script, monkeypatch, capsys):
    monkeypatch.setattr(sys, "path", [str(FOLDER), *sys.path])
    monkeypatch.setattr(sys, "argv", [str(script), "--help"])
    with pytest.raises(SystemExit) as end:
        runpy.run_path(str(script), run_name="__main__")
    assert end.value.code == 0
    assert capsys.readouterr().out.startswith(f"usage: {script.name}")
