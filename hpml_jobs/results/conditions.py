"""Conditions that compared cells must share, and the number format that they computed in."""

import re
from collections.abc import Callable
from typing import NamedTuple

import msgspec

from hpml_jobs.core.cell import Cell
from hpml_jobs.core.data_files import FOLDER, IMAGE_FOLDER
from hpml_jobs.core.environment import COMPARED, text_of
from hpml_jobs.core.gpus import Card
from hpml_jobs.core.rank import NodeSystem
from hpml_jobs.core.record import Facts, Record
from hpml_jobs.core.strategies import Device
from hpml_jobs.core.training_path import TORCH_TF32
from hpml_jobs.core.value import known
from hpml_jobs.core.workload import Workload

Conditions = tuple[tuple[str, str], ...]
"""Pairs of a condition's name and its value in words, in a fixed order."""

CODE = "your code"
"""Whether the source of the user's functions is recorded; a file of it is `your code NAME`."""

DATA, TORCHVISION, PACKAGES = "files of the data", "torchvision", "packages"
RECIPE = "learning-rate recipe"
WORKLOAD, GPU_MODEL, CPU_MODEL, TORCH = "workload", "GPU model", "CPU model", "torch"
CPU_COUNT = "CPUs per host"
PARAMETERS, LOADER_WORKERS = "trainable parameters", "DataLoader workers per process"
SCRIPT = "script"
"""Conditions that are looked up by their name."""

NONE = "none"
"""The value of a condition where there is no such thing."""

TIMING = "for timing only"
"""The epochs of cells that train no more of them than their times need."""

UNRECORDED = "not recorded"
"""The value of a condition that a group of cells does not have at all."""

TORCHVISION_DATA = frozenset(("cifar10", IMAGE_FOLDER))
"""Built-in data that torchvision reads and augments."""

WORKLOAD_CONDITIONS = frozenset(
    (*Workload.__struct_fields__, PARAMETERS, DATA, TORCHVISION, PACKAGES)
)
"""Names of conditions that two workloads of other names may differ in."""


KEYS = {
    **{name: f"workload.{name}=" for name in Workload.__struct_fields__},
    **{name: f"{name}=" for name in (WORKLOAD, SCRIPT, "device", "loader", "epochs")},
    "images": "images ",
    "limit": "data.limit=",
    "requested GPU type": "gpu_type=",
    "threads per process": "threads=",
    LOADER_WORKERS: "loader_workers=",
}
"""Conditions as they are typed; the number of images is not."""


class Condition(NamedTuple):
    """One property of the hardware or software."""

    name: str
    value: Callable[[Record, Facts], object]


def _parameters(record: Record, _facts: Facts | None = None) -> int | None:
    """Return the count of what was trained; a cell out of memory may only have claimed one."""
    return record.model.parameters if record.model else record.cell.workload.parameters


def _gpu_model(record: Record, facts: Facts) -> str | None:
    """Return the model of the GPUs; all models where one cell ran on several."""
    if record.cell.device is Device.CPU:
        return None
    models = sorted({device for rank in record.ranks for device in rank.devices})
    return " + ".join(models) if len(models) > 1 else facts.gpu_model


def _of_cards(
    value: Callable[[Card], float | None], unit: str
) -> Callable[..., str | None]:
    """Return a value of the GPUs in words; all values where the GPUs differ."""

    def in_words_of(record: Record, _facts: Facts) -> str | None:
        values = {*map(value, record.cards)}
        texts = [f"{number:.0f}" for number in sorted(known(values))]
        return f"{' + '.join(texts)} {unit}" if texts else None

    return in_words_of


def _of_nodes(
    value: Callable[[NodeSystem], str | None], of_first: Callable[[Facts], str | None]
) -> Callable[[Record, Facts], str | None]:
    """Return a fact of the nodes; all values where the nodes differ."""

    def in_words_of(record: Record, facts: Facts) -> str | None:
        values = {value(rank.node) for rank in record.ranks if rank.node}
        return " + ".join(sorted(filter(None, values))) or of_first(facts)

    return in_words_of


def _packages(record: Record, facts: Facts) -> str | None:
    """Return the packages that the user's code imports."""
    if not record.cell.workload.own_code:
        return None
    if facts.packages is None:
        return UNRECORDED
    return ", ".join(map(" ".join, facts.packages.items())) or None


def _timed(record: Record, facts: Facts) -> Conditions:
    """Return a condition for what of a script was timed; none without a script."""
    if record.cell.origin.has_fixed_epochs:
        return ()
    timed = "windows of iterations" if facts.in_windows else "passes over a loader"
    return (("timed", timed),)


def _memory_clock_mhz(card: Card) -> int | None:
    """Return the highest memory clock that was read: between epochs a GPU may lower it."""
    clocks = [
        card.memory_clock_mhz,
        card.samples.memory_clock_mhz[2] if card.samples else None,
    ]
    return max(known(clocks), default=None)


