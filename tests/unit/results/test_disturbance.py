"""Foreign CPU and outside causes, from the accounts of ranks that share or divide CPUs."""

import pytest
from msgspec.structs import replace

from hpml_jobs.core.measurements import Role
from hpml_jobs.core.strategies import Device
from hpml_jobs.results.disturbance import (
    CauseKind,
    foreign_cpu_share,
    host_cpus,
    outside_causes,
    withheld_share,
)
from tests.unit.builders import a_cell
from tests.unit.check_cases import (
    PAUSE,
    change_epoch,
    change_facts,
    change_rank,
    change_scheduling,
    clean_record,
    wait_for_cpu,
)


def kinds(record, role=Role.TIMED):
    return [cause.kind for cause in outside_causes(record, role)]


def test_quiet_epoch_has_no_outside_cause():
    record = clean_record()
    assert foreign_cpu_share(record) == pytest.approx(0.01 / 12, rel=0.2)
    assert kinds(record) == []


def test_ranks_of_a_shared_mask_count_its_cpus_once():
    (host,) = host_cpus(clean_record(), Role.TIMED)
    assert host.cpus == 12
    assert host.foreign_s == pytest.approx(0.08, rel=0.2)


def test_masks_that_divide_a_host_add_up():
    record = clean_record()
    for number in range(4):
        record = change_rank(number, affinity=tuple(range(3 * number, 3 * number + 3)))(
            record
        )
    # 1 CPU beside each rank's 0.9
    record = change_scheduling("timed", busy_s=8.0 * 1.9)(record)
    (host,) = host_cpus(record, Role.TIMED)
    assert host.cpus == 12
    assert host.foreign_s == pytest.approx(32.0, rel=1e-2)


def test_masks_that_overlap_partly_leave_foreign_cpu_unknown():
    record = change_rank(1, affinity=(11, 12, 13))(clean_record())
    assert foreign_cpu_share(record) is None
    assert kinds(record) == []


def test_foreign_cpu_of_two_hosts_is_that_of_the_worst():
    record = clean_record()
    for number in (2, 3):
        record = change_rank(number, host="gr002")(record)
    record = change_scheduling("timed", busy_s=8.0 * (1.8 + 3.0))(record)
    assert [host.host for host in host_cpus(record, Role.TIMED)] == ["gr001", "gr002"]
    assert foreign_cpu_share(record) == pytest.approx(0.25, rel=1e-2)
    assert kinds(record) == [CauseKind.FOREIGN, CauseKind.FOREIGN]


def test_cpus_beyond_the_allocation_belong_to_others():
    """Without confinement a job sees all CPUs of a node; others may use those it was not given."""
    record = change_scheduling("timed", busy_s=8.0 * (0.9 * 4 + 4.0))(clean_record())
    assert foreign_cpu_share(record) == pytest.approx(1 / 3, rel=1e-2)
    confined = change_facts(slurm={"SLURM_CPUS_ON_NODE": "8"})(record)
    assert foreign_cpu_share(confined) == pytest.approx(0.0, abs=1e-2)


def test_waiting_of_an_oversubscribed_cell_is_its_own():
    waiting = wait_for_cpu("timed", 4.0, 0.7)
    assert kinds(waiting(clean_record())) == [CauseKind.RUN_QUEUE]
    record = clean_record()
    for number in range(4):
        record = change_rank(number, affinity=(0, 1))(record)
    assert kinds(waiting(record)) == []


def test_gloo_and_ranks_that_share_cpus_are_the_cells_own():
    """Quiet cells of two ranks on two CPUs waited for a CPU for 18 to 20 % of the epoch."""
    for device, is_expected in ((Device.CPU, False), (Device.CUDA, True)):
        record = clean_record(a_cell(gpus=2, batch=32, device=device, loader_workers=0))
        found = kinds(wait_for_cpu("timed", 1.6)(record))
        assert (CauseKind.RUN_QUEUE in found) is is_expected


