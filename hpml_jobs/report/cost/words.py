"""Sentences on the cost of an epoch: the peak, clocks, and how far the state of the art is."""

from collections.abc import Iterator, Sequence

from hpml_jobs.checks import Level
from hpml_jobs.checks.gpu_peaks import WINOGRAD, FlopPerSample, PeakRate, gpu_key
from hpml_jobs.checks.result import Affected
from hpml_jobs.core.built_in import TransformerShape
from hpml_jobs.core.conditions import GPU_MODEL
from hpml_jobs.core.strategies import Device, Strategy
from hpml_jobs.report.cost import published
from hpml_jobs.report.cost.rules import Cost, cards
from hpml_jobs.report.frame.captions import cell_label, hardware, units
from hpml_jobs.report.frame.groups import ConditionGroup
from hpml_jobs.report.frame.numbers import count, gb_per_s, percent, ratio, significant
from hpml_jobs.report.frame.rows import Row

OTHER_PRECISIONS = {
    "fp32": "another precision: fp32 here, without tensor cores",
    "tf32": "another precision: tf32 here",
}
"""What distinguishes a precision from that of the published figures."""


def tflop_per_s(flop_per_s: float) -> str:
    """Return FLOP/s in TFLOP/s with three digits.

    >>> tflop_per_s(6.415e12), tflop_per_s(2.04e9)
    ('6.42', '0.00204')
    """
    return significant(flop_per_s / 1e12, 3)


def flop_text(group: ConditionGroup, costs: Sequence[Cost]) -> str:
    """Return the FLOP of a sample and how the FLOP/s follow from them; empty if not known."""
    shape = group.a_cell.workload.built_in_shape
    flop_of_shape = next((cost.flop for cost in costs if cost.flop.by_formula), None)
    if shape is not None and flop_of_shape is not None:
        return _formula_text(group.device, shape, flop_of_shape)
    known = sorted({cost.flop.figure for cost in costs if cost.flop.figure})
    if not known:
        return ""
    flop = " or ".join(significant(value / 1e9, 4) for value in known)
    return (
        f"TFLOP/s: {flop} GFLOP of a sample (forward and backward of the model, 2 per "
        f"multiply-add) x samples / ({units(group.device)} x seconds of the epoch)."
    )


def _formula_text(device: Device, shape: TransformerShape, flop: FlopPerSample) -> str:
    """Return the FLOP of a transformer's token, by the formula and beside it as torch counts."""
    per_token, weights = (flop.by_formula or 0) / shape.context, count(flop.weights or 0)
    counted = (
        f"torch counts {significant(flop.counted / shape.context / 1e6, 4)}"
        if flop.counted
        else "torch's count is not known"
    )
    return (
        f"FLOP of a token: 6 N + 12 L H Q T = {significant(per_token / 1e6, 4)} MFLOP (N = "
        f"{weights} parameters without position embeddings, L = {shape.layers}, H Q = "
        f"{count(shape.width)}, T = {count(shape.context)}; Chowdhery et al., PaLM, appendix B; N "
        f"as in nanoGPT); {counted}. TFLOP/s: the formula's x tokens / ({units(device)} x "
        "seconds of the epoch); what is computed again to save memory does not count (no HFU)."
    )


def peak_text(group: ConditionGroup, costs: Sequence[Cost]) -> str:
    """Return the peak of which the FLOP/s are a share, with its source; why there is none."""
    peak = next((cost.peak for cost in costs if cost.peak), None)
    if peak is not None:
        return (
            f"% of peak (MFU): TFLOP/s / {significant(peak.flop_per_s / 1e12, 4)} TFLOP/s dense "
            f"{peak.precision}, {hardware(group)} ({peak.source}).{_winograd(costs, peak)}"
        )
    if group.device is Device.CPU:
        return "No % of peak: the peak of a CPU is not known (cluster.peak_tflop_per_s= gives it)."
    if group.imported:
        return "No % of peak: the precision is not reported."
    if group.a_cell.workload.own_code:
        return "No % of peak: the precision of your own code is not known."
    return "No % of peak: the peak of this GPU is not known."


