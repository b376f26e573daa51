"""Words of captions and notes: units, names of cells, workload, hardware, runs, marks of checks."""

import re
from collections.abc import Collection, Iterable, Sequence
from itertools import chain

from hpml_jobs.core.built_in import DATASETS, UNREPORTED_DATA, UNREPORTED_MODEL
from hpml_jobs.core.cell import Cell
from hpml_jobs.core.check_result import Affected
from hpml_jobs.core.measurements import Role, Step
from hpml_jobs.core.record import Record
from hpml_jobs.core.strategies import BASELINE, Device, Strategy
from hpml_jobs.core.text import counted
from hpml_jobs.core.value import by_key
from hpml_jobs.core.workload import Optimizer, Workload
from hpml_jobs.report.frame.numbers import DASH, OOM, aside, count, span
from hpml_jobs.results.cells import Place, Setup
from hpml_jobs.results.checks.disturbed import epoch_words
from hpml_jobs.results.conditions import (
    CPU_MODEL,
    GPU_MODEL,
    NONE,
    RECIPE,
    TORCH,
    UNKNOWN,
)
from hpml_jobs.results.groups import ConditionGroup
from hpml_jobs.results.rows import Row, Work


def work_text(work: Work | None) -> str:
    """Return what times are of: `epoch`, or `1,000,000 tokens`.

    >>> work_text(None), work_text(Work(samples=1_000_000, name="tokens"))
    ('epoch', '1,000,000 tokens')
    """
    return "epoch" if work is None else f"{count(work.samples)} {work.name}"


_UNITS = {Device.CUDA: ("GPU", "GPUs"), Device.CPU: ("process", "processes")}


def unit(device: Device) -> str:
    """Return the unit of parallelism: GPU, or process on CPU."""
    return _UNITS[device][0]


def units(device: Device) -> str:
    """Return the plural of `unit`."""
    return _UNITS[device][1]


def size(gpus: int, device: Device) -> str:
    """Return a number of GPUs in a sentence: `2 GPUs`, `1 process`."""
    return counted(gpus, *_UNITS[device])


def reference_sizes(rows: Iterable[Row]) -> list[int]:
    """Return the numbers of GPUs that the rows' ratios are against, ascending."""
    return sorted({row.reference.gpus for row in rows if row.reference})


def reference_text(rows: Iterable[Row], device: Device) -> str:
    """Return the size that ratios are against: `1 GPU`, or where several `the fewest GPUs`."""
    numbers = reference_sizes(rows)
    if len(numbers) > 1:
        return f"the fewest {units(device)}"
    return size(numbers[0] if numbers else 1, device)


def against(rows: Sequence[Row], device: Device, same: str = "batch") -> str:
    """Return the heading of columns of ratios: `against 16 GPUs, same batch`."""
    reference = (
        "1" if reference_sizes(rows) in ([], [1]) else reference_text(rows, device)
    )
    return f"against {reference}, same {same}"


def row_label(setup: Setup, device: Device) -> str:
    """Return a row's name: `4-GPU`, `2-process`; with nodes, treatment, on one GPU the strategy.

    >>> from hpml_jobs.core.strategies import Strategy
    >>> row_label(Setup(4, 2, Strategy.DDP), Device.CUDA)
    '4-GPU (2 nodes)'
    >>> row_label(Setup(1, 1, Strategy.DDP, "scaled"), Device.CPU)
    '1-process (ddp, scaled)'
    """
    named = setup.gpus == 1 and setup.strategy is not BASELINE
    nodes = f"{setup.nodes} nodes" if setup.nodes > 1 else ""
    strategy = setup.strategy.value if named else ""
    parts = filter(None, (nodes, strategy, setup.treatment))
    return f"{setup.gpus}-{unit(device)}{aside(', '.join(parts))}"


