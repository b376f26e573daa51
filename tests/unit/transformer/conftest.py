"""Fixtures of tests that train: those of the worker."""

from tests.unit.worker.conftest import *  # noqa: F403
