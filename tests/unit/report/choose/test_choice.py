"""The rules of choose as golden cases: which cell to ask for, and why not another one."""

import pytest
from hpml_jobs.report.choose.cost import Exclusion
from msgspec.structs import replace

from hpml_jobs.core.check_result import CheckResult, Level
from hpml_jobs.core.script import Script
from hpml_jobs.core.strategies import Device, Strategy
from hpml_jobs.core.training_path import TrainingPath
from tests.unit.builders import a_cell, a_record
from tests.unit.check_cases import change_messages
from tests.unit.report.choose.made_choice import made_choice as chosen

pytestmark = pytest.mark.usefixtures("no_checks")


def place(candidate):
    return (candidate.row.gpus, candidate.row.batch_per_gpu) if candidate else None


def places(made):
    """Places of the cell to ask for, the fastest and the cheapest."""
    choice = made.choice
    winners = (choice.ask, choice.fastest)
    return (
        *(place(w.candidate) if w else None for w in winners),
        place(choice.cheapest),
    )


def why_of(made, gpus, batch):
    return next(
        cell["why"]
        for cell in made.cells
        if (cell["gpus"], cell["batch"]) == (gpus, batch)
    )


def add_runs(builder, gpus, *epochs_s, batch=128, **changes):
    for repeat, epoch_s in enumerate(epochs_s):
        cell = a_cell(gpus=gpus, batch=batch, repeat=repeat, **changes)
        builder.with_record(a_record(cell, f"1{gpus}{repeat}_0.r0", epoch_s))


@pytest.mark.parametrize(
    ("limit", "asked"), [(0.4, (4, 512)), (0.7, (2, 512)), (0.9, (1, 512)), (1.1, None)]
)
def test_least_efficiency_decides_how_many_gpus(limit, asked, builder):
    made = chosen(builder.with_published_study(), min_efficiency=limit)
    assert places(made)[0] == asked
    if asked is None:
        assert made.table.answer == (
            "No cell can be recommended: the best efficiency is 100 %, below 110 %."
        )


def test_budget_takes_the_fastest_within_it(builder):
    """90 epochs: one GPU costs 0.649 GPU-hours, two 0.783, four 1.51."""
    builder.with_published_study()
    assert places(chosen(builder, epochs=90, gpu_hours=2))[0] == (4, 512)
    made = chosen(builder, epochs=90, gpu_hours=1)
    assert places(made)[0] == (2, 512)
    assert ". 90 epochs take 23.5 min and cost 0.783 GPU-hours." in made.table.answer
    assert why_of(made, 4, 512) == "fastest; needs 1.51 of 1 GPU-hours"
    none = chosen(builder, epochs=90, gpu_hours=0.5)
    assert places(none)[0] is None
    assert none.table.answer == (
        "No cell can be recommended: no cell meets the budget of 0.5 GPU-hours; the nearest is 1 "
        "GPU at batch 512 per GPU: 90 epochs take 38.9 min and cost 0.649 GPU-hours."
    )


def test_tie_goes_to_the_cheaper_cell(builder):
    """Four GPUs are not faster than two by the runs: two are named as the fastest."""
    add_runs(builder, 1, 8.0, 8.1, 8.0, 8.1)
    add_runs(builder, 2, 4.5, 4.6, 4.4, 4.5)
    add_runs(builder, 4, 4.4, 4.6, 4.3, 4.5)
    made = chosen(builder)
    assert places(made)[:2] == ((2, 128), (2, 128))
    assert made.choice.fastest.is_decided
    assert "fastest, as fast as ddp 4-GPU b128 and cheaper" in why_of(made, 2, 128)


def test_few_runs_compare_medians_and_say_so(builder):
    add_runs(builder, 1, 8.0)
    add_runs(builder, 4, 2.40)
    add_runs(builder, 2, 2.43)
    made = chosen(builder)
    assert places(made)[1] == (2, 128)
    assert not made.choice.fastest.is_decided
    assert made.table.answer.startswith(
        "Not decided yet: 2 GPUs or 4 GPUs, batch 128 per GPU."
    )
    assert "6 runs of each setting would decide (repeats=6)." in made.table.answer


