"""A sweep of message times from a CSV file, and the faults that one may have."""

import pytest

from hpml_jobs.core.errors import HpmlError
from hpml_jobs.exchange.sweep_file import read_sweep


def read(text):
    return read_sweep(text.encode(), "sweep.csv")


def test_sweep_of_seconds_has_bus_bandwidths():
    sweep = read("bytes,seconds,gpus,nodes\n1000,0.001,16,2\n1000000000,1.875,16,2\n")
    assert sweep.gb_per_s == pytest.approx({1_000: 1.875e-3, 1_000_000_000: 1.0})
    assert sweep.crosses_nodes
    assert not read("bytes,gb_per_s,nodes\n1024,1,1\n4096,2,1\n").crosses_nodes


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("bytes,gb_per_s\n1024,1\n", "a sweep needs 2 or more"),
        ("bytes,gb_per_s\n1024,1\n1024,2\n", "bytes=1024 is given twice"),
        ("bytes,gb_per_s\n1024,-1\n4096,2\n", "gb_per_s=-1: must be more than 0"),
        ("bytes,gb_per_s\n1024,0\n4096,2\n", "gb_per_s=0: must be more than 0"),
        ("bytes,seconds\n1024,1\n4096,2\n", "needs a column gpus"),
        ("size,gb_per_s\n1024,1\n", "unknown column 'size'"),
        ("bytes,gb_per_s,nodes\n1024,1,1\n4096,2,2\n", "differ in gpus or nodes"),
        ("bytes,gb_per_s\n1024,x\n4096,2\n", "expected a number"),
        ("bytes,gb_per_s\n", "it has 0 sizes of messages"),
        ("", "its first line must name its columns"),
    ],
)
def test_sweep_with_a_fault_is_refused_in_one_line(content, message):
    with pytest.raises(HpmlError) as refused:
        read(content)
    assert message in str(refused.value)
    assert str(refused.value).startswith("sweep.csv")
    assert len(str(refused.value).splitlines()) == 1
