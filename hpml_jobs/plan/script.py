"""A training script before submission: what it can be, its files, and what its cells share."""

import ast
import os
import re
import shlex
import sys
from collections.abc import Callable, Sequence
from importlib.machinery import PathFinder
from pathlib import Path

import msgspec

from hpml_jobs.core.errors import UsageError
from hpml_jobs.core.script import Script, ScriptLauncher
from hpml_jobs.core.source_files import has_words, named_file, source_files
from hpml_jobs.core.text import few
from hpml_jobs.core.workload import SourceFile, Workload
from hpml_jobs.plan.settings import Settings

_WRITES = re.compile(
    r"torch\.save\(|save_pretrained\(|save_state\(|save_checkpoint\(|SummaryWriter\(|to_csv\("
    r"|open\([^)\n]*,\s*['\"][awx]|\.write_text\("
)
"""Calls by which scripts usually write files."""


LARGEST_FILE = 1_000_000
"""Bytes from which a file that args= names is taken for data or weights, not for a setting."""


_OF_OTHERS = {
    "Horovod": re.compile(rb"^\s*(?:import|from) horovod\b", re.MULTILINE),
    "MPI": re.compile(rb"^\s*(?:import|from) mpi4py\b", re.MULTILINE),
}
_OF_TORCH = re.compile(rb"torch\.distributed|DataParallel|accelerate|lightning|deepspeed")
"""Words of a script whose processes exchange by other libraries, or by torch, which is seen."""

_LAUNCHERS = (
    *("deepspeed", "horovodrun", "mpirun", "mpiexec", "orterun", "jsrun", "aprun", "accelerate"),
    *("colossalai", "composer"),
)
"""Commands that start the processes of scripts, and are none of `ScriptLauncher`."""

_LAUNCHER_MODULES = ("deepspeed.launcher", "horovod.runner", "mpi4py")


def refuse_other_exchange(sweep: Sequence[Settings]) -> None:
    """Refuse a script whose processes exchange by Horovod or MPI alone.

    Raises:
        UsageError: it would be measured as processes that train alone.
    """
    script, gpus = sweep[0].script_of_cell, max(settings.gpus for settings in sweep)
    if script is None or gpus == 1:
        return
    path = Path.cwd() / script.path
    reference, root = (script.module, Path.cwd()) if script.module else (path.stem, path.parent)
    if has_words(_OF_TORCH, [reference], root):
        return
    for library, words in _OF_OTHERS.items():
        if has_words(words, [reference], root):
            raise UsageError(
                f"script={script.path} exchanges by {library}, which is not seen: for gpus={gpus} "
                "wrap its model in torch's DistributedDataParallel, or measure gpus=1"
            )


def script_workload(settings: Settings, notify: Callable[[str], None]) -> Workload:
    """Return the workload of a script: its name, and its source files with their hashes.

    Nothing of the script is run.

    Raises:
        UsageError: there is no such script, or it is not Python.
    """
    script = settings.script_of_cell
    if script is None:
        raise ValueError("settings without a script")
    if script.is_redacted:
        raise UsageError(
            f"args={script.args}: a secret was removed from this command; type it in its place"
        )
    folder = Path.cwd()
    files = [folder / script.path] if script.module is None else []
    files += [folder / word for word in shlex.split(script.args) if word.endswith(".py")]
    if script.module is None:
        _check_file(files[0], script)
    root = folder if script.module else files[0].parent
    sources = {
        msgspec.structs.replace(source, name=_name_below(root, path.parent, source.name))
        for path in files
        if path.is_file()
        for source in source_files([path.stem], path.parent, notify)
    }
    if script.module:
        _check_module(script.module, folder)
        sources |= set(source_files([script.module], folder, notify))
    sources |= _named_sources(script, root, notify)
    if not script.has_placeholder("folder"):
        _warn_of_files(script, files, notify)
    code = tuple(sorted(sources, key=str))
    return msgspec.structs.replace(settings.workload, code=code)


def _named_sources(script: Script, root: Path, notify: Callable[[str], None]) -> set[SourceFile]:
    """Return the small files that words of args= name: `FILE`, `--x=FILE`, `x=A,B`, `@FILE`.

    They are sought in the folder of the submission, and beside the script, in `root`, which names
    them. Those with imports are found by `source_files`.
    """
    texts = [text for word in script.fixed_words for text in (word, word.partition("=")[2])]
    names = [name.removeprefix("@") for text in texts for name in (text, *text.split(","))]
    folders = Path.cwd(), root
    paths = (folder / name for name in names if name for folder in folders)
    named = [path for path in dict.fromkeys(paths) if path.suffix != ".py" and _is_small_file(path)]
    if named:
        shown = few(os.path.relpath(path, folders[0]) for path in named)
        notify(
            f"part of the cells, named in args=: {shown}; changed, they are measured again; "
            "what the script writes itself belongs below {folder}"
        )
    return {named_file(path, root) for path in named}


