"""Command choose with a paragraph for a proposal, and the paragraph on a page."""

import json
from pathlib import Path

import pytest
from msgspec.structs import replace

from hpml_jobs.cli.main import run
from hpml_jobs.core.built_in import Unit
from hpml_jobs.core.cell import Protocol
from hpml_jobs.core.measurements import Role
from hpml_jobs.core.strategies import Strategy
from hpml_jobs.extras.proposal.page import below_answer
from hpml_jobs.extras.proposal.paragraph import paragraph
from hpml_jobs.report.page.formats import Paragraph, Quote
from tests.unit.builders import DIGITS, a_cell, a_record, lab_cell, lab_record
from tests.unit.check_cases import change_scheduling
from tests.unit.golden.studies import measured
from tests.unit.study_builder import StudyBuilder


def measure(cells, change=lambda record: record):
    """Make the study `proposed` of GPUs, batch, strategy, repeat and seconds."""
    builder = StudyBuilder(Path("outputs") / "proposed")
    for gpus, batch, strategy, repeat, epoch_s in cells:
        cell = a_cell(gpus=gpus, batch=batch, strategy=strategy, repeat=repeat)
        measured(builder, cell, epoch_s, change)


def proposal_of(capsys, *words):
    """The paragraph of the study `proposed`, or why there is none, and the exit code."""
    code = run(["choose", "proposed", "epochs=90", "runs=5", *words])
    printed = capsys.readouterr()
    starts = ("Evidence", "Preliminary")
    lines = printed.out.splitlines()
    first = next(
        (n for n, line in enumerate(lines) if line.startswith(starts)), len(lines)
    )
    return " ".join(" ".join(lines[first:]).split()) + printed.err.strip(), code


SINGLE, DDP, ALLREDUCE = Strategy.SINGLE, Strategy.DDP, Strategy.ALLREDUCE
THREE = range(3)
SIZES = ((1, SINGLE, 20), (2, DDP, 11), (4, DDP, 6))
WEAK = [(gpus, 64, how, repeat, s) for gpus, how, s in SIZES for repeat in THREE]


def on_slurm(record):
    slurm = {"CLUSTER_NAME": "torch", "JOB_PARTITION": "h200", "MEM_PER_NODE": "65536"}
    slurm = {f"SLURM_{name}": value for name, value in slurm.items()}
    ranks = tuple(replace(rank, peak_memory_bytes=8 * 10**9) for rank in record.ranks)
    return replace(record, facts=replace(record.facts, slurm=slurm), ranks=ranks)


def test_proposal_requests_a_total_on_a_machine_at_one_batch_and_strategy(
    laptop, capsys
):
    measure([*WEAK, (1, 128, SINGLE, 0, 19.0), (2, 64, ALLREDUCE, 0, 10.5)], on_slurm)
    text, code = proposal_of(capsys)
    assert code == 0
    assert text.startswith(
        "Evidence of weak scaling (batch 64 per GPU, ddp), measured with"
    )
    assert "On 1 GPU at batch 64 per GPU, the smallest size measured" in text
    assert (
        "speedup 3.33 [3.33, 3.33] (75 % interval from 3 runs), parallel efficiency 83.3 %"
        in text
    )
    assert "batch 128 per GPU" not in text
    assert "(allreduce)" not in text
    assert (
        "We request 3.00 GPU-hours (5 runs x 90 epochs x 0.00667 GPU-hours), with 4 GPUs"
        in text
    )
    assert "1 node, 4 GPUs per node (" in text
    assert "cluster torch, partition h200, 68.7 GB requested per node" in text
    assert "peak memory 8.00 GB per GPU" in text
    assert text.endswith("Median of 3 runs.")


def test_proposal_says_strong_where_the_global_batch_is_kept(laptop, capsys):
    times = ((1, 256, SINGLE, 20), (2, 128, DDP, 11), (4, 64, DDP, 6))
    measure([(g, b, how, r, s) for g, b, how, s in times for r in THREE])
    text, _ = proposal_of(capsys)
    assert text.startswith("Evidence of strong scaling (global batch 256, ddp)")
    assert "equal epochs" not in text


def test_proposal_from_one_run_is_written_only_on_request(laptop, capsys):
    measure(WEAK[::3])
    text, code = proposal_of(capsys)
    assert code == 1
    assert text.startswith(
        "hpml-jobs: no proposal from one run of 1 GPU, batch 64; 2 GPUs, batch 64 (ddp); "
    )
    assert "repeats=3, or add --preliminary to choose epochs=90 runs=10" in text
    text, code = proposal_of(capsys, "--preliminary")
    assert (
        code,
        text.startswith("Preliminary: one run. Evidence of weak scaling"),
    ) == (
        0,
        True,
    )


