"""SyncBatchNorm: the check of what it costs on a GPU."""

from msgspec.structs import replace

from hpml_jobs.checks.study import check_record
from hpml_jobs.core.cell import Protocol
from hpml_jobs.core.check_result import Level
from hpml_jobs.core.strategies import SyncBuffers
from tests.unit.builders import a_cell
from tests.unit.check_cases import CheckCase, assert_fires, clean_record, result_of


def test_host_waits_for_every_layer():
    cell = a_cell(batch=32, sync_buffers=SyncBuffers.SYNCBN, protocol=Protocol.LAB)
    words = (
        "SyncBatchNorm waits for the GPU in every layer of every forward: compare the"
    )
    assert_fires(CheckCase("host-waits", Level.WARN, lambda old: old, words, cell))


def test_host_does_not_wait_for_batchnorm():
    assert result_of(check_record(clean_record()), "host-waits").level is Level.PASS
    unknown = replace(clean_record(), model=None)
    assert "host-waits" not in {result.check for result in check_record(unknown)}