def _is_small_file(path: Path) -> bool:
    try:
        return path.is_file() and path.stat().st_size < LARGEST_FILE
    except OSError:  # e.g. too long for a name
        return False


def _name_below(root: Path, folder: Path, name: str) -> str:
    """Return the name of a file below `root`; one that is not in `folder` keeps its name."""
    is_there = folder != root and (folder / name).is_file()
    return os.path.relpath(folder / name, root) if is_there else name


def _check_file(path: Path, script: Script) -> None:
    """Refuse a script that is missing or not Python; it is parsed, not run."""
    if not script.path:
        raise UsageError("script= is empty: name the Python file that trains, e.g. script=train.py")
    if not path.is_file():
        first, _, rest = script.path.partition(" ")
        launcher = Path(first).name
        if launcher in _LAUNCHERS:
            raise UsageError(
                f"script={script.path}: {launcher} is not supported: name the Python file that "
                "trains, which torchrun starts (launcher=torchrun), e.g. script=train.py"
            )
        if rest and first in {*ScriptLauncher, "python3"}:
            raise UsageError(
                f"script={script.path}: name the Python file that trains, and what starts it as "
                f"launcher={first.removesuffix('3')}"
            )
        if rest and (path.parent / first).is_file():
            raise UsageError(
                f"script={script.path}: arguments belong in args=: script={first} args='{rest}'"
            )
        if "," in script.path:
            raise UsageError(
                f"script={script.path}: one script at a time; measure each in its own command"
            )
        if path.is_dir():
            raise UsageError(f"script={script.path} is a folder: name the file in it that trains")
        near = sorted(file.name for file in path.parent.glob("*.py"))[:5]
        there = f"; {path.parent} has {', '.join(near)}" if near else ""
        raise UsageError(f"script={script.path}: no such file{there}")
    if path.suffix == ".ipynb":
        raise UsageError(
            f"script={script.path} is a notebook: jupyter nbconvert --to script {script.path} "
            "makes a script of it"
        )
    try:
        ast.parse(path.read_bytes(), filename=script.path)
    except SyntaxError as fault:
        if path.suffix != ".py":
            raise UsageError(
                f"script={script.path} is not Python: name the Python file that trains, and what "
                "starts it as launcher="
            ) from fault
        raise UsageError(
            f"script={script.path}: {fault.msg} in line {fault.lineno}: correct it first"
        ) from fault
    except (OSError, ValueError) as fault:
        raise UsageError(f"script={script.path} cannot be read: {fault}") from fault


def _check_module(module: str, folder: Path) -> None:
    """Refuse a module whose first package is neither here nor installed; nothing is imported."""
    first = module.partition(".")[0]
    if module.startswith(_LAUNCHER_MODULES):
        raise UsageError(
            f"script=-m {module}: this launcher is not supported: name the Python file that "
            "trains, which torchrun starts (launcher=torchrun), e.g. script=train.py"
        )
    if PathFinder.find_spec(first, [str(folder), *sys.path]) is None:
        raise UsageError(
            f"script=-m {module}: no module {first} in {folder} or installed: submit from the "
            "folder that has it, or install it"
        )
    file = folder.joinpath(*module.split("."))
    files = (file.with_name(f"{file.name}.py"), file / "__main__.py")
    if (folder / first).is_dir() and not any(map(Path.is_file, files)):
        raise UsageError(f"script=-m {module}: neither {files[0]} nor {files[1]} is a file")


def _warn_of_files(script: Script, files: Sequence[Path], notify: Callable[[str], None]) -> None:
    """Say that cells share the files which a script writes where it is started."""
    for path in files:
        lines = path.read_text(errors="replace").splitlines() if path.is_file() else []
        writing = next((n for n, text in enumerate(lines, 1) if _WRITES.search(text)), None)
        if writing:
            notify(
                f"{script.path} writes files (line {writing}), and args has no {{folder}}: every "
                "cell starts in this folder, so one may overwrite what another wrote, or resume "
                "from it; pass {folder} as its folder for output if it has such an option"
            )
            return
