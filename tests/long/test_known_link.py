"""On a link of known speed, training has the bus bandwidth of the microbenchmark."""

import numpy as np
import pytest

from hpml_jobs.core.collective_times import begins_of, paired, service_s
from hpml_jobs.core.formulas import bus_gb_per_s
from hpml_jobs.core.measurements import CollectiveKind
from hpml_jobs.study.study import Study
from tests.conftest import Program
from tests.unit.worker.injections import (
    ON_LINK,
    InjectedStudy,
    needs_link,
    python_after,
)

pytestmark = [pytest.mark.long, needs_link]

LO_BYTES_PER_S = 40e6 / 8 * 1448 / 1514
LINK_GB_PER_S = LO_BYTES_PER_S / 2 / 1e9
"""The processes share lo; of a packet of 1,514 bytes, 1,448 are data.

While one process waits for the other, that one has the link for itself: with messages of a fifth of
a second all-gathers were 32 % faster than this. So the messages are those of a small network.
"""


def test_table_3_is_the_speed_of_the_link(program, tmp_path, capsys):
    python = python_after(tmp_path, ON_LINK.format(rate="40mbit"))
    words = (
        "cluster=local",
        "device=cpu",
        "gpus=2",
        "batch=128",
        "data.limit=2560",
        "probe_s=4",
    )
    Program(tmp_path, program.environment, python).ok(
        *(
            "-m",
            *words,
            "strategy=allreduce_flat,ddp,fsdp",
            "workload=digits",
            "study=link",
        ),
    )
    for cell in Study(tmp_path / "outputs" / "link").cells():
        record, arrays = cell.read_record(), np.load(cell.iterations)
        collectives, sent = paired(arrays), arrays["collective_bytes"][0]
        begins = begins_of(record.ranks, meet=True)
        served_s = service_s(collectives, arrays["parts_s"], begins)
        for kind in dict.fromkeys(point.kind for point in record.microbenchmark.points):
            of_kind = arrays["collective_kind"][0] == list(arrays["kinds"]).index(kind)
            points = [p for p in record.microbenchmark.points if p.kind is kind]
            sizes = [point.bytes for point in points]
            times_s = [point.typical_s for point in points]
            alone_s = np.interp(sent[of_kind], sizes, times_s).sum()
            trained_s = served_s[of_kind].sum()
            with capsys.disabled():
                speeds = [
                    bus_gb_per_s(sent[of_kind].sum(), t, 2, kind)
                    for t in (trained_s, alone_s)
                ]
                print(
                    f"\n{record.cell.strategy} {kind}: {speeds[0]:.5f} GB/s, alone {speeds[1]:.5f}"
                )
            # many messages of a few milliseconds; a process that still gathers parameters while the
            # other one computes has the link for itself
            alone_on_link = 0.4 if kind is CollectiveKind.ALL_GATHER else 0.12
            if kind is not CollectiveKind.REDUCE_SCATTER:
                assert (1 - alone_on_link) * alone_s < trained_s < 1.12 * alone_s
            if kind == record.communication.gradient_kind:
                assert record.gradients_net_s == pytest.approx(trained_s)
            if kind is CollectiveKind.ALL_REDUCE:
                assert speeds[0] == pytest.approx(LINK_GB_PER_S, rel=0.12)


@pytest.mark.parametrize(("strategy", "sent"), [("gather_scatter", 2), ("zero1", 3)])
def test_exchange_of_roots_is_that_of_the_link(
    strategy, sent, program, tmp_path, capsys
):
    """A gather and a scatter send the gradients once each over lo; an all-reduce twice, and the
    broadcasts of parameters once more.
    """
    python = python_after(tmp_path, ON_LINK.format(rate="40mbit"))
    on_link = Program(tmp_path, program.environment, python)
    settings = {"gpus": "2", "strategy": strategy, "workload.lr": "0.001"}
    injected = InjectedStudy(on_link, "link", {"width": 200}, **settings)
    (record,) = injected.records
    link_s = (
        record.instrumented_iterations
        * sent
        * record.model.gradient_bytes
        / LO_BYTES_PER_S
    )
    with capsys.disabled():
        print(
            f"\n{strategy}: exchange {record.exchange_s:.3f} s, by the link {link_s:.3f} s"
        )
    assert record.exchange_s == pytest.approx(link_s, rel=0.1)
