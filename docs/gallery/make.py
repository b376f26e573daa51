"""Write the report of the study in cifar10.tar.gz: `make gallery`.

The page and all pictures are in docs/gallery/report/, which git ignores; the pictures that README
and docs/results.md show are beside this file.
"""

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

FOLDER = Path(__file__).parent
STUDY = "cifar10"
PICTURES = ("speedup.png", "phases.png")
"""The pictures that are kept in git."""


def main() -> None:
    """Unpack the study into a temporary folder and write its report."""
    report = FOLDER / "report"
    with tempfile.TemporaryDirectory() as name:
        outputs = Path(name) / "outputs"
        shutil.unpack_archive(FOLDER / f"{STUDY}.tar.gz", outputs, filter="data")
        _run(Path(name), "collect", STUDY, "--to", str(report))
    for picture in PICTURES:
        shutil.copy(report / picture, FOLDER)
    sys.stdout.write(f"the page: {report / 'report.html'}\n")


def _run(folder: Path, *words: str) -> None:
    subprocess.run(
        [sys.executable, "-m", "hpml_jobs", *words],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(FOLDER.parents[1])},
        stdout=subprocess.DEVNULL,
        check=True,
    )


if __name__ == "__main__":
    main()
