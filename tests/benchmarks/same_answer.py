"""Whether the intervals of equal studies hold what all of them measure together.

    python tests/benchmarks/same_answer.py FOLDER

FOLDER has equal studies of the same cells. A line per study: its first sentence, and whether the
interval of its largest speedup holds the median of that speedup over all studies.
"""

import argparse
from pathlib import Path
from statistics import median

from hpml_jobs.report.answer import answer_of
from hpml_jobs.report.report import ReportGroup, make_report
from hpml_jobs.study.selection import all_studies
from hpml_jobs.study.snapshot import read_snapshots


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    folder = parser.parse_args().folder
    groups: dict[str, ReportGroup] = {}
    sentences = {}
    for study in sorted(all_studies(folder), key=lambda study: study.name):
        report = make_report(study.name, read_snapshots(study.cells()), ())
        (groups[study.name],) = report.groups
        sentences[study.name] = answer_of(report, groups[study.name]).sentence
    sizes = {
        name: g.source.series.largest for name, g in groups.items() if g.source.series
    }
    middle = median(size.speedup for size in sizes.values())
    held = 0
    for name, sentence in sentences.items():
        interval = sizes[name].interval if name in sizes else None
        holds = interval is not None and interval.low <= middle <= interval.high
        held += holds
        print(f"{'holds' if holds else 'MISSES'}  {name}: {sentence}")
    print(f"{held} of {len(sentences)} intervals hold the median {middle:.3g}")


if __name__ == "__main__":
    main()
