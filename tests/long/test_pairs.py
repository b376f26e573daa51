"""What a replay says of an epoch without a cause is what the study without it takes."""

from typing import Any, NamedTuple

import pytest

from hpml_jobs.core.measurements import Role
from hpml_jobs.report.report import make_report
from hpml_jobs.results.gap.causes import GapCause
from hpml_jobs.results.gap.replay import read_run, without_causes
from hpml_jobs.study.snapshot import read_snapshots
from tests.conftest import Program
from tests.unit.worker.injections import (
    ON_LINK,
    InjectedStudy,
    needs_link,
    python_after,
)

pytestmark = [pytest.mark.long, needs_link]

SLEEPS = {"forward": 100, "width": 400}
"""An iteration sleeps for 100 ms; it sends 1.3 MB of gradients."""

LINK = ON_LINK.format(rate="200mbit")
NO_LINK = "exec"
WITHIN = 0.08


class Pair(NamedTuple):
    """A study with causes, and the same one without each set of them."""

    sleeps: dict[str, Any]
    without: dict[tuple[GapCause, ...], dict[str, Any]]
    gpus: int = 2
    link: bool = False
    loader_workers: int = 0


PAIRS = {
    "prefetching loader and exchange": Pair(
        {"item": 40},
        {(GapCause.EXCHANGE,): {"item": 40}, (GapCause.LOADER,): {}},
        link=True,
        loader_workers=1,
    ),
    "two causes side by side": Pair(
        {"0": {"item": 12}, "1": {"forward": 196}},
        {
            (GapCause.LOADER,): {"1": {"forward": 196}},
            (GapCause.WAITING,): {"0": {"item": 12}},
            (GapCause.LOADER, GapCause.WAITING): {},
        },
    ),
    "two of four late": Pair(
        {"1": {"forward": 250}, "2": {"forward": 250}},
        {(GapCause.WAITING,): {}},
        gpus=4,
    ),
    "link of known speed": Pair({}, {(GapCause.EXCHANGE,): {}}, link=True),
}


def measured_s(
    program: Program, name: str, pair: Pair, sleeps: dict[str, Any], *, link: bool
):
    """Run the study; return its cell, and the seconds of its timed epoch.

    Without a slow link they are of the epoch without exchange: a fast link takes its time as well.
    """
    python = python_after(program.folder, LINK if link else NO_LINK)
    injected = InjectedStudy(
        Program(program.folder, program.environment, python),
        name,
        SLEEPS | sleeps,
        gpus=str(pair.gpus),
        loader_workers=str(pair.loader_workers),
        **{"workload.lr": "0.001"},
    )
    snapshots = read_snapshots(injected.study.cells())
    (group,) = make_report(name, snapshots, states=()).sources
    (result,) = group.cells
    unsynced_s = max(rank.epoch(Role.UNSYNCED).epoch_s for rank in result.record.ranks)
    return result, unsynced_s if pair.link and not link else result.record.timed_s


@pytest.mark.parametrize("name", PAIRS)
def test_epoch_without_a_cause_is_that_of_the_study_without_it(name, program, capsys):
    pair = PAIRS[name]
    result, epoch_s = measured_s(program, "whole", pair, pair.sleeps, link=pair.link)
    shares = without_causes(read_run(result))
    for number, (causes, sleeps) in enumerate(pair.without.items()):
        link = pair.link and GapCause.EXCHANGE not in causes
        _, without_s = measured_s(program, f"without{number}", pair, sleeps, link=link)
        said_s = shares[frozenset(causes)] * epoch_s
        with capsys.disabled():
            print(
                f"\n{name}: {epoch_s:.2f} s; without {' and '.join(causes)} {said_s:.2f} s, "
                f"measured {without_s:.2f} s ({100 * (said_s / without_s - 1):+.1f} %)"
            )
        assert said_s == pytest.approx(without_s, rel=WITHIN)
