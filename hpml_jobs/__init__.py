"""Data-parallel scaling studies of PyTorch training on SLURM clusters."""

from typing import TYPE_CHECKING

from hpml_jobs.core.text import VERSION

if TYPE_CHECKING:
    from pathlib import Path

    import pandas as pd

__version__ = VERSION


def tables(study: "str | Path") -> "dict[str, pd.DataFrame]":
    """Return the tables of a study as pandas DataFrames by label, such as `table1` and `cells`.

    `study` is its folder, e.g. `outputs/demo`. Numbers are unrounded, units are in the names of
    columns, and `attrs` has title, caption and notes.

    Raises:
        HpmlError: the folder has no study, or one of a newer version.
    """
    from hpml_jobs.report.files import frames  # noqa: PLC0415 - pandas

    return frames.tables(study)
