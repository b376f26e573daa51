"""Answers to the lab's questions as golden sentences of the published study, and their limits."""

import msgspec
import pytest

from hpml_jobs.core.cell import Outcome, Protocol
from hpml_jobs.core.check_result import Affected, CheckResult, Level
from hpml_jobs.core.measurements import Imported
from hpml_jobs.core.recipe import Recipe
from hpml_jobs.core.strategies import SyncBuffers
from hpml_jobs.extras.course.questions import TIMES_ONLY, answers, section
from tests.unit.builders import RESNET, lab_cell, lab_record

pytestmark = pytest.mark.usefixtures("no_checks")


def answers_of(builder):
    """The answers of the study's first group, by question."""
    source = builder.collect().groups[0].source
    return {answer.question: answer for answer in answers(source)}


def test_published_study_answers_time_and_communication(builder):
    by_question = answers_of(builder.with_published_study(stall_s=0.4))
    assert list(by_question) == [
        "Q1",
        "Q2",
        "Q3.1",
        "Q3.2",
        "Q4.1",
        "Q4.2",
        "Q5",
        "Q6",
        "Q7",
    ]
    assert by_question["Q1"].text == (
        "One epoch on one GPU takes 48.21 s at batch 32, 26.82 s at batch 128, 25.55 s at batch "
        "512 (without data loading, with copies to the device, gradients and update). From batch "
        "32 to 512 the time becomes 1.87 times shorter, with 98 instead of 1,563 iterations; a "
        "sample takes 0.519 instead of 0.972 ms. No batch up to 512 ran out of "
        "memory; grid=ladder measures which batch does."
    )
    assert by_question["Q2"].text == (
        "Speedup over one GPU at the same batch per GPU, ddp: 2 GPUs: 1.58 at batch 32 (30.82 s), "
        "1.30 at batch 128 (20.92 s), 1.66 at batch 512 (15.66 s); 4 GPUs: 1.58 at batch 32 (30.82 "
        "s), 1.37 at batch 128 (19.88 s), 1.72 at batch 512 (15.13 s). With a fixed batch per GPU "
        "the global batch grows with the number of GPUs: this is weak scaling. Strong scaling, "
        "with a fixed global batch, looks worse: 4 GPUs, batch 128 (ddp) has a speedup of 1.37 at "
        "the same batch per GPU, and of 1.31 at the same global batch of 512 (19.88 s against "
        "25.95 s of 1 GPU, batch 512). It is lower in 2 of 2 pairs of cells."
    )
    assert (
        "2 GPUs, batch 32 (ddp): 27.88 + 2.478; 2 GPUs, batch 128 (ddp): 18.92 + 1.682"
        in by_question["Q3.1"].text
    )
    assert "S = 44,695,848 bytes of gradients" in by_question["Q3.2"].text
    assert "4 GPUs, batch 512 (ddp): 1.23 GB/s" in by_question["Q3.2"].text
    assert by_question["Q6"].text.startswith("Are gradients the only messages? ddp: no")


def test_answers_name_tables_and_cells(builder):
    by_question = answers_of(builder.with_published_study())
    assert by_question["Q1"].evidence == (
        "Table Q1; cells 1 GPU, batch 32; 1 GPU, batch 128; 1 GPU, batch 512"
    )
    assert by_question["Q2"].evidence.startswith(
        "Table 1 of ddp, table Scaling; cells 2 GPUs"
    )


def test_out_of_memory_is_the_limit_of_q1(builder):
    builder.with_published_study().with_out_of_memory(lab_cell(1, 2048))
    assert answers_of(builder)["Q1"].text.endswith(
        "Batch 2048 does not fit into the memory of one GPU; the largest batch that was measured "
        "is 512."
    )


