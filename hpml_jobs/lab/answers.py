"""The answer to each question of the lab in a sentence or two, from the numbers of its table."""

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from hpml_jobs.core.check_result import Affected
from hpml_jobs.core.text import listed, percent_text
from hpml_jobs.core.value import by_key
from hpml_jobs.report.answer import answer_of, gain, how_sure
from hpml_jobs.report.communication import messages_by_setup
from hpml_jobs.report.frame import captions
from hpml_jobs.report.frame.numbers import (
    DASH,
    OOM,
    count,
    percent,
    seconds,
    three_digits,
)
from hpml_jobs.report.frame.table import Table, row_name
from hpml_jobs.report.report import Report, ReportGroup
from hpml_jobs.results.groups import ConditionGroup
from hpml_jobs.results.rows import Row


class LabBlock(NamedTuple):
    """What a question is answered from: a group of a report, and the tables of the question.

    `rows`: of the cells that the question needs those with the most GPUs at the largest batch,
    after the row there that has no treatment.
    """

    report: Report
    group: ReportGroup
    rows: Sequence[Row]
    tables: Sequence[Table]

    @property
    def source(self) -> ConditionGroup:
        """The group's cells and rows."""
        return self.group.source

    @property
    def largest(self) -> Row:
        """The largest size of the group's answer."""
        series = self.source.series
        return series.largest.parallel if series else self.rows[-1]

    def place(self, row: Row) -> str:
        """Return `2 GPUs at batch 64`."""
        return f"{captions.size_words(row.setup, self.source.device)} at batch {row.batch_per_gpu}"

    def texts(self, rows: Sequence[Row]) -> Iterator[tuple[Row, dict[str, str]]]:
        """Yield the rows that the table has with their texts, by the heads of its columns."""
        table = self.tables[0]
        heads = [column.head for column in table.columns]
        lines = {line.label: line.texts for line in table.lines}
        for row in rows:
            if texts := lines.get(row_name(self.source, row)):
                yield row, dict(zip(heads, texts, strict=True))


class LabAnswer(NamedTuple):
    """A text, and the rows of the table that are shown; empty: all.

    Without a text, the question is not measured.
    """

    text: str = ""
    rows: Sequence[Row] = ()


def time_by_batch(block: LabBlock) -> LabAnswer:
    """Return the time of an epoch on one GPU by batch, and the batches out of memory (Q1)."""
    texts = [
        f"{'does not fit (OOM)' if line.texts[0] == OOM else f'{line.texts[0]} s'} at batch "
        f"{line.label}"
        for line in block.tables[0].lines
        if line.texts[0] != DASH
    ]
    if not texts:
        return LabAnswer()
    return LabAnswer(
        f"Without data loading, an epoch on {captions.size(1, block.source.device)} takes "
        f"{listed(texts)}."
    )


def scaling(block: LabBlock) -> LabAnswer:
    """Return the speedups at the same batch per GPU, and at the same global batch (Q2)."""
    source = block.source
    series = source.series
    if series is None or series.is_global:
        return LabAnswer()
    needed = f"needs gpus=1 batch={block.largest.global_batch}, too"
    strong = [
        f"at global batch {pair.parallel.global_batch}, {block.place(pair.parallel)}: "
        f"{captions.mark(three_digits(pair.speedup), is_doubtful=pair.is_doubtful)} times as fast "
        f"as {block.place(pair.reference)}{gain(pair)} ({how_sure(pair.interval, pair)})"
        for pair in source.pairs
        if pair.parallel in source.plain_rows
    ]
    answer = answer_of(block.report, block.group)
    return LabAnswer(
        f"Weak scaling, with the same batch per {captions.unit(source.device)}: {answer.sentence}\n"
        f"{answer.batch}\n{answer.why}\nStrong scaling {'; '.join(strong) or needed}."
    )


def communication(block: LabBlock) -> LabAnswer:
    """Return the seconds and shares of computation and communication in an epoch (Q3.1)."""
    row = block.largest
    compute_s, comm_s = row.figures.compute_s, row.figures.comm_s
    if compute_s is None or comm_s is None:
        return LabAnswer()
    return LabAnswer(
        f"In an epoch with each part timed, on {block.place(row)}, "
        f"{captions.shown(seconds(compute_s), row, Affected.SPLIT)} s are computation and "
        f"{captions.shown(seconds(comm_s), row, Affected.SPLIT)} s "
        f"({percent_text(comm_s / (compute_s + comm_s), 0)} of their sum) communication that is "
        "not overlapped with it, waiting included."
    )


