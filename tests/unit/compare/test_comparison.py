"""The rules of compare as golden cases: faster, slower, no difference, too few runs, unlike."""

import pytest
from msgspec.structs import replace

from hpml_jobs.compare.comparison import make_comparison
from hpml_jobs.compare.reference import reference_of
from hpml_jobs.core.cell import Outcome
from hpml_jobs.core.check_result import Affected, CheckResult, Level
from hpml_jobs.results.decision import Decision
from hpml_jobs.study.snapshot import read_snapshots
from tests.unit.builders import V100, a_cell, a_record, texts_by_label
from tests.unit.check_cases import (
    change_scheduling,
)
from tests.unit.study_builder import StudyBuilder

OLD = (8.00, 8.10, 8.05, 8.08)
SLOWER = (8.60, 8.70, 8.65, 8.68)
FASTER = (7.40, 7.50, 7.45, 7.48)
SAME = (8.02, 8.12, 8.04, 8.06)
SCATTERED = (8.0, 9.0, 7.6, 8.6)
SCATTERED_FASTER = (5.0, 6.0, 5.5, 5.2)


@pytest.fixture
def studies(tmp_path, given_checks):
    """An old and a new study to fill; no check is made."""
    return StudyBuilder(tmp_path / "before"), StudyBuilder(tmp_path / "after")


def add_runs(
    builder, *epochs_s, gpus=2, change=lambda record: record, facts=V100, **cell
):
    for repeat, epoch_s in enumerate(epochs_s):
        of = a_cell(**({"gpus": gpus, "batch": 64, "repeat": repeat} | cell))
        record = a_record(of, f"1{gpus}{repeat}_0.r0", epoch_s, facts=facts)
        builder.with_record(change(record))


def numbers(builder):
    return reference_of(builder.study.name, read_snapshots(builder.study.cells()))


def compared(studies, limit=None):
    return make_comparison(*map(numbers, studies), limit)


def only_cell(compared):
    (group,) = compared.comparison.groups
    (cell,) = group.cells
    return cell


@pytest.mark.parametrize(
    ("new", "decision", "answer"),
    [
        (
            SLOWER,
            Decision.SLOWER,
            "slower in 1 row (2 GPUs, batch 64: +7.4 % [6.2, 8.7]).",
        ),
        (
            FASTER,
            Decision.FASTER,
            "faster in 1 row (2 GPUs, batch 64: -7.4 % [-8.6, -6.2]).",
        ),
        (
            SAME,
            Decision.SAME,
            "no significant difference in 1 row (2 GPUs, batch 64: 0 % [-0.99, 1.5]).",
        ),
        (
            tuple(1.012 * time_s for time_s in (8.10, 8.11, 8.12, 8.13)),
            Decision.BELOW_GAP,
            "less than 2 % apart in 1 row (2 GPUs, batch 64: +1.8 % [1.2, 2.8]).",
        ),
        (
            SLOWER[:3],
            Decision.TOO_FEW,
            "too few runs to tell in 1 row (2 GPUs, batch 64: +7.3 %).",
        ),
    ],
)
def test_runs_of_one_cell_decide(new, decision, answer, studies):
    add_runs(studies[0], *OLD)
    add_runs(studies[1], *new)
    text = compared(studies)
    assert only_cell(text).decision == decision
    assert text.answer == f"after (B) compared with before (A): {answer}"


def test_unlike_hardware_is_shown_and_marked(studies):
    other = replace(V100, gpu_model="NVIDIA A100-SXM4-80GB", torch="2.8.0")
    add_runs(studies[0], *OLD)
    add_runs(studies[1], *FASTER, facts=other)
    text = compared(studies)
    assert text.answer.startswith("On different hardware (GPU model): after (B) ")
    assert text.tables[0].notes == (
        "different (A | B): GPU model: Tesla V100-SXM2-16GB | NVIDIA A100-SXM4-80GB; torch: "
        "2.7.1+cu126 | 2.8.0",
    )


