"""Full table of the phases of the instrumented epoch, with their range over ranks."""

from hpml_jobs.report.merge.entries import Entry
from hpml_jobs.report.merge.run_values import PHASES, phases_of
from hpml_jobs.report.merge.scope import Scope
from hpml_jobs.report.table import Line, Table
from hpml_jobs.report.tables.builder import (
    UNMEASURED,
    About,
    Column,
    Columns,
    left_out,
    of_values,
    places,
    rest,
    table,
)
from hpml_jobs.report.text import captions
from hpml_jobs.report.text.numbers import percent, seconds

PHASES_CAPTION = (
    "E2, seconds per epoch on the rank with the longest one; least..most over all ranks (and runs) "
    "below it where they differ. The six phases add up to the epoch but for closure: |epoch - sum| "
    "/ epoch. E2/E1: what the instruments cost. Collectives inside forward (ddp's buffers) are in "
    "forward here, and in Comm of Table 2. Pack: of backward, copies into and out of messages and "
    "averaging by hand."
)


def phases(scope: Scope) -> Table | None:
    """Where the instrumented epoch went."""

    def column(name: str) -> Column[Entry]:
        head = "comm" if name == "comm_exposed" else name
        return Column(f"phase_{name}_s", head, of_values(f"phase_{name}_s"), seconds)

    heads = (
        Columns("seconds of E2", tuple(column(name) for name in PHASES)),
        Columns(
            "%",
            (
                Column("closure", "closure", of_values("closure"), percent),
                Column("overhead", "E2/E1", of_values("overhead"), percent),
            ),
        ),
        Columns("of backward", (Column("pack_s", "pack", of_values("pack_s"), seconds),)),
        Columns("", tuple(column for name in PHASES for column in _ends(scope, name))),
    )
    own = [entry for entry in scope.timed if entry.values and entry.values.closure is not None]
    if not own:
        return None
    shown = places(scope, own, heads, lambda entry: _over_ranks(scope, entry))
    about = About(
        "phases",
        "Phases of the instrumented epoch",
        "E2",
        (PHASES_CAPTION, captions.runs(own)),
        on_screen=False,
    )
    lost = rest(scope.entries, own)
    return table(scope, about, shown, left_out(scope, UNMEASURED, lost))


def _ends(scope: Scope, name: str) -> tuple[Column[Entry], Column[Entry]]:
    """The least and the most of a phase over ranks and runs, for the CSV."""
    return (
        Column(f"phase_{name}_least_s", "", lambda entry: _ranges(scope, entry)[name][0]),
        Column(f"phase_{name}_most_s", "", lambda entry: _ranges(scope, entry)[name][1]),
    )


def _ranges(scope: Scope, entry: Entry) -> dict[str, tuple[float, float]]:
    found = [rank.phases for record in scope.records(entry) for rank in record.ranks]
    known = [phases_of(one) for one in found if one]
    return {
        name: (min(values), max(values))
        for name in PHASES
        if (values := [one[f"phase_{name}_s"] for one in known])
    }


def _over_ranks(scope: Scope, entry: Entry) -> Line | None:
    if entry.gpus == 1 and len(entry.runs) == 1:
        return None
    texts = [_range(*ends) for ends in _ranges(scope, entry).values()]
    if not any(texts):
        return None
    return Line(label="  least..most", texts=(*texts, "", "", ""))


def _range(least: float, most: float) -> str:
    return "" if seconds(least) == seconds(most) else f"{seconds(least)}..{seconds(most)}"
