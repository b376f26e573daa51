"""Words of captions and notes: units, names of cells, workload, hardware, runs, marks of checks."""

from collections.abc import Callable, Iterable, Sequence

from hpml_jobs.core.built_in import DATASETS, UNREPORTED, UNREPORTED_MODEL
from hpml_jobs.core.check_result import Affected
from hpml_jobs.core.conditions import (
    CPU_MODEL,
    GPU_MODEL,
    NONE,
    RECIPE,
    TORCH,
    UNKNOWN,
    precision_of,
)
from hpml_jobs.core.measurements import Role, Step
from hpml_jobs.core.place import Place, Setup
from hpml_jobs.core.strategies import BASELINE, Device, Loader, Strategy
from hpml_jobs.core.text import counted
from hpml_jobs.core.workload import Optimizer, Workload
from hpml_jobs.report.frame.numbers import DASH, OOM, count
from hpml_jobs.results.figures import LeftOut
from hpml_jobs.results.groups import ConditionGroup
from hpml_jobs.results.rows import Row, Work

NO_TRAIN = "train_s is not reported, only whole epochs"
NO_TRAIN_OF_RATE = "train_s is not reported, only rates"


NAMED = 6
"""The most items that a sentence lists by name."""


def first_few(items: Sequence[str], separator: str = ", ", most: int = NAMED) -> str:
    """Return the first items of a list in words, and how many more there are.

    >>> first_few(["a", "b"]), first_few(list("abcdefgh"))
    ('a, b', 'a, b, c, d, e, f and 2 more')
    """
    more = f" and {len(items) - most} more" if len(items) > most else ""
    return separator.join(items[:most]) + more


def work_text(work: Work | None) -> str:
    """Return what times are of: `epoch`, or `1,000,000 tokens`.

    >>> work_text(None), work_text(Work(samples=1_000_000, name="tokens"))
    ('epoch', '1,000,000 tokens')
    """
    return "epoch" if work is None else f"{count(work.samples)} {work.name}"


def time_word(work: Work | None) -> str:
    """Return the short name of a time: `epoch`, or `time` where it is of other work."""
    return "epoch" if work is None else "time"


def one_work(work: Work | None) -> str:
    """Return the same with an article: `one epoch`, or `1,000,000 tokens`."""
    return "one epoch" if work is None else work_text(work)


def an_epoch(work: Work | None) -> str:
    """Return the same with the other article: `an epoch`, or `1,000,000 tokens`."""
    return "an epoch" if work is None else work_text(work)


def per_work(groups: Sequence["ConditionGroup"]) -> str:
    """Return the label of an axis of times."""
    return f"seconds per {work_text(groups[0].work if groups else None)}"


def unit(device: Device) -> str:
    """Return the unit of parallelism: GPU, or process on CPU."""
    return "GPU" if device is Device.CUDA else "process"


def units(device: Device) -> str:
    """Return the plural of `unit`."""
    return "GPUs" if device is Device.CUDA else "processes"


def cost_unit(device: Device, *, short: bool = False) -> str:
    """Return the unit of cost: a GPU or a process for a second; `short` in the head of a table."""
    return f"{'GPU' if device is Device.CUDA else 'process'}-{'s' if short else 'seconds'}"


def hours_unit(device: Device) -> str:
    """Return the unit of budgets: a GPU or a process for an hour."""
    return "GPU-hours" if device is Device.CUDA else "process-hours"


def row_label(setup: Setup, device: Device) -> str:
    """Return a row's name: `4-GPU`, `2-process`; with nodes, treatment, on one GPU the strategy.

    >>> from hpml_jobs.core.strategies import Strategy
    >>> row_label(Setup(4, 2, Strategy.DDP), Device.CUDA)
    '4-GPU (2 nodes)'
    >>> row_label(Setup(1, 1, Strategy.DDP, "scaled"), Device.CPU)
    '1-process (ddp, scaled)'
    """
    named = setup.gpus == 1 and setup.strategy is not BASELINE
    return place_label(setup, device, setup.strategy.value if named else "")


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
    return setup_words(place.setup, str(place.batch_per_gpu), device)


