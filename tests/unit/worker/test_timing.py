"""The window of an epoch that fails: which ranks come to its barrier."""

import pytest

from hpml_jobs.worker.instruments.timing import HostClock, Window


def test_failing_epoch_skips_the_barrier():
    calls = []
    with (
        pytest.raises(ValueError, match="broken batch"),
        Window(HostClock(), lambda: calls.append("barrier")),
    ):
        raise ValueError("broken batch")
    assert calls == ["barrier"]


def test_failing_epoch_without_exchange_comes_to_the_barrier():
    calls = []
    with (
        pytest.raises(ValueError, match="broken batch"),
        Window(HostClock(), lambda: calls.append("barrier"), ranks_are_alone=True),
    ):
        raise ValueError("broken batch")
    assert calls == ["barrier", "barrier"]
