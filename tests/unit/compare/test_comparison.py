"""The rules of compare as golden cases: faster, slower, no difference, too few runs, unlike."""

import pytest
from msgspec.structs import replace

from hpml_jobs.compare.document import make_comparison
from hpml_jobs.compare.reference import reference_of
from hpml_jobs.core.cell import Outcome, Protocol
from hpml_jobs.core.check_result import Affected, CheckResult, Level
from hpml_jobs.core.errors import HpmlError
from hpml_jobs.core.strategies import Device
from hpml_jobs.results.decision import Decision
from hpml_jobs.study.snapshot import read_snapshots
from tests.unit.builders import RESNET, V100, a_cell, a_record, texts_by_label
from tests.unit.check_cases import (
    change_epoch,
    change_every_rank,
    change_scheduling,
    device_snapshot,
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


@pytest.mark.parametrize(
    ("new", "decision", "answer"),
    [
        (
            SLOWER,
            Decision.SLOWER,
            "after is 7.4 % [6.2, 8.7] slower than before on 2 GPUs, batch 64 (ddp).",
        ),
        (
            FASTER,
            Decision.FASTER,
            "after is 7.4 % [6.2, 8.6] faster than before on 2 GPUs, batch 64 (ddp).",
        ),
        (
            SAME,
            Decision.SAME,
            "after and before: no difference seen on 2 GPUs, batch 64 (ddp) (0 % [-0.99, 1.5]).",
        ),
        (
            tuple(1.012 * time_s for time_s in (8.10, 8.11, 8.12, 8.13)),
            Decision.BELOW_GAP,
            "after and before: less than 2 % apart on 2 GPUs, batch 64 (ddp) (+1.8 % [1.2, 2.8]).",
        ),
        (
            SLOWER[:3],
            Decision.TOO_FEW,
            "too few runs to tell after and before apart on 2 GPUs, batch 64 (ddp) (4 and 3 runs; "
            "4 in each study are needed).",
        ),
    ],
)
def test_runs_of_one_cell_decide(new, decision, answer, studies):
    add_runs(studies[0], *OLD)
    add_runs(studies[1], *new)
    text = compared(studies)
    assert [cell.decision for cell in text.comparison.cells] == [decision]
    assert text.answer == answer


def test_slower_cell_says_which_part_became_slower(studies):
    """Waiting for data takes 0.9 s more; computation is as it was."""

    def stalled(record):
        stall_s = record.ranks[0].timed.stall_s + 0.9
        return change_epoch("timed", stall_s=stall_s)(record)

    add_runs(studies[0], *OLD)
    add_runs(studies[1], *SLOWER, change=stalled)
    note = next(
        n for n in compared(studies).groups[0].table.notes if n.startswith("slower: ")
    )
    assert note.startswith(
        "slower: 2 GPUs, batch 64 (ddp): epoch +0.600 s; waiting for data +0.912 s, "
    )


def test_too_few_runs_say_how_many_show_5_percent(studies):
    add_runs(studies[0], 8.0, 8.3, 8.1)
    add_runs(studies[1], 8.2, 8.0, 8.4)
    text = compared(studies)
    (cell,) = text.comparison.cells
    assert (cell.decision, cell.smallest_difference) == (Decision.TOO_FEW, None)
    assert text.groups[0].table.notes[0] == (
        "too few runs to tell: 2 GPUs, batch 64 (ddp): submit both studies again with repeats=6, "
        "which shows 4.3 % (scatter 2.2 %)"
    )


def test_undecided_cell_says_what_it_could_show(studies):
    add_runs(studies[0], 8.0, 9.0, 8.2, 8.6)
    add_runs(studies[1], 8.1, 8.9, 8.3, 8.5)
    text = compared(studies)
    (cell,) = text.comparison.cells
    assert cell.decision is Decision.SAME
    assert cell.smallest_difference == pytest.approx(0.14, abs=0.03)
    assert any(
        "these runs cannot show a change of 5 %: 2 GPUs, batch 64 (ddp): " in n
        for n in text.groups[0].table.notes
    )


def test_unlike_hardware_is_shown_and_marked(studies):
    other = replace(V100, gpu_model="NVIDIA A100-SXM4-80GB", torch="2.8.0")
    add_runs(studies[0], *OLD)
    add_runs(studies[1], *FASTER, facts=other)
    text = compared(studies)
    assert text.answer.startswith("On different hardware (GPU model): after is 7.4 %")
    assert text.groups[0].conditions == (
        "different hardware (A | B): GPU model: Tesla V100-SXM2-16GB | NVIDIA A100-SXM4-80GB",
        "different software (A | B): torch: 2.7.1+cu126 | 2.8.0",
        "GPU clocks are not recorded for all cells",
    )


def test_other_clocks_are_unlike_hardware(studies):
    def at(mhz):
        return change_every_rank(cards=(device_snapshot(0, sm_clock_mhz=mhz),))

    add_runs(studies[0], *OLD, change=at(1980))
    add_runs(studies[1], *SLOWER, change=at(1410))
    text = compared(studies)
    assert text.answer.startswith("On different hardware (SM clock): ")
    assert text.groups[0].conditions == (
        "different SM clock, MHz (A | B): 2 GPUs, batch 64 (ddp): 1980 | 1410",
    )


def test_other_settings_are_compared_and_listed(studies):
    add_runs(studies[0], *OLD, device=Device.CPU)
    add_runs(studies[1], *SLOWER, device=Device.CPU, loader_workers=0)
    assert compared(studies).groups[0].conditions == (
        "different settings (A | B): DataLoader workers per process: 2 | 0",
    )


def test_other_days_are_said(studies):
    def later(record):
        attempt = replace(record.attempt, ended="2026-11-22T10:00:00+00:00")
        return replace(record, attempt=attempt)

    add_runs(studies[0], *OLD, device=Device.CPU)
    add_runs(studies[1], *OLD, device=Device.CPU, change=later)
    assert compared(studies).groups[0].conditions == (
        "the same hardware, software and settings",
        "measured on different days (A | B): 2026-10-01 | 2026-11-22",
    )


def test_cell_under_two_conditions_meets_the_similar_one(studies):
    """The old study has the cell on two kinds of GPUs; the new one on one of them."""
    a100 = replace(V100, gpu_model="NVIDIA A100-SXM4-80GB")
    add_runs(studies[0], *(t / 2 for t in OLD), facts=a100, gpu_type="a100")
    add_runs(studies[0], *OLD, gpu_type="v100")
    add_runs(studies[1], *SLOWER, gpu_type="v100")
    text = compared(studies)
    assert text.answer.startswith("after is 7.4 % [6.2, 8.7] slower than before")


def test_disturbed_run_is_left_out_and_said(studies):
    add_runs(studies[0], *OLD)
    add_runs(studies[1], *SAME)
    disturbed = change_scheduling("timed", continued_s=(2.0,))
    add_runs(studies[1], 20.0, repeat=7, change=disturbed)
    text = compared(studies)
    (cell,) = text.comparison.cells
    assert (cell.decision, len(cell.new.runs), cell.new.left_out) == (
        Decision.SAME,
        4,
        1,
    )
    assert (
        "2 GPUs, batch 64 (ddp): 1 of 5 runs in B not used, because the timed epoch was disturbed"
        in text.groups[0].table.notes
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
    (cell,) = text.comparison.cells
    assert cell.decision is None
    assert text.answer == (
        "after and before cannot be compared: a data-quality check failed for 2 GPUs, "
        "batch 64 (ddp)."
    )
    assert text.failure == (
        "a data-quality check failed: 2 GPUs, batch 64 (ddp): measure these again"
    )
    texts = texts_by_label(text.groups[0].table)["ddp 2-GPU b64"]
    assert texts[0] == "!8.065"
    assert all(text.startswith("!") for text in texts[:3])  # A, B and the change


def test_cell_out_of_memory_is_not_compared(studies):
    for builder in studies:
        add_runs(builder, *OLD)
    add_runs(studies[0], *OLD, batch=512)
    studies[1].with_out_of_memory(a_cell(gpus=2, batch=512), V100)
    text = compared(studies, limit=0.05)
    assert text.answer.endswith("; 1 shared cell has no number.")
    assert (
        "not compared: 2 GPUs, batch 512 (ddp): out of memory in B"
        in text.groups[0].table.notes
    )
    assert text.failure == "not measured in B: 2 GPUs, batch 512 (ddp): out of memory"


def test_only_cell_without_a_number_is_said(studies):
    add_runs(studies[0], *OLD)
    add_runs(studies[1], *OLD, batch=128)
    studies[1].with_cell(a_cell(gpus=2, batch=64), Outcome.FAILED)
    text = compared(studies, limit=0.05)
    assert text.answer == (
        "after compared with before: no cell has a number in both; 1 cell is in only one of the "
        "studies; 1 "
        "shared cell has no number."
    )
    assert text.failure == "not measured in B: 2 GPUs, batch 64 (ddp): no number"


@pytest.mark.parametrize(
    ("again", "limit", "passes"),
    [(1.0, 0.05, False), (1.03, 0.06, False), (1.05, 0.1, True)],
)
def test_limit_is_at_least_twice_the_drift_of_equal_code(
    again, limit, passes, studies, tmp_path
):
    """B is slower by 7.4 %."""
    third = StudyBuilder(tmp_path / "again")
    for builder, epochs_s in zip(
        (*studies, third), (OLD, SLOWER, [again * s for s in OLD]), strict=True
    ):
        add_runs(builder, *epochs_s)
    text = make_comparison(*map(numbers, studies), 0.05, numbers(third))
    assert text.limit == pytest.approx(limit)
    assert (not text.failure) is passes
    assert (
        "Between A and its second submission a cell changed by up to"
        in text.same_machine
    )
    assert (
        "The machine may have changed between A and B."
        in compared(studies).same_machine
    )


def test_drift_study_of_other_conditions_is_refused(studies, tmp_path):
    third = StudyBuilder(tmp_path / "again")
    for builder in (*studies, third):
        facts = replace(V100, torch="2.0") if builder is third else V100
        add_runs(builder, *OLD, facts=facts)
    with pytest.raises(
        HpmlError, match="--drift again is not before measured again: torch"
    ):
        make_comparison(*map(numbers, studies), 0.05, numbers(third))


@pytest.mark.parametrize(
    ("new", "limit", "failure"),
    [
        (
            SLOWER,
            0.05,
            "slower by more than 5 %: 2 GPUs, batch 64 (ddp): +7.4 % [6.2, 8.7]",
        ),
        (SLOWER, 0.1, ""),
        (FASTER, 0.05, ""),
        (SAME, 0.05, ""),
        (
            SCATTERED,
            0.05,
            "the runs scatter too much to show 5 %: 2 GPUs, batch 64 (ddp): the note below "
            "the table says how many runs show it",
        ),
        (SCATTERED_FASTER, 0.05, ""),
        (
            SLOWER[:3],
            0.05,
            "too few runs to tell: 2 GPUs, batch 64 (ddp): submit both studies again "
            "with repeats=4",
        ),
    ],
)
def test_limit_is_decided_by_the_runs(new, limit, failure, studies):
    add_runs(studies[0], *OLD)
    add_runs(studies[1], *new)
    text = compared(studies, limit)
    assert text.failure == failure
    assert text.document["passes"] is not bool(failure)


def test_several_workloads_are_compared_each(studies):
    for builder, times_s in zip(studies, (OLD, SLOWER), strict=True):
        add_runs(builder, *times_s)
        add_runs(builder, *OLD, workload=RESNET, protocol=Protocol.LAB)
    text = compared(studies)
    assert len(text.groups) == 2
    assert text.answer.startswith(
        "after compared with before: 1 of 2 shared cells is slower"
    )


def test_single_runs_say_that_4_are_needed(studies):
    for builder in studies:
        add_runs(builder, 8.0)
    assert (
        compared(studies)
        .groups[0]
        .table.notes[0]
        .endswith(
            "too few runs to tell: 2 GPUs, batch 64 (ddp): submit both studies again "
            "with repeats=4"
        )
    )