def cell_words(place: Place, device: Device) -> str:
    """Return the name of a cell; the plain loop on one GPU, and ddp on more, are not named.

    >>> from hpml_jobs.core.strategies import Strategy
    >>> cell_words(Place(Setup(16, 2, Strategy.DDP, "buffers off"), 32), Device.CUDA)
    '16 GPUs on 2 nodes, batch 32 (buffers off)'
    >>> cell_words(Place(Setup(1, 1, Strategy.SINGLE), 16), Device.CPU)
    '1 process, batch 16'
    """
    setup = place.setup
    return f"{size_words(setup, device)}, batch {place.batch_per_gpu}{how(setup)}"


def run_words(cell: Cell) -> str:
    """Return the same of a cell that is not measured yet: `2 processes, batch 64, run 2`."""
    run = f", run {cell.repeat + 1}" * bool(cell.repeat)
    return f"{cell_words(Place.of(cell), cell.device)}{run}"


def size_words(setup: Setup, device: Device) -> str:
    """Return a number of GPUs with its nodes, if there are several: `16 GPUs on 2 nodes`."""
    nodes = f" on {setup.nodes} nodes" if setup.nodes > 1 else ""
    return f"{size(setup.gpus, device)}{nodes}"


def how(setup: Setup) -> str:
    """Return ` (fsdp, buffers off)`: treatment, and strategy unless it is the usual one."""
    usual = BASELINE if setup.gpus == 1 else Strategy.DDP
    strategy = "" if setup.strategy is usual else setup.strategy.value
    words = [_RECIPES.get(word, word) for word in setup.treatment.split()]
    parts = (strategy, " ".join(words))
    return aside(", ".join(filter(None, parts)))


_RECIPES = {"scaled": "lr scaled", "goyal": "lr scaled, warm-up"}


def setting(group: ConditionGroup) -> str:
    """Return what was trained, and on what, in one line."""
    cell = group.a_cell
    device = hardware(group) or "unknown hardware"
    torch = f"torch {group.conditions.get(TORCH, UNKNOWN)}"
    if cell.script is not None:
        parameters = _parameters(group, "trained parameters")
        text = f"{cell.script.text}, unchanged, measured from outside"
        return f"{text}; {parameters}; {device}, {torch}."
    model = cell.workload.model
    if model == UNREPORTED_MODEL:
        model = "model not reported"
    what = f"{model}, {_parameters(group, 'parameters')}"
    data = _data(cell.workload)
    if not group.origin.has_ranks:
        return f"{what}; {data}; measured elsewhere on {device}."
    return f"{what}; {_optimizer(group)}{data}; {device}, {torch}{_precision(group)}."


def _parameters(group: ConditionGroup, name: str) -> str:
    """Return the number of parameters of the model."""
    model = group.model
    number = model.parameters if model else group.a_cell.workload.parameters
    return f"{name} unknown" if number is None else f"{count(number)} {name}"


def _optimizer(group: ConditionGroup) -> str:
    """Return optimizer, recipe or schedule, and args, where they are not those of plain SGD."""
    workload = group.a_cell.workload
    optimizers: dict[str, str] = {Optimizer.SGD: "", Optimizer.ADAMW: "AdamW"}
    schedule = group.conditions.get(RECIPE, NONE)
    if workload.schedule is not None:
        schedule = f"schedule {workload.schedule}"
    optimizer = optimizers.get(workload.optimizer, f"optimizer {workload.optimizer}")
    parts = ", ".join(part for part in (optimizer, schedule) if part not in ("", NONE))
    return "".join(f"{text}; " for text in (parts, workload.args_text) if text)


def _precision(group: ConditionGroup) -> str:
    """Return the number formats of the cells' computing; on the CPU not if all are fp32."""
    words = group.precisions
    if group.device is Device.CPU and words == ("fp32",):
        return ""
    named = (f"precision {word}" if word == UNKNOWN else word for word in words)
    return "".join(f", {word}" for word in named)


def hardware(group: ConditionGroup) -> str:
    """Return the GPUs' model, or with device=cpu the CPU's; empty without a record."""
    if group.device is Device.CUDA:
        model = group.conditions.get(GPU_MODEL, "")
        return "" if model == NONE else model
    model = group.conditions.get(CPU_MODEL, "")
    return f"CPU {model}" if model else ""


