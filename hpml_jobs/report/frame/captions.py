"""Captions of tables: workload, hardware, baseline, and how values were measured."""

from collections.abc import Iterable
from typing import NamedTuple

from hpml_jobs.core.built_in import DATASETS, UNREPORTED, UNREPORTED_MODEL
from hpml_jobs.core.conditions import CPU_MODEL, GPU_MODEL, NONE, RECIPE, TORCH
from hpml_jobs.core.precision import UNKNOWN, precision_of
from hpml_jobs.core.strategies import BASELINE, BandwidthKind, Device, Loader
from hpml_jobs.core.text import counted
from hpml_jobs.core.workload import Optimizer, Workload
from hpml_jobs.report.frame.groups import ConditionGroup
from hpml_jobs.report.frame.numbers import count
from hpml_jobs.report.frame.rows import Place, Row, Setup, Work, setup_order

TIME = "Time: seconds of one epoch, the longest of all ranks, data loading included."
RATE = "Time: seconds of {what}, from the rate that the source reports in {units}."
Q1 = (
    "Seconds of {what} on one {unit}. train_s: without data loading; copies to the device, "
    "gradients and update are included. {time}: everything."
)
MEASURED = (
    "Measured: seconds of the instrumented epoch on the rank that waits least, which the other "
    "ranks wait for; one rank for all runs of a row. Compute: copies to the device, forward, "
    "backward, optimizer. Comm: exposed communication, which no computation hides, waiting for "
    "later ranks included (the table Communication splits it); communication hidden behind "
    "backward is in neither. In every run, Compute + Comm + stall = the epoch of that rank; "
    "medians are of each alone."
)
PACKED = "Comm includes packing by hand: flattening, copying back and averaging the gradients."
HIDDEN_COST = (
    "Copies into and out of buckets, and what backward loses to collectives that run beside it, "
    "are in Compute: the cost in the table Communication has them."
)
REPORTED = "As reported by the source, not measured here: seconds per epoch of Compute and Comm."
BUS = (
    "Measured in the instrumented epoch: busbw = 2(N-1)/N x bytes of gradients that one rank "
    "all-reduces / seconds of these messages, each on the rank with the least. 1 GB = 1e9 bytes."
)
SHARDED = (
    "Measured in the instrumented epoch: busbw = (N-1)/N x bytes of gradients that one rank "
    "reduce-scatters / seconds of these messages, each on the rank with the least. On CPUs gloo "
    "moves the whole tensor, so half of a link's speed is the most. The all-gathers of parameters "
    "are in the table Messages. 1 GB = 1e9 bytes."
)
ROOT_WIRE = (
    "Measured on root's wire in the instrumented epoch; not a bus bandwidth. 2(N-1) x S bytes per "
    "iteration pass through rank 0's link, divided by the seconds in which rank 0 gathers or "
    "scatters gradients. These contain waiting for late ranks, which the busbw of all-reduces does "
    "not: the two are not comparable. 1 GB = 1e9 bytes."
)
NOMINAL = (
    "Nominal: DataParallel does not send ring all-reduces. The figure is 2(N-1)/N x I_N x S / "
    "seconds of the reduction of gradients in the instrumented epoch: the bandwidth of a ring that "
    "takes this time. 1 GB = 1e9 bytes."
)
RESIDUAL = (
    "Lab residual: derived, not measured. Comm = train_s(N, b) - train_s(1, b) x ceil(D/N) / D, "
    "with D training samples, and Compute = train_s - Comm, in seconds per {per} without data "
    "loading. Communication hidden behind backward is not in Comm."
)
RESIDUAL_LOADING = (
    "Lab residual: derived, not measured. It includes data loading because train_s is unknown: "
    "Comm = {time}(N, b) - {time}(1, b) x ceil(D/N) / D, with D training samples, and Compute = "
    "{time} - Comm, in seconds per {per}. Communication hidden behind backward is not in Comm."
)
RESIDUAL_BANDWIDTH = (
    "Bus bandwidth by the lab residual: derived, not measured. 2(N-1)/N x I_N x S / Comm, with "
    "Comm of Table 2r and S = {gradient_bytes} bytes of gradients. 1 GB = 1e9 bytes."
)
RESIDUAL_ROOT_WIRE = (
    "Rate on root's wire by the lab residual: derived, not measured; not a bus bandwidth. 2(N-1) "
    "x I_N x S / Comm, with Comm of Table 2r and S = {gradient_bytes} bytes of gradients. 1 GB = "
    "1e9 bytes."
)
RESIDUAL_SHARDED = (
    "Bus bandwidth by the lab residual: derived, not measured; a lower bound. (N-1)/N x I_N x S / "
    "Comm, with Comm of Table 2r and S = {gradient_bytes} bytes of gradients: Comm has the "
    "all-gathers of parameters too. 1 GB = 1e9 bytes."
)
RESIDUAL_NOMINAL = "Nominal: DataParallel does not send ring all-reduces."


