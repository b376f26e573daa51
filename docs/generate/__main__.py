"""Write the files of docs/ that are generated from the code: `python docs/generate`."""

import importlib
from pathlib import Path

FOLDER = Path(__file__).parent

for script in sorted(FOLDER.glob("*.py")):
    if script.stem != "__main__":
        for name, text in importlib.import_module(script.stem).FILES.items():
            (FOLDER.parent / name).write_text(text())
