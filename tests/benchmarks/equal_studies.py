"""False alarms of compare: real studies of the same cells, pooled at random into two sides.

    python tests/benchmarks/equal_studies.py FOLDER [--splits 200]

FOLDER has the studies that false_alarms.py --outputs FOLDER made: equal, of one machine. Each side
gets the runs of half of the chosen studies, so nothing differs but the time of day. Whatever
`compare` calls faster or slower, and whatever --fail-if-slower 5% refuses, is a false alarm. The
splits share their runs, so they are not independent. Runs with a failed check are left out.
"""

import argparse
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from random import Random
from statistics import median

import msgspec

from hpml_jobs.extras.compare.document import make_comparison
from hpml_jobs.extras.compare.reference import Reference, ReferenceCell, reference_of
from hpml_jobs.results.decision import Decision
from hpml_jobs.study.selection import all_studies
from hpml_jobs.study.snapshot import read_study

LIMIT = 0.05


def pooled(sides: Sequence[Reference]) -> Reference:
    """Return one reference with the runs of several studies of the same cells."""
    first = sides[0].groups[0]
    cells = tuple(_pooled_cell(cell, sides) for cell in first.cells)
    group = msgspec.structs.replace(first, cells=cells)
    return msgspec.structs.replace(sides[0], groups=(group,))


def _pooled_cell(cell: ReferenceCell, sides: Sequence[Reference]) -> ReferenceCell:
    same = [
        other
        for side in sides
        for other in side.groups[0].cells
        if other.place == cell.place
    ]
    runs = tuple(run for other in same if not other.failed for run in other.runs)
    return msgspec.structs.replace(cell, runs=runs, failed=(), warned=())


def split(studies: Sequence[Reference], runs: int, splits: int) -> str:
    """Return a line of the table: equal studies, so many runs of each side."""
    random, decisions, smallest, refused = (
        Random(runs),
        Counter[Decision | None](),
        [],
        0,
    )
    for _ in range(splits):
        chosen = random.sample(studies, 2 * runs)
        text = make_comparison(pooled(chosen[:runs]), pooled(chosen[runs:]), LIMIT)
        cells = text.comparison.cells
        decisions.update(cell.decision for cell in cells)
        smallest += [
            cell.smallest_difference for cell in cells if cell.smallest_difference
        ]
        refused += any(cell.is_slower_than(LIMIT) for cell in cells)
    decided = decisions.total() - decisions[Decision.TOO_FEW]
    different = decisions[Decision.FASTER] + decisions[Decision.SLOWER]
    return (
        f"| {runs} | {decided} | {100 * different / decided:.1f} | {100 * refused / splits:.1f} | "
        f"{100 * median(smallest):.1f} |"
    )


def main() -> None:
    """Print the table of docs/measured.md."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--splits", type=int, default=200)
    arguments = parser.parse_args()
    studies = [
        reference_of(study.name, read_study(study, study.history()))
        for study in sorted(all_studies(arguments.folder), key=lambda study: study.name)
    ]
    print(
        "| runs of each | cells compared | called different % | refused % | could show % |"
    )
    print("|" + " ---: |" * 5)
    for runs in range(4, len(studies) // 2 + 1, 2):
        print(split(studies, runs, arguments.splits))


if __name__ == "__main__":
    main()
