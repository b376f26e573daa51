"""Errors found in published reports of the lab, E1 to E19: none is made here."""

import time
from pathlib import Path

import pytest
from msgspec.structs import replace

from hpml_jobs.core import formulas
from hpml_jobs.core.check_result import Level
from hpml_jobs.core.errors import UsageError
from hpml_jobs.core.strategies import BandwidthKind, Strategy
from hpml_jobs.core.validation import InvalidRecordError, decode
from hpml_jobs.report.frame.numbers import three_digits
from hpml_jobs.results import statistics
from hpml_jobs.results.checks.study import check_record
from hpml_jobs.study.files import encode
from tests.unit.builders import (
    PUBLISHED_S,
    a_cell,
    lab_cell,
    lab_record,
    texts_by_label,
)
from tests.unit.check_cases import (
    DDP4,
    attempt_an_hour_later,
    baseline_record,
    change_epoch,
    change_messages,
    change_model,
    change_phases,
    change_rank,
    check_records,
    clean_record,
    result_of,
    with_attempt_times,
)
from tests.unit.study_builder import StudyBuilder

PACKAGE = Path(__file__).parents[4] / "hpml_jobs"
RESNET_BYTES = 44_695_848  # gradients of the lab's ResNet-18
CIFAR_BYTES = 50_000 * 32 * 32 * 3


@pytest.fixture
def builder(tmp_path):
    return StudyBuilder(tmp_path / "lab")


def fails_with(result, words):
    return result.level is Level.FAIL and words in result.reason


def test_e1_loader_time_is_not_communication():
    honest = clean_record()
    loading = replace(honest.phases, stall_s=5.0)
    assert (loading.compute_s, loading.exposed_s) == (
        honest.phases.compute_s,
        honest.phases.exposed_s,
    )


