"""Hints of `status` on what to type next."""

import pytest

from hpml_jobs.cli.hints import hints_for
from hpml_jobs.core.cell import Outcome
from hpml_jobs.study.snapshot import CellState


@pytest.mark.parametrize(
    "done, minutes", [(None, 40), (0.0, 40), (0.5, 50), (0.8, 32), (1.0, 25)]
)
def test_time_limit_is_what_the_rest_takes(done, minutes):
    state = CellState(slug="a", outcome=Outcome.TIMEOUT, minutes=20.0, done=done)
    (hint,) = hints_for([state], "demo", {})
    assert hint.endswith(f"hpml-jobs resubmit demo --timeout --minutes {minutes}")


def test_cell_out_of_memory_names_the_option_and_the_key():
    state = CellState(slug="a", outcome=Outcome.OOM, mem_gb=1.0)
    assert hints_for([state], "demo", {}) == [
        "1 cell ran out of the memory of a node (new cells: cluster.mem_gb_per_gpu=GB):\n"
        "hpml-jobs resubmit demo --oom --mem 2"
    ]