def _tf32_in_matmul(record: Record, facts: Facts) -> bool | None:
    requested = record.cell.path.tf32.matmul
    return TORCH_TF32.matmul if facts.tf32_matmul is requested else facts.tf32_matmul


def _tf32_in_cudnn(record: Record, facts: Facts) -> bool | None:
    requested = record.cell.path.tf32.cudnn
    return TORCH_TF32.cudnn if facts.tf32_cudnn is requested else facts.tf32_cudnn


def _cudnn_benchmark(record: Record, facts: Facts) -> bool | None:
    is_cuda = record.cell.device is Device.CUDA
    is_requested = facts.cudnn_benchmark is record.cell.searches_kernels
    return is_cuda if is_requested else facts.cudnn_benchmark


CONDITIONS = (
    Condition(PARAMETERS, _parameters),
    Condition(GPU_MODEL, _gpu_model),
    Condition(
        CPU_MODEL, _of_nodes(lambda node: node.cpu_model, lambda facts: facts.cpu_model)
    ),
    Condition(CPU_COUNT, lambda _, facts: facts.cpu_count),
    Condition("text", lambda _, facts: facts.text.sha256[:12] if facts.text else None),
    Condition(
        "driver", _of_nodes(lambda node: node.driver, lambda facts: facts.driver)
    ),
    Condition("Python", lambda _, facts: facts.python.rpartition(".")[0]),
    Condition(TORCH, lambda _, facts: facts.torch),
    Condition(
        TORCHVISION,
        lambda record, f: (
            f.torchvision if record.cell.workload.data in TORCHVISION_DATA else None
        ),
    ),
    Condition(PACKAGES, _packages),
    Condition(
        f"{CODE} in the job",
        lambda _, facts: ", ".join(map(str, facts.imported)) or None,
    ),
    Condition("CUDA", lambda _, facts: facts.cuda),
    Condition("cuDNN", lambda _, facts: facts.cudnn),
    Condition("NCCL", lambda _, facts: facts.nccl),
    Condition("TF32 in matmul", _tf32_in_matmul),
    Condition("TF32 in cuDNN", _tf32_in_cudnn),
    Condition("cuDNN benchmark", _cudnn_benchmark),
    Condition("cuDNN deterministic", lambda _, facts: facts.cudnn_deterministic),
    Condition("power limit", _of_cards(lambda card: card.power_limit_w, "W")),
    Condition("memory clock", _of_cards(_memory_clock_mhz, "MHz")),
    Condition(
        "environment",
        lambda _, facts: (
            text_of(COMPARED, facts.nccl_environment | facts.environment) or None
        ),
    ),
    Condition("hpml_jobs", lambda _, facts: facts.hpml_jobs),
    Condition("commit", lambda _, facts: facts.commit),
    Condition("uncommitted changes", lambda _, facts: facts.dirty),
)
"""Conditions that two measurements must share before their ratio is a speedup.

The backend is not included (a single process has none), nor the host: two nodes of one kind may
share a table. A setting that a key of the training path, or the strategy, makes is part of the row:
here it is that of a cell of the plain path.
"""

REMARKS = (
    Condition("Python", lambda _, facts: facts.python),
    Condition("operating system", lambda _, facts: facts.os),
    Condition("kernel", _of_nodes(lambda node: node.kernel, lambda _: UNRECORDED)),
    Condition("container", lambda _, facts: facts.container),
)
"""Properties that hardly change a number: cells that differ share a table, with a remark."""


def remarked_conditions(record: Record) -> Conditions:
    """Return the properties of a measurement that a remark compares; none of imported timings."""
    facts = record.measured_facts
    if facts is None:
        return ()
    return tuple((r.name, in_words(r.value(record, facts))) for r in REMARKS)


def measured_conditions(record: Record) -> Conditions | None:
    """Return the hardware and software of a measurement; None if the record does not say.

    An imported timing reports no others than the model and the GPU.
    """
    if not record.cell.origin.has_facts:
        parameters, gpu = _parameters(record), record.source.gpu_model
        return (PARAMETERS, in_words(parameters)), (GPU_MODEL, in_words(gpu))
    facts = record.facts
    if facts is None or _parameters(record) is None:
        return None
    conditions = [(c.name, c.value(record, facts)) for c in CONDITIONS]
    in_text = tuple((name, in_words(value)) for name, value in conditions)
    return in_text + _timed(record, facts)


