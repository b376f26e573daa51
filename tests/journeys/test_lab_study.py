"""The main journey: ddp cells from the command line to the three tables."""

import itertools
import json

import pytest

from hpml_jobs.core.formulas import (
    bus_gb_per_s,
    expected_bytes,
    residual_communication_s,
)
from hpml_jobs.core.rank import EQUAL_WAITING

pytestmark = pytest.mark.journey

SMALL = (
    "batch=64",
    "workload=digits",
    "data.limit=1024",
    "loader_workers=1",
    "probe_s=0.5",
)


@pytest.fixture(scope="module")
def studies(submit):
    """Two studies submitted together: with every instrument, and on two nodes."""
    return {
        "lab": submit("lab", "-m", "gpus=1,2", *SMALL),
        "nodes": submit("nodes", "gpus=2", "nodes=2", "protocol=lab", *SMALL),
    }


@pytest.fixture(scope="module")
def lab_study(studies):
    studies["lab"].wait_until_finished()
    return studies["lab"]


def test_lab_grid_writes_a_record_of_each_cell(lab_study):
    states = lab_study.states()
    assert {
        slug: s["reason"] for slug, s in states.items() if s["outcome"] != "ok"
    } == {}
    assert len(states) == 2
    records = lab_study.records()
    assert len(records) == 2
    for record in records.values():
        assert record.facts is not None
        assert record.facts.slurm["SLURM_JOB_ID"]
        assert record.attempt.job == lab_study.jobs[record.slug]
        assert {rank.threads for rank in record.ranks} == {1}
        assert record.attempt.hosts[0].startswith("g")


def test_lab_requests_match_sacct_allocation(lab_study, rig):
    for slug, record in lab_study.records().items():
        (row,) = rig.sacct(lab_study.jobs[slug], "AllocTRES", "State", "AllocCPUS")
        assert f"gres/gpu:rtx8000={record.cell.gpus}" in row["AllocTRES"].split(",")
        assert int(row["AllocCPUS"]) == 2 * record.cell.gpus
        assert row["State"] == "COMPLETED"


def test_lab_cells_run_one_at_a_time(lab_study):
    spans = sorted(
        (r.attempt.started, r.attempt.ended) for r in lab_study.records().values()
    )
    assert all(end < start for (_, end), (start, _) in itertools.pairwise(spans))


def test_second_submit_sends_nothing(lab_study, login, rig):
    answer = json.loads(login.ok(*lab_study.words))
    assert {row["why"] for row in answer["cells"]} == {"left out: ok"}
    assert {row["cell"]: row["job"] for row in answer["cells"]} == lab_study.jobs
    assert rig.run("squeue", "-h", f"--name={lab_study.study.job_name}").stdout == ""
    words = [word for word in lab_study.words if word != "--json"]
    assert "nothing submitted, 2 left out" in login.ok(*words)


@pytest.fixture(scope="module")
def shown(lab_study, login):
    return login.ok("collect", "lab", "--all")


def test_tables_match_records(lab_study, shown):
    for words in (
        "Table 1",
        "Table 2",
        "Table 3",
        "by subtraction",
        "batch 64 per process",
    ):
        assert words in shown
    for name in ("report.md", "tables.tex", "tables.json", "table1.csv"):
        assert (lab_study.study.report / name).stat().st_size > 0
    tables = json.loads((lab_study.study.report / "tables.json").read_text())
    (group,) = tables["groups"]
    entries = {(e["gpus"], e["batch_per_gpu"]): e for e in group["entries"]}
    by_point = {(r.cell.gpus, r.cell.batch): r for r in lab_study.records().values()}
    for (gpus, batch), record in by_point.items():
        if gpus == 1:
            continue
        base, entry = by_point[1, batch], entries[gpus, batch]
        assert entry["timing"]["epoch_s"] == record.epoch_s
        assert entry["speedup"] == base.epoch_s / record.epoch_s
        iterations = record.ranks[0].timed.iterations
        residual = residual_communication_s(
            record.train_s, record.samples / gpus, base.train_s, base.samples
        )
        assert entry["residual"]["comm_s"] == residual
        assert entry["residual"]["compute_s"] == record.train_s - residual
        assert record.model is not None
        size = iterations * record.model.gradient_bytes
        bandwidth = bus_gb_per_s(size, residual, gpus) if residual > 0 else None
        assert entry["residual"]["bus_gb_per_s"] == bandwidth


