"""docs/gpu.md: figures measured on GPUs, from docs/gpu.json."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

from tests.gpu.page import page

__all__ = ["page"]