class BandwidthWords(NamedTuple):
    """The words of Tables 3 and 3r for a kind of bandwidth; `aside` is appended to the unit."""

    title: str
    aside: str
    measured: str
    residual: tuple[str, ...]


BANDWIDTH = {
    BandwidthKind.BUS: BandwidthWords("bus bandwidth, measured", "", BUS, (RESIDUAL_BANDWIDTH,)),
    BandwidthKind.NOMINAL: BandwidthWords(
        "nominal bandwidth", ", nominal", NOMINAL, (RESIDUAL_BANDWIDTH, RESIDUAL_NOMINAL)
    ),
    BandwidthKind.ROOT_WIRE: BandwidthWords(
        "bandwidth on root's wire, measured", ", root's wire", ROOT_WIRE, (RESIDUAL_ROOT_WIRE,)
    ),
    BandwidthKind.SHARDED: BandwidthWords(
        "bus bandwidth of reduce-scatters, measured", "", SHARDED, (RESIDUAL_SHARDED,)
    ),
}

WITH_LOADING = "includes data loading: computed from epoch_s because train_s is unknown"
NO_TRAIN = "train_s is not reported, only whole epochs"
NO_TRAIN_OF_RATE = "train_s is not reported, only rates"


def work_text(work: Work | None) -> str:
    """Return what times are of: `epoch`, or `1,000,000 tokens`.

    >>> work_text(None), work_text(Work(samples=1_000_000, name="tokens"))
    ('epoch', '1,000,000 tokens')
    """
    return "epoch" if work is None else f"{count(work.samples)} {work.name}"


def time_word(work: Work | None) -> str:
    """Return the short name of a time: `epoch`, or `time` where it is of other work."""
    return "epoch" if work is None else "time"


def time_name(work: Work | None) -> str:
    """Return the name of a time with its unit: `epoch_s`, or `time_s` where it is of other work."""
    return f"{time_word(work)}_s"


def one_work(work: Work | None) -> str:
    """Return the same with an article: `one epoch`, or `1,000,000 tokens`."""
    return "one epoch" if work is None else work_text(work)


def an_epoch(work: Work | None) -> str:
    """Return the same with the other article: `an epoch`, or `1,000,000 tokens`."""
    return "an epoch" if work is None else work_text(work)


def time(group: ConditionGroup) -> str:
    """Return what Time is: of an epoch, or from a rate, and then of which work."""
    if not group.rate_units:
        return TIME
    return RATE.format(what=one_work(group.work), units=" and ".join(group.rate_units))


def unit(device: Device) -> str:
    """Return the unit of parallelism: GPU, or process on CPU."""
    return "GPU" if device is Device.CUDA else "process"


def units(device: Device) -> str:
    """Return the plural of `unit`."""
    return "GPUs" if device is Device.CUDA else "processes"


def row_label(setup: Setup, device: Device) -> str:
    """Return a row's name: `4-GPU`, `2-process`; with nodes, treatment, on one GPU the strategy.

    >>> from hpml_jobs.core.strategies import Strategy
    >>> row_label(Setup(4, 2, Strategy.DDP), Device.CUDA)
    '4-GPU (2 nodes)'
    >>> row_label(Setup(1, 1, Strategy.DDP, "scaled"), Device.CPU)
    '1-process (ddp, scaled)'
    """
    named = setup.gpus == 1 and setup.strategy is not BASELINE
    return _label(setup, device, setup.strategy.value if named else "")


