"""A training script before submission: what it can be, its source files, and what they show."""

import ast
import os
import re
import shlex
import sys
from collections.abc import Mapping, Sequence
from importlib.machinery import PathFinder
from pathlib import Path

import msgspec

from hpml_jobs.core.errors import UsageError
from hpml_jobs.core.script import Script
from hpml_jobs.core.secrets import HIDDEN
from hpml_jobs.core.source_files import digest, local_texts, named_file, parsed
from hpml_jobs.core.text import few, listed
from hpml_jobs.core.workload import SourceFile, Workload
from hpml_jobs.plan.settings import Notify, Settings

LARGEST_FILE = 1_000_000
"""Bytes from which a file that args= names is taken for data or weights, not for a setting."""


def workload_of(sweep: Sequence[Settings], notify: Notify) -> Workload:
    """Return the workload of a script: its name, and its source files with their hashes.

    Nothing of the script is run.

    Raises:
        UsageError: there is no such script, it is not Python, it cannot be measured, or its cells
            would share files.
    """
    first = sweep[0]
    script = first.script_of_cell
    if script is None:
        raise ValueError("settings without a script")
    root, texts = _texts_of(script, notify)
    _check_library(script, texts)
    if not first.shared_files and not script.has_placeholder("folder"):
        _check_shared_files(script, texts)
    code = {SourceFile(name=name, sha256=digest(text)) for name, text in texts.items()}
    code |= _named_sources(script, root, notify)
    if not script.takes_batch:
        sizes = listed(sorted({settings.batch for settings in sweep}))
        notify(
            f"args has no {{batch}}: {script.path} has to use batch {sizes} by itself, else the "
            "cell fails; to pass it: args='--batch-size {batch}'"
        )
    return msgspec.structs.replace(first.workload, code=tuple(sorted(code, key=str)))


def _check_shared_files(script: Script, texts: Mapping[str, bytes]) -> None:
    """Refuse a script whose cells would read and overwrite each other's files."""
    if place := _shared_file(texts):
        raise UsageError(
            f"script={script.path} writes files or resumes from them ({place}), and args has no "
            "{folder}: cells would read and overwrite what others, and your own runs, wrote; pass "
            "{folder} in args= as its folder for output, or set shared_files=true if you mean it"
        )


def _check_library(script: Script, texts: Mapping[str, bytes]) -> None:
    """Refuse a script that another library trains, or whose processes exchange by one, unseen."""
    if any(map(_OF_TORCH.search, texts.values())):
        return
    imported = [
        name for text in texts.values() for name in _imported(parsed(text)).values()
    ]
    modules = {name.partition(".")[0] for name in imported}
    if "torch" in modules and b".backward(" in b"".join(texts.values()):
        modules -= _NOT_TORCH
    if library := min(modules & (_EXCHANGES | _NOT_TORCH), default=""):
        raise UsageError(
            f"script={script.path} imports {library}: only training by PyTorch is measured, on "
            "several GPUs with DistributedDataParallel, FSDP or DataParallel"
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
    fixed = [word for word in shlex.split(script.args) if "{" not in word]
    names = [name for word in fixed for name in re.split("[=,@]", word) if name]
    paths = dict.fromkeys(folder / name for name in names for folder in (here, root))
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
    folders = [str(folder), *sys.path]
    for part in module.split("."):
        spec = PathFinder.find_spec(part, folders)
        if spec is None:
            raise UsageError(
                f"script=-m {module}: no module {part} in {folder} or installed: submit from the "
                "folder that has it, or install it"
            )
        folders = [*(spec.submodule_search_locations or ())]


# ---- what trains a script, and the files that it shares ----

_SHARED = re.compile(
    r"""
    (.*\.)?(
        save(?!_for_|_hyper|_on_|d_)\w* | async_save | load_(state|checkpoint\w*)
        | write_(text|bytes) | to_(csv|parquet|pickle|feather|excel|hdf) | tofile | export\w*
        | im(write|save) | \w*FileHandler
        | SummaryWriter | (CSV|TensorBoard)Logger | ModelCheckpoint | LightningCLI
        | \w*TrainingArguments
    )
    | torch\.(jit\.|distributed\.checkpoint\.(\w+\.)?)?load(_state_dict)?
    | safetensors\.torch\.load_(file|model)
    | (pickle|joblib)\.dump
    | shutil\.(copy\w*|move)
    | os\.(replace|rename)
    | (lightning|pytorch_lightning|transformers|trl)\.(.*\.)?\w*Trainer
    """,
    re.VERBOSE,
)
"""Calls that write files where a script is started, or read what another run has written there."""

_OPENS = re.compile(r"(.*\.)?(open|fdopen|\w*memmap|\w*File)")
_WRITING = re.compile(r"('[rbt]*[wax+][waxrbt+]*(:\w*)?'|[\w.]*mode)( if .*)?")
"""Calls that write if an argument is such a mode; a variable may be one."""

_NOT_TORCH = {"tensorflow", "jax", "flax", "keras", "mxnet", "paddle"}
_EXCHANGES = {"horovod", "mpi4py", "ray", "deepspeed", "colossalai"}
"""Libraries that train without torch, and those by which its processes exchange, unseen."""

_OF_TORCH = re.compile(
    rb"""
    torch\.distributed
    | DataParallel
    | \b(accelerate|Accelerator|lightning|TrainingArguments)\b
    """,
    re.VERBOSE,
)
"""Words of a script whose processes exchange by torch, which is seen."""


def _shared_file(texts: Mapping[str, bytes]) -> str:
    """Return the place of a call that writes a file or resumes from it; empty: none.

    >>> _shared_file({"a.py": b"x = open('data')", "b.py": b"x\\nopen('log', mode='a')"})
    'b.py, line 2'
    """
    for name, text in texts.items():
        tree = parsed(text)
        names = _imported(tree)
        calls = (node for node in ast.walk(tree) if isinstance(node, ast.Call))
        lines = [call.lineno for call in calls if _is_shared(call, names)]
        if lines:
            return f"{name}, line {min(lines)}"
    return ""


def _is_shared(call: ast.Call, names: Mapping[str, str]) -> bool:
    """Return whether a call writes a file, or reads what a run has written."""
    head, dot, rest = ast.unparse(call.func).partition(".")
    name = f"{names.get(head, head)}{dot}{rest}"
    if not _OPENS.fullmatch(name):
        return bool(_SHARED.fullmatch(name))
    values = [*call.args, *(keyword.value for keyword in call.keywords)]
    return any(map(_WRITING.fullmatch, map(ast.unparse, values)))


def _imported(tree: ast.AST) -> dict[str, str]:
    """Return what a source imports by the name that it has there, as `dcp`, a module of torch."""
    names: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names |= {alias.asname or alias.name: alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            module = f"{'.' * node.level}{node.module}"
            for alias in node.names:
                names[alias.asname or alias.name] = f"{module}.{alias.name}"
    return names
