"""What a report shows of the GPUs: in cells.csv."""

import msgspec
import pytest

from hpml_jobs.core.gpus import Card
from hpml_jobs.results.gpus import GpuFigures, gpu_figures
from tests.unit.builders import a_cell, a_record
from tests.unit.check_cases import FACTS, clean_record, imported_record, samples_at

replace = msgspec.structs.replace


def measured(nodes=1, link=None, **changes):
    """Two A100 on NVSwitch, the second at its power limit in the timed epoch."""
    record = clean_record(
        a_cell(gpus=2, nodes=nodes), facts=replace(FACTS, link_gb_per_s=link)
    )
    ranks = []
    for rank in record.ranks:
        reason = "sw_power_cap" if rank.rank else "gpu_idle"
        card = {
            "uuid": f"GPU-{rank.rank}", "index": rank.rank, "bus_id": f"0000:{rank.rank}B:00.0",
            "sm_clock_mhz": 300, "max_sm_clock_mhz": 1410, "power_limit_w": 400.0,
            "nvlink_to": ("switch",) * 12, "nvlink_version": 5,
            "samples": samples_at(1410 - 100 * rank.rank, reason),
        }  # fmt: skip
        ranks.append(replace(rank, cards=(Card(**(card | changes)),)))
    return replace(record, ranks=tuple(ranks))


def test_figures_are_of_the_timed_epoch():
    assert gpu_figures(measured()) == GpuFigures(
        precision="tf32 (convolutions)",
        sm_clock_mhz=1360.0,
        least_sm_clock_mhz=1310,
        memory_clock_mhz=None,
        power_w=245.0,
        gpu_utilization_percent=40.0,
        temperature_c=75,
        throttle_reasons="gpu_idle sw_power_cap",
        bus_ids="0 0000:0B:00.0, 1 0000:1B:00.0",
        link_gb_per_s=300.0,
    )


def test_record_of_an_older_version_has_what_it_has():
    old = Card(
        uuid="GPU-0", sm_clock_mhz=1200, max_sm_clock_mhz=1410, temperature_c=60, power_w=200.0,
        throttle_reasons=(), other_processes=0,
    )  # fmt: skip
    record = a_record(a_cell(gpus=2), facts=FACTS)
    record = replace(
        record, ranks=tuple(replace(rank, cards=(old,)) for rank in record.ranks)
    )
    figures = gpu_figures(record)
    assert (figures.sm_clock_mhz, figures.power_w, figures.throttle_reasons) == (
        1200,
        200,
        "none",
    )
    assert (figures.bus_ids, figures.link_gb_per_s) == (None, None)
    assert figures.gpu_utilization_percent is None
    assert gpu_figures(imported_record()) == GpuFigures()


@pytest.mark.parametrize(
    ("nodes", "link", "gb_per_s"), [(1, None, 300.0), (1, 25.0, 25.0), (2, None, None)]
)
def test_link_is_the_clusters_else_that_of_nvml_on_a_node(nodes, link, gb_per_s):
    assert measured(nodes, link).link_gb_per_s == gb_per_s