def setup_words(setup: Setup, batch: str, device: Device) -> str:
    """Return the same of a setup at one or several batches, which are given in words."""
    size = counted(setup.gpus, unit(device), units(device))
    nodes = f" on {setup.nodes} nodes" if setup.nodes > 1 else ""
    strategy = "" if setup.strategy is BASELINE else setup.strategy.value
    how = ", ".join(part for part in (strategy, setup.treatment) if part)
    return f"{size}{nodes}, batch {batch}" + (f" ({how})" if how else "")


def place_label(setup: Setup, device: Device, strategy: str = "") -> str:
    """Return a row's name, by default without its strategy.

    >>> from hpml_jobs.core.strategies import Strategy
    >>> place_label(Setup(4, 2, Strategy.DDP), Device.CUDA)
    '4-GPU (2 nodes)'
    """
    text = asides(setup, strategy)
    return f"{setup.gpus}-{unit(device)}" + (f" ({text})" if text else "")


def setting(group: ConditionGroup) -> str:
    """Return what was trained, and on what, in one line."""
    workload, device = group.a_cell.workload, hardware(group)
    if group.imported:
        claimed = workload.parameters
        parameters = (
            "parameters not reported"
            if claimed is None
            else f"{count(claimed)} parameters"
        )
        where = f"measured elsewhere on {device or 'hardware that is not reported'}"
        named = (
            "model not reported" if workload.model == UNREPORTED_MODEL else workload.model
        )
        return f"{named}, {parameters}; {_data(workload)}; {where}."
    device = device or "hardware unknown (no record yet)"
    version = group.conditions.get(TORCH)
    torch = f"torch {version}" if version is not None else "torch unknown (no record yet)"
    script = group.a_cell.script
    if script is not None:
        parameters = _parameters(group, "trained parameters")
        return f"{script.text}, unchanged, measured from outside; {parameters}; {device}, {torch}."
    on_device = ""
    if group.a_cell.loader is Loader.DEVICE:
        where = "kept in memory" if group.device is Device.CPU else "on the GPU"
        on_device = f"; {workload.samples_name} {where}"
    return (
        f"{_model(workload)}, {_parameters(group, 'parameters')}; {_optimizer(group)}"
        f"{_data(workload)}{on_device}; {device}, {torch}{_precision(group)}."
    )


def _parameters(group: ConditionGroup, name: str) -> str:
    """Return the number of parameters of the model."""
    if group.model is None:
        return f"{name} unknown (no record yet)"
    return f"{count(group.model.parameters)} {name}"


def _model(workload: Workload) -> str:
    """Return the model, of the transformer with its shape (its context is said of the data)."""
    shape = workload.built_in_shape
    if shape is None:
        return workload.model
    blocks = f"{shape.layers} layers, {shape.heads} heads, width {shape.width}"
    padding = f" padded to {count(workload.padded_vocab)}" if workload.padded_vocab else ""
    return f"{workload.model} ({blocks}, vocabulary {count(shape.vocab)}{padding})"


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
    words = dict.fromkeys(
        precision_of(record) for record in records if record and record.facts
    )
    if group.device is Device.CPU and [*words] == ["fp32"]:
        return ""
    return "".join(
        f", precision {word}" if word == UNKNOWN else f", {word}" for word in words
    )


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
    limited = " (data.limit)" if workload.limit is not None else ""
    dataset = DATASETS.get(workload.data)
    if dataset is None:
        return f"{workload.data}, {images} {workload.samples_text} per epoch{limited}"
    return dataset.caption.format(
        images=images, limited=limited, samples=workload.samples_text
    )


