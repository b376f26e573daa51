"""Errors of predictions on measured studies: each cell is predicted from the others.

    python tests/benchmarks/left_out.py STUDY_FOLDER …

Folders with studies of the same cells are pooled: a cell is the median of all its runs. Prints a
Markdown table for each way of leaving out, with the error of no change per GPU beside the model's.
"""

import argparse
from collections.abc import Iterable, Iterator
from pathlib import Path

from hpml_jobs.core.record import Record
from hpml_jobs.predict.model import HOW, Axis, LeftOut, errors_of, left_out
from hpml_jobs.predict.place import Observation, Place, observation, place_of, series_of, singles_of
from hpml_jobs.predict.splits import Splits
from hpml_jobs.report.predict.rules import usable_records
from hpml_jobs.report.report import make_report
from hpml_jobs.study.snapshot import read_snapshots
from hpml_jobs.study.study import Study


def pooled(folders: Iterable[Path]) -> list[Observation]:
    """Return one observation of each place, from the runs of all studies that count."""
    runs: dict[Place, list[Record]] = {}
    for folder in folders:
        study = Study(folder)
        for group in make_report(study.name, read_snapshots(study.cells()), ()).groups:
            for records in usable_records(group.source):
                runs.setdefault(place_of(records[0].cell), []).extend(records)
    made = (observation(records) for records in runs.values())
    return [item for item in made if item is not None]


def points(observations: list[Observation]) -> Iterator[tuple[Axis, list[LeftOut]]]:
    """Yield the cells of all series that can be left out, by the way of leaving out."""
    for axis in HOW:
        made: list[LeftOut] = []
        for kind, series in series_of(observations).items():
            cells = [*singles_of(observations, kind.path), *series]
            _, pairs = next(Splits(cells).trials(axis))
            made += left_out(pairs)
        if made:
            yield axis, made


def table(made: list[LeftOut]) -> str:
    """Return a Markdown table of the cells with their errors, and one of the errors together."""
    lines = ["| cell | runs | ms | model (%) | no change (%) |", "|:--|--:|--:|--:|--:|"]
    for point in made:
        cell = point.observation
        micro_steps = f" accumulate {cell.accumulate}" if cell.accumulate > 1 else ""
        errors = (100 * (t / cell.step_s - 1) for t in (point.model_s, point.null_s))
        lines.append(
            f"| {cell.strategy.value} {cell.gpus} b{cell.batch}{micro_steps} | {cell.runs} | "
            f"{1e3 * cell.step_s:.1f} | {' | '.join(f'{error:+.1f}' for error in errors)} |"
        )
    lines += ["", "| errors | cells | mean | p90 | worst |", "|:--|--:|--:|--:|--:|"]
    for name, errors_ in (
        ("model", [p.model_error for p in made]),
        ("no change", [p.null_error for p in made]),
    ):
        of = errors_of(errors_)
        figures = " | ".join(f"{100 * figure:.1f}" for figure in (of.mean, of.p90, of.worst))
        lines.append(f"| {name} | {len(made)} | {figures} |")
    return "\n".join(lines)


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("folders", nargs="+", type=Path)
    for axis, made in points(pooled(parser.parse_args().folders)):
        print(f"{HOW[axis]}\n\n{table(made)}\n")


if __name__ == "__main__":
    main()