@pytest.mark.whole
def test_proposal_of_imported_times_does_not_say_that_they_were_measured_here(
    laptop, capsys
):
    rows = [
        "run,gpus,batch,epoch_s,images",
        *(f"{g}-{r},{g},64,{s},50000" for g, _, s in SIZES for r in THREE),
    ]
    Path("table.csv").write_text("\n".join(rows) + "\n")
    assert run(["import", "table.csv", "study=proposed"]) == 0
    capsys.readouterr()
    text, code = proposal_of(capsys)
    assert code == 0
    assert text.startswith("Evidence of weak scaling (batch 64 per GPU, ddp): ")
    assert "measured with hpml_jobs" not in text


def test_proposal_of_one_size_says_what_to_measure(laptop, capsys):
    measure(WEAK[:3])
    text, code = proposal_of(capsys)
    assert (code, text) == (
        1,
        "hpml-jobs: no proposal from one size: measure another one at the batch and strategy of "
        "1 GPU, batch 64",
    )


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["runs=5"], "runs= are of whole trainings: add epochs=N"),
        (
            ["epochs=5", "--preliminary"],
            "--preliminary is of a proposal: add epochs=90 runs=10",
        ),
        (["epochs=5", "run=5"], "did you mean runs=?"),
    ],
)
def test_bad_words_are_refused(words, message, laptop, capsys):
    measure(WEAK)
    assert run(["choose", "proposed", *words]) == 2
    assert message in capsys.readouterr().err


def test_json_has_the_paragraph_or_null(laptop, capsys):
    measure(WEAK)
    paragraphs = []
    for words in ((), ("epochs=90", "runs=5")):
        assert run(["choose", "proposed", "--json", *words]) == 0
        (group,) = json.loads(capsys.readouterr().out)["groups"]
        paragraphs.append(group["proposal"])
    assert paragraphs[0] is None
    assert paragraphs[1].startswith("Evidence of weak scaling")


def items_of(builder):
    """The items below the answer of the first group of a study's page."""
    group = builder.collect().groups[0]
    return [*below_answer("mine", group.source, group.choice)]


def test_page_says_why_it_has_no_proposal_from_single_runs(builder):
    builder.with_published_study()
    (reason,) = items_of(builder)
    assert reason.text.startswith("No proposal from one run of 1 GPU, batch 512; ")
    assert reason.text.endswith("or add --preliminary to choose epochs=90 runs=10")


def test_page_quotes_the_paragraph_and_says_how_to_add_a_total(builder):
    for gpus, batch, strategy, repeat, epoch_s in WEAK:
        cell = a_cell(gpus=gpus, batch=batch, strategy=strategy, repeat=repeat)
        measured(builder, cell, epoch_s)
    quote, total = items_of(builder)
    assert (type(quote), type(total)) == (Quote, Paragraph)
    assert "We request 4 GPUs per job at batch 64 per GPU" in quote.text
    assert total.text.endswith("hpml-jobs choose mine epochs=90 runs=10")


def test_warning_of_the_reference_makes_the_paragraph_preliminary(builder):
    disturb = change_scheduling(Role.TIMED, stolen_s=8.0)
    builder.with_record(disturb(lab_record(lab_cell(1, 128), 30.0)))
    builder.with_record(lab_record(lab_cell(2, 128), 16.0))
    builder.with_record(lab_record(lab_cell(4, 128), 14.0))
    group = builder.collect().groups[0]
    check = "the data-quality check disturbed warns for 1 GPU, batch 128: "
    text = paragraph(group.source, group.choice)
    assert text.startswith(f"Preliminary: one run; {check}")
    assert "speedup !1.88" in text
    assert "parallel efficiency !93.8 %" in text


def test_rates_of_text_are_in_tokens(builder):
    workload = replace(DIGITS, unit=Unit.TOKENS, context=128, images=8_192)
    for gpus, epoch_s in ((1, 16.0), (4, 5.0)):
        cell = a_cell(gpus=gpus, batch=32, workload=workload, protocol=Protocol.LAB)
        builder.with_record(a_record(cell, epoch_s=epoch_s))
    group = builder.collect().groups[0]
    assert "(!65,536 tokens/s)" in paragraph(group.source, group.choice)
