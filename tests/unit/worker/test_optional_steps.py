"""Steps after training: all ranks agree on whether one has failed, and the reason is kept."""

from types import SimpleNamespace

import torch

from hpml_jobs.worker.probes import OptionalSteps


def steps_where(others_agree):
    """Steps of a rank whose other ranks succeed, or fail."""
    return OptionalSteps(
        SimpleNamespace(all_agree=lambda agrees: agrees and others_agree)
    )


def full():
    raise torch.OutOfMemoryError(
        "CUDA out of memory. Tried to allocate 256.00 MiB\nSee docs"
    )


def test_step_that_succeeds_everywhere_gives_its_result():
    steps = steps_where(others_agree=True)
    assert steps.attempt("trace", lambda: 7) == 7
    assert steps.missing == []


def test_step_that_fails_here_leaves_its_first_line():
    steps = steps_where(others_agree=True)
    assert steps.attempt("trace", full) is None
    assert steps.missing == ["trace: CUDA out of memory. Tried to allocate 256.00 MiB"]


def test_step_that_fails_elsewhere_has_no_result_here():
    steps = steps_where(others_agree=False)
    assert steps.attempt("trace", lambda: 7) is None
    assert steps.missing == ["trace: failed on another rank"]
