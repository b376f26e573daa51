"""Prices of messages: interpolation, scaling to other sizes, and what a sweep does not reach."""

import pytest

from hpml_jobs.core.measurements import CollectiveKind
from hpml_jobs.core.strategies import Strategy
from hpml_jobs.predict.network import (
    BusSweep,
    Network,
    UnknownPriceError,
    measured_sweeps,
    messages_at,
    sweep_s,
)
from hpml_jobs.predict.place import Observation, SentMessages, Size, Sweep

ALL_REDUCE = CollectiveKind.ALL_REDUCE
H200_GB_PER_S = (
    *(1.44, 2.93, 5.73, 11.74, 23.94, 39.93, 64.53, 107.16, 155.53, 219.89),
    *(275.84, 346.51, 401.93, 436.15, 450.29, 463.58, 469.17, 473.10, 477.45, 482.26),
)
"""Bus bandwidth of NCCL's all-reduce on 8 H200 from 32 KiB to 16 GiB in powers of two; Stas
Bekman, ml-engineering, network/comms."""


def of_bytes(size, kind=ALL_REDUCE, per_iteration=1.0):
    return SentMessages(kind=kind, bytes=size, per_iteration=per_iteration)


def test_sweep_of_h200_is_interpolated_within_a_few_percent():
    sizes = [2**15 * 2**step for step in range(len(H200_GB_PER_S))]
    times_s = {size: size / speed for size, speed in zip(sizes, H200_GB_PER_S, strict=True)}
    errors = []
    for left_out in sizes[1:-1]:
        rest = {size: time_s for size, time_s in times_s.items() if size != left_out}
        errors.append(abs(sweep_s(rest, left_out) / times_s[left_out] - 1))
    assert sum(errors) / len(errors) < 0.05


def test_message_beyond_the_sweep_has_its_last_bandwidth_and_says_so():
    network = Network({(Size(1, 2), ALL_REDUCE): {1_000: 1e-5, 1_000_000: 1e-3}})
    price = network.price([of_bytes(4_000_000)], Size(1, 2))
    assert price.total_s == pytest.approx(4e-3)
    assert any("the sweep ends at 1,000,000 bytes" in remark for remark in price.remarks)


def test_message_in_a_gap_of_the_sweep_says_so():
    network = Network({(Size(1, 2), ALL_REDUCE): {1_000: 1e-5, 1_000_000: 1e-3}})
    price = network.price([of_bytes(30_000)], Size(1, 2))
    assert 1e-5 < price.total_s < 1e-3
    assert any("nothing between 1,000 and 1,000,000 bytes" in said for said in price.remarks)


def test_message_below_a_sweep_of_large_ones_says_so():
    slow = {(Size(1, 2), ALL_REDUCE): {1_000_000_000: 0.1, 2_000_000_000: 0.2}}
    price = Network(slow).price([of_bytes(30_000)], Size(1, 2))
    assert price.total_s == 0.1
    assert any("the sweep begins at 1,000,000,000 bytes" in said for said in price.remarks)
    small = Network({(Size(1, 2), ALL_REDUCE): {1_000: 1e-5, 1_000_000: 1e-3}})
    assert small.price([of_bytes(100)], Size(1, 2)).remarks == ()


def test_sweep_of_one_gpu_prices_nothing():
    sweep = Sweep(kind=ALL_REDUCE, times_s={1_000: 1e-6, 1_000_000: 1e-5})
    alone = Observation(gpus=1, batch=32, strategy=Strategy.DDP, step_s=0.1, sweeps=(sweep,))
    assert measured_sweeps([alone]) == {}


def test_messages_of_an_iteration_add_up():
    network = Network({(Size(1, 4), ALL_REDUCE): {1_000: 1e-5, 1_000_000: 1e-3}})
    price = network.price([of_bytes(1_000, per_iteration=3.0), of_bytes(1_000_000)], Size(1, 4))
    assert price.total_s == pytest.approx(3e-5 + 1e-3)
    assert price.longest_s == 1e-3


def test_seconds_by_a_given_sweep_are_a_part_of_the_price():
    inside = {(Size(1, 8), ALL_REDUCE): {1_000: 1e-5, 1_000_000_000: 1e-2}}
    message = [of_bytes(1_000_000_000, per_iteration=2.0)]
    swept = Network(inside, given=BusSweep("s.csv", {1_000: 1.0, 1_000_000_000: 25.0}))
    price = swept.price(message, Size(2, 16))
    assert price.given_s == price.total_s == pytest.approx(2 * 1.875 / 25)
    assert swept.price(message, Size(1, 8)).given_s == 0


def test_measured_sweep_is_used_before_a_given_one():
    sweeps = {(Size(2, 16), ALL_REDUCE): {1_000: 1e-4, 1_000_000_000: 0.1}}
    given = BusSweep("s.csv", {1_000: 1.0, 1_000_000_000: 100.0})
    network = Network(sweeps, given=given)
    assert network.price([of_bytes(1_000_000_000)], Size(2, 16)).total_s == 0.1
    assert network.measured_where_given
    assert not Network(sweeps, given=given._replace(crosses_nodes=False)).measured_where_given


def test_collective_without_a_sweep_has_no_price():
    network = Network({(Size(1, 2), ALL_REDUCE): {1_000: 1e-5, 1_000_000: 1e-3}})
    for kind in (CollectiveKind.ALL_GATHER, CollectiveKind.GATHER):
        with pytest.raises(UnknownPriceError, match=kind.words):
            network.price([of_bytes(1_000, kind)], Size(1, 2))


def test_given_sweep_applies_to_every_number_of_gpus():
    network = Network({}, given=BusSweep("s.csv", {1_000: 1.0, 1_000_000_000: 100.0}))
    for gpus in (16, 1024):
        price = network.price([of_bytes(1_000_000_000)], Size(gpus // 8, gpus))
        assert price.total_s == pytest.approx(2 * (gpus - 1) / gpus / 100)


def test_broadcasts_of_zero1_are_one_of_each_rank():
    cell = Observation(
        gpus=2,
        batch=32,
        strategy=Strategy.ZERO1,
        step_s=0.1,
        messages=(of_bytes(1_000), of_bytes(500, CollectiveKind.BROADCAST, 2.0)),
    )
    reduced, sent = messages_at(cell, 8)
    assert (reduced.bytes, reduced.per_iteration) == (1_000, 1.0)
    assert (sent.bytes, sent.per_iteration) == (125, 8.0)
