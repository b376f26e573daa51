"""Measured Tables 2 and 3: what each strategy shows, and what is said where nothing is measured."""

import pytest
from msgspec.structs import replace

from hpml_jobs.core.cell import Protocol
from hpml_jobs.core.measurements import Communication, Message, Role
from hpml_jobs.core.script import Script
from hpml_jobs.core.source import Imported
from hpml_jobs.core.strategies import Strategy
from hpml_jobs.results.figures import figures_of, medians, peak_of
from tests.unit.builders import (
    a_cell,
    a_record,
    lab_cell,
    lab_record,
    texts_by_label,
)
from tests.unit.check_cases import (
    change_epoch,
    change_every_rank,
    change_facts,
    noisy,
)

GRADIENT_BYTES = 44_695_848


def two_gpu_entry(builder, strategy):
    """2 GPUs at batch 128: an epoch of 20 s in 196 iterations, a baseline of 30 s beside it."""
    builder.with_record(lab_record(lab_cell(1, 128), 30.0))
    builder.with_record(lab_record(lab_cell(2, 128, strategy=strategy), 20.0))
    (row,) = (e for e in builder.collect().groups[0].source.rows if e.gpus == 2)
    return row


@pytest.mark.parametrize(
    "strategy", [Strategy.DDP, Strategy.ALLREDUCE, Strategy.ALLREDUCE_FLAT]
)
def test_bus_bandwidth_is_gradient_bytes_over_collective_time(builder, strategy):
    row = two_gpu_entry(builder, strategy)
    share = 0.09 if strategy is Strategy.DDP else 0.10
    net_s = share * 1.005 * 19.999  # rank 1 has 1 ms less
    sent = 196 * GRADIENT_BYTES
    assert row.bandwidth.sent_bytes == row.bandwidth.expected_bytes == sent
    assert row.bandwidth.bus_gb_per_s == pytest.approx(1.0 * sent / net_s / 1e9)
    assert row.bandwidth.algorithm_gb_per_s == pytest.approx(sent / net_s / 1e9)


def test_gather_scatter_shows_root_bandwidth_and_caption(builder):
    row = two_gpu_entry(builder, Strategy.GATHER_SCATTER)
    sent = 2 * 196 * GRADIENT_BYTES
    assert row.bandwidth.bus_gb_per_s is None
    assert row.bandwidth.expected_bytes == row.bandwidth.sent_bytes == sent
    root_s = 0.10 * 1.005 * 20.0
    assert row.bandwidth.root_wire_gb_per_s == pytest.approx(sent / root_s / 1e9)
    table = builder.table("table3-gather_scatter")
    assert table.corner == "Table 3 (GB/s, root's wire)"
    assert texts_by_label(table)["2-GPU"] == ("8.72",)  # 17.5208 GB / 2.0099 s
    assert "not a bus bandwidth" in table.caption[0]


def test_dp_shows_nominal_ring_bandwidth_and_actual_bytes(builder):
    whole = lab_record(lab_cell(4, 128, strategy=Strategy.DP), 20.0)
    reduce = Message(
        kind="reduce",
        purpose="gradients",
        dtype="float32",
        elements=GRADIENT_BYTES // 4,
        bytes=GRADIENT_BYTES,
        count=3 * 98,
        busy_s=2.0,
    )
    talk = Communication(total_s=5.0, gradients_s=2.0, messages=(reduce,))
    builder.with_record(change_every_rank(communication=talk)(whole))
    (row,) = builder.collect().groups[0].source.rows
    assert row.bandwidth.sent_bytes == 294 * GRADIENT_BYTES
    assert row.bandwidth.expected_bytes is None
    assert row.bandwidth.algorithm_gb_per_s == pytest.approx(
        294 * GRADIENT_BYTES / 2.0 / 1e9
    )
    assert row.bandwidth.nominal_gb_per_s == pytest.approx(
        1.5 * 98 * GRADIENT_BYTES / 2e9
    )
    assert row.bandwidth.bus_gb_per_s is None
    assert texts_by_label(builder.table("table3-dp"))["4-GPU"] == ("3.29",)


def test_mixed_study_shows_dash_with_reason(builder):
    builder.with_published_study(but=((4, 32),))
    builder.with_record(lab_record(lab_cell(4, 32, protocol=Protocol.LAB), 30.8))
    table = builder.table("table2-ddp")
    assert texts_by_label(table)["4-GPU"][:2] == ("–", "–")
    assert texts_by_label(table)["2-GPU"][:2] == ("27.88", "2.478")
    assert table.notes == (
        "not measured: protocol=lab ends before the instrumented epoch (protocol=full measures "
        "it): 4 GPUs at batch 32",
    )
    assert texts_by_label(builder.table("table2r-ddp"))["4-GPU"][0] != "–"


