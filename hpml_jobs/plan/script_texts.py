"""What the texts of a script show before it runs: what trains it, and the files that it shares."""

import ast
import re
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path

from hpml_jobs.core.source_files import parsed

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


def exchanges_by_torch(texts: Mapping[str, bytes]) -> bool:
    """Return whether sources name a class or a library by which torch's processes exchange."""
    return any(map(_OF_TORCH.search, texts.values()))


def other_library(texts: Mapping[str, bytes]) -> str:
    """Return the library that trains instead of torch, or exchanges instead of it; empty: none."""
    modules = set[str]().union(*map(_packages, map(parsed, texts.values())))
    if "torch" in modules and b".backward(" in b"".join(texts.values()):
        modules -= _NOT_TORCH
    return min(modules & (_EXCHANGES | _NOT_TORCH), default="")


def missing_packages(text: bytes, folder: Path) -> list[str]:
    """Return what a source imports that neither this Python nor its folder has; nothing is run.

    An import in a function, `if` or `try` may be optional, and one of a source that names sys.path
    may be found elsewhere.
    """
    if b"sys.path" in text:
        return []
    packages = (
        _packages(node)
        for node in parsed(text).body
        if isinstance(node, ast.Import | ast.ImportFrom)
    )
    return [
        package
        for package in sorted(set[str]().union(*packages))
        if not find_spec(package) and not any(folder.glob(f"{package}*"))
    ]


def shared_file(texts: Mapping[str, bytes]) -> str:
    """Return the place of a call that writes a file or resumes from it; empty: none.

    >>> shared_file({"a.py": b"x = open('data')", "b.py": b"x\\nopen('log', mode='a')"})
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


def _packages(tree: ast.AST) -> set[str]:
    """Return the packages that a source imports; those of its own folder by `.` have none."""
    return {module.partition(".")[0] for module in _imported(tree).values()} - {""}


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
