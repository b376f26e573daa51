"""Tables 2 and 3 by the lab's residual method: an estimate, beside the measured ones."""

from hpml_jobs.report.merge.entries import Entry
from hpml_jobs.report.merge.scope import Part
from hpml_jobs.report.table import Table
from hpml_jobs.report.tables.lab import absent, blocks, known, lines, mark, marks_explained
from hpml_jobs.report.text import captions, notes
from hpml_jobs.report.text.numbers import DASH, count, gb_per_s, seconds

NOT_MEASURED = (
    "No measured Tables 2 and 3 stand beside: protocol=lab ends before the instrumented epoch; "
    "protocol=full measures them."
)


def table2r(part: Part) -> Table:
    """Seconds of computation and of communication, by the lab's residual method."""
    return Table(
        label=f"table2r-{part.strategy.value}",
        title=f"Table 2r: computation and communication by the lab residual, {part.strategy.value}",
        corner="Table 2r (s)",
        blocks=blocks(part, "Compute", "Comm"),
        lines=lines(part, part.parallel_rows, _compute_and_comm),
        caption=(
            captions.RESIDUAL_LOADING if _loading(part) == {True} else captions.RESIDUAL,
            *_caption(part),
        ),
        setting=part.scope.setting,
        notes=tuple(_below(part)),
    )


def _compute_and_comm(entry: Entry) -> tuple[str, ...]:
    if entry.residual is None:
        return mark(entry), DASH
    return seconds(entry.residual.compute_s), seconds(entry.residual.comm_s)


def table3r(part: Part) -> Table:
    """Bus bandwidth in GB/s (1e9 bytes per second), by the lab's residual method."""
    found = {entry.timing.gradient_bytes for entry in part.entries if entry.timing}
    sizes = sorted(size for size in found if size is not None)
    words = captions.BANDWIDTH[part.strategy.traffic.bandwidth]
    gradient_bytes = " or ".join(map(count, sizes)) or "an unknown number of"
    return Table(
        label=f"table3r-{part.strategy.value}",
        title=f"Table 3r: bandwidth by the lab residual, {part.strategy.value}",
        corner=f"Table 3r (GB/s{words.aside})",
        blocks=blocks(part),
        lines=lines(part, part.parallel_rows, _bandwidth),
        caption=(
            *(line.format(gradient_bytes=gradient_bytes) for line in words.residual),
            *_caption(part),
        ),
        setting=part.scope.setting,
        notes=(*notes.no_bandwidth(part.entries, part.scope.device), *_below(part)),
    )


def _bandwidth(entry: Entry) -> tuple[str, ...]:
    if entry.residual is None:
        return (mark(entry),)
    return (known(entry.residual.bus_gb_per_s, gb_per_s),)


def _caption(part: Part) -> tuple[str, ...]:
    device, entries = part.scope.device, part.entries
    baseline = captions.baseline_train(entries, part.batches, device)
    beside = () if part.instrumented or part.scope.imported else (NOT_MEASURED,)
    return (f"{baseline} {captions.runs(entries)}", *beside)


def _loading(part: Part) -> set[bool]:
    """Whether data loading is in the residuals: in all, in none, or in some."""
    return {entry.residual.with_loading for entry in part.entries if entry.residual}


def _below(part: Part) -> list[str]:
    """What includes data loading, then what is not there."""
    mixed = len(_loading(part)) > 1
    loading = [
        (captions.WITH_LOADING, (entry.row, entry.batch_per_gpu))
        for entry in part.parallel_entries
        if mixed and entry.residual and entry.residual.with_loading
    ]
    told = notes.by_reason(loading, lambda row: captions.row_label(row, part.scope.device))
    return [*told, *marks_explained(part), *absent(part.scope, part.entries, part.places)]
