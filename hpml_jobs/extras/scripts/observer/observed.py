"""What a process of a script saw of the training in it, and why that may be no measurement."""

from hpml_jobs.core.cell import Cell
from hpml_jobs.core.measurements import Role
from hpml_jobs.core.rank import Rank
from hpml_jobs.core.record import Facts, Model
from hpml_jobs.core.script import LOCAL_RANK, Script, ScriptLauncher
from hpml_jobs.core.strategies import Device, Strategy
from hpml_jobs.core.text import counted
from hpml_jobs.core.value import Value

_NAMES = {Strategy.DDP: "DistributedDataParallel", Strategy.FSDP: "FSDP"}


class Observed(Value, frozen=True, kw_only=True):
    """What a process saw of the training in it, up to now.

    `steps` are its iterations, `passes` the batches of each pass over a loader in which
    one stepped, `window` the iterations of windows where these are measured instead; `batches` are
    the different numbers of samples of those of the timed window, without the last of a pass.
    `facts` are of rank 0. `has_ended`: Python ended in it, neither by a signal nor by os._exit.
    `is_cut`: the measurement ended it after its last window, before the script's own end.
    """

    rank: Rank
    world_size: int
    wrapper: Strategy | None  # ddp or fsdp
    model: Model
    steps: int
    passes: tuple[int, ...]
    window: tuple[int, int] | None = None
    batches: tuple[int, ...] = ()
    facts: Facts | None = None
    missing: tuple[str, ...] = ()
    has_ended: bool = False
    is_cut: bool = False


def unmeasured(
    cell: Cell, script: Script, ranks: list[Observed], source: str = ""
) -> str | None:
    """Return the sentence why a script with this source has no times that count; None if it has."""
    name = script.path
    if not ranks:
        return (
            f"{name} never stepped an optimizer of torch: let it train two epochs or more, with an "
            "optimizer (updates by hand are not seen); launcher= says how it is started"
        )
    return (
        _elsewhere(cell, name, ranks)
        or _not_together(cell, script, ranks, source)
        or _not_timed(script, ranks)
        or _not_equal(cell, name, ranks)
        or _other_batch(cell, script, ranks)
    )


def _elsewhere(cell: Cell, name: str, ranks: list[Observed]) -> str | None:
    """Return which other kind of device a process trains on."""
    other = Device.CUDA if cell.device is Device.CPU else Device.CPU
    if all(
        (rank.rank.devices == ("cpu",)) is (cell.device is Device.CPU) for rank in ranks
    ):
        return None
    place = "the CPU" if other is Device.CPU else "a GPU"
    return (
        f"device={cell.device.value}, but {name} trains on {place}: use device={other.value}, or "
        "let it choose the other one"
    )


def _not_together(
    cell: Cell, script: Script, ranks: list[Observed], source: str
) -> str | None:
    """Return why the processes do not train one model together."""
    name = script.path
    if len(ranks) < cell.processes:
        starts_itself = script.launcher is ScriptLauncher.PYTHON
        remedy = (
            "pass {gpus} to it in args=" if starts_itself else "let every one train"
        )
        return (
            f"{len(ranks)} of the {cell.processes} processes of gpus={cell.gpus} trained in "
            f"{name}: {remedy}, or use gpus=1"
        )
    if len(ranks) > cell.processes:
        remedy = "pass {gpus} to it in args="
        if script.launcher is not ScriptLauncher.PYTHON:
            remedy = f"if it starts processes itself, use launcher=python, and {remedy}"
        return (
            f"{len(ranks)} processes trained in {name}, but gpus={cell.gpus}: {remedy}"
        )
    if cell.processes == 1:
        return None
    sizes = {observed.world_size for observed in ranks}
    if sizes != {cell.processes}:
        alone = "alone" if sizes == {1} else f"in process groups of {min(sizes)}"
        remedy = "wrap its model in DistributedDataParallel, or use gpus=1"
        if LOCAL_RANK.search(source):
            remedy = script.local_rank_remedy(cell.nodes, source)
        return f"the {cell.processes} processes of {name} trained {alone}, not together: {remedy}"
    wrapper, wanted = (
        ranks[0].wrapper,
        cell.strategy if cell.strategy in _NAMES else None,
    )
    if wrapper != wanted:
        has = _NAMES[wrapper] if wrapper else "neither DistributedDataParallel nor FSDP"
        better = (wrapper or Strategy.ALLREDUCE).value
        when = "" if wrapper else " if it averages gradients itself"
        return (
            f"strategy={cell.strategy.value}, but what {name} trains first has {has}: use "
            f"strategy={better}{when}"
        )
    return None