def _winograd(costs: Sequence[Cost], peak: PeakRate) -> str:
    """Return why a share may be high, where one is above the doubtful rate of ordinary cores."""
    reached = max((cost.train_flop_per_s or cost.flop_per_s or 0.0 for cost in costs), default=0.0)
    if peak.impossible <= peak.flop_per_s or reached <= 0.5 * peak.flop_per_s:
        return ""
    return (
        f" Winograd's 3 x 3 convolutions on ordinary cores need up to {WINOGRAD:g} times fewer "
        "multiplications than are counted, so a share may exceed 100 %."
    )


def clocks_text(group: ConditionGroup) -> str:
    """Return clocks and power limit of the boards; empty if they were not read."""
    boards = cards(group)
    if not boards:
        return ""
    clock = _optional_span("SM clock {}", [card.clock_mhz for card in boards])
    highest = _optional_span(" of {} MHz", [card.max_sm_clock_mhz for card in boards])
    parts = [
        clock and clock + (highest or " MHz"),
        _optional_span("memory clock {} MHz", [card.memory_clock_mhz for card in boards]),
        _optional_span("power limit {} W", [card.power_limit_w for card in boards]),
    ]
    when = "in the timed epoch" if all(card.samples for card in boards) else "after an epoch"
    return f"Boards {when}: {', '.join(part for part in parts if part)}."


def _span(values: Sequence[float]) -> str:
    """Return the least and the most of some values.

    >>> _span([1980, 1755, 1980]), _span([700.0])
    ('1,755 to 1,980', '700')
    """
    ends = sorted(values)
    return " to ".join(dict.fromkeys(count(round(value)) for value in (ends[0], ends[-1])))


def _optional_span(text: str, values: Sequence[float | None]) -> str:
    known = [value for value in values if value is not None]
    return text.format(_span(known)) if known else ""


def published_notes(group: ConditionGroup, costs: Sequence[Cost]) -> Iterator[str]:
    """Yield how far the group is from the nearest published figures; nothing if none is near.

    Cells with a failed data-quality check are not compared.
    """
    if group.device is Device.CPU:
        return
    sound = [made for made in costs if group.worst(made.row, Affected.TIME) is not Level.FAIL]
    yield from _training(group, sound)
    yield from _all_reduce(group, sound)
    yield from _ddp(group, sound)


def _training(group: ConditionGroup, costs: Sequence[Cost]) -> Iterator[str]:
    """Yield the nearest published training beside the fastest cell per GPU."""
    workload, measured = group.a_cell.workload, [c for c in costs if c.units_per_gpu_s]
    parameters = group.model.parameters if group.model else workload.parameters
    kind = published.kind_of(workload.model)
    near = published.nearest(kind, parameters, gpu_key(_gpu(group)))
    if near is None or not measured:
        return
    best = max(measured, key=lambda cost: cost.units_per_gpu_s or 0.0)
    yield (
        f"Nearest published figure: {_published(near.published)}. Best here: "
        f"{_best(group, best)}{_gap(group, best, near)}."
    )


def _published(figure: published.Published) -> str:
    size = "" if figure.gpus is None else f"{figure.gpus} x "
    share = "" if figure.share is None else f", {100 * figure.share:g} % of peak"
    per_gpu = "" if figure.unit.startswith("s ") else " per GPU"
    how = ", derived" if figure.derived else ""
    return (
        f"{figure.model}, {size}{figure.gpu.upper()}, {figure.precision}: "
        f"{figure.figure:,g} {figure.unit}{per_gpu}{share} ({figure.source}{how})"
    )


