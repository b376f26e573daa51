"""What a process of a script wrote, and every reason why it is not measured, or not split."""

from hpml_jobs.core.cell import Cell
from hpml_jobs.core.measurements import Role
from hpml_jobs.core.rank import Rank
from hpml_jobs.core.record import Facts, Model
from hpml_jobs.core.script import Script
from hpml_jobs.core.strategies import Device, Strategy
from hpml_jobs.core.text import counted
from hpml_jobs.core.value import Value

_NAMES = {Strategy.DDP: "DistributedDataParallel", Strategy.FSDP: "FSDP"}


class Observed(Value, frozen=True, kw_only=True):
    """What a process saw of the training in it, up to now.

    `steps` are its iterations, `passes` the batches of each pass over a loader in which
    one stepped, `window` the iterations of windows where these are measured instead; `batches` are
    the different numbers of samples of those of the timed window, without the last of a pass.
    `facts` are of rank 0. `is_cut`: the measurement ended it after its last window, before the
    script's own end.
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
    is_cut: bool = False


# ---- in the process: what ends the measurement of a script ----


IN_GRAPH = (
    "what {script} captures in a CUDA graph is not seen: let it train without the graph"
)
READS_ON = (
    "{script} reads the loader that it trains on within an epoch of it, so its epochs cannot be "
    "told apart: give the iterations to warm up and to time, e.g. window=50,200"
)
WITHOUT_BATCH = (
    "the optimizer of {script} steps without a new batch: several times with one, or its loader is "
    "read more than a batch ahead: give the iterations (steps) to warm up and to time, e.g. "
    "window=50,200"
)
IN_THREAD = (
    "a thread of {script} goes on to read the loader of which its main thread has read a batch: "
    "its epochs cannot be told apart; read it in one thread"
)
SEVERAL_OPTIMIZERS = (
    "several optimizers step in {script}, which reads no DataLoader: iterations are told apart by "
    "the steps of one; let it read its batches from a DataLoader"
)


# ---- in the process: why an epoch is not split into computation and communication ----

SEVERAL = "several optimizers step"
NO_MODEL = "no forward pass of a model with the optimizer's parameters was seen"
NO_FORWARD = (
    "no forward pass of the model was seen between its batch and the optimizer's step, which has "
    "it inside where it gets a closure"
)
COMPILED_WRAPPER = (
    "DistributedDataParallel is compiled: wrap the compiled model instead"
)
NOT_BY_DDP = (
    "its processes exchange more than the gradients and buffers of DistributedDataParallel: by "
    "FSDP, by SyncBatchNorm, by a hook or by collectives of the script; or it has the gradients in "
    "its buckets (gradient_as_bucket_view)"
)
ACCUMULATION_CHANGES = (
    "other iterations accumulate other numbers of batches, or read them ahead"
)


# ---- after the processes have ended: why there is no record ----


def unmeasured(cell: Cell, script: Script, ranks: list[Observed]) -> str | None:
    """Return the sentence why a script has no times that count; None if it has."""
    name = script.path
    if not ranks:
        return (
            f"no step of an optimizer of torch was seen in {name}: let it train two epochs or more "
            "in the processes that launcher= starts (updates by hand are not seen)"
        )
    return (
        _elsewhere(cell, name, ranks)
        or _not_together(cell, script.path, ranks)
        or _not_timed(script, ranks)
        or _not_equal(cell, name, ranks)
        or _other_batch(cell, script, ranks)
    )


def _elsewhere(cell: Cell, name: str, ranks: list[Observed]) -> str | None:
    """Return which other kind of device a process trains on."""
    for observed in ranks:
        device = observed.rank.devices[0]
        if (device == "cpu") is not (cell.device is Device.CPU):
            return (
                f"device={cell.device.value}, but the parameters of {name} are on {device}: "
                "correct device=, or let it choose the other one"
            )
    return None


def _not_together(cell: Cell, name: str, ranks: list[Observed]) -> str | None:
    """Return why the processes do not train one model together."""
    if len(ranks) != cell.processes:
        return (
            f"{counted(len(ranks), 'process')} of {name} trained, {cell.processes} of "
            f"gpus={cell.gpus} are to; where it starts them: launcher=python, {{gpus}} in args="
        )
    if cell.processes == 1:
        return None
    sizes = {observed.world_size for observed in ranks}
    if sizes != {cell.processes}:
        return (
            f"the {cell.processes} processes of {name} do not train together: torch's process "
            f"group has {min(sizes)}. Wrap its model in DistributedDataParallel, or use "
            "gpus=1 (launcher=python strategy=dp where it has DataParallel)"
        )
    wrapper, wanted = (
        ranks[0].wrapper,
        cell.strategy if cell.strategy in _NAMES else None,
    )
    if wrapper != wanted:
        has = _NAMES[wrapper] if wrapper else "no DistributedDataParallel or FSDP"
        return (
            f"strategy={cell.strategy.value}, but the model of {name} has {has}: use "
            "DistributedDataParallel, or name what it has in strategy= (allreduce: averages itself)"
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
            f"{first.steps} iterations of {name} were seen; window={typed} needs "
            f"{sum(first.window)}: let it train longer, or give smaller numbers in window="
        )
    sizes = f" ({', '.join(map(str, first.passes[:4]))} batches)" * bool(first.passes)
    return (
        f"{counted(len(first.passes), 'whole epoch')} of {name} seen{sizes}; two with as many "
        "batches are needed, and a third to split its time: pass e.g. --epochs 3 in args=, or the "
        "iterations to warm up and to time, window=50,200"
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
            f"the batches of {name} have {sizes[0]} to {sizes[-1]} samples: let it "
            "train with batches of one size, or count tokens (unit=tokens)"
        )
    return None


def _other_batch(cell: Cell, script: Script, ranks: list[Observed]) -> str | None:
    """Return how the batches differ from the cell's."""
    size = next((size for observed in ranks for size in observed.batches), None)
    if size is None or _is_allowed(size, cell, script):
        return None
    return (
        f"batch={cell.batch}, but the batches of {script.path} have {size} samples: pass {{batch}} "
        f"in args= where it takes those of one GPU, {{global_batch}} for those of all, or use "
        f"batch={size}"
    )


def _is_allowed(size: int, cell: Cell, script: Script) -> bool:
    """Return whether a batch has the samples of one GPU, or of all where the script takes those."""
    allowed = {cell.batch}
    if script.has_placeholder("global_batch") or cell.processes < cell.gpus:
        allowed.add(cell.batch * cell.gpus)
    if cell.workload.samples_are_tokens:
        return any(size % batch == 0 for batch in allowed)
    return size in allowed
