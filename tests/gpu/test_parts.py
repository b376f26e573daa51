"""Every part on this machine's GPU: its figures are in their expected ranges."""

import pytest

from tests.gpu.__main__ import keep, print_part
from tests.gpu.catalog import PARTS
from tests.gpu.figures import findings
from tests.gpu.machine import why_no_card
from tests.gpu.part_run import run_part

REASON = why_no_card()

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(REASON is not None, reason=str(REASON)),
]


@pytest.mark.parametrize("part", PARTS, ids=lambda part: part.name)
def test_part_gives_expected_figures(part, tmp_path, capsys):
    result = run_part(part, tmp_path / "log")
    lines = findings(part, result)
    with capsys.disabled():
        print_part(part, result, lines)
    keep(result)
    assert lines == []
