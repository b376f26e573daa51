"""Write the pages of docs/ that are generated from the code: `python docs/generate`."""

import importlib
from pathlib import Path

FOLDER = Path(__file__).parent

for script in sorted(FOLDER.glob("*.py")):
    if script.stem != "__main__":
        page = importlib.import_module(script.stem).page
        (FOLDER.parent / f"{script.stem}.md").write_text(page())
