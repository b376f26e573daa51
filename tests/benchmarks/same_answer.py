"""Whether equal studies give the same answer, or say that it is undecided.

    python tests/benchmarks/same_answer.py FOLDER [--resamples 20]

FOLDER has equal studies of one run per cell, of one quiet machine. The first line is on the studies
as they are. Each further one is on studies that have the repeats for which the screen of one of
them asks, their runs drawn with replacement from those of all studies. `contrary`: two of them ask
for different cells, and neither says that it is undecided. `first`: those that name the most
frequent cell first; `agree`: first, or beside another one as undecided. The last line counts the
warnings.
"""

import argparse
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from random import Random
from typing import NamedTuple

import msgspec
from hpml_jobs.report.choose.cost import Wish
from hpml_jobs.report.choose.rules import choose

from hpml_jobs.core.check_result import Level, Tier
from hpml_jobs.core.place import Place, place_of
from hpml_jobs.results.cells import CellResult, cell_results
from hpml_jobs.results.checks.study import checked_groups
from hpml_jobs.results.groups import ConditionGroup
from hpml_jobs.study.selection import all_studies
from hpml_jobs.study.snapshot import read_study


class Answer(NamedTuple):
    """The place that a study asks for first, and the other one, with the runs for which it asks.

    Where it is decided they are None and 0.
    """

    place: Place | None
    rival: Place | None = None
    runs: int = 0

    @property
    def decided(self) -> Place | None:
        """The place, if the study does not say that it is undecided."""
        return None if self.rival else self.place


def answer_of(cells: Sequence[CellResult]) -> Answer:
    """Return the answer of a study with one group of conditions."""
    (group,) = checked_groups(cells)
    choice = choose(group, Wish())
    if choice is None or choice.ask is None:
        return Answer(None)
    asked, undecided = choice.ask.candidate.row.place, choice.undecided
    if undecided is None:
        return Answer(asked)
    return Answer(asked, undecided.rival.row.place, undecided.runs or 0)


def resampled(
    runs: Mapping[Place, Sequence[CellResult]], number: int, random: Random
) -> Iterator[CellResult]:
    """Yield so many runs of each place, drawn with replacement, as repeats of one study."""
    for of_place in runs.values():
        for repeat, drawn in enumerate(random.choices(of_place, k=number)):
            if drawn.cell is None or drawn.record is None:
                continue
            cell = msgspec.structs.replace(drawn.cell, repeat=repeat, seed=0)
            record = msgspec.structs.replace(drawn.record, cell=cell, slug=cell.slug)
            yield msgspec.structs.replace(
                drawn, cell=cell, record=record, slug=cell.slug
            )


def line_of(title: str, answers: Sequence[Answer]) -> str:
    """Return a line of the table."""
    places, decided = (
        Counter(places)
        for places in (
            [a.place for a in answers],
            [a.decided for a in answers if a.decided],
        )
    )
    contrary = decided.total() - max(decided.values(), default=0)
    ((most, first),) = places.most_common(1)
    agree = sum(most in answer[:2] for answer in answers)
    return f"| {title} | {len(answers)} | {decided.total()} | {contrary} | {first} | {agree} |"


def warned(groups: Sequence[ConditionGroup]) -> str:
    """Return how many cells have a warning that is shown."""
    shown = [
        (group.name, slug)
        for group in groups
        for slug, results in group.checks.items()
        if any(r.level is not Level.PASS and r.tier is not Tier.LIST for r in results)
    ]
    return f"{len(shown)} of {sum(len(group.cells) for group in groups)} cells have a warning"


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--resamples", type=int, default=20)
    arguments = parser.parse_args()
    studies = [
        list(cell_results(read_study(study, study.history()), {}))
        for study in sorted(all_studies(arguments.folder), key=lambda study: study.name)
    ]
    runs: dict[Place, list[CellResult]] = defaultdict(list)
    for cell in (cell for cells in studies for cell in cells if cell.record):
        if cell.cell is not None:
            runs[place_of(cell.cell)].append(cell)
    random = Random(1)
    answers = [answer_of(cells) for cells in studies]
    print(
        "| studies | number | decided | contrary | first | agree |\n|---|" + 5 * "---:|"
    )
    print(line_of("as they are", answers))
    asked = [answer.runs for answer in answers if answer.runs]
    for number in sorted({*asked}):
        drawn = [
            answer_of(list(resampled(runs, number, random)))
            for _ in range(arguments.resamples)
        ]
        title = f"with {number} repeats, for which {asked.count(number)} ask"
        print(line_of(title, drawn), flush=True)
    print(warned([group for cells in studies for group in checked_groups(cells)]))


if __name__ == "__main__":
    main()
