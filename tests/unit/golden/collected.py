"""Collect the golden studies: `python -m tests.unit.golden.collected` in an empty folder."""

import contextlib
import io
import shutil
import sys
from pathlib import Path

from hpml_jobs.cli.main import run
from tests.unit.golden.studies import BUILT, build

DATA = Path(__file__).parents[2] / "data"
RELEASED = {
    path.name: path for path in sorted(DATA.glob("studies-*/*")) if (path / "cells").is_dir()
}


def main() -> None:
    """Write outputs/ with all golden studies and their reports; fail if a command fails."""
    outputs = Path("outputs")
    for name in BUILT:
        build(name, outputs)
    for name, folder in RELEASED.items():
        shutil.copytree(folder, outputs / name)
    for name in (*BUILT, *RELEASED):
        with contextlib.redirect_stdout(io.StringIO()):
            code = run(["collect", name])
        if code:
            sys.exit(f"collect {name}: exit code {code}")


if __name__ == "__main__":
    main()
