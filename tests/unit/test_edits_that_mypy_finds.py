"""Faults in what the mappings of the package name, each of which mypy finds where it is named."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]

REPORT, STRATEGIES = "report/report.py", "worker/strategies.py"
CHECKS = "results/checks/study.py"
COMMANDS, LISTING = "cli/main.py", "cli/status.py"
MORE = "more, "
"""A required argument too many, without an annotation: typer's functions may have any others."""

EDITS = (
    ("report/scaling/sizes.py", r"def scaling\(", MORE, REPORT, ": scaling,"),
    (
        "worker/sharding/fsdp.py",
        r"class FSDP\((?s:.*?)self, ",
        MORE,
        STRATEGIES,
        r"FSDP\(",
    ),
    ("results/checks/waiting.py", r"def imbalance\(", MORE, CHECKS, r'"Waiting": \('),
    (LISTING, r"def list_\(", MORE, LISTING, r"def list_\("),
    (COMMANDS, "status import list_", "x", COMMANDS, "import list_x"),
    (STRATEGIES, ": DDP", "x", STRATEGIES, ": DDPx"),
)
"""A file, the first place in it, the text that is added there; where mypy must find the fault."""


def test_mypy_finds_each_edit(tmp_path):
    for name in ("hpml_jobs", ".mypy_cache"):
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, tmp_path / name)
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    package = tmp_path / "hpml_jobs"
    for file, place, added, _, _ in EDITS:
        text, count = re.subn(
            place, rf"\g<0>{added}", (package / file).read_text(), count=1
        )
        assert count, f"{file} has no {place}: adapt the edit"
        (package / file).write_text(text)
    mypy = [sys.executable, "-m", "mypy"]
    checked = subprocess.run(
        mypy, cwd=tmp_path, capture_output=True, text=True, check=False
    )
    for *_, where, found in EDITS:
        match = re.search(found, (package / where).read_text())
        assert match, f"{where} has no {found}: adapt the edit"
        line = match.string.count("\n", 0, match.start()) + 1
        assert f"hpml_jobs/{where}:{line}: error" in checked.stdout, found