def requested_conditions(cell: Cell) -> Conditions:
    """Return what a cell requests apart from its place in the tables (row, batch, seed, repeat).

    `gpu_type` is included, so all cells at one place are runs of the same thing. Not included:
    training path and treatment (they belong to the row), seed (other seeds are other runs),
    `probe_s`, `evaluate` and `quantize` (they come after an epoch), and the protocol, since the
    timed epoch is the same in both; epochs beyond those a protocol needs change what is learned.
    Of a script its model, data and optimizer are not known.
    """
    names: tuple[str, ...] = Workload.__struct_fields__
    script: Conditions = ()
    if cell.script is not None:
        names = ("name", "unit")
        script = ((SCRIPT, cell.script.text),)
    without = ("name", "args", "code", "imported", "data_sha256")
    workload = [
        (WORKLOAD, cell.workload.name),
        *((n, getattr(cell.workload, n)) for n in names if n not in without),
        ("args", cell.workload.args_text or None),
    ]
    has_cosine = cell.recipe.final_share is not None
    settings = [
        (RECIPE, cell.recipe.label if has_cosine else None),
        ("device", cell.device.value),
        ("requested GPU type", cell.gpu_type),
        ("measured", cell.origin.where),
        (
            "epochs",
            cell.epochs if cell.epochs > cell.protocol.epochs else TIMING,
        ),
        ("threads per process", cell.threads),
        ("loader", cell.loader.value),
        (LOADER_WORKERS, cell.loader_workers),
    ]
    pairs = tuple((name, in_words(value)) for name, value in [*workload, *settings])
    code = _code(cell.workload) if cell.workload.own_code or script else ()
    return pairs + script + _data(cell.workload) + code


def _data(workload: Workload) -> Conditions:
    """Return the identity of the files of a folder of data; none for other data."""
    if workload.data not in (FOLDER, IMAGE_FOLDER):
        return ()
    digest = workload.data_sha256
    return ((DATA, digest[:12] if digest else "files not recorded"),)


def _code(workload: Workload) -> Conditions:
    """Return a condition for each source file of the user's code."""
    files = workload.sources
    named = tuple((f"{CODE} {file.name}", file.sha256[:7]) for file in files)
    return ((CODE, "recorded" if files else "code not recorded"), *named)


def in_words(value: object) -> str:
    """Return a condition's value for people.

    >>> [in_words(value) for value in (None, True, 1.5, "")]
    ['none', 'yes', '1.5', 'not known']
    """
    match value:
        case None:
            return NONE
        case bool():
            return "yes" if value else "no"
        case _:
            return str(value) or "not known"


UNKNOWN = "unknown"

_FIRST_WITH_TF32 = 8.0
"""Compute capability of Ampere, the first GPUs with TF32."""

_WITHOUT_TF32 = re.compile(
    r"\b(K\d+|M\d+|P\d+|V100S?|T4|GTX|TITAN|Quadro|RTX 20\d\d|MI(100|2\d\dX?))\b"
)
"""Words in the names of older GPUs, for records without a compute capability."""


def precision_of(record: Record) -> str:
    """Return the format in words: `fp32`, `tf32 (convolutions)`, … or `unknown`.

    Own models may compute in any format; an imported timing does not say its own.
    """
    facts = record.measured_facts
    if facts is None:
        return UNKNOWN
    if facts.precision != "fp32":
        return facts.precision
    if record.cell.device is Device.CPU:
        return "fp32"
    if not record.cell.workload.has_convolutions:
        facts = msgspec.structs.replace(facts, tf32_cudnn=facts.tf32_matmul)
    return fp32_words(facts)


def fp32_words(facts: Facts) -> str:
    """Return in what format a GPU computes with fp32 values.

    >>> ampere = Facts(compute_capability="8.0", tf32_cudnn=True, tf32_matmul=False)
    >>> fp32_words(ampere), fp32_words(Facts(gpu_model="Tesla V100-SXM2-16GB", tf32_cudnn=True))
    ('tf32 (convolutions)', 'fp32')
    """
    has_tf32 = _has_tf32(facts)
    if has_tf32 is False or facts.environment.get("NVIDIA_TF32_OVERRIDE") == "0":
        return "fp32"
    if None in (facts.tf32_cudnn, facts.tf32_matmul):
        return UNKNOWN
    if not (facts.tf32_cudnn or facts.tf32_matmul):
        return "fp32"
    if has_tf32 is None:
        return UNKNOWN
    if facts.tf32_cudnn and facts.tf32_matmul:
        return "tf32"
    return f"tf32 ({'convolutions' if facts.tf32_cudnn else 'matrix products'})"


def _has_tf32(facts: Facts) -> bool | None:
    """Return whether the GPU has TF32; None if it is not known."""
    if facts.compute_capability is not None:
        return float(facts.compute_capability) >= _FIRST_WITH_TF32
    if facts.gpu_model is None:
        return None
    if _WITHOUT_TF32.search(facts.gpu_model):
        return False
    return True if facts.gpu_model.startswith("NVIDIA ") else None