def _data(workload: Workload) -> str:
    if workload.data == UNREPORTED_DATA:
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


def runs(rows: Iterable[Row]) -> str:
    """Return the number of runs behind a value, as a sentence.

    With one run there is nothing to take a median of, and no interval.
    """
    numbers = {row.timing.runs for row in rows if row.timing}
    if not numbers:
        return "No run has finished."
    return "One run each." if numbers == {1} else f"Median of {span(numbers)} runs."


MARK = "!"
"""The mark before a number that a check makes doubtful."""

EXPLAINED = f"{MARK}: the warnings have the cause and the fix"


def mark(text: str, *, is_doubtful: bool) -> str:
    """Return the text of a number with the mark if it is doubtful; it needs a number."""
    return f"{MARK}{text}" if is_doubtful and text not in (DASH, OOM) else text


def shown(text: str, row: Row, affected: Affected) -> str:
    """Return a number of a row with the mark if a check is about it."""
    return mark(text, is_doubtful=affected in row.doubts)


def explained(rows: Iterable[Row], affected: Affected) -> list[str]:
    """Return the note on the marks of a table, if it has any."""
    return [EXPLAINED] if any(affected in row.doubts for row in rows) else []


def by_reason(reasons: Iterable[tuple[str, Place]], device: Device) -> list[str]:
    """Return a line per reason with all its places: `why: 2 GPUs at batch 32, 128; …`."""
    lines = []
    for reason, places in by_key(dict.fromkeys(reasons)).items():
        batches = by_key((place.setup, str(place.batch_per_gpu)) for place in places)
        texts = [
            f"{size_words(setup, device)}{how(setup)} at batch {', '.join(sizes)}"
            for setup, sizes in batches.items()
        ]
        lines.append(f"{reason}: {'; '.join(texts)}")
    return lines


OF_SPLIT = (Role.INSTRUMENTED, Step.MICROBENCHMARK)
"""What the numbers of Tables 2 and 3 are measured in."""


def left_out_runs(
    rows: Iterable[Row], device: Device, roles: Collection[Role | Step]
) -> list[str]:
    """Return a line for every epoch of which a row leaves runs out, with the first reason."""
    lines = []
    for row in rows:
        by_role = by_key((run.role, run) for run in row.left_out if run.role in roles)
        total = counted(len(row.runs) + row.disturbed_runs, "run")
        for role, runs in by_role.items():
            left_out = f"{len(runs)} of {total} left out"
            why = f"{epoch_words(role)} was disturbed: {runs[0].reason}"
            lines.append(f"{cell_words(row.place, device)}: {left_out}: {why}")
    return lines


def why_unsplit(row: Row) -> str:
    """Return why exchange and waiting of a row are not known."""
    records = row.records
    files = sorted({record.source.file for record in records if record.source.file})
    if files:
        return f"{', '.join(files)} does not report it"
    if records[0].cell.script is not None:
        return why_unsplit_script(records)
    if all(record.least_waiting is None for record in records):
        return "protocol=lab ends before the instrumented epoch (protocol=full measures it)"
    return "the record has no times of the exchange"


def why_unsplit_script(records: Sequence[Record]) -> str:
    """Return why the exchange of a script is not known, in the words of its observer."""
    facts = [record.facts for record in records if record.facts]
    missing = chain.from_iterable(of_record.missing for of_record in facts)
    texts = [re.sub(r"^rank \d+: ", "", text) for text in missing]
    start = "phases: "
    of_phases = [text.removeprefix(start) for text in texts if text.startswith(start)]
    reasons = "; ".join(dict.fromkeys(of_phases or texts))
    if reasons:
        return reasons
    if any(record.phases for record in records):
        return "no message between processes was seen"
    # two epochs have the A + 2B iterations of window=A,B
    steps = records[0].ranks[0].timed.iterations
    return (
        "the script trained fewer than 3 epochs (train 3, or add "
        f"window={steps // 4},{steps * 3 // 4} study=NEW to the command)"
    )