def strategy_word(strategy: Strategy) -> str:
    """Return a strategy in a sentence: without one it is the plain loop."""
    return "plain loop" if strategy is Strategy.SINGLE else strategy.value


def runs(rows: Iterable[Row]) -> str:
    """Return the number of runs behind a value, as a sentence.

    With one run there is nothing to take a median of, and no interval.
    """
    numbers = sorted({row.timing.runs for row in rows if row.timing})
    if not numbers:
        return "No run has finished."
    if numbers == [1]:
        return "One run."
    least, most = numbers[0], numbers[-1]
    return (
        f"Median of {least} runs."
        if least == most
        else f"Median of {least} to {most} runs."
    )


def without_train(group: ConditionGroup, rows: Iterable[Row]) -> list[str]:
    """Return a note if seconds without data loading are unknown."""
    unknown = any(row.timing and row.timing.train_s is None for row in rows)
    note = NO_TRAIN_OF_RATE if group.rate_units else NO_TRAIN
    return [note] if unknown else []


MARK = "!"
"""The mark before a number that a check makes doubtful."""

EXPLAINED = f"{MARK} see Data-quality checks"


def mark(text: str, *, is_doubtful: bool) -> str:
    """Return the text of a number with the mark if it is doubtful; it needs a number."""
    return f"{MARK}{text}" if is_doubtful and text not in (DASH, OOM) else text


def shown(text: str, group: ConditionGroup, affected: Affected, *rows: Row) -> str:
    """Return a number in a sentence with the mark if a check is about one of the rows it is of."""
    return mark(text, is_doubtful=any(group.doubts(row, affected) for row in rows))


def marked(
    group: ConditionGroup, row: Row, texts: tuple[str, ...], affected: Affected
) -> tuple[str, ...]:
    """Return a row's texts, the first with the mark if a check of its runs is about them."""
    return mark(texts[0], is_doubtful=group.doubts(row, affected)), *texts[1:]


def explained(group: ConditionGroup, rows: Iterable[Row], affected: Affected) -> list[str]:
    """Return the note on the marks of a table, if it has any."""
    return [EXPLAINED] if any(group.doubts(row, affected) for row in rows) else []


def by_reason(
    reasons: Iterable[tuple[str, Place]],
    device: Device,
    label: Callable[[Setup, Device], str] = row_label,
) -> list[str]:
    """Return a line for each reason with all its places: `why: 2-GPU at batch 32, 128; 4-GPU …`."""
    batches: dict[str, dict[Setup, dict[int, None]]] = {}
    for reason, place in reasons:
        of_setup = batches.setdefault(reason, {}).setdefault(place.setup, {})
        of_setup[place.batch_per_gpu] = None
    lines = []
    for reason, batches_of_setup in batches.items():
        places = [
            f"{label(setup, device)} at batch {', '.join(map(str, sizes))}"
            for setup, sizes in batches_of_setup.items()
        ]
        lines.append(f"{reason}: {'; '.join(places)}")
    return lines


def row_at_batch(row: Row, device: Device) -> str:
    """Return a row's name with its batch: `4-GPU at batch 32`."""
    return f"{row_label(row.setup, device)} at batch {row.batch_per_gpu}"


def left_out_runs(rows: Iterable[Row], device: Device) -> list[str]:
    """Return a line for every row that leaves runs out of its medians, with the first reason."""
    lines = []
    for row in rows:
        where = row_at_batch(row, device)
        by_role: dict[Role | Step, list[LeftOut]] = {}
        for run in row.left_out:
            by_role.setdefault(run.role, []).append(run)
        total = len(row.runs) + len(by_role.get(Role.TIMED, ()))
        lines += [
            f"{where}: {len(runs)} of {counted(total, 'run')} left out of the medians: "
            f"the {role.value}{' epoch' if isinstance(role, Role) else ''} was disturbed: "
            f"{runs[0].reason}"
            for role, runs in by_role.items()
        ]
    return lines