def _not_timed(script: Script, ranks: list[Observed]) -> str | None:
    """Return why there is no timed window."""
    untimed = [
        observed for observed in ranks if observed.rank.epoch(Role.TIMED) is None
    ]
    if not untimed:
        return None
    name, first = script.path, untimed[0]
    if first.window:
        typed = ",".join(map(str, first.window))
        return (
            f"{name} ended after {first.steps} iterations; window={typed} needs "
            f"{sum(first.window)}: let it train longer, or give smaller numbers in window="
        )
    if not first.has_ended:
        return (
            f"{name} ended by os._exit or a signal after {counted(len(first.passes), 'epoch')}, "
            "before the second was over: let it train two epochs and end by itself"
        )
    if not first.passes:
        return (
            f"{name} trained {first.steps} iterations, but not in a pass over a DataLoader: give "
            "the iterations to warm up and to time, e.g. window=50,200"
        )
    if len(first.passes) > 1:
        sizes = ", ".join(map(str, first.passes[:4]))
        return (
            f"{name} trained epochs of {sizes} batches; two equal ones are needed: let it train "
            "with batches of one size and whole epochs, or give window=50,200"
        )
    resumed = "" if script.has_placeholder("folder") else ", or {folder} if it resumes"
    return (
        f"{name} ran 1 epoch; two are needed: pass e.g. --epochs 2 in args=, or window=50,200"
        f"{resumed}"
    )


def _not_equal(cell: Cell, name: str, ranks: list[Observed]) -> str | None:
    """Return which ranks did different work."""
    counts = {observed.rank.timed.iterations: observed.rank.rank for observed in ranks}
    if len(counts) > 1:
        (first, rank), (second, other), *_ = sorted(counts.items())
        return (
            f"rank {rank} of {name} trained {first} iterations in the timed epoch, rank {other} "
            f"{second}: shard its data evenly, e.g. by a DistributedSampler"
        )
    sizes = sorted({size for observed in ranks for size in observed.batches})
    if len(sizes) > 1 and not cell.workload.samples_are_tokens:
        return (
            f"{name} changes its batch within an epoch ({sizes[0]} to {sizes[-1]} samples): let it "
            "train with batches of one size"
        )
    return None


def _other_batch(cell: Cell, script: Script, ranks: list[Observed]) -> str | None:
    """Return how the batches differ from the cell's."""
    size = next((size for observed in ranks for size in observed.batches), None)
    is_global = script.has_placeholder("global_batch") or cell.processes < cell.gpus
    allowed = {cell.batch, cell.batch * cell.gpus} if is_global else {cell.batch}
    if size is None or size in allowed:
        return None
    if cell.workload.samples_are_tokens and any(size % batch == 0 for batch in allowed):
        return None
    remedy = f"pass {{batch}} in args=, or use batch={size}"
    if script.has_placeholder("batch") and size * cell.processes == cell.batch:
        remedy = (
            "it takes that of all GPUs: pass {global_batch} in args= instead of {batch}"
        )
    elif script.takes_batch:
        remedy = "pass {batch} in args= where it takes the samples of one GPU"
    return f"batch={cell.batch}, but the batches of {script.path} have {size} samples: {remedy}"
