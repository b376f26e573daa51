"""A training script before submission: what it can be, and its source files."""

import ast
import os
import re
import shlex
import sys
from collections.abc import Sequence
from importlib.machinery import PathFinder
from pathlib import Path

import msgspec

from hpml_jobs.core.errors import UsageError
from hpml_jobs.core.script import PLACEHOLDER_FORM, Script
from hpml_jobs.core.secrets import HIDDEN
from hpml_jobs.core.source_files import digest, local_texts, named_file
from hpml_jobs.core.text import few, listed
from hpml_jobs.core.workload import SourceFile, Workload
from hpml_jobs.plan.script_texts import (
    exchanges_by_torch,
    missing_packages,
    other_library,
    shared_file,
)
from hpml_jobs.plan.settings import Notify, Settings

LARGEST_FILE = 1_000_000
"""Bytes from which a file that args= names is taken for data or weights, not for a setting."""


_LAUNCHER_MODULES = ("deepspeed.launcher", "horovod.runner", "mpi4py")


def workload_of(sweep: Sequence[Settings], notify: Notify) -> Workload:
    """Return the workload of a script: its name, and its source files with their hashes.

    Nothing of the script is run.

    Raises:
        UsageError: there is no such script, it is not Python, it cannot be measured, or its cells
            would share files.
    """
    first = sweep[0]
    script, cluster = first.script_of_cell, first.cluster
    if script is None:
        raise ValueError("settings without a script")
    root, texts = _texts_of(script, notify)
    _check_exchange(script, texts, max(settings.gpus for settings in sweep), notify)
    # a module has no file of that name
    missing = missing_packages(texts.get(Path(script.path).name, b""), root)
    if missing and cluster.is_local and not cluster.hosts:
        raise UsageError(
            f"script={script.path} imports {few(missing)}, not installed here: install it into "
            f"this environment, {sys.prefix}"
        )
    place = "" if first.shared_files else shared_file(texts)
    if place and not script.has_placeholder("folder"):
        raise UsageError(
            f"script={script.path} writes files or resumes from them ({place}), and args has no "
            "{folder}: cells would read and overwrite what others, and your own runs, wrote; pass "
            "{folder} in args= as its folder for output, or set shared_files=true if you mean it"
        )
    code = {SourceFile(name=name, sha256=digest(text)) for name, text in texts.items()}
    code |= _named_sources(script, root, notify)
    if not script.takes_batch:
        sizes = listed(sorted({settings.batch for settings in sweep}))
        notify(
            f"args has no {{batch}}: {script.path} has to use batch {sizes} by itself, else the "
            "cell fails; to pass it: args='--batch-size {batch}'"
        )
    return msgspec.structs.replace(first.workload, code=tuple(sorted(code, key=str)))


def _check_exchange(
    script: Script, texts: dict[str, bytes], gpus: int, notify: Notify
) -> None:
    """Refuse a script that another library trains; say where processes may not exchange at all."""
    if exchanges_by_torch(texts):
        return
    if library := other_library(texts):
        raise UsageError(
            f"script={script.path} imports {library}: only training by PyTorch is measured, on "
            "several GPUs with DistributedDataParallel, FSDP or DataParallel"
        )
    if gpus > 1:
        notify(
            f"{script.path} and the files that it imports here do not name DistributedDataParallel "
            f"or a library that wraps it: with gpus={gpus} each process may train alone, and the "
            "cell fail"
        )


def _texts_of(script: Script, notify: Notify) -> tuple[Path, dict[str, bytes]]:
    """Return the folder of a script and its source files; refuse one missing or not Python."""
    if HIDDEN in script.args:
        raise UsageError(
            f"args={script.args}: type the secret in place of {HIDDEN}, which hides it"
        )
    folder = Path.cwd()
    files = [folder / word for word in shlex.split(script.args) if word.endswith(".py")]
    if script.module:
        root = folder
    else:
        path = folder / script.path
        _check_file(path, script)
        files.insert(0, path)
        root = path.parent
    texts: dict[str, bytes] = {}
    for path in filter(Path.is_file, files):
        texts[os.path.relpath(path, root)] = path.read_bytes()
        for name, text in local_texts([path.stem], path.parent, notify).items():
            texts[_name_below(root, path.parent, name)] = text
    if script.module:
        _check_module(script.module, folder)
        texts |= local_texts([script.module], folder, notify)
    return root, texts


def _named_sources(script: Script, root: Path, notify: Notify) -> set[SourceFile]:
    """Return the small files that words of args= name: `FILE`, `--x=FILE`, `x=A,B`, `@FILE`.

    They are sought in the folder of the submission, and beside the script, in `root`, which names
    them. Those with imports are found by `local_texts`.
    """
    here = Path.cwd()
    paths: dict[Path, None] = {}  # each once, in their order
    for word in shlex.split(script.args):
        if not PLACEHOLDER_FORM.search(word):  # the same in every cell
            for name in filter(None, (word, *re.split("[=,@]", word))):
                paths |= dict.fromkeys((here / name, root / name))
    named = [path for path in paths if path.suffix != ".py" and _is_small_file(path)]
    if named:
        names_here = few(os.path.relpath(path, here) for path in named)
        notify(
            f"part of the cells, named in args=: {names_here}; changed, they are measured again; "
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
    path = folder / name
    if folder == root or not path.is_file():
        return name
    return os.path.relpath(path, root)


def _check_file(path: Path, script: Script) -> None:
    """Refuse a script that is missing or not Python; it is parsed, not run."""
    if not path.is_file() or path.suffix == ".ipynb":
        raise UsageError(
            f"script={script.path}: no such Python file: name the one that trains, its arguments "
            "as args=, and what starts it as launcher=torchrun, srun or python"
        )
    try:
        ast.parse(path.read_bytes(), filename=script.path)
    except SyntaxError as fault:
        raise UsageError(
            f"script={script.path}, line {fault.lineno}: {fault.msg}: correct it, or name the "
            "Python file that trains"
        ) from fault
    except (OSError, ValueError) as fault:
        raise UsageError(f"script={script.path} cannot be read: {fault}") from fault


def _check_module(module: str, folder: Path) -> None:
    """Refuse a module that is neither here nor installed; nothing is imported."""
    if module.startswith(_LAUNCHER_MODULES):
        raise UsageError(
            f"script=-m {module}: this launcher is not supported: name the Python file that "
            "trains, which torchrun starts (launcher=torchrun), e.g. script=train.py"
        )
    folders = [str(folder), *sys.path]
    for part in module.split("."):
        spec = PathFinder.find_spec(part, folders)
        if spec is None:
            raise UsageError(
                f"script=-m {module}: no module {part} in {folder} or installed: submit from the "
                "folder that has it, or install it"
            )
        folders = [*(spec.submodule_search_locations or ())]
