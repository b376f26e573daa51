"""A training script before submission: what it can be, and its source files."""

import ast
import os
import re
import shlex
import sys
from collections.abc import Callable, Iterator, Sequence
from importlib.machinery import PathFinder
from pathlib import Path

import msgspec

from hpml_jobs.core.errors import UsageError
from hpml_jobs.core.script import PLACEHOLDER_FORM, Script, ScriptLauncher
from hpml_jobs.core.secrets import HIDDEN
from hpml_jobs.core.source_files import local_texts, named_file, source_files
from hpml_jobs.core.text import few, listed
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
_OF_TORCH = re.compile(
    rb"torch\.distributed|DataParallel|accelerate|lightning|deepspeed"
)
"""Words of a script whose processes exchange by other libraries, or by torch, which is seen."""

_LAUNCHERS = (
    *(
        "deepspeed",
        "horovodrun",
        "mpirun",
        "mpiexec",
        "orterun",
        "jsrun",
        "aprun",
        "accelerate",
    ),
    *("colossalai", "composer"),
)
"""Commands that start the processes of scripts, and are none of `ScriptLauncher`."""

_LAUNCHER_MODULES = ("deepspeed.launcher", "horovod.runner", "mpi4py")


def workload_of(sweep: Sequence[Settings], notify: Callable[[str], None]) -> Workload:
    """Return the workload of a script: its name, and its source files with their hashes.

    Nothing of the script is run.

    Raises:
        UsageError: there is no such script, it is not Python, or it cannot be measured.
    """
    script = sweep[0].script_of_cell
    if script is None:
        raise ValueError("settings without a script")
    code = _code_of(script, notify)
    gpus = max(settings.gpus for settings in sweep)
    if gpus > 1:
        _check_exchange(script, gpus, notify)
    if not any(map(script.has_placeholder, ("batch", "global_batch"))):
        sizes = listed(sorted({settings.batch for settings in sweep}))
        notify(
            f"args has no {{batch}}: {script.path} has to use batch {sizes} by itself, else the "
            "cell fails; to pass it: args='--batch-size {batch}'"
        )
    return msgspec.structs.replace(sweep[0].workload, code=code)


def _check_exchange(script: Script, gpus: int, notify: Callable[[str], None]) -> None:
    """Refuse a script whose processes exchange by Horovod or MPI alone: each would train alone.

    Where they may not exchange at all, say so.
    """
    reference, root = script.module, Path.cwd()
    if reference is None:
        path = root / script.path
        reference, root = path.stem, path.parent
    texts = local_texts([reference], root).values()
    if any(map(_OF_TORCH.search, texts)):
        return
    for library, words in _OF_OTHERS.items():
        if any(map(words.search, texts)):
            raise UsageError(
                f"script={script.path} exchanges by {library}, which is not seen: for gpus={gpus} "
                "wrap its model in torch's DistributedDataParallel, or measure gpus=1"
            )
    notify(
        f"{script.path} and the files that it imports here do not name DistributedDataParallel or "
        f"a library that wraps it: with gpus={gpus} each process may train alone, and the cell fail"
    )


def _code_of(script: Script, notify: Callable[[str], None]) -> tuple[SourceFile, ...]:
    """Return the source files of a script; refuse one that is missing or not Python."""
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
    sources: set[SourceFile] = set()
    for path in files:
        if path.is_file():
            sources.update(_sources_of_file(path, root, notify))
    if script.module:
        _check_module(script.module, folder)
        sources.update(source_files([script.module], folder, notify))
    sources.update(_named_sources(script, root, notify))
    if not script.has_placeholder("folder"):
        _warn_of_files(script, files, notify)
    return tuple(sorted(sources, key=str))


def _sources_of_file(
    path: Path, root: Path, notify: Callable[[str], None]
) -> Iterator[SourceFile]:
    """Yield a Python file and those that it imports, named below `root`."""
    for source in source_files([path.stem], path.parent, notify):
        yield msgspec.structs.replace(
            source, name=_name_below(root, path.parent, source.name)
        )


