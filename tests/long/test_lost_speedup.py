"""Injected causes of a low speedup: the report names each of them first."""

import json

import pytest

from tests.unit.worker.injections import LOSSES, lost_speedup, needs_link


@pytest.mark.long
@needs_link
def test_injected_cause_is_named_first(program):
    assert lost_speedup(program) == [[loss.cause] for loss in LOSSES]
    (group,) = json.loads(program.ok("collect", "lost", "--json"))["groups"]
    (sheet,) = (table["sheet"] for table in group["tables"] if table["label"] == "gap")
    lines = [dict(zip(sheet["columns"], row, strict=True)) for row in sheet["rows"]]
    for loss in LOSSES:
        (line,) = (
            line for line in lines if loss.is_of(line["strategy"], line["treatment"])
        )
        assert f" {loss.words}" in line["sentence"]
