"""The answer of a group in sentences: the same on the screen, on the page and in tables.json."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from hpml_jobs.core import formulas
from hpml_jobs.core.check_result import Tier
from hpml_jobs.core.strategies import Device
from hpml_jobs.core.text import (
    PROGRAM,
    counted,
    duration_text,
    listed,
    percent_text,
    with_command,
)
from hpml_jobs.report import warnings
from hpml_jobs.report.choice import Candidate
from hpml_jobs.report.frame import captions, learning
from hpml_jobs.report.frame.captions import mark
from hpml_jobs.report.frame.numbers import (
    accuracy,
    count,
    per_second,
    seconds,
    share_text,
    significant,
    span,
    three_digits,
    verb,
)
from hpml_jobs.report.report import Report, ReportGroup
from hpml_jobs.report.scaling.gap import gap_sentence
from hpml_jobs.results.checks.comparability import OTHER_EPOCH
from hpml_jobs.results.checks.disturbed import DISTURBED
from hpml_jobs.results.rows import Pair, Row, Series
from hpml_jobs.results.statistics import Interval
from hpml_jobs.study.study import command_with, commands_of


class Answer(NamedTuple):
    """Sentences on a group, in the order of reading.

    `sentence` is the measured fact with its interval, or the cell that a wish asks for. `batch`:
    why it is of this one of several batches. `why`: what takes most of the missing speedup.
    `training` is what the epochs of a wish take. `accuracy`: what the sizes learned. `marks`: a
    line per cause of doubt, with what helps. `main_numbers` are each a value and its name.
    """

    sentence: str
    batch: str = ""
    why: str = ""
    training: str = ""
    accuracy: str = ""
    marks: tuple[str, ...] = ()
    main_numbers: tuple[tuple[str, str], ...] = ()

    @property
    def lines(self) -> list[str]:
        """The sentences after the first one, without the marks."""
        texts = (self.batch, self.why, self.training, self.accuracy)
        return [text for text in texts if text]


def answer_of(report: Report, group: ReportGroup) -> Answer:
    """Return the answer of one group of a report."""
    if not group.candidates:
        marks = tuple(unmeasured_cells(report, group))
        command = f"{PROGRAM} status {report.study}"
        why = "" if marks else with_command(" To see why", command)
        return Answer(f"No cell has been measured.{why}", marks=marks)
    series = group.source.series
    cell = _cell(group)
    return Answer(
        _wished(report, group) or _fact(report, group),
        _batch(group),
        _why(group, cell.row),
        _training(group, cell),
        _accuracy(group, series) if series else "",
        tuple(_marks(report, group)),
        tuple(_main_numbers(group, cell)),
    )


def _cell(group: ReportGroup) -> Candidate:
    """Return the cell that a wish asks for, else the largest size of the series, or the fastest."""
    if group.asked is not None:
        return group.asked
    if group.source.series is None:
        return group.candidates[0]
    row = group.source.series.largest.parallel
    return next(c for c in group.candidates if c.row is row)


def _fact(report: Report, group: ReportGroup) -> str:
    """Return how much faster more GPUs are; of a single size what it takes."""
    series = group.source.series
    if series is None:
        return _single(report, group)
    rows = [size.parallel for size in series.sizes]
    sizes = " -> ".join(str(row.gpus) for row in rows)
    nodes = max(row.nodes for row in rows)
    on_nodes = f" on up to {nodes} nodes" if nodes > 1 else ""
    *_, last = times = [_times(size) for size in series.sizes]
    efficiencies = [_percent(size) for size in series.sizes[1:]]
    certainty = how_sure(series.largest.interval, rows)
    device = group.source.device
    at_batch = _at_batch(series, device)
    if len(rows) == 2:
        shown = f"{last} times as fast {at_batch}{gain(series.largest)}"
        shown += f" ({certainty}), efficiency {efficiencies[0]}"
    else:
        shares = listed([share.removesuffix(" %") for share in efficiencies])
        shown = f"{', '.join(times)} times as fast {at_batch}"
        shown += f" (efficiency {shares} %; {last}: {certainty})"
    units = f"{captions.units(device)}{_of_threads(group)}"
    return f"{sizes} {units}{on_nodes}: {shown}."


def _of_threads(group: ReportGroup) -> str:
    """Return ` of 1 thread`, what each process on CPUs computes with; empty on GPUs."""
    source = group.source
    threads = counted(source.a_cell.threads, "thread")
    is_known = source.device is Device.CPU and source.origin.has_ranks
    return f" of {threads}" * is_known


def _times(size: Pair) -> str:
    return mark(three_digits(size.speedup), is_doubtful=size.is_doubtful)


def _percent(size: Pair) -> str:
    return mark(share_text(size.efficiency), is_doubtful=size.is_doubtful)


def gain(size: Pair) -> str:
    """Return what a speedup near one or below it may mean."""
    interval = size.interval
    if (interval.high if interval else size.speedup) < 1:
        return ", which is slower"
    is_clear = interval is None or interval.low > 1
    doubt = "which may be chance" if size.speedup > 1 else "perhaps slower"
    return "" if is_clear else f", {doubt}"


def _at_batch(series: Series, device: Device) -> str:
    """Return `at batch 64 per GPU`, with the strategy unless it is ddp."""
    batch = f"batch {series.batch} per {captions.unit(device)}"
    if series.is_global:
        batch = f"global batch {series.batch}"
    return f"at {batch}{captions.how(series.largest.parallel.setup)}"


def how_sure(interval: Interval | None, rows: Sequence[Row]) -> str:
    """Return `1.48 to 1.87, 4 runs each`: how far a speedup is known, and by how many runs."""
    runs = _runs(rows)
    if interval is None:
        return runs
    ends = f"likely {three_digits(interval.low)} to {three_digits(interval.high)}"
    return f"{ends}, {runs}"


def _runs(rows: Sequence[Row]) -> str:
    """Return `one run each`, or `1 to 2 of 4 runs each` if others were disturbed."""
    runs = span(len(row.runs) for row in rows)
    of_all = span(len(row.runs) + row.disturbed_runs for row in rows)
    if of_all != runs:
        return f"{runs} of {of_all} runs each"
    return "one run each" if runs == "1" else f"{runs} runs each"


def _single(report: Report, group: ReportGroup) -> str:
    """Return what the fastest cell takes where there is no other size to compare it with."""
    cells = [c for c in group.candidates if c.row in group.source.plain_rows]
    fastest = cells[0]
    row = fastest.row
    device = group.source.device
    per = captions.work_text(group.source.work)
    time_s = mark(seconds(fastest.epoch_s), is_doubtful=fastest.is_doubtful)
    speed = ""
    if rate := fastest.timing.units_per_s:
        shown = mark(per_second(rate), is_doubtful=fastest.is_doubtful)
        speed = f", {shown} {fastest.timing.unit.value}/s"
    of_several = f", the fastest of {len(cells)}" * (len(cells) > 1)
    sentence = f"{fastest.words}: {time_s} s per {per}{speed}{of_several}."
    command = _command(
        report, group, gpus=f"1,{max(2, row.gpus)}", batch=row.batch_per_gpu
    )
    are_sent = {c.cell.gpus for c in group.source.cells if c.cell} != {row.gpus}
    in_job = device is Device.CPU or any(r.attempt.neighbours for r in row.records)
    if are_sent or not in_job or not command:  # a machine's own GPUs are all in use
        return sentence
    return with_command(f"{sentence} A speedup needs another size", command)


def _command(report: Report, group: ReportGroup, **keys: object) -> str:
    """Return the last submission with other keys; empty where it is not known, or is a grid."""
    commands = commands_of(report.commands, group.source.a_cell.script)
    if group.is_replaced or any("grid" in noted for noted in report.keys):
        return ""
    return command_with(commands, keys) or ""


def _wished(report: Report, group: ReportGroup) -> str:
    """Return the cell that a wish asks for, and how near it is; empty without a wish."""
    wish = group.wish
    asked = group.asked
    if wish.gpu_hours is not None:
        return _within_budget(group, wish.gpu_hours, wish.epochs or 1)
    if wish.min_efficiency is None or group.source.series is None or asked is None:
        return ""
    sizes = group.source.series.sizes
    place = next(n for n, size in enumerate(sizes) if size.parallel is asked.row)
    limit = percent_text(wish.min_efficiency, 0)
    device = group.source.device
    name = captions.size(asked.row.gpus, device)
    advice = f"Use {name}{_of_threads(group)} {_at_batch(group.source.series, device)}"
    # the limit may be in the interval of this size, or of the next; a doubtful number decides none
    for size in sizes[max(1, place) : place + 2]:
        if size.is_doubtful or size.is_near(wish.min_efficiency):
            doubt = "they may not reach"
            if size.parallel is not asked.row:
                doubt = f"{captions.size(size.parallel.gpus, device)} may reach"
            sentence = f"{advice}, though {doubt} {limit} efficiency: they are {_reached(size)}."
            command = _deciding(report, group, size)
            return (
                with_command(f"{sentence} To decide", command) if command else sentence
            )
    if place == 0:
        larger = captions.size(sizes[1].parallel.gpus, device)
        return f"{advice}: {larger} are {_reached(sizes[1])}, below {limit}."
    most = f"the most measured that reach {limit} efficiency"
    return f"{advice}, {most}: {_reached(sizes[place])}."


def _deciding(report: Report, group: ReportGroup, size: Pair) -> str:
    """Return the command that launches a size and the smallest one more often.

    A doubtful size has the command of its mark; `auto` has launched one that is near its limit more
    than once.
    """
    if size.is_doubtful:
        return ""
    runs = len(size.parallel.runs)
    keys: dict[str, object] = {"repeats": 2 * runs}
    if runs == 1:
        keys = {"repeats": "auto", "min_efficiency": f"{group.wish.min_efficiency:g}"}
    return _command(
        report,
        group,
        gpus=f"{size.reference.gpus},{size.parallel.gpus}",
        batch=size.parallel.batch_per_gpu,
        **keys,
    )


def _reached(size: Pair) -> str:
    """Return `1.4 times as fast (likely 1.2 to 1.6, 4 runs each), efficiency 70 % (60 to 80 %)`."""
    certainty = how_sure(size.interval, size)
    efficiency = f"efficiency {_percent(size)}"
    if ends := size.efficiencies:
        efficiency += f" ({100 * ends.low:.0f} to {100 * ends.high:.0f} %)"
    return f"{_times(size)} times as fast ({certainty}), {efficiency}"


def _within_budget(group: ReportGroup, gpu_hours: float, epochs: int) -> str:
    hours = f"{gpu_hours:g} {captions.unit(group.source.device)}-hours"
    budget = f"{counted(epochs, 'epoch')} within {hours}"
    if group.asked is not None:
        return f"Use {group.asked.words}: the fastest with {budget}."
    cheapest = min(group.candidates, key=lambda c: c.gpu_hours)
    needed = significant(epochs * cheapest.gpu_hours, 3)
    return f"Nothing does {budget}: {cheapest.words} needs least, {needed}."


def _why(group: ReportGroup, row: Row) -> str:
    series = group.source.series
    if series and row is series.smallest:
        row = series.largest.parallel
    if any(result.check == OTHER_EPOCH for result, _ in row.violations):
        return ""  # a mark says it
    gap = group.source.gaps.get(row.place)
    return gap_sentence(row, gap) if gap else ""


def _batch(group: ReportGroup) -> str:
    """Return why the answer is of its batch, if there are several on the smallest size."""
    series = group.source.series
    if series is None or series.is_global or group.wish.gpu_hours:
        return ""
    used = series.smallest
    rows = [row for row in group.source.plain_rows if row.setup == used.setup]
    fastest = min(rows, key=lambda row: row.epoch_s)
    times = {row.batch_per_gpu: row.epoch_s for row in (fastest, used)}
    if formulas.largest_near_best(times) != used.batch_per_gpu:
        return ""  # it has the most sizes
    size = captions.size(used.gpus, group.source.device)
    why = f"Why batch {used.batch_per_gpu}"
    best = group.candidates[0]
    is_other = best.row.batch_per_gpu != used.batch_per_gpu
    of_all = f" The fastest cell: {best.words}." * is_other
    if fastest is used:
        return f"{why}: the fastest on {size}.{of_all}" if rows[1:] else ""
    return (
        f"{why}: the largest within 10 % of the fastest (batch {fastest.batch_per_gpu}) on {size}, "
        f"with the fewest messages.{of_all}"
    )


def _training(group: ReportGroup, cell: Candidate) -> str:
    """Return what the epochs of a wish take on the cell of the answer."""
    epochs = group.wish.epochs
    has_none = group.wish.gpu_hours is not None and group.asked is None
    if epochs is None or has_none:
        return ""
    device = group.source.device
    size = captions.size(cell.row.gpus, device)
    time = mark(duration_text(epochs * cell.epoch_s), is_doubtful=cell.is_doubtful)
    text = f"{counted(epochs, 'epoch')} on {size} take {time}"
    if device is Device.CUDA:
        hours = significant(epochs * cell.gpu_hours, 3)
        text += f" and {mark(hours, is_doubtful=cell.is_doubtful)} GPU-hours"
    return f"{text}."


def _accuracy(group: ReportGroup, series: Series) -> str:
    """Return the test accuracy of the smallest and of the largest size, where both have one."""
    rows = (series.smallest, series.largest.parallel)
    means = [learning.over_seeds(row.trained, learning.test_accuracy) for row in rows]
    if None in means:
        return ""
    first, last = (f"{accuracy(mean.mean)} %" for mean in means if mean)
    size = captions.size(rows[0].gpus, group.source.device)
    tested = count(rows[0].trained[0].ranks[0].test_samples)
    samples = group.source.a_cell.workload.samples_name
    return (
        f"Test accuracy {first} with {size}, {last} with {rows[1].gpus} ({tested} {samples}; "
        "small differences may be chance)."
    )


def unmeasured_cells(report: Report, group: ReportGroup) -> Iterator[str]:
    """Yield a line on the cells that ended without a number, with the reason of the first."""
    cells = group.source.cells
    ended = [c for c in cells if c.record is None and not c.outcome.may_run]
    if ended:
        number = f"{len(ended)} of {counted(len(cells), 'cell')}"
        has = verb(len(ended), "has", "have")
        reason = ended[0].reason.partition("; ")[0]
        text = f"{number} {has} no number; {ended[0].slug}: {reason}"
        command = f"{PROGRAM} logs {report.study}"
        yield with_command(f"{captions.MARK} {text}", command)


def _marks(report: Report, group: ReportGroup) -> Iterator[str]:
    """Yield a line per cause of doubtful numbers: what it is about, and the command that helps."""
    yield from unmeasured_cells(report, group)
    source = group.source
    causes = warnings.causes(source, [Tier.NUMBER])
    marked = sum(len(c.slugs) for c in causes if c.result.check == DISTURBED)
    left_out = sum(row.disturbed_runs for row in source.timed)
    number = marked + left_out
    runs = counted(sum(len(row.measured_cells) for row in source.timed), "run")
    slowed = f"{number} of {runs} disturbed by other programs"
    if number and not group.is_replaced:
        command = f"{PROGRAM} resubmit {report.study} --disturbed"
        text = f"{captions.MARK} {slowed}" if marked else f"{slowed} and left out"
        yield with_command(f"{text}. When it is quiet", command)
    for cause in causes:
        if cause.result.check != DISTURBED:
            yield f"{captions.MARK} {warnings.brief(source, cause)}"


def _main_numbers(group: ReportGroup, cell: Candidate) -> Iterator[tuple[str, str]]:
    """Yield the main numbers of the answer's cell, each with its name."""
    size = captions.size(cell.row.gpus, group.source.device)
    per = f"per {captions.work_text(group.source.work)}, {size}"
    yield f"{mark(seconds(cell.epoch_s), is_doubtful=cell.is_doubtful)} s", per
    if (rate := cell.timing.units_per_s) is not None:
        shown = mark(per_second(rate), is_doubtful=cell.is_doubtful)
        yield shown, f"{cell.timing.unit.value} per second"
    series = group.source.series
    for pair in series.sizes if series else ():
        if pair.parallel is cell.row and pair.interval is not None:
            smallest = captions.size(pair.reference.gpus, group.source.device)
            yield _times(pair), f"speedup over {smallest}"
            yield _percent(pair), "efficiency"