def _fixed_words(arguments: str) -> list[str]:
    """Return the words of arguments that are the same in every cell: without a placeholder.

    >>> _fixed_words("--b {batch} --config 'my x.json'")
    ['--b', '--config', 'my x.json']
    """
    return [
        word for word in shlex.split(arguments) if not PLACEHOLDER_FORM.search(word)
    ]


def _named_sources(
    script: Script, root: Path, notify: Callable[[str], None]
) -> set[SourceFile]:
    """Return the small files that words of args= name: `FILE`, `--x=FILE`, `x=A,B`, `@FILE`.

    They are sought in the folder of the submission, and beside the script, in `root`, which names
    them. Those with imports are found by `source_files`.
    """
    here = Path.cwd()
    names: list[str] = []
    for word in _fixed_words(script.args):
        for text in (word, word.partition("=")[2]):
            names += [text, *text.split(",")]
    paths: dict[Path, None] = {}  # each once, in their order
    for name in (name.removeprefix("@") for name in names):
        if name:
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


_NAME_A_FILE = (
    "is not supported: name the Python file that trains, which torchrun starts "
    "(launcher=torchrun), e.g. script=train.py"
)
"""What to write instead of a launcher that is none of `ScriptLauncher`."""


def _check_file(path: Path, script: Script) -> None:
    """Refuse a script that is missing or not Python; it is parsed, not run."""
    if not script.path:
        raise UsageError(
            "script= is empty: name the Python file that trains, e.g. script=train.py"
        )
    if not path.is_file():
        raise UsageError(_why_no_file(path, script.path))
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


def _why_no_file(path: Path, typed: str) -> str:
    """Return what was typed instead of the path of a file, and what to write."""
    first, _, arguments = typed.partition(" ")
    launcher = Path(first).name
    if launcher in _LAUNCHERS:
        return f"script={typed}: {launcher} {_NAME_A_FILE}"
    if arguments and first in {*ScriptLauncher, "python3"}:
        return (
            f"script={typed}: name the Python file that trains, and what starts it as "
            f"launcher={first.removesuffix('3')}"
        )
    if arguments and (path.parent / first).is_file():
        return f"script={typed}: arguments belong in args=: script={first} args='{arguments}'"
    if "," in typed:
        return f"script={typed}: one script at a time; measure each in its own command"
    if path.is_dir():
        return f"script={typed} is a folder: name the file in it that trains"
    scripts = sorted(file.name for file in path.parent.glob("*.py"))[:5]
    hint = f"; {path.parent} has {', '.join(scripts)}" if scripts else ""
    return f"script={typed}: no such file{hint}"


def _check_module(module: str, folder: Path) -> None:
    """Refuse a module whose first package is neither here nor installed; nothing is imported."""
    first = module.partition(".")[0]
    if module.startswith(_LAUNCHER_MODULES):
        raise UsageError(f"script=-m {module}: this launcher {_NAME_A_FILE}")
    if PathFinder.find_spec(first, [str(folder), *sys.path]) is None:
        raise UsageError(
            f"script=-m {module}: no module {first} in {folder} or installed: submit from the "
            "folder that has it, or install it"
        )
    file = folder.joinpath(*module.split("."))
    files = (file.with_name(f"{file.name}.py"), file / "__main__.py")
    if (folder / first).is_dir() and not any(map(Path.is_file, files)):
        raise UsageError(
            f"script=-m {module}: neither {files[0]} nor {files[1]} is a file"
        )


def _warn_of_files(
    script: Script, files: Sequence[Path], notify: Callable[[str], None]
) -> None:
    """Say that cells share the files which a script writes where it is started."""
    for path in files:
        lines = path.read_text(errors="replace").splitlines() if path.is_file() else []
        writing = [
            number for number, text in enumerate(lines, 1) if _WRITES.search(text)
        ]
        if writing:
            notify(
                f"{script.path} writes files (line {writing[0]}), and args has no {{folder}}: "
                "every cell starts in this folder, so one may overwrite what another wrote, or "
                "resume from it; pass {folder} as its folder for output if it has such an option"
            )
            return