def bandwidth(block: LabBlock) -> LabAnswer:
    """Return the bandwidth of the gradients in GB/s and % of the best one alone (Q3.2)."""
    row = block.largest
    reached = row.bandwidth
    if reached is None or reached.lab_gb_per_s is None:
        return LabAnswer()
    speed = captions.shown(three_digits(reached.lab_gb_per_s), row, Affected.BANDWIDTH)
    of_peak = ""
    if reached.of_peak:
        peak = three_digits(reached.lab_gb_per_s / reached.of_peak)
        share = captions.shown(percent(reached.of_peak), row, Affected.BANDWIDTH)
        of_peak = f", {share} % of the peak of {peak} GB/s"
    return LabAnswer(
        f"On {block.place(row)} gradients are exchanged at {speed} GB/s{of_peak}."
    )


def large_batch(block: LabBlock) -> LabAnswer:
    """Return loss and accuracy of the largest batch against those on one GPU (Q4.1)."""
    single = [row for row in block.source.timed if row.is_baseline]
    rows = (*single[:1], *block.rows)
    texts = [
        f"{block.place(row)} (global batch {row.global_batch}): training loss "
        f"{texts['training loss']}, test accuracy {texts.get('test acc., %', DASH)} %"
        for row, texts in block.texts(rows[:2])
    ]
    return LabAnswer(
        f"After the last epoch: {'; '.join(texts)}. With one seed, or few, it may be chance.\n"
        "lr scaled: learning rate x global batch / 128. Warm-up N: lr rises to this in N epochs.",
        rows,
    )


def remedies(block: LabBlock) -> LabAnswer:
    """Return the accuracy with each recipe for large batches, and without one (Q4.2)."""
    texts = [
        f"{texts.get('test acc., %', DASH)} %{captions.how(row.setup) or ' (no remedy)'}"
        for row, texts in block.texts(block.rows)
    ]
    return LabAnswer(
        f"Test accuracy on {block.place(block.rows[0])}: {listed(texts)}. Small "
        "differences may be chance."
    )


def shuffling(block: LabBlock) -> LabAnswer:
    """Return the orders of the samples with and without set_epoch (Q5)."""
    texts = [
        f"{texts['different orders']} "
        f"{'with' if texts['set_epoch'] == 'yes' else 'without'} set_epoch (test accuracy "
        f"{texts['test acc., %']} %)"
        for _, texts in block.texts(block.rows)
    ]
    return LabAnswer(
        f"Different orders of the {block.source.a_cell.workload.samples_name} in the epochs of a "
        f"process: {listed(texts)}. With 1 all epochs have the same order.",
        block.rows,
    )


def messages(block: LabBlock) -> LabAnswer:
    """Return what is sent in each iteration, gradients and others (Q6)."""
    row = block.largest
    sent = Counter[str]()
    for message in messages_by_setup(block.source).get(row.setup, []):
        sent[message.purpose] += round(message.bytes_per_iteration)
    if not sent:
        return LabAnswer()
    texts = [f"{count(number)} bytes of {purpose}" for purpose, number in sent.items()]
    are_all = "Yes" if sent.keys() == {"gradients"} else "No"
    return LabAnswer(
        f"{are_all}: an iteration sends {listed(texts)} ({block.place(row)})."
    )


def replicas(block: LabBlock) -> LabAnswer:
    """Return whether replicas are equal, and the range of their accuracies (Q7)."""
    texts = "; ".join(
        f"{row.treatment or row.strategy.value}: parameters {texts['parameters']}, buffers "
        f"{texts['buffers']}, test accuracy {texts['lowest..highest']} %"
        for row, texts in block.texts(block.rows)
    )
    enough = {
        what: "no" if f"{what} differ" in texts else "yes"
        for what in ("parameters", "buffers")
    }
    return LabAnswer(
        f"For parameters {enough['parameters']}, for buffers {enough['buffers']}. On "
        f"{block.place(block.rows[0])}: {texts}. Buffers are BatchNorm's statistics, "
        "which only the test uses. ddp copies those of process 0 to all before each forward pass, "
        "in which each process changes its own, so they differ after it. Buffers off: no copy.",
        block.rows,
    )


def quantization(block: LabBlock) -> LabAnswer:
    """Return the accuracy of each network as trained and quantized (part B)."""
    networks = by_key(
        (line.label, f"{reached} % {quantized}")
        for line in block.tables[0].lines
        for quantized, bound, scales, reached, *_ in [line.texts]
        if quantized == "fp32" or (bound, scales) == ("range", "layer")
    )
    texts = [f"{name} {listed(parts)}" for name, parts in networks.items()]
    return LabAnswer(
        f"Test accuracy, scale by a layer's range: {'; '.join(texts)}. Small differences may be "
        "chance."
    )
