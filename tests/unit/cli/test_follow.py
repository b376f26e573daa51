"""The log of a running cell, printed as it grows."""

import pytest

from hpml_jobs.cli.status import follow
from hpml_jobs.core.cell import Outcome
from hpml_jobs.status.states import cell_states
from tests.unit.slurm_output import squeue_line
from tests.unit.study_builder import StudyBuilder


@pytest.fixture
def builder(slurm, working_folder):
    """Two cells of an array: one failed, one without a result."""
    study = StudyBuilder(working_folder / "outputs" / "mine").with_batches(64, 256)
    study.sent_as("17_0", "17_3")
    study.end_attempt(64, "17_0", Outcome.FAILED, "rank 1: no")
    return study


def test_follow_prints_log_tail_then_new_lines_until_job_end(slurm, builder):
    builder.begin_attempt(256, "17_3")
    slurm.set_output("squeue", squeue_line("17_3", "RUNNING", node="gr001"))
    (state,) = [s for s in cell_states(builder.study) if s.outcome is Outcome.RUNNING]
    log = builder.study.cell(state.slug).attempt("17_3.r0").log_of(0)
    log.write_text("one\ntwo\nthree\n")
    texts = follow(builder.study, state, 2)
    assert next(texts) == "two\nthree\n"
    with log.open("a") as opened:
        opened.write("four\n")
    assert next(texts) == "four\n"
    builder.end_attempt(256, "17_3", Outcome.FAILED, "no")
    assert "".join(texts) == ""