def test_lab_protocol_answers_with_the_residual(builder):
    for gpus, epoch_s in ((1, 27.2), (2, 20.9)):
        cell = lab_cell(gpus, 128, protocol=Protocol.LAB)
        builder.with_record(lab_record(cell, epoch_s))
    answer = answers_of(builder)["Q3.1"]
    assert not answer.is_answered
    assert "needs an instrumented epoch (protocol=full)" in answer.text
    assert "residual estimate" in answer.text
    assert "2 GPUs, batch 128 (ddp): 13.60 + 7.300" in answer.text
    assert answers_of(builder)["Q3.2"].text == (
        "Not measured: needs an instrumented epoch (protocol=full)."
    )


def test_question_says_what_became_of_its_cells(builder):
    """They were submitted with what the question needs: that is no remedy."""
    builder.with_record(lab_record(lab_cell(1, 128), 27.2))
    for gpus in (2, 4):
        builder.with_out_of_memory(lab_cell(gpus, 128))
    items = section(builder.collect())[1][0].answers
    by_question = {answer.question: answer.text for answer in items}
    became = "its cells were submitted; 2 of 2 ended with OOM"
    status = f"(hpml-jobs status {builder.study.name})"
    for question in ("Q2", "Q3.1", "Q3.2", "Q6"):
        assert by_question[question] == f"Not measured: {became} {status}.", question
    assert "protocol=full" not in " ".join(by_question.values())
    builder.with_cell(lab_cell(8, 128), Outcome.FAILED)
    text = answers_of(builder)["Q2"].text
    assert "2 of 3 ended with OOM and 1 of 3 failed" in text


def test_study_without_single_gpu_cells_says_what_is_needed(builder):
    builder.with_record(lab_record(lab_cell(4, 128), 19.9))
    by_question = answers_of(builder)
    needed = "needs single-GPU cells (gpus=1 batch=32,128,512)"
    assert by_question["Q1"].text == f"Not measured: {needed}."
    assert not by_question["Q2"].is_answered


def test_strong_scaling_without_a_pair_names_the_cell(builder):
    for gpus, epoch_s in ((1, 27.2), (2, 20.9)):
        builder.with_record(lab_record(lab_cell(gpus, 128), epoch_s))
    assert answers_of(builder)["Q2"].text.endswith("for example gpus=1 batch=256.")


@pytest.mark.parametrize(
    ("affected", "questions"),
    [
        (Affected.TIME, ("Q1", "Q2")),
        (Affected.SPLIT, ("Q3.1",)),
        (Affected.BANDWIDTH, ("Q3.2",)),
        (Affected.LEARNING, ("Q7",)),
    ],
)
def test_what_was_measured_and_failed_a_check_is_not_missing(
    builder, given_checks, affected, questions
):
    builder.with_published_study()
    failed = CheckResult(check="x", level=Level.FAIL, reason="x", affects=(affected,))
    given_checks.update({cell.slug: (failed,) for cell in builder.cells})
    by_question = answers_of(builder)
    for question in questions:
        answer = by_question[question]
        assert "check failed for every cell" in answer.text and not answer.is_answered
        assert "Not measured" not in answer.text and "needs" not in answer.text
        assert answer.evidence.startswith("Table ")


def test_wrong_numbers_are_left_out_and_doubtful_ones_named(builder, given_checks):
    builder.with_published_study()
    slugs = {(cell.gpus, cell.batch): cell.slug for cell in builder.cells}
    for place, level in {(1, 32): Level.FAIL, (1, 128): Level.WARN}.items():
        given_checks[slugs[place]] = (
            CheckResult(
                check="bytes", level=level, reason="x", affects=(Affected.TIME,)
            ),
        )
    by_question = answers_of(builder)
    assert "at batch 32" not in by_question["Q1"].text
    assert "batch 32 (" not in by_question["Q2"].text
    assert by_question["Q1"].doubt == (
        "1 cell left out, because a check failed; a check warns of 1 cell: see What to trust."
    )


def with_epochs(builder, **changes):
    """A large cell on four GPUs, and batch 128 on one, of five epochs."""
    builder.with_record(
        lab_record(lab_cell(4, 512, epochs=5, evaluate=True, **changes), 15.0)
    )
    builder.with_record(lab_record(lab_cell(1, 128, epochs=5, evaluate=True), 27.0))
    return builder


