"""The identity of the user's own data."""

from pathlib import Path

from hpml_jobs.core import folder_files, text_data
from hpml_jobs.core.data_files import FOLDER, IMAGE_FOLDER

DIGESTS = {IMAGE_FOLDER: folder_files.digest, FOLDER: text_data.digest}
"""The identity of a folder of images or text, by `workload.data`."""


def data_digest(data: str, root: Path) -> str | None:
    """Return the identity of the user's folder of images or text; None for other data.

    Raises:
        HpmlError: a file cannot be read.
    """
    return DIGESTS[data](root) if data in DIGESTS else None