def _label(setup: Setup, device: Device, strategy: str = "") -> str:
    text = asides(setup, strategy)
    return f"{setup.gpus}-{unit(device)}" + (f" ({text})" if text else "")


def asides(setup: Setup, strategy: str = "") -> str:
    """Return what a setup is apart from its GPUs, separated by commas."""
    nodes = f"{setup.nodes} nodes" if setup.nodes > 1 else ""
    return ", ".join(aside for aside in (nodes, strategy, setup.treatment) if aside)


def full_label(setup: Setup, device: Device) -> str:
    """Return a row's name in tables where strategies are side by side.

    >>> from hpml_jobs.core.strategies import Strategy
    >>> full_label(Setup(4, 2, Strategy.DDP, "scaled"), Device.CUDA)
    'ddp 4-GPU (2 nodes, scaled)'
    >>> full_label(Setup(1, 1, Strategy.DDP), Device.CPU)
    'ddp 1-process'
    """
    return f"{setup.strategy.value} {place_label(setup, device)}"


def cell_label(place: Place, device: Device) -> str:
    """Return the name of a setup at a batch in a row or a list: `ddp 4-GPU b512`."""
    return f"{full_label(place.setup, device)} b{place.batch_per_gpu}"


def cell_words(place: Place, device: Device) -> str:
    """Return the same in a sentence; the plain loop on one GPU is not named.

    >>> from hpml_jobs.core.strategies import Strategy
    >>> cell_words(Place(Setup(16, 2, Strategy.DDP, "buffers off"), 32), Device.CUDA)
    '16 GPUs on 2 nodes, batch 32 (ddp, buffers off)'
    >>> cell_words(Place(Setup(1, 1, Strategy.SINGLE), 16), Device.CPU)
    '1 process, batch 16'
    """
    setup = place.setup
    size = counted(setup.gpus, unit(device), units(device))
    nodes = f" on {setup.nodes} nodes" if setup.nodes > 1 else ""
    strategy = "" if setup.strategy is BASELINE else setup.strategy.value
    how = ", ".join(part for part in (strategy, setup.treatment) if part)
    return f"{size}{nodes}, batch {place.batch_per_gpu}" + (f" ({how})" if how else "")


def place_label(setup: Setup, device: Device) -> str:
    """Return a row's name without its strategy.

    >>> from hpml_jobs.core.strategies import Strategy
    >>> place_label(Setup(4, 2, Strategy.DDP), Device.CUDA)
    '4-GPU (2 nodes)'
    """
    return _label(setup, device)


def setting(group: ConditionGroup) -> str:
    """Return what was trained, and on what, in one line."""
    workload, device, model = group.a_cell.workload, hardware(group), group.model
    if group.imported:
        claimed = workload.parameters
        parameters = (
            "parameters not reported" if claimed is None else f"{count(claimed)} parameters"
        )
        where = f"measured elsewhere on {device or 'hardware that is not reported'}"
        named = "model not reported" if workload.model == UNREPORTED_MODEL else workload.model
        return f"{named}, {parameters}; {_data(workload)}; {where}."
    parameters = (
        f"{count(model.parameters)} parameters" if model else "parameters unknown (no record yet)"
    )
    on_device = (
        f"; {workload.samples_name} on the device" if group.a_cell.loader is Loader.DEVICE else ""
    )
    version = group.conditions.get(TORCH)
    torch = f"torch {version}" if version is not None else "torch unknown (no record yet)"
    return (
        f"{_model(workload)}, {parameters}; {_optimizer(group)}{_data(workload)}{on_device}; "
        f"{device or 'hardware unknown (no record yet)'}, {torch}{_precision(group)}."
    )