def test_q4_compares_the_fifth_epoch(builder):
    answer = answers_of(with_epochs(builder))["Q4.1"]
    assert answer.text == (
        "In the 5th epoch, training loss 1.3000 of 4 GPUs, batch 512 (ddp) against 1.3000 of 1 "
        "GPU, batch 128 (single seed, not comparable), training accuracy 60.00 % of 4 GPUs, batch "
        "512 (ddp) against 60.00 % of 1 GPU, batch 128 (single seed, not comparable)."
    )


def test_q4_remedies_compare_with_the_plain_cell(builder):
    with_epochs(builder)
    recipe = Recipe(name="scaled", scaled=True)
    builder.with_record(
        lab_record(lab_cell(4, 512, epochs=5, evaluate=True, recipe=recipe), 15.0)
    )
    text = answers_of(builder)["Q4.2"].text
    assert "recipe=scaled" in text
    assert "without the recipe 60.00 %" in text


def test_q5_and_q7_use_the_cells_that_leave_something_out(builder):
    builder.with_record(lab_record(lab_cell(4, 512), 15.0))
    builder.with_record(lab_record(lab_cell(4, 512, set_epoch=False), 15.0))
    builder.with_record(
        lab_record(lab_cell(4, 512, sync_buffers=SyncBuffers.OFF), 15.0)
    )
    by_question = answers_of(builder)
    assert "1 of 3 orders of a rank, with it 3 of 3" in by_question["Q5"].text
    assert (
        by_question["Q5"].evidence
        == "Table Shuffling; cells 4 GPUs, batch 512 (ddp, no set_epoch)"
    )
    assert by_question["Q7"].text.startswith(
        "They keep parameters equal, but not BatchNorm's"
    )


def test_imported_times_answer_only_what_they_can(builder):
    for gpus, epoch_s in ((1, 27.2), (2, 20.9)):
        cell = lab_cell(gpus, 128, protocol=Protocol.IMPORTED, epochs=1)
        imported = Imported(file="them.csv", line=gpus, epoch_s=epoch_s)
        whole = lab_record(cell, epoch_s)
        bare = {
            "model": None,
            "facts": None,
            "ranks": (),
            "exchange": None,
            "microbenchmark": None,
        }
        builder.with_record(msgspec.structs.replace(whole, imported=imported, **bare))
    by_question = answers_of(builder)
    assert by_question["Q1"].text.startswith(
        "One epoch on one GPU takes 27.20 s at batch 128 (data loading included"
    )
    assert "the imported file does not report it" in by_question["Q3.1"].text
    for question in ("Q3.2", "Q4.1", "Q4.2", "Q5", "Q6", "Q7"):
        assert by_question[question].text == TIMES_ONLY


def test_answers_of_two_groups_are_under_what_differs(builder):
    """The group that answers most questions is the first; its empty answers have no place."""
    workload = msgspec.structs.replace(RESNET, limit=1_024, images=1_024)
    builder.with_published_study(stall_s=0.4)
    builder.with_record(lab_record(lab_cell(1, 32, workload=workload), 1.0))
    _, (shown,), summary = section(builder.collect())
    titles = [answer.title for answer in shown.answers if answer.question == "Q1"]
    assert len(titles) == 2
    assert "50000" in titles[0]
    assert "1024" in titles[1]
    (q2,) = (answer for answer in shown.answers if answer.question == "Q2")
    assert q2.is_answered
    (q5,) = (answer for answer in shown.answers if answer.question == "Q5")
    assert q5.title == "Shuffling and set_epoch"
    assert summary.startswith("Q1 to Q7: ")


def test_answer_on_messages_covers_every_treatment(builder):
    builder.with_record(lab_record(lab_cell(2, 128), 20.0))
    off = lab_record(lab_cell(2, 128, sync_buffers=SyncBuffers.OFF), 20.0)
    builder.with_record(off)
    assert "ddp (buffers off): " in answers_of(builder)["Q6"].text
