"""The memory that a cell needs on each GPU: an estimate before anything is submitted."""

from collections.abc import Iterable
from typing import NamedTuple

from hpml_jobs.checks.gpu_peaks import memory_gb
from hpml_jobs.core.built_in import MODELS
from hpml_jobs.core.cell import Cell
from hpml_jobs.core.formulas import transformer_activation_bytes, weights_memory_bytes
from hpml_jobs.core.strategies import Device, Sharded
from hpml_jobs.core.workload import Optimizer
from hpml_jobs.plan.cells import PlannedCell
from hpml_jobs.plan.speed import rounded


class Need(NamedTuple):
    """The bytes that a rank needs at any batch, and those of each sample of its batch."""

    fixed_bytes: float
    sample_bytes: float

    def at(self, batch: int) -> float:
        """Return the bytes at a batch."""
        return self.fixed_bytes + batch * self.sample_bytes


def need_of(cell: Cell) -> Need | None:
    """Return what each rank needs; None with the user's own code, and with compile=."""
    workload, traffic, precision = cell.workload, cell.strategy.traffic, cell.path.precision
    shape, parameters = workload.built_in_shape, workload.built_in_parameters
    if parameters is None or workload.own_code or cell.path.compile:
        return None
    is_half = precision is not None and precision.is_half
    size = 2 if is_half else 4
    if shape:
        embeddings = (shape.vocab + shape.context) * shape.width + workload.padding_parameters
        sample_bytes: float = shape.context * transformer_activation_bytes(
            *(shape.layers, shape.width, shape.vocab),
            value_bytes=size,
            autocast=not traffic.casts_parameters,
        )
    else:
        embeddings = 0
        sample_bytes = MODELS[workload.model].activation_bytes[is_half] * workload.image_size**2
    is_sharded = traffic.shards is Sharded.PARAMETERS
    if not is_sharded:
        waiting = parameters if is_half else 0  # autocast's copies
    else:
        waiting = embeddings if cell.reshard else parameters  # gathered until backward
    fixed_bytes = weights_memory_bytes(
        parameters,
        state_values=2 if workload.optimizer == Optimizer.ADAMW else int(workload.momentum > 0),
        parts=cell.gpus if is_sharded else 1,
        state_parts=1 if traffic.shards is Sharded.NOTHING else cell.gpus,
        waiting_bytes=size * waiting,
    )
    return Need(fixed_bytes, sample_bytes)


def memory_line(cells: Iterable[PlannedCell], gpu: str | None, *, only_warning: bool) -> str:
    """Return in a line what the fullest cell needs of its GPU, and how many do not fit.

    Empty where nothing is known; with `only_warning` also where all cells fit. `gpu` is that of
    cells that do not name theirs.
    """
    shares = []
    for cell in (planned.cell for planned in cells):
        card, need = cell.gpu_type or gpu, need_of(cell)
        most_gb = memory_gb(card) if card and cell.device is Device.CUDA else None
        if need and most_gb:
            shares.append((need.at(cell.batch) / (1e9 * most_gb), cell, card, need, most_gb))
    too_large = sum(share > 1 for share, *_ in shares)
    if not shares or (only_warning and not too_large):
        return ""
    share, cell, card, need, most_gb = max(shares, key=lambda entry: entry[0])
    largest = max(0.0, (1e9 * most_gb - need.fixed_bytes) / need.sample_bytes)
    text = (
        f"memory: about {share * most_gb:.3g} GB at batch={cell.batch} with {cell.strategy}; "
        f"{card} has {most_gb} GB, enough for about batch={rounded(largest)} (estimate, "
        "docs/keys.md)"
    )
    return f"{text}: {too_large} of {len(shares)} cells need more" if too_large else text
