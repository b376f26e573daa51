"""Download the wheels of a lock into a folder that can be copied, for machines without internet.

    python3 locks/wheelhouse.py [--folder wheelhouse] [--python 3.12] [--lock locks/worker.txt]
        [--machine x86_64] [--glibc 2.28] [--own-torch]
    python3 wheelhouse/wheelhouse.py --install ENVIRONMENT [--folder wheelhouse] [--own-torch]

The folder gets the wheels for that Python, processor and C library, this project's own wheel,
requirements.txt, the lock without comments, and this script. With --own-torch torch and what
belongs to it (CUDA's libraries, torchvision) are left out, for machines that have their
own. There --install makes an environment of the Python that runs it, with the wheels of the folder;
with --own-torch it also has the packages of that Python, be that an environment's or not.
"""

import argparse
import importlib.util
import re
import shutil
import subprocess
import sys
import sysconfig
import tomllib
from collections.abc import Iterable
from pathlib import Path

ROOT = Path(__file__).parents[1]

SOURCE_ONLY = ("antlr4-python3-runtime",)
"""Packages without a wheel on the package index; built here, they run anywhere (pure Python)."""

OF_TORCH = re.compile(r"(torch|torchvision|triton|cuda-.*|nvidia-(?!ml-py).*)==")
"""Lines of a lock that belong to torch."""

QUIET = ("--quiet", "--disable-pip-version-check", "--no-deps")

OLDEST_GLIBC = 5
"""The minor version of the oldest glibc (2.5) that wheels are tagged with."""


def requirements(lock: Path, *, own_torch: bool) -> list[str]:
    """Return the lines of a lock, without torch's own if the machine has its torch."""
    lines = (line.partition("#")[0].strip() for line in lock.read_text().splitlines())
    return [line for line in lines if line and not (own_torch and OF_TORCH.match(line))]


def platforms(machine: str, glibc: str) -> list[str]:
    """Return the platform tags that a machine accepts; pip compares them literally.

    >>> platforms("x86_64", "2.17")[:2]
    ['manylinux_2_17_x86_64', 'manylinux_2_16_x86_64']
    """
    newest = int(glibc.partition(".")[2])
    names = [f"manylinux_2_{minor}" for minor in range(newest, OLDEST_GLIBC - 1, -1)]
    names += ["manylinux2014", "manylinux2010", "manylinux1", "linux"]
    return [f"{name}_{machine}" for name in names]


def run_module(*words: str, python: str = sys.executable) -> None:
    """Run a module of a Python; its error is the end of this program."""
    process = subprocess.run([python, "-m", *words], check=False)
    if process.returncode:
        sys.exit(f"{python} -m {' '.join(words[:2])} failed: see above")


def download(lines: Iterable[str], options: argparse.Namespace) -> None:
    """Download the wheels of the lines, and build those that exist as sources only."""
    lines = list(lines)
    is_source = [line.partition("==")[0] in SOURCE_ONLY for line in lines]
    sources = [line for line, source in zip(lines, is_source, strict=True) if source]
    wheels = [line for line, source in zip(lines, is_source, strict=True) if not source]
    target = ["--python-version", options.python, "--implementation", "cp"]
    for name in platforms(options.machine, options.glibc):
        target += ["--platform", name]
    folder = str(options.folder)
    binary = ["--only-binary=:all:", *target]
    run_module("pip", "download", *QUIET, *binary, "--dest", folder, *wheels)
    run_module("pip", "wheel", *QUIET, "--wheel-dir", folder, *sources, str(ROOT))


def packages_of_this_python() -> str:
    """Return the content of a .pth file that adds the folders of this Python's packages.

    `venv --system-site-packages` does not: above an environment it adds those of the Python below.
    """
    folders = [
        path
        for path in sys.path
        if Path(path).name in ("site-packages", "dist-packages")
    ]
    return "".join(f"import site; site.addsitedir({folder!r})\n" for folder in folders)


def install(environment: Path, folder: Path, *, own_torch: bool) -> None:
    """Make an environment of this Python with the folder's wheels."""
    run_module("venv", str(environment))
    wheels = [
        "--no-index",
        "--find-links",
        str(folder),
        "-r",
        str(folder / "requirements.txt"),
    ]
    run_module(
        "pip", "install", *QUIET, *wheels, python=str(environment / "bin" / "python")
    )
    if own_torch:  # after pip, which would find the packages there already
        packages = sysconfig.get_path("purelib", "venv", {"base": str(environment)})
        Path(packages, "machine.pth").write_text(packages_of_this_python())
    print(f"installed: source {environment}/bin/activate, then hpml-jobs doctor")


def main() -> None:
    """Fill the folder; print its size and how to install from it. Or install from it."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    here = f"{sys.version_info.major}.{sys.version_info.minor}"
    parser.add_argument("--folder", type=Path, default=Path("wheelhouse"))
    parser.add_argument("--python", default=here)
    parser.add_argument("--lock", type=Path, default=ROOT / "locks" / "worker.txt")
    parser.add_argument("--machine", default="x86_64")
    parser.add_argument("--glibc", default="2.28")
    parser.add_argument("--own-torch", action="store_true")
    parser.add_argument("--install", type=Path, metavar="ENVIRONMENT")
    options = parser.parse_args()
    if options.install:
        if not (options.folder / "requirements.txt").is_file():
            parser.error(
                f"--folder {options.folder} has no requirements.txt: copy the wheelhouse"
            )
        if options.own_torch and importlib.util.find_spec("torch") is None:
            parser.error(
                f"--own-torch: {sys.executable} has no torch: run it with one that has"
            )
        install(options.install, options.folder, own_torch=options.own_torch)
        return
    if not re.fullmatch(r"3\.\d+", options.python):
        parser.error(f"--python {options.python}: a version such as 3.12 is needed")
    if not re.fullmatch(r"2\.\d+", options.glibc):
        parser.error(f"--glibc {options.glibc}: a version such as 2.28 is needed")
    if not options.lock.is_file():
        parser.error(f"--lock {options.lock}: there is no such file")
    lines = requirements(options.lock, own_torch=options.own_torch)
    options.folder.mkdir(parents=True, exist_ok=True)
    download(lines, options)
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    lines.append(f"{project['name']}=={project['version']}")
    (options.folder / "requirements.txt").write_text("\n".join(lines) + "\n")
    shutil.copy(__file__, options.folder)
    sizes = [path.stat().st_size for path in options.folder.glob("*.whl")]
    print(
        f"{len(sizes)} wheels for Python {options.python}, {sum(sizes) / 1e6:,.0f} MB"
    )
    print(
        f"copy {options.folder}, then on the other machine, with its Python {options.python}:"
    )
    script, own_torch = (
        f"{options.folder.name}/wheelhouse.py",
        " --own-torch" * options.own_torch,
    )
    print(
        f"  python3 {script} --folder {options.folder.name} --install ~/hpml{own_torch}"
    )


if __name__ == "__main__":
    main()
