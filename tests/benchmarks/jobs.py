"""Cells that benchmarks run as jobs, and folders of JPEG images for them."""

import subprocess
import sys
import tempfile
from pathlib import Path

from hpml_jobs.core.cell import Cell, CellFile
from hpml_jobs.core.record import Record
from hpml_jobs.study.cell_folder import CellFolder
from hpml_jobs.study.files import encode, write_whole


def run_job(cell: Cell, data_root: Path) -> Record:
    """Run a cell through its job's wrapper; return its record.

    Raises:
        SystemExit: it left no record; the end of its log is the message.
    """
    with tempfile.TemporaryDirectory() as name:
        folder = CellFolder(Path(name) / cell.slug)
        file = CellFile(cell=cell, data_root=str(data_root.resolve()), code_root=name)
        write_whole(folder.cell_json, encode(file))
        command = [sys.executable, "-m", "hpml_jobs.job", str(folder.root)]
        subprocess.run(command, check=False, stdout=subprocess.DEVNULL)
        record = folder.read_record()
        if record is None or not record.ranks:
            end = folder.last_end()
            sys.exit(f"{cell.slug}: {end.reason if end else 'no exit report'}")
    return record


def write_digits(root: Path, number: int) -> None:
    """Write JPEG images of scikit-learn's digits, enlarged to 32x32; after 1,797 they repeat."""
    import numpy as np  # noqa: PLC0415 -- seconds to import
    from PIL import Image  # noqa: PLC0415
    from sklearn.datasets import load_digits  # noqa: PLC0415

    digits = load_digits()
    for index in range(number):
        pixels, label = (
            values[index % len(values)] for values in (digits.images, digits.target)
        )
        folder = root / "train" / str(label)
        folder.mkdir(parents=True, exist_ok=True)
        image = Image.fromarray((pixels * 15.9).astype(np.uint8)).resize((32, 32))
        image.convert("RGB").save(folder / f"{index:06}.jpg")
