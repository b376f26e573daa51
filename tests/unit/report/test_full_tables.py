"""The full tables: every quantity with its unit, recomputed by hand, and what is not known said."""

import pytest
from msgspec.structs import replace

from hpml_jobs.core.measurements import CollectiveKind
from hpml_jobs.core.strategies import Strategy
from tests.unit.builders import lab_cell, lab_record
from tests.unit.check_cases import change_epoch

GRADIENT_BYTES = 44_695_848


def csv_rows(builder, label):
    """A table's unrounded rows, as dicts."""
    sheet = builder.sheet(label)
    return [dict(zip(sheet.columns, row, strict=True)) for row in sheet.rows]


def csv_row(builder, label, **place):
    (found,) = (
        r for r in csv_rows(builder, label) if all(r[k] == v for k, v in place.items())
    )
    return found


def bandwidth_of(builder, gpus):
    """The bandwidths of the only row with so many GPUs."""
    (row,) = (r for r in builder.collect().groups[0].source.timed if r.gpus == gpus)
    return row.bandwidth


def test_scaling_ratios_match_their_formulas(builder):
    builder.with_published_study(
        stall_s=1.5, but=tuple((n, b) for n in (1, 2, 4) for b in (32, 128))
    )
    four = csv_row(builder, "scaling", gpus=4, batch=512)
    speedup = 25.945 / 15.127
    assert four["units_per_s"] == pytest.approx(50_000 / 15.127)
    assert four["efficiency"] == pytest.approx(speedup / 4)
    assert four["weak_efficiency"] == pytest.approx((25.945 / 98) / (15.127 / 25))
    assert four["cost_per_compute"] == pytest.approx(4 / speedup - 1)


def with_steps(record, median_s, full_median_s):
    """A record whose timed epoch has these median steps on every rank."""
    steps = record.ranks[0].timed.steps
    medians = {"median_s": median_s, "full_median_s": full_median_s}
    return change_epoch("timed", steps=replace(steps, **medians))(record)


def test_weak_efficiency_is_of_steps_not_of_the_epoch(builder):
    """0.4.0 computed it from the epochs: efficiency x N I_N / I_1, never another measurement."""
    builder.with_record(with_steps(lab_record(lab_cell(1, 512), 25.0), 0.2, 0.25))
    builder.with_record(with_steps(lab_record(lab_cell(4, 512), 15.0), 0.5, 0.4))
    four = csv_row(builder, "scaling", gpus=4)
    assert four["step_s"] == 0.4
    assert four["weak_efficiency"] == pytest.approx(0.25 / 0.4)
    assert four["efficiency"] == pytest.approx(25 / 15 / 4)


def test_strong_scaling_uses_every_pair_of_the_grid(builder):
    builder.with_published_study()
    found = {
        (r["gpus"], r["global_batch"]): r["strong_speedup"]
        for r in csv_rows(builder, "scaling")
        if r["strong_speedup"] is not None
    }
    assert found == {
        (4, 128): pytest.approx(27.224 / 30.822),
        (4, 512): pytest.approx(25.945 / 19.878),
    }
    speedup = 25.945 / 19.878
    row = csv_row(builder, "scaling", gpus=4, global_batch=512)
    assert (row["strong_reference_gpus"], row["strong_reference_s"]) == (1, 25.945)
    assert row["strong_efficiency"] == pytest.approx(speedup / 4)
    assert row["karp_flatt"] == pytest.approx((1 / speedup - 1 / 4) / (1 - 1 / 4))


def test_communication_table_has_all_time_columns(builder):
    builder.with_record(lab_record(lab_cell(1, 128), 30.0))
    builder.with_record(lab_record(lab_cell(2, 128), 20.0))
    found = csv_row(builder, "communication", gpus=2)
    whole_s = 1.005 * 20.0
    assert found["comm_total_s"] == pytest.approx(0.10 * whole_s)
    assert found["comm_exposed_s"] == pytest.approx(0.08 * whole_s)
    assert found["comm_forward_s"] == pytest.approx(0.01 * whole_s)
    assert found["overlap_s"] == pytest.approx(0.02 * whole_s)
    assert found["overlap"] == pytest.approx(0.2)
    assert found["skew_s"] == pytest.approx(0.05 * 0.1 * whole_s)
    assert found["net_s"] == pytest.approx(0.95 * 0.1 * whole_s)
    assert found["exchange_s"] == pytest.approx(0.075 * whole_s)
    assert found["waiting_s"] == pytest.approx(0.005 * whole_s)
    assert found["comm_cost_s"] == pytest.approx(0.11 * 20.0)
    assert found["comm_residual_s"] == pytest.approx(20 - 30 / 2)