def test_efficiency_says_what_it_is_against(builder):
    """Unless that is the single GPU at the same batch."""
    add_runs(builder, 2, 8.0)
    add_runs(builder, 4, 5.0)
    made = chosen(builder)
    assert "here 80 % (against 2 GPUs)." in made.table.answer
    assert "effic. (against 2 GPUs)" in [block.head for block in made.table.blocks]
    sheet = made.table.sheet
    row = dict(zip(sheet.columns, sheet.rows[0], strict=True))
    assert (row["reference_gpus"], row["reference_batch"]) == (2, 128)
    add_runs(builder, 1, 15.0, batch=64)
    assert "here 75 % (against batch 64)." in chosen(builder).table.answer


def test_failed_baseline_stays_the_reference(builder, given_checks):
    """Against a larger cell, or itself, the efficiency of an answer looks better than it is."""
    for gpus, epoch_s in ((1, 8.0), (2, 4.4), (4, 2.4)):
        add_runs(builder, gpus, epoch_s)
    slug = a_cell(gpus=1, batch=128).slug
    given_checks[slug] = (
        CheckResult(check="efficiency", level=Level.FAIL, reason="wrong"),
    )
    made = chosen(builder)
    assert place(made.choice.reference) == (1, 128)
    assert made.table.answer.startswith(
        "Not reliable yet (a check failed for 1 GPU): use 4 GPUs"
    )
    assert "here !83.3 % (speedup" in made.table.answer
    assert not any("no cell on 1 GPU" in note for note in made.table.notes)


@pytest.mark.parametrize(
    ("four_s", "clause"),
    [
        (
            (2.9, 2.8, 3.0, 2.95),
            "4 GPUs have an efficiency of 68.8 %, between 67.1 % and 71.9 % by these runs, and the "
            "limit is 70 %: 39 runs of each",
        ),
        (
            (2.8, 2.7, 2.9, 2.85),
            "4 GPUs have an efficiency of 71.2 %, between 69.4 % and 74.5 % by these runs, and the "
            "limit is 70 %: 40 runs of each",
        ),
        ((2.4, 2.5, 2.4, 2.5), ""),
        ((4.0, 4.1, 4.0, 4.1), ""),
    ],
)
def test_efficiency_near_the_limit_is_called_not_decided(four_s, clause, builder):
    add_runs(builder, 1, 8.0, 8.1, 8.0, 8.1)
    add_runs(builder, 2, 4.5, 4.6, 4.4, 4.5)
    add_runs(builder, 4, *four_s)
    answer = chosen(builder).table.answer
    assert ("Not decided yet" in answer) == bool(clause)
    assert clause in answer
    assert "Not decided yet" not in chosen(builder, epochs=90, gpu_hours=1).table.answer


def test_an_efficiency_at_the_limit_is_too_close_to_decide(builder):
    add_runs(builder, 1, 8.0, 8.1, 8.0, 8.1)
    add_runs(builder, 4, 2.87, 2.88, 2.87, 2.88)
    answer = chosen(builder).table.answer
    assert answer.startswith("Too close to decide: 4 GPUs or 1 GPU")
    assert answer.endswith(
        "the limit is 70 %: even 50 runs of each setting would not decide."
    )


def test_equal_cells_of_one_size_are_not_called_different(builder):
    """By their runs; the one with ddp is named, although the other's median is less."""
    add_runs(builder, 1, 8.0, 8.1, 8.0, 8.1)
    add_runs(builder, 2, 4.5, 4.6, 4.4, 4.5)
    add_runs(builder, 2, 4.4, 4.5, 4.3, 4.5, strategy=Strategy.ALLREDUCE)
    add_runs(builder, 2, 4.9, 5.0, 4.9, 5.0, batch=64)
    made = chosen(builder)
    assert made.choice.ask.candidate.row.strategy is Strategy.DDP
    why = {cell["strategy"]: cell["why"] for cell in made.cells if cell["batch"] == 128}
    assert why["allreduce"] == "not told apart from ddp 2-GPU b128"
    assert "not told apart from allreduce 2-GPU b128" in why["ddp"]
    assert why_of(made, 2, 64) == "slower and costs more"


@pytest.mark.parametrize(
    ("is_disturbed", "asked"), [(True, Strategy.DDP), (False, Strategy.DP)]
)
def test_doubtful_single_runs_do_not_prefer_another_strategy(
    is_disturbed, asked, builder, given_checks
):
    add_runs(builder, 1, 8.0)
    add_runs(builder, 2, 4.6)
    add_runs(builder, 2, 4.4, strategy=Strategy.DP)
    if is_disturbed:
        warning = CheckResult(check="disturbed", level=Level.WARN, reason="others")
        given_checks[a_cell(gpus=2, batch=128, strategy=Strategy.DP).slug] = (warning,)
    assert chosen(builder).choice.ask.candidate.row.strategy is asked