def test_waiting_that_others_do_not_explain_is_of_waking_up():
    """A quiet machine's process with 1,000 short iterations waited for a CPU for 6 to 12 %."""
    record = clean_record(a_cell(gpus=2, batch=32, loader_workers=0))
    assert kinds(wait_for_cpu("timed", 1.6, 0.0)(record)) == []
    assert CauseKind.RUN_QUEUE in kinds(wait_for_cpu("timed", 1.6)(record))
    stolen = change_scheduling("timed", run_queue_s=1.6, stolen_s=1.6)
    assert CauseKind.RUN_QUEUE in kinds(stolen(record))
    for field in ("cpu_s", "stolen_s"):
        unknown = change_scheduling("timed", run_queue_s=1.6, **{field: None})
        assert kinds(unknown(record)) == [CauseKind.RUN_QUEUE]


@pytest.mark.parametrize(
    ("foreign", "waited", "withheld"),
    [
        (6.0, 0.002, 0.002),  # of 12 CPUs: those that the ranks need are free
        (6.0, 0.79, 0.5),
        (1.2, 0.79, 0.1),  # the other ranks took the rest
        (0.3, 0.0, 0.0),  # below the limit
    ],
)
def test_foreign_cpu_withholds_what_ranks_waited_for(foreign, waited, withheld):
    used = {"busy_s": 8.0 * (4 * 0.9 + foreign), "run_queue_s": 8.0 * waited}
    record = clean_record(a_cell(batch=32, device=Device.CPU))
    assert withheld_share(record) == 0.0
    disturbed = change_scheduling("timed", **used)(record)
    assert withheld_share(disturbed) == pytest.approx(withheld, rel=0.01)


def test_waiting_for_a_cpu_counts_once_beside_a_stop():
    change = change_scheduling(
        "timed", busy_s=8.0 * (3.6 + 6.0), run_queue_s=2.4, stolen_s=8.0
    )
    causes = outside_causes(change(clean_record()), Role.TIMED)
    assert [cause.kind for cause in causes] == ["foreign", "stolen", "run_queue"]
    share = withheld_share(change(clean_record()))
    assert share == pytest.approx(2.4 / 8.0 + 8.0 / (8.0 * 9.6 + 8.0), rel=0.01)


def test_pause_of_several_ranks_counts_once():
    """A job that is suspended stops all of its ranks at the same time."""
    record = clean_record()
    pause = replace(PAUSE, excess_s=0.8, longest_s=0.85)
    shares = []
    for number in range(4):
        stopped = replace(record.ranks[number].timed.scheduling, continued_s=(1.0,))
        change = change_epoch("timed", number, scheduling=stopped, slow=pause)
        record = change(record)
        shares.append(withheld_share(record))
    assert len(outside_causes(record, Role.TIMED)) == 4
    assert shares == pytest.approx([0.1] * 4, rel=0.01)


def test_hypervisor_is_judged_by_the_cpu_time_in_demand():
    """One busy CPU of 64 that loses a tenth of its time is disturbed; idle CPUs lose nothing."""
    record = clean_record()
    for number in range(4):
        record = change_rank(number, affinity=tuple(range(64)))(record)
    busy = change_scheduling("timed", busy_s=7.2, cpu_s=1.8, stolen_s=0.8)
    assert CauseKind.STOLEN in kinds(busy(record))
    assert CauseKind.STOLEN not in kinds(
        change_scheduling("timed", stolen_s=0.3)(busy(record))
    )


def test_continue_signal_without_pause_is_no_stop():
    """SLURM sends SIGCONT before the time limit to processes that run."""
    clean = clean_record()
    scheduling = replace(clean.ranks[0].timed.scheduling, continued_s=(1.0,))
    stalls = replace(clean.ranks[0].timed.stalls, first_s=0.01)
    record = change_epoch("timed", scheduling=scheduling, stalls=stalls)(clean)
    assert kinds(record) == []