def test_medians_skip_unknown_values(builder):
    full = lab_record(lab_cell(2, 128), 20.0)
    lab = lab_record(lab_cell(2, 128, protocol=Protocol.LAB, repeat=1), 10.0)
    merged = medians([figures_of(full), figures_of(lab)])
    assert merged.epoch_s == 15.0
    assert merged.compute_s == figures_of(full).compute_s


def test_peak_bandwidth_uses_large_messages_only(builder):
    probe = lab_record(lab_cell(2, 128), 20.0).microbenchmark
    fast = replace(probe.points[0], bytes=2**20, median_s=1e-6)
    large = [point for point in probe.points if point.bytes >= 2**26]
    speed, size = peak_of(replace(probe, points=(fast, *large)), 2)
    assert size == 2**28
    assert speed == pytest.approx(2**28 / large[-1].median_s / 1e9)
    assert peak_of(replace(probe, points=(fast,)), 2).bytes == 2**20


def add_imported(builder, gpus, epoch_s, **reported):
    cell = lab_cell(gpus, 128, protocol=Protocol.IMPORTED)
    whole = lab_record(lab_cell(gpus, 128), epoch_s)
    builder.with_record(
        replace(
            whole,
            cell=cell,
            slug=cell.slug,
            model=None,
            facts=None,
            ranks=(),
            exchange=None,
            microbenchmark=None,
            imported=Imported(
                file="lab3.csv",
                line=gpus,
                epoch_s=epoch_s,
                gpu_model="RTX 8000",
                **reported,
            ),
        )
    )


def test_imported_timings_appear_as_reported(builder):
    add_imported(builder, 1, 30.0)
    add_imported(builder, 2, 20.0, compute_s=14.0, comm_s=5.5)
    (group,) = builder.collect().groups
    assert group.setting.endswith("measured elsewhere on RTX 8000.")
    assert [table.label for table in group.strategies[0].tables] == [
        "table1-ddp",
        "table2-ddp",
        "table2r-ddp",
        "table3r-ddp",
    ]
    table = builder.table("table2-ddp")
    assert table.caption[0].startswith("As reported by the source, not measured here")
    assert texts_by_label(table)["2-GPU"] == ("14.00", "5.500")
    # 20 - 30 / 2 = 5 from whole epochs, since train_s is unknown
    residual = builder.table("table2r-ddp")
    assert texts_by_label(residual)["2-GPU"] == ("15.00", "5.000")
    assert "with it where train_s is not reported" in residual.caption[0]
    assert texts_by_label(builder.table("q1"))["128"] == ("–", "30.00", "391")


@pytest.mark.parametrize("in_windows", [True, False])
def test_times_of_windows_are_those_of_their_work(in_windows):
    """The instrumented window has half as many samples as the timed one."""
    record = noisy(a_record(a_cell(gpus=2, script=Script(path="train.py"))), 0.1)
    half = change_epoch(Role.INSTRUMENTED, samples=record.ranks[0].timed.samples // 2)
    of_window = figures_of(change_facts(in_windows=in_windows)(half(record)))
    of_epoch = figures_of(record)
    times = 1_000_000 / record.samples if in_windows else 1
    assert of_window.epoch_s == pytest.approx(times * of_epoch.epoch_s)
    assert of_window.compute_s == pytest.approx(2 * times * of_epoch.compute_s)
    assert of_window.exchange_s == pytest.approx(2 * times * of_epoch.exchange_s)
    assert of_window.comm_cost_s == pytest.approx(times * of_epoch.comm_cost_s)
    assert of_window.closure == of_epoch.closure
    assert of_window.noise == of_epoch.noise > 0
    assert 1 + of_window.overhead == pytest.approx(2 * (1 + of_epoch.overhead))


def test_time_that_nothing_accounts_for_is_neither_compute_nor_comm(builder):
    record = a_record(a_cell(gpus=2, script=Script(path="train.py")))

    before = figures_of(record)
    for rank in record.ranks:
        parts = {"optimizer_s": 0.0, "other_s": rank.phases.optimizer_s}
        phases = replace(rank.phases, **parts)
        record = change_epoch(Role.INSTRUMENTED, rank.rank, phases=phases)(record)
    figures = figures_of(record)
    assert figures.phase_other_s == before.phase_optimizer_s > 0
    assert figures.compute_s == pytest.approx(
        before.compute_s - before.phase_optimizer_s
    )
    assert figures.closure == before.closure
    builder.with_record(record)
    assert "phase_other_s" in builder.sheet("phases").columns