@pytest.mark.parametrize("batch", ["batch=128", "global_batch=256"])
def test_cell_at_the_edge_names_the_next_command(builder, batch):
    """The largest size is efficient: the next one is worth a run, with the study's other keys."""
    add_runs(builder, 1, 8.0)
    add_runs(builder, 2, 4.2)
    command = f"hpml-jobs -m gpus=1,2 {batch} workload=digits study=lab-greene-v100"
    made = chosen(builder, commands=("hpml-jobs gpus=1", command))
    assert made.next_cells == (
        "not measured, worth a run: 4 GPUs at batch 128 (2 is the most measured):\n"
        "hpml-jobs gpus=4 batch=128 workload=digits study=lab-greene-v100",
        "not measured, worth a run: 2 GPUs at batch 256 (128 is the only batch measured):\n"
        "hpml-jobs gpus=2 batch=256 workload=digits study=lab-greene-v100",
    )
    add_runs(builder, 4, 4.1)
    add_runs(builder, 2, 4.1, batch=256)
    add_runs(builder, 2, 4.3, batch=512)
    assert not any("worth a run" in line for line in chosen(builder).next_cells)


def test_command_of_a_grid_that_accumulates_has_one_cell(builder):
    """The block's global batch and its other numbers of accumulated batches are replaced."""
    for batch, accumulate, epoch_s in ((128, 1, 8.0), (64, 2, 7.0)):
        for gpus in (1, 2):
            path = TrainingPath(accumulate=accumulate)
            add_runs(builder, gpus, epoch_s / gpus, batch=batch, path=path)
    made = chosen(
        builder, commands=("hpml-jobs grid=accumulate gpus=1,2 global_batch=256",)
    )
    assert made.next_cells[0].endswith(
        "hpml-jobs gpus=4 batch=64 strategy=ddp accumulate=2 grid=accumulate"
    )


def test_script_without_batch_in_its_arguments_has_no_other_batch(builder):
    script = Script(path="train.py", args="--n 4")
    add_runs(builder, 1, 8.0, script=script)
    add_runs(builder, 2, 4.2, script=script)
    commands = (
        "hpml-jobs gpus=1,2 script=train.py 'args=--n 4'",
        "hpml-jobs script=train.py",
    )
    assert chosen(builder, commands=commands).next_cells == (
        "not measured, worth a run: 4 GPUs at batch 128 (2 is the most measured):\n"
        "hpml-jobs gpus=4 batch=128 script=train.py 'args=--n 4'",
    )


def test_processes_beyond_the_cpus_are_not_suggested(builder):
    facts = replace(a_record(a_cell()).facts, cpu_count=2)
    for gpus, epoch_s in ((1, 8.0), (2, 4.2)):
        strategy = Strategy.SINGLE if gpus == 1 else Strategy.DDP
        cell = a_cell(gpus=gpus, device=Device.CPU, strategy=strategy)
        builder.with_record(a_record(cell, f"1{gpus}_0.r0", epoch_s, facts=facts))
    assert [edge.gpus for edge in chosen(builder).choice.edges] == [2]


def test_batch_at_the_edge_is_worth_a_run_unless_memory_ended(builder):
    for batch, epoch_s in ((32, 9.0), (128, 8.0)):
        add_runs(builder, 1, epoch_s, batch=batch)
        add_runs(builder, 4, 0.6 * epoch_s, batch=batch)
    (line,) = chosen(builder, min_efficiency=0.9).next_cells
    assert "1 GPU at batch 512 (128 is the largest batch measured)" in line
    builder.with_out_of_memory(a_cell(gpus=1, batch=512))
    assert chosen(builder, min_efficiency=0.9).next_cells == ()


def test_cell_with_a_failed_check_never_wins(builder, monkeypatch):
    monkeypatch.undo()  # real checks
    builder.with_record(a_record(a_cell(gpus=1, batch=32), epoch_s=8.0))
    fast = a_record(a_cell(gpus=4, batch=32), "102_0.r0", epoch_s=4.0)
    builder.with_record(change_messages(count=1)(fast))
    made = chosen(builder)
    excluded = {place(c): c.exclusion for c in made.choice.candidates}
    assert excluded[4, 32] in (Exclusion.INEFFICIENT, Exclusion.FAILED_CHECK)
