"""The section of docs/measured.md on GPUs, and docs/gpu.csv, from docs/gpu.json."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

from tests.gpu.page import figures_csv, measured_page

FILES = {"gpu.csv": figures_csv, "measured.md": measured_page}
