"""What stands under a table: what was trained, on what, against which baseline, how obtained."""

from collections.abc import Callable, Iterable, Mapping, Sequence

from hpml_jobs.cell import Device, Strategy, Workload
from hpml_jobs.record import Model
from hpml_jobs.report.entries import Entry, Row, Timing, row_order
from hpml_jobs.report.numbers import count, seconds

DIGITS_IMAGES = 1_500
"""Training images in scikit-learn's digits: 1,797, less the 297 held out for testing."""

TIME = "Time: seconds of one epoch, data loading included, of the slowest rank."
Q1 = (
    "Seconds of one epoch on one {unit}: train_s without data loading (copies to the device, "
    "gradients and update included), epoch_s with everything."
)
RESIDUAL = (
    "Lab residual, not measured: Comm = train_s(N, b) - I_N x train_s(1, b) / I_1 and "
    "Compute = train_s - Comm, seconds per epoch without data loading. "
    "Communication hidden behind backward is not in Comm."
)
BANDWIDTH = (
    "Bus bandwidth by the lab residual, not measured: 2(N-1)/N x I_N x S / Comm with Comm of "
    "Table 2 and S = {gradient_bytes} bytes of gradients; 1 GB = 1e9 bytes."
)
NOMINAL = (
    "Nominal: DataParallel sends other messages than a ring all-reduce; the figure is what a ring "
    "would have reached in this time."
)


def unit(device: Device) -> str:
    """What is counted: GPUs, or processes on CPU."""
    return "GPU" if device is Device.CUDA else "process"


def row_label(row: Row, device: Device) -> str:
    """A row's name: `4-GPU`, `2-process`; nodes and, on one GPU, the strategy stand beside it.

    >>> row_label((4, 2, Strategy.DDP), Device.CUDA), row_label((1, 1, Strategy.DDP), Device.CPU)
    ('4-GPU (2 nodes)', '1-process (ddp)')
    """
    gpus, nodes, strategy = row
    asides = [f"{nodes} nodes"] if nodes > 1 else []
    asides += [strategy.value] if gpus == 1 and strategy is not Strategy.SINGLE else []
    return f"{gpus}-{unit(device)}" + (f" ({', '.join(asides)})" if asides else "")


def setting(workload: Workload, model: Model | None, conditions: Mapping[str, str]) -> str:
    """What was trained, and on what, in one line."""
    parameters = (
        f"{count(model.parameters)} parameters" if model else "parameters not known before a record"
    )
    torch = f"torch {conditions['torch']}" if "torch" in conditions else "torch not known yet"
    return (
        f"{workload.model}, {parameters}; {_data(workload)}; "
        f"{hardware(conditions) or 'hardware not known yet'}, {torch}."
    )


def hardware(conditions: Mapping[str, str]) -> str:
    """The device's model: the GPUs', or with device=cpu the CPU's; empty without a record."""
    if conditions.get("device") == Device.CUDA.value:
        return conditions.get("GPU model", "")
    return f"CPU {conditions['CPU model']}" if "CPU model" in conditions else ""


def _data(workload: Workload) -> str:
    if workload.images is None:
        return workload.data
    images = count(workload.images)
    limited = ", limited" if workload.limit is not None else ""
    if workload.data == "digits":
        real = count(DIGITS_IMAGES)
        return (
            f"{images} presentations of {real} real digits images per epoch{limited}, random shifts"
        )
    if workload.data == "synthetic":
        return f"{images} made-up images per epoch"
    return f"{workload.data}, {images} images per epoch{limited}"


def runs(entries: Iterable[Entry]) -> str:
    """How many runs a number is made of.

    With one run there is nothing to take a median of, and no interval.
    """
    numbers = sorted({entry.timing.runs for entry in entries if entry.timing})
    if not numbers:
        return "No run yet."
    if numbers == [1]:
        return "One run."
    least, most = numbers[0], numbers[-1]
    return f"Median of {least} runs." if least == most else f"Median of {least} to {most} runs."


def baseline(entries: Sequence[Entry], batches: Sequence[int], device: Device) -> str:
    """The baseline with its seconds of an epoch at each batch."""
    return _baseline(entries, batches, device, lambda timing: f"{seconds(timing.epoch_s)} s")


def baseline_train(entries: Sequence[Entry], batches: Sequence[int], device: Device) -> str:
    """The baseline with its seconds without data loading, and its iterations, at each batch."""

    def words(timing: Timing) -> str:
        return f"{seconds(timing.train_s)} s / {count(timing.iterations)}"

    return _baseline(entries, batches, device, words, ", train_s / iterations")


def _baseline(
    entries: Sequence[Entry],
    batches: Sequence[int],
    device: Device,
    words: Callable[[Timing], str],
    what: str = "",
) -> str:
    timings = {entry.batch_per_gpu: entry.timing for entry in entries if entry.is_baseline}
    values = ((batch, timings.get(batch)) for batch in batches)
    told = [f"{words(timing) if timing else 'none'} at batch {batch}" for batch, timing in values]
    return f"Baseline: strategy single, 1 {unit(device)}{what}: {', '.join(told)}."


def loader_workers(entries: Iterable[Entry], device: Device) -> str:
    """DataLoader workers of all processes together, per row where rows differ."""
    totals = {entry.row: entry.timing.loader_workers_total for entry in entries if entry.timing}
    if len(set(totals.values())) <= 1:
        return f"DataLoader workers in all: {next(iter(totals.values()), 'not known yet')}."
    rows = sorted(totals, key=row_order)
    told = (f"{row_label(row, device)} {totals[row]}" for row in rows)
    return f"DataLoader workers in all: {', '.join(told)}."