def test_communication_phases_add_up_to_epoch(lab_study, shown):
    tables = json.loads((lab_study.study.report / "tables.json").read_text())
    entries = {
        (e["gpus"], e["batch_per_gpu"]): e for e in tables["groups"][0]["entries"]
    }
    parallel = [
        record for record in lab_study.records().values() if record.cell.gpus > 1
    ]
    assert len(parallel) == 1
    for record in parallel:
        cell, entry = record.cell, entries[record.cell.gpus, record.cell.batch]
        assert record.model is not None
        expected = expected_bytes(record.iterations, record.model.gradient_bytes)
        for rank in record.ranks:
            assert rank.communication.bytes_of("gradients") == expected
        assert len({rank.parameters_hash for rank in record.ranks}) == 1
        shown = record.least_waiting
        longest_s = max(rank.epoch("instrumented").epoch_s for rank in record.ranks)
        least_s = min(rank.phases.exposed_s for rank in record.ranks)
        assert shown.phases.exposed_s <= least_s + EQUAL_WAITING * longest_s
        # on a busy machine clocks of ranks make the exchange longer than what is exposed
        waiting_s = max(0.0, record.comm_exposed_s - record.exchange_s)
        assert record.waiting_s == pytest.approx(waiting_s)
        epoch = shown.epoch("instrumented")
        whole_s = epoch.epoch_s - record.phases.stall_s
        between_s = epoch.closure * epoch.epoch_s + 1e-6
        assert record.compute_s + record.comm_s == pytest.approx(whole_s, abs=between_s)
        assert entry["values"]["compute_s"] == record.compute_s
        assert entry["values"]["comm_exposed_s"] == record.comm_exposed_s
        busbw = bus_gb_per_s(expected, record.gradients_net_s, cell.gpus)
        assert entry["bandwidth"]["bus_gb_per_s"] == pytest.approx(busbw)
        assert entry["bandwidth"]["sent_bytes"] == expected


def test_checks_independent_of_machine_pass(lab_study, login):
    sure = {"closure", "parameters", "short", "loader-bound"}
    together = {"replicas", "messages"}
    for cell in json.loads(login.ok("status", "lab", "--json"))["cells"]:
        levels = {result["check"]: result["level"] for result in cell["checks"]}
        alone = cell["slug"].startswith("single")
        wanted = sure if alone else sure | together
        assert wanted <= set(levels)
        passed = wanted - {"short", "loader-bound", "closure"}  # those are measured
        assert {levels[check] for check in passed} == {"pass"}, cell["checks"]


def test_rerun_replaces_record_and_keeps_old_one(lab_study, login):
    slug = next(slug for slug in lab_study.jobs if slug.startswith("single-1proc-b64"))
    old = lab_study.records()[slug]
    words = [word for word in lab_study.words if not word.startswith("gpus=")]
    answer = json.loads(login.ok(*words, "gpus=1", "rerun=true"))
    assert [row["why"] for row in answer["cells"]] == ["again (rerun=true)"]
    lab_study.wait_until_finished()
    new = lab_study.records()[slug]
    assert new.attempt.id != old.attempt.id
    kept = lab_study.study.cell(slug).attempt(old.attempt.id).record
    assert old.attempt.id in kept.read_text()


def test_two_gpus_on_two_nodes_write_one_record(studies, rig):
    sent = studies["nodes"]
    (state,) = sent.wait_until_finished().values()
    assert (state["outcome"], state["reason"]) == ("ok", "")
    (record,) = sent.records().values()
    # c10d gives rank 0 to either node
    assert sorted(record.attempt.hosts) == ["gr001", "gr002"]
    assert sorted(rank.host for rank in record.ranks) == ["gr001", "gr002"]
    (row,) = rig.sacct(sent.job, "AllocTRES", "NNodes")
    assert row["NNodes"] == "2"
    assert "gres/gpu:rtx8000=2" in row["AllocTRES"].split(",")