def test_e2_bytes_are_of_collectives_not_of_the_data_set():
    size = CIFAR_BYTES // 160
    data_set = change_messages(bytes=size, elements=size // 4)(clean_record())
    found = result_of(check_record(data_set), "messages")
    assert fails_with(found, "not 16,738,560 (160 iterations x 104,616 bytes)")


def test_e3_bytes_of_one_iteration_fail_as_epoch_bytes():
    found = result_of(
        check_record(change_messages(count=1)(clean_record())), "messages"
    )
    assert fails_with(
        found, "counted 104,616 bytes of gradients by all_reduce, not 16,738,560"
    )
    ratio = formulas.expected_bytes(782, RESNET_BYTES) / RESNET_BYTES
    assert ratio == 782  # how much too low the report was


def test_e4_elements_counted_as_bytes_fail():
    elements = clean_record().ranks[1].communication.messages[0].elements
    found = result_of(
        check_record(change_messages(bytes=elements)(clean_record())), "messages"
    )
    assert fails_with(found, "26,154 float32 elements is 104,616 bytes, not 26,154")
    assert formulas.gradient_bytes(11_173_962) == RESNET_BYTES


def test_e5_speedup_is_against_single_gpu_and_captioned(builder):
    builder.with_published_study()
    table = builder.table("table1-ddp")
    one_s, two_s, four_s = (PUBLISHED_S[gpus, 32] for gpus in (1, 2, 4))
    speedup, *_ = texts_by_label(table)["4-GPU"][1].split(" ")
    assert speedup == f"{one_s / four_s:.2f}"
    assert speedup != f"{two_s / four_s:.2f}"  # against the row above it
    result = " ".join(table.caption)
    assert "Speedup: Time of 1 GPU / Time [likely range]." in result


def test_e6_speedup_is_not_multiplied_by_number_of_gpus(builder):
    assert formulas.speedup(10.5, 10.0) == 1.05  # the report said 4.20
    builder.with_record(lab_record(lab_cell(1, 32), 10.5))
    builder.with_record(lab_record(lab_cell(4, 32), 10.0))
    assert texts_by_label(builder.table("table1-ddp"))["4-GPU"] == (
        "10.00",
        "1.05 [1.04, 1.06]",
    )
    runs = [
        clean_record(
            a_cell(batch=32, gpus=gpus, strategy=strategy, repeat=repeat), epoch_s
        )
        for gpus, strategy, epoch_s in (
            (1, Strategy.SINGLE, 30.0),
            (4, Strategy.DDP, 30.0 / 4.2 / 4),
        )
        for repeat in (0, 1)
    ]
    beyond = result_of(check_records(runs)[DDP4.slug], "efficiency")
    assert fails_with(
        beyond, "efficiency is 420 % [420 %, 420 %] over 4 GPUs (limit 105 %)"
    )


def test_e7_global_batch_is_not_taken_as_batch_per_gpu():
    as_global = change_epoch("timed", iterations=640, steps=None)(clean_record())
    with pytest.raises(InvalidRecordError, match=r"counted 640 iterations .* not 160"):
        decode(encode(as_global), "record.json")


def test_e9_time_in_no_phase_is_flagged():
    unaccounted = change_phases(forward_s=0.0)(clean_record())
    assert fails_with(
        result_of(check_record(unaccounted), "closure"), "phases miss the epoch by 30"
    )
    whole = clean_record().phases
    assert whole.compute_s + whole.exposed_s + whole.stall_s == pytest.approx(
        sum(whole.parts_s)
    )


def test_e10_batch_larger_than_data_set_is_refused():
    for batch in (5_121, 8_192, 16_384):  # one and the same batch, nine rows of it
        with pytest.raises(
            UsageError, match=r"5,120 images of one GPU .20,480 over gpus=4"
        ):
            a_cell(batch=batch)


def test_e11_residual_is_labelled_next_to_measured_values(builder):
    builder.with_published_study()
    measured, residual = builder.table("table2-ddp"), builder.table("table2r-ddp")
    assert "with each part timed" in measured.caption[0]
    assert "by subtraction" in residual.title
    assert texts_by_label(measured)["4-GPU"] != texts_by_label(residual)["4-GPU"]
    phases = lab_record(lab_cell(4, 32), PUBLISHED_S[4, 32]).phases
    assert texts_by_label(measured)["4-GPU"][1] == f"{phases.exposed_s:.3f}"


def test_e12_epoch_is_timed_in_nanoseconds(monkeypatch):
    from hpml_jobs.worker.instruments import timing  # noqa: PLC0415  (it imports torch)

    assert time.get_clock_info("perf_counter").resolution <= 1e-6
    ticks = iter([1_000_000_000, 1_000_000_500, 2_234_567_000, 2_234_567_891])
    monkeypatch.setattr(timing, "perf_counter_ns", lambda: next(ticks))
    clock = timing.HostClock()
    monkeypatch.setattr(clock, "stamp", lambda: next(ticks))
    with timing.Window(clock, barrier=lambda: None) as window:
        pass
    assert window.epoch_s == 1.234567891


def test_e13_overlapping_cells_are_flagged():
    beside = with_attempt_times("2026-10-01T10:01", "2026-10-01T10:06")(
        baseline_record()
    )
    together = result_of(check_records([clean_record(), beside])[DDP4.slug], "overlap")
    assert together.level is Level.WARN
    assert "ran on gr001 for up to 240 s of it" in together.reason


def test_e14_single_and_scattered_runs_are_flagged(builder):
    builder.with_published_study()
    assert "One run" in " ".join(builder.table("table1-ddp").caption)
    assert statistics.coverage_of_range(1) == 0.0  # no interval follows from it
    runs = [
        clean_record(a_cell(batch=32, repeat=n), epoch_s=s)
        for n, s in enumerate((8.0, 7.2, 9.12))
    ]
    result = result_of(check_records(runs)[runs[0].slug], "scatter")
    assert result.level is Level.WARN
    assert "times from 7.2 to 9.12 s" in result.reason


def test_e15_mean_loss_is_over_processed_samples():
    """A sum over 40 iterations, divided by 196, is less than such an accuracy allows."""
    logged = change_epoch("timed", loss=1.5 * 40 / 196)(clean_record())
    assert fails_with(
        result_of(check_record(logged), "loss"), "it is not a mean over samples"
    )
    seen = clean_record()
    for number, loss, samples in ((0, 1.0, 1), (1, 1.0, 1), (2, 1.0, 1), (3, 5.0, 5)):
        seen = change_epoch("timed", number, loss=loss, samples=samples)(seen)
    assert seen.loss == 3.5  # not 2, the mean over ranks


def test_e16_slowest_rank_is_used():
    fast_root = change_epoch("timed", 0, epoch_s=8.0 * 0.63)(clean_record())
    assert fast_root.ranks[0].timed.epoch_s == 5.04
    assert fast_root.epoch_s == 8.0


def test_e17_unexpected_model_size_fails_and_is_in_caption(
    builder,
):
    """A model other than the named one fails; the caption gives the parameter count."""
    small = change_model(parameters=9_231_114)(clean_record())
    assert fails_with(
        result_of(check_record(small), "parameters"), "digits says 26,154"
    )
    builder.with_published_study()
    for table in builder.collect().groups[0].tables:
        assert "11,173,962 parameters" in table.setting


def test_e18_gigabyte_is_ten_to_the_ninth():
    assert three_digits(formulas.algorithm_gb_per_s(2**30, 1.0)) == "1.07"
    assert formulas.bus_gb_per_s(1e9, 1.0, 2) == 1.0


def test_e19_dp_is_not_taken_as_ring_all_reduce():
    assert Strategy.DP.traffic.bandwidth is BandwidthKind.NOMINAL
    dp = clean_record(
        a_cell(batch=32, strategy=Strategy.DP), attempt=attempt_an_hour_later()
    )
    talk = clean_record().ranks[0].communication  # what a rank of ddp sends
    ring = change_rank(0, communication=talk)(dp)
    assert fails_with(
        result_of(check_record(ring), "messages"),
        "bytes of gradients by all_reduce, not 0",
    )
    reduced = tuple(replace(message, kind="reduce") for message in talk.messages)
    tree = change_rank(0, communication=replace(talk, messages=reduced))(dp)
    assert result_of(check_record(tree), "messages").level is Level.PASS