def _model(workload: Workload) -> str:
    """Return the model, of the transformer with its shape (its context is said of the data)."""
    shape = workload.built_in_shape
    if shape is None:
        return workload.model
    blocks = f"{shape.layers} layers, {shape.heads} heads, width {shape.width}"
    return f"{workload.model} ({blocks}, vocabulary {count(shape.vocab)})"


def _optimizer(group: ConditionGroup) -> str:
    """Return optimizer, recipe or schedule, and args, where they are not those of plain SGD."""
    workload = group.a_cell.workload
    parts = []
    if workload.optimizer == Optimizer.ADAMW:
        parts.append("AdamW")
    elif workload.optimizer != Optimizer.SGD:
        parts.append(f"optimizer {workload.optimizer}")
    if workload.schedule is not None:
        parts.append(f"schedule {workload.schedule}")
    elif (recipe := group.conditions.get(RECIPE, NONE)) != NONE:
        parts.append(recipe)
    texts = [", ".join(parts), workload.args_text]
    return "".join(f"{text}; " for text in texts if text)


def _precision(group: ConditionGroup) -> str:
    """Return the number formats of the cells' computing; on the CPU not if all are fp32."""
    records = (result.record for result in group.cells)
    words = dict.fromkeys(precision_of(record) for record in records if record and record.facts)
    if group.device is Device.CPU and [*words] == ["fp32"]:
        return ""
    return "".join(f", precision {word}" if word == UNKNOWN else f", {word}" for word in words)


def hardware(group: ConditionGroup) -> str:
    """Return the GPUs' model, or with device=cpu the CPU's; empty without a record."""
    if group.device is Device.CUDA:
        model = group.conditions.get(GPU_MODEL, "")
        return "" if model == NONE else model
    model = group.conditions.get(CPU_MODEL, "")
    return f"CPU {model}" if model else ""


def _data(workload: Workload) -> str:
    if workload.data in UNREPORTED:
        name = workload.samples_name
        if workload.images is None:
            return f"data and {name} per epoch not reported"
        return f"data not reported, {count(workload.images)} {name} per epoch"
    if workload.images is None:
        return workload.data
    images = count(workload.images)
    limited = ", limited" if workload.limit is not None else ""
    dataset = DATASETS.get(workload.data)
    if dataset is None:
        return f"{workload.data}, {images} {workload.samples_text} per epoch{limited}"
    return dataset.caption.format(images=images, limited=limited, samples=workload.samples_text)


def runs(rows: Iterable[Row]) -> str:
    """Return the number of runs behind a value, as a sentence.

    With one run there is nothing to take a median of, and no interval.
    """
    numbers = sorted({row.timing.runs for row in rows if row.timing})
    if not numbers:
        return "No run yet."
    if numbers == [1]:
        return "One run."
    least, most = numbers[0], numbers[-1]
    return f"Median of {least} runs." if least == most else f"Median of {least} to {most} runs."


KERNELS_OF_ONE_RUN = (
    "One run: cuDNN timed each of its kernels once to choose the fastest. Another run may choose "
    "others and differ by several percent: use repeats=6 to compare cells, or "
    "cudnn_benchmark=false."
)


def kernels_of_one_run(group: ConditionGroup, rows: Iterable[Row]) -> list[str]:
    """Return a note if cuDNN searched its kernels in cells of one run."""
    single = [row for row in rows if row.timing and row.timing.runs == 1]
    searched = any(
        record.facts and record.facts.cudnn_benchmark
        for row in single
        for record in group.records(row)
    )
    return [KERNELS_OF_ONE_RUN] if searched and group.device is Device.CUDA else []


def loader_workers(rows: Iterable[Row], device: Device) -> str:
    """Return the DataLoader workers of all processes together, per row if rows differ."""
    totals = {row.setup: row.timing.loader_workers_total for row in rows if row.timing}
    if len(set(totals.values())) <= 1:
        total = next(iter(totals.values()), None)
        return f"DataLoader workers in total: {'unknown' if total is None else total}."
    setups = sorted(totals, key=setup_order)
    parts = (f"{row_label(setup, device)} {totals[setup]}" for setup in setups)
    return f"DataLoader workers in total: {', '.join(parts)}."