def _best(group: ConditionGroup, best: Cost) -> str:
    rate = f"{count(round(best.units_per_gpu_s or 0.0))} {_rate_unit(group)} per GPU"
    share = "" if best.utilization is None else f", {percent(best.utilization)} % of peak"
    return f"{rate}{share} ({cell_label(best.row.place, group.device)})"


def _gap(group: ConditionGroup, best: Cost, near: published.Nearest) -> str:
    """Return what can be compared, and how far apart it is."""
    figure = near.published
    own = ":" in group.a_cell.workload.model
    same = ["matched by its number of parameters"] if own else []
    other = [
        *(same if near.same_model else ["another model"]),
        *([] if near.same_gpu else ["another GPU"]),
    ]
    precision = best.peak.precision if best.peak else None
    if precision is None:
        other.append("the precision here is not known")
    elif precision in OTHER_PRECISIONS:
        other.append(OTHER_PRECISIONS[precision])
    if near.same_model and near.same_gpu and figure.unit == _rate_unit(group):
        times = ratio((best.units_per_gpu_s or 0.0) / figure.figure)
        return f", {times} of its throughput{_aside(other)}"
    if figure.share is not None and best.utilization is not None:
        return f", {ratio(best.utilization / figure.share)} of its share of peak{_aside(other)}"
    return f"; not compared{_aside(other)}"


def _aside(other: Sequence[str]) -> str:
    return f" ({', '.join(other)})" if other else ""


def _all_reduce(group: ConditionGroup, costs: Sequence[Cost]) -> Iterator[str]:
    """Yield the published bus bandwidth beside the best of the microbenchmark."""
    measured = [cost.row for cost in costs if _peak_gb_per_s(cost.row)]
    if not measured:
        return
    best = max(measured, key=lambda row: (row.gpus, _peak_gb_per_s(row)))
    figures = published.nearest_all_reduce(gpu_key(_gpu(group)), best.gpus, best.nodes)
    if not figures:
        return
    reached = _peak_gb_per_s(best)
    texts = [
        f"{f.gpus} x {f.gpu.upper()} {gb_per_s(f.gb_per_s)} ({f.how}; {f.source})" for f in figures
    ]
    other = "" if figures[0].gpus == best.gpus else "; another number of GPUs"
    share = percent(reached / max(figure.gb_per_s for figure in figures))
    yield (
        f"Published busbw of large all-reduces, GB/s: {', '.join(texts)}. Microbenchmark here: "
        f"{gb_per_s(reached)} on {best.gpus} GPUs, {share} % of it{other}."
    )


def _peak_gb_per_s(row: Row) -> float:
    peak = row.figures.peak_gb_per_s
    return peak or 0.0


def _ddp(group: ConditionGroup, costs: Sequence[Cost]) -> Iterator[str]:
    """Yield the efficiency of PyTorch's own table beside that of the largest ddp cell."""
    rows = [
        cost.row
        for cost in costs
        if cost.row.strategy is Strategy.DDP
        and cost.row.gpus > 1
        and cost.row.scaling
        and cost.row.scaling.weak_efficiency
    ]
    if not rows:
        return
    batch = published.DDP.batch
    row = max(rows, key=lambda row: (row.gpus, -abs(row.batch_per_gpu - batch)))
    reached = row.scaling.weak_efficiency if row.scaling else None
    if reached is None:
        return
    figure = published.DDP
    yield (
        f"Published weak efficiency of DDP: {100 * figure.least:g} to {100 * figure.most:g} % on "
        f"{figure.gpus} x {figure.gpu} at batch {figure.batch} ({figure.source}; another model). "
        f"Here: {percent(reached)} % ({cell_label(row.place, group.device)})."
    )


def _rate_unit(group: ConditionGroup) -> str:
    """Return the unit of a throughput: images/s, samples/s or tokens/s."""
    return f"{group.a_cell.workload.throughput_unit.value}/s"


def _gpu(group: ConditionGroup) -> str:
    return group.conditions.get(GPU_MODEL, "")