def test_cell_under_two_conditions_meets_the_similar_one(studies):
    """The old study has the cell on two kinds of GPUs; the new one on one of them."""
    a100 = replace(V100, gpu_model="NVIDIA A100-SXM4-80GB")
    add_runs(studies[0], *(t / 2 for t in OLD), facts=a100, gpu_type="a100")
    add_runs(studies[0], *OLD, gpu_type="v100")
    add_runs(studies[1], *SLOWER, gpu_type="v100")
    text = compared(studies)
    assert text.answer.endswith(
        "slower in 1 row (2 GPUs, batch 64: +7.4 % [6.2, 8.7])."
    )


def test_disturbed_run_is_left_out_and_said(studies):
    add_runs(studies[0], *OLD)
    add_runs(studies[1], *SAME)
    disturbed = change_scheduling("timed", continued_s=(2.0,))
    add_runs(studies[1], 20.0, repeat=7, change=disturbed)
    text = compared(studies)
    cell = only_cell(text)
    assert (cell.decision, len(cell.new.runs), cell.new.left_out) == (
        Decision.SAME,
        4,
        1,
    )
    assert (
        "1 run in B not used, because the timed epoch was disturbed: 2 GPUs, batch 64"
        in text.tables[0].notes
    )


def test_failed_check_decides_nothing(studies, given_checks):
    add_runs(studies[0], *OLD)
    add_runs(studies[1], *SLOWER)
    slug = studies[1].slug
    given_checks[slug] = (
        CheckResult(
            check="closure",
            level=Level.FAIL,
            reason="it does not",
            affects=(Affected.TIME,),
        ),
    )
    text = compared(studies, limit=0.05)
    cell = only_cell(text)
    assert cell.decision is None
    assert text.answer.endswith(
        ": doubtful, a check failed in 1 row (2 GPUs, batch 64: !+7.4 % [6.2, 8.7])."
    )
    assert text.failure == (
        "a data-quality check failed, measure again: 2 GPUs, batch 64"
    )
    texts = texts_by_label(text.tables[0])["2 GPUs, batch 64"]
    assert texts[0] == "!8.065"
    assert all(text.startswith("!") for text in texts[:3])  # A, B and the change


def test_cell_out_of_memory_is_not_compared(studies):
    for builder in studies:
        add_runs(builder, *OLD)
    add_runs(studies[0], *OLD, batch=512)
    studies[1].with_out_of_memory(a_cell(gpus=2, batch=512), V100)
    text = compared(studies, limit=0.05)
    assert "not compared, out of memory in B: 2 GPUs, batch 512" in text.tables[0].notes
    assert text.failure == "out of memory in B: 2 GPUs, batch 512"


def test_only_cell_without_a_number_is_said(studies):
    add_runs(studies[0], *OLD)
    add_runs(studies[1], *OLD, batch=128)
    studies[1].with_cell(a_cell(gpus=2, batch=64), Outcome.FAILED)
    text = compared(studies, limit=0.05)
    assert text.answer.endswith(": no cell has a number in both.")
    assert text.only == ["only in B: digits, 2 GPUs, batch 128"]
    assert text.failure == "no number in B: 2 GPUs, batch 64"


@pytest.mark.parametrize(
    ("new", "limit", "failure"),
    [
        (
            SLOWER,
            0.05,
            "slower by more than 5 %: 2 GPUs, batch 64: +7.4 % [6.2, 8.7]",
        ),
        (SLOWER, 0.1, ""),
        (FASTER, 0.05, ""),
        (SAME, 0.05, ""),
        (
            SCATTERED,
            0.05,
            "more repeats are needed to rule out slower by more than 5 %: "
            "2 GPUs, batch 64: +3.1 % [-6.2, 12.5]",
        ),
        (SCATTERED_FASTER, 0.05, ""),
        (
            SLOWER[:3],
            0.05,
            "too few runs to tell, submit both studies again with repeats=4: "
            "2 GPUs, batch 64",
        ),
    ],
)
def test_limit_is_decided_by_the_runs(new, limit, failure, studies):
    add_runs(studies[0], *OLD)
    add_runs(studies[1], *new)
    text = compared(studies, limit)
    assert text.failure == failure
    assert text.document["passes"] is not bool(failure)
