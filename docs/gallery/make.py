"""Write this folder from the study in cifar10.tar.gz: `python docs/gallery/make.py`."""

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

FOLDER = Path(__file__).parent

STUDY = "cifar10"

PICTURES = ("speedup", "pareto", "phases", "communication")
"""The pictures beside the page, as SVG and PNG."""

PAGE = """\
# Gallery: resnet18 on CIFAR-10 images, 1 and 2 processes

A complete study, as the commands leave it. torchvision's resnet18 was trained on {images} real
CIFAR-10 images (JPEG files) on the CPU of a shared machine with 2 cores: 1 and 2 processes, batch
8 and 16 per process, {repeats} runs of each cell. The machine was not quiet, and the report says
so.

```bash
{commands}
```

`data.root` is a folder with the images as `train/CLASS/*` and `test/CLASS/*`.

| file | content |
|---|---|
| [report.html](report.html) | the page of `hpml-jobs report`; open it in a browser |
| [report.md](report.md) | the same as Markdown |
| [cifar10.tar.gz](cifar10.tar.gz) | the study, for `hpml-jobs unpack` |

![{alt}](speedup.svg)

## hpml-jobs collect

```
{screen}
```

## hpml-jobs choose

```
{choice}
```

## hpml-jobs choose epochs=90 deadline_min=20

```
{deadline}
```

## Pictures

{pictures}
"""


def main() -> None:
    """Unpack the study into a temporary folder, run the commands, and write the files."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        _run(folder, "unpack", str(FOLDER / f"{STUDY}.tar.gz"), "--outputs", "outputs")
        study = folder / "outputs" / STUDY
        words = (STUDY, "--outputs", "outputs")
        screen = _run(folder, "collect", *words, "--to", "report")
        _run(folder, "report", *words, "--to", "report")
        choice = _run(folder, "choose", *words)
        deadline = _run(folder, "choose", STUDY, "epochs=90", "deadline_min=20", *words[1:])
        for file in ("report.html", "report.md", *(f"{p}.{s}" for p in PICTURES for s in KINDS)):
            shutil.copy(folder / "report" / file, FOLDER)
        commands = (study / "commands.txt").read_text().strip()
    lines = screen.strip().splitlines()
    kept = [line for line in lines if not line.startswith("written: ")]
    page = PAGE.format(
        images=IMAGES,
        repeats=REPEATS,
        commands=commands,
        alt="Speedup and efficiency against the number of processes",
        screen="\n".join(kept).rstrip(),
        choice=choice.strip(),
        deadline=deadline.strip(),
        pictures="\n\n".join(f"![{picture}]({picture}.svg)" for picture in PICTURES[1:]),
    )
    (FOLDER / "README.md").write_text("\n".join(map(str.rstrip, page.splitlines())) + "\n")


KINDS = ("svg", "png")

IMAGES, REPEATS = 256, 4


def _run(folder: Path, *words: str) -> str:
    """Return what a command prints."""
    done = subprocess.run(
        [sys.executable, "-m", "hpml_jobs", *words],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(FOLDER.parents[1])},
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout


if __name__ == "__main__":
    main()
