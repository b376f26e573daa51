"""What a page shows of the hardware and software of a group."""

from msgspec.structs import replace

from hpml_jobs.core.cell import Outcome
from hpml_jobs.report.files.frames import flat
from hpml_jobs.report.page.contents import environment
from hpml_jobs.results.cells import CellResult
from hpml_jobs.results.groups import group
from tests.unit.report.frame.test_gpu_figures import measured


def environment_of(record):
    result = CellResult(
        slug=record.slug, outcome=Outcome.OK, cell=record.cell, record=record
    )
    (one,) = group([result])
    return environment([one])


def test_environment_of_the_page_has_gpus_and_variables():
    record = measured()
    facts = replace(record.facts, nccl_environment={"NCCL_P2P_DISABLE": "1"})
    record = replace(record, facts=facts)
    shown = environment_of(record)
    assert shown["SM clock, MHz (of at most)"] == "1410 (1410), 1310 (1410)"
    assert shown["precision"] == "tf32 (convolutions)"
    assert shown["environment variables"] == "NCCL_P2P_DISABLE=1"
    assert flat(facts)["nccl_environment_NCCL_P2P_DISABLE"] == "1"
