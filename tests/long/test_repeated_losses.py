"""In nine of ten launches the largest part of the lost speedup is the injected cause."""

import pytest

from tests.unit.worker.injections import LOSSES, lost_speedup, needs_link

LAUNCHES = 10


@pytest.mark.long
@needs_link
def test_injected_cause_is_the_largest_in_nine_of_ten(program, capsys):
    launches = lost_speedup(program, repeats=LAUNCHES)
    with capsys.disabled():
        for loss, largest in zip(LOSSES, launches, strict=True):
            print(f"\n{loss.cause} injected, the largest part is", *largest)
    counts = [
        largest.count(loss.cause)
        for loss, largest in zip(LOSSES, launches, strict=True)
    ]
    assert min(counts) >= LAUNCHES - 1