def test_cost_has_its_resolution(builder):
    record = lab_record(lab_cell(2, 128), 20.0)
    steps = record.ranks[0].timed.steps
    for role, epoch_s, width_s in (("timed", 20.0, 0.003), ("unsynced", 18.0, 0.004)):
        wide = replace(steps, quartile_width_s=width_s)
        record = change_epoch(role, epoch_s=epoch_s, steps=wide)(record)
    builder.with_record(record)
    row = csv_row(builder, "communication", gpus=2)
    assert row["comm_cost_s"] == pytest.approx(2.0)
    assert row["comm_cost_resolution_s"] == pytest.approx(196 * 0.0025)


def test_packing_by_hand_is_communication_in_table_2(builder):
    """0.4.0 counted it as computation."""
    whole = lab_record(lab_cell(2, 128, strategy=Strategy.ALLREDUCE_FLAT), 20.0)
    for rank in whole.ranks:
        phases = replace(rank.phases, pack_s=1.5)
        whole = change_epoch("instrumented", rank.rank, phases=phases)(whole)
    builder.with_record(whole)
    table = builder.table("table2-allreduce_flat")
    instrumented_s, stall_s = 1.005 * 20.0, 0.02 * 1.005 * 20.0
    (line,) = table.lines
    exposed_s = 0.08 * instrumented_s
    assert line.texts == (f"{instrumented_s - stall_s - exposed_s - 1.5:.2f}", "3.108")
    assert any(
        text.startswith("Comm includes packing by hand") for text in table.caption
    )
    row = csv_row(builder, "communication", gpus=2)
    assert (row["comm_exposed_s"], row["pack_s"]) == (pytest.approx(exposed_s), 1.5)
    assert row["comm_s"] == pytest.approx(exposed_s + 1.5)


def test_bandwidth_has_a_share_of_peak(builder):
    whole = lab_record(lab_cell(2, 128), 20.0)
    builder.with_record(whole)
    found = bandwidth_of(builder, 2)
    points = [
        p for p in whole.microbenchmark.points if p.kind is CollectiveKind.ALL_REDUCE
    ]
    times = {point.bytes: point.typical_s for point in points}
    assert found.sent_bytes == found.expected_bytes == 196 * GRADIENT_BYTES
    assert found.of_peak == pytest.approx(
        found.bus_gb_per_s / (2**28 / times[2**28] / 1e9)
    )
    table = builder.table("table3-ddp")
    assert table.blocks[0].columns == ("GB/s", "% of peak")
    assert table.lines[0].texts[1] == f"{100 * found.of_peak:.1f}"
    assert "in messages of 268 MB" in table.caption[1]


def test_phases_add_up(builder):
    whole = lab_record(lab_cell(2, 128), 20.0)
    own = whole.ranks[1].phases
    backward_s = own.backward_s + own.forward_s - 3.0
    moved = replace(own, forward_s=3.0, backward_s=backward_s)
    builder.with_record(change_epoch("instrumented", 1, phases=moved)(whole))
    (first,) = builder.table("phases").lines
    # of 20.1 s: stall 2 %, h2d 1 %, forward 30 %, backward 55 %, comm 7 %, optimizer 5 %
    assert first.label == "2 GPUs, batch 128"
    assert first.texts == (
        *("0.402", "0.201", "6.030", "11.05", "1.407", "1.005", "0.50"),
    )
    (row,) = csv_rows(builder, "phases")
    names = ("stall", "h2d", "forward", "backward", "comm_exposed", "optimizer")
    assert sum(row[f"phase_{name}_s"] for name in names) == pytest.approx(20.1)
