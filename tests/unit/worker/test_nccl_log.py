"""NCCL's choices from its own log, and the log switched on for a block only."""

import ctypes
import os

import pytest
import torch  # noqa: F401  (loads NCCL)

from hpml_jobs.core.measurements import SWEPT, CollectiveKind, NcclChoice
from hpml_jobs.worker import microbenchmark

LOG = """
gr001:4242:4242 [0] NCCL INFO NCCL version 2.30.7+cuda13.0
gr001:4242:4242 [0] NCCL INFO AllReduce: 1024 Bytes -> Algo TREE proto LL channel{Lo..Hi}={0..0}
gr001:4242:4300 [0] NCCL INFO AllReduce: 268435456 Bytes -> Algo NVLS proto SIMPLE channel{Lo..Hi}={0..15}
[2026-11-22 10:00:00] gr001:1:1 [0] enqueue.cc:99 NCCL WARN AllReduce: 7 Bytes -> nothing
gr001:4242:4242 [0] NCCL INFO AllReduce: 1024 Bytes -> Algo RING proto LL128 channel{Lo..Hi}={0..1}
gr001:4242:4242 [0] NCCL INFO AllGather [Symmetric]: 4096 Bytes -> Kernel AllGather_LL nchannels 4 nthreads 512 nWorks 1
gr001:4242:4242 [0] NCCL INFO AllGather [Copy Engine]: 8192 Bytes -> cudaMemcpyBatchAsync
gr001:4242:4242 [0] NCCL INFO SendRecv: 8192 Bytes -> Algo RING proto SIMPLE channel{Lo..Hi}={0..1}
gr001:4242:4242 [0] NCCL INFO ReduceScatter: 99 Bytes -> Algo RI
"""  # noqa: E501
"""Lines of the formats that libnccl 2.30.7 contains, made by hand; the last one is cut off."""


def test_choices_are_the_last_of_each_collective_and_size():
    all_reduce, all_gather = CollectiveKind.ALL_REDUCE, CollectiveKind.ALL_GATHER
    assert microbenchmark.parse_choices(LOG.splitlines(), ranks=4) == (
        NcclChoice(
            kind=all_reduce, bytes=1024, algorithm="RING", protocol="LL128", channels=2
        ),
        NcclChoice(
            kind=all_reduce,
            bytes=2**28,
            algorithm="NVLS",
            protocol="SIMPLE",
            channels=16,
        ),
        NcclChoice(
            kind=all_gather,
            bytes=4 * 4096,
            algorithm="Symmetric",
            protocol="AllGather_LL",
            channels=4,
        ),
        NcclChoice(kind=all_gather, bytes=4 * 8192, algorithm="Copy Engine"),
    )


def test_choices_have_the_bytes_of_the_whole_message():
    """As the points beside which they are shown: NCCL logs one rank's share of these two."""
    line = "n1:1:1 [0] NCCL INFO {}: {} Bytes -> Algo RING proto LL channel{{Lo..Hi}}={{0..1}}"
    logged = {
        "AllReduce": 2**20,
        "AllGather": 2**18,
        "ReduceScatter": 2**18,
        "Broadcast": 2**20,
    }
    lines = [line.format(kind, size) for kind, size in logged.items()]
    choices = microbenchmark.parse_choices(lines, ranks=4)
    assert [choice.kind for choice in choices] == [*SWEPT]
    assert {choice.bytes for choice in choices} == {2**20}


def test_log_is_written_inside_the_block_only(tmp_path, monkeypatch):
    """On a machine without a driver NCCL logs that it cannot begin; with one, that it did."""
    monkeypatch.setenv("NCCL_DEBUG_SUBSYS", "NET")
    library = ctypes.CDLL(microbenchmark.LIBRARY, mode=os.RTLD_NOLOAD | os.RTLD_NOW)
    communicator, path = ctypes.c_void_p(), tmp_path / "50% nccl.log"

    def begin():
        library.ncclCommInitAll(ctypes.byref(communicator), 1, None)

    with microbenchmark.nccl_log(path):
        begin()
    content = path.read_bytes()
    begin()
    assert b"NCCL" in content
    assert path.read_bytes() == content
    assert os.environ["NCCL_DEBUG_SUBSYS"] == "NET"
    assert "NCCL_DEBUG_FILE" not in os.environ


def test_log_of_missing_library_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(microbenchmark, "LIBRARY", "libnccl_of_nobody.so.2")
    with (
        pytest.raises(
            microbenchmark.NcclLogError,
            match=r"NCCL's algorithm: libnccl_of_nobody.so.2",
        ),
        microbenchmark.nccl_log(tmp_path / "nccl.log"),
    ):
        pass
    assert not {"NCCL_DEBUG", "NCCL_DEBUG_FILE"} & {*os.environ}
