"""Clean records, which every check passes, and changes of them that make one fire."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import msgspec

from hpml_jobs.core.cell import Cell, Outcome, Protocol
from hpml_jobs.core.check_result import CheckResult, Level
from hpml_jobs.core.formulas import gradient_bytes
from hpml_jobs.core.gpus import Card, CardSamples
from hpml_jobs.core.measurements import Memory, SlowIterations
from hpml_jobs.core.record import Attempt, Facts, Model, Neighbours, Record
from hpml_jobs.core.source import Imported
from hpml_jobs.core.strategies import Device, Strategy
from hpml_jobs.results.cells import CellResult
from hpml_jobs.results.checks.study import check_record, check_study
from hpml_jobs.results.groups import group
from tests.unit.builders import DIGITS, MODEL, a_cell, a_record

Change = Callable[[Record], Record]
replace = msgspec.structs.replace

A100 = "NVIDIA A100-SXM4-80GB"
FACTS = Facts(
    commit="0123456789abcdef",
    dirty=False,
    torch="2.14.1",
    driver="550.54.15",
    gpu_model=A100,
    cpu_model="AMD EPYC 7543",
    cpu_count=64,
    tf32_matmul=False,
    tf32_cudnn=True,
    cudnn_benchmark=True,
    cudnn_deterministic=False,
    gpus_visible=4,
    slurm={"SLURM_GPUS_ON_NODE": "4"},
    cancel_below_percent=60,
)
DDP4 = a_cell(batch=32)
SINGLE = a_cell(batch=32, gpus=1, strategy=Strategy.SINGLE)


OF_CARDS = {"throttled", "other-processes", "gpu-health", "gpu-utilization"}
"""The checks of a record's GPUs: their tests have the cases."""


class CheckCase(NamedTuple):
    """A change of a clean record that makes a check fire, and words of its reason."""

    check: str
    level: Level
    change: Change
    words: str
    cell: Cell = DDP4


def case_id(case: CheckCase) -> str:
    return f"{case.check}-{case.words[:20]}"


def assert_fires(case: CheckCase) -> None:
    """A check of one record fires on its case."""
    result = result_of(check_record(case.change(clean_record(case.cell))), case.check)
    assert result.level is case.level
    assert case.words in result.reason
    assert "\n" not in result.reason


def device_snapshot(number: int, **changes: Any) -> Card:
    values = {
        "uuid": f"GPU-{number}",
        "sm_clock_mhz": 1410,
        "max_sm_clock_mhz": 1410,
        "temperature_c": 60,
        "power_w": 250.0,
        "throttle_reasons": ("gpu_idle",),
        "other_processes": 0,
        "bus_id": f"0000:{number}B:00.0",
        "pcie_width": 16,
        "max_pcie_width": 16,
        "ecc_uncorrected": 0,
        "row_remapping": "done",
        "near_cpus": tuple(range(64)),
    }
    return Card(**(values | changes))


def attempt_between(
    start: str = "2026-10-01T10:00", end: str = "2026-10-01T10:05"
) -> Attempt:
    times = {"started": f"{start}:00+00:00", "ended": f"{end}:00+00:00"}
    alone = Neighbours(jobs=0, same_user=0, users=())
    return Attempt(
        id="101_0.r0", job="101_0", hosts=("gr001",), neighbours=alone, **times
    )


def clean_record(of: Cell = DDP4, epoch_s: float = 8.0, **changes: Any) -> Record:
    """A record to which every check applies that its cell allows, and which passes them all."""
    model = replace(MODEL, flop_per_sample=5_000_000)
    made = a_record(of, epoch_s=epoch_s, facts=FACTS, model=model, attempt="101_0.r0")
    ranks = tuple(
        replace(
            rank,
            device_uuids=(f"GPU-{rank.rank}",),
            cards=(device_snapshot(rank.rank),),
        )
        for rank in made.ranks
    )
    clean = replace(made, ranks=ranks, attempt=attempt_between())
    if of.device is Device.CUDA:
        memory = Memory(allocated_bytes=2**30, reserved_bytes=2**31, retries=0, ooms=0)
        clean = change_epoch("timed", launch_s=0.01, memory=memory)(clean)
    return replace(clean, **changes)


def check_records(records: Sequence[Record]) -> dict[str, tuple[CheckResult, ...]]:
    """The results of the checks of a study of these records, by slug."""
    cells = [
        CellResult(slug=r.slug, cell=r.cell, record=r, outcome=r.outcome)
        for r in records
    ]
    return check_study(group(cells), [record.slug for record in records])


def baseline_record(**changes: Any) -> Record:
    """The plain loop on one GPU, an hour after the cell that is compared with it."""
    return clean_record(
        SINGLE, **({"epoch_s": 30.0, "attempt": attempt_an_hour_later()} | changes)
    )


def attempt_an_hour_later() -> Attempt:
    return attempt_between("2026-10-01T11:00", "2026-10-01T11:05")


def change_rank(number: int, **fields: Any) -> Change:
    """One rank with other fields."""

    def change(old: Record) -> Record:
        ranks = [replace(r, **fields) if r.rank == number else r for r in old.ranks]
        return replace(old, ranks=tuple(ranks))

    return change


def change_card(number: int = 1, **fields: Any) -> Change:
    """The GPU of one rank in another state."""
    return change_rank(number, cards=(device_snapshot(number, **fields),))


def samples_at(clock_mhz: int, reason: str) -> CardSamples:
    """A GPU that has a low clock through all of the timed epoch."""
    return CardSamples(
        count=8,
        sm_clock_mhz=(clock_mhz,) * 3,
        memory_clock_mhz=(1215,) * 3,
        power_w=(240.0, 245.0, 250.0),
        temperature_c=75,
        throttle_reasons={reason: 1.0},
        utilization_percent=40.0,
    )


def change_epoch(role: str, number: int | None = None, **fields: Any) -> Change:
    """An epoch with other fields, on one rank or on all."""

    def change(old: Record) -> Record:
        ranks = [
            replace(
                rank,
                epochs=tuple(
                    replace(epoch, **fields)
                    if epoch.role == role and number in (None, rank.rank)
                    else epoch
                    for epoch in rank.epochs
                ),
            )
            for rank in old.ranks
        ]
        return replace(old, ranks=tuple(ranks))

    return change


PAUSE = SlowIterations(count=1, excess_s=15.0, longest_s=15.05, longest_index=7)
"""The iteration in which a process was stopped."""


def noisy(record: Record, noise: float) -> Record:
    """The same record, of which ten blocks of iterations scatter by a share."""
    steps = record.ranks[0].timed.steps
    blocks = tuple(steps.median_s * (1 + noise * (-1) ** n * 0.95) for n in range(10))
    return change_epoch("timed", steps=replace(steps, block_medians_s=blocks))(record)


def change_scheduling(role: str, **fields: Any) -> Change:
    """The operating system's accounts of an epoch with other fields, on all ranks."""

    def change(old: Record) -> Record:
        scheduling = old.ranks[0].epoch(role).scheduling
        pause = {"slow": PAUSE} if fields.get("continued_s") else {}
        return change_epoch(role, scheduling=replace(scheduling, **fields), **pause)(
            old
        )

    return change


def wait_for_cpu(
    role: str, run_queue_s: float, others_s: float | None = None
) -> Change:
    """All ranks wait for a CPU; other processes use it for `others_s`, by default for as long."""

    def change(old: Record) -> Record:
        others = run_queue_s if others_s is None else others_s
        busy_s = old.ranks[0].epoch(role).scheduling.busy_s + others
        return change_scheduling(role, run_queue_s=run_queue_s, busy_s=busy_s)(old)

    return change


def change_microbenchmark(**fields: Any) -> Change:
    """The accounts of the microbenchmark, those of the timed epoch with other fields."""

    def change(old: Record) -> Record:
        for rank in old.ranks:
            accounts = replace(rank.timed.scheduling, **fields)
            old = change_rank(rank.rank, microbenchmark_scheduling=accounts)(old)
        return old

    return change


def change_phases(**fields: Any) -> Change:
    """Rank 2's phases with other fields."""

    def change(old: Record) -> Record:
        phases = replace(old.ranks[2].phases, **fields)
        return change_epoch("instrumented", 2, phases=phases)(old)

    return change


def late_rank(number: int, phase: str, late_s: float) -> Change:
    """One rank works longer in a phase, and waits as much less after its last gradient."""

    def change(old: Record) -> Record:
        phases = old.ranks[number].phases
        fields = {
            phase: getattr(phases, phase) + late_s,
            "comm_exposed_s": phases.comm_exposed_s - late_s,
        }
        return change_epoch("instrumented", number, phases=replace(phases, **fields))(
            old
        )

    return change


def change_messages(**fields: Any) -> Change:
    """Rank 1's gradient messages with other fields."""

    def change(old: Record) -> Record:
        talk = old.ranks[1].communication
        sent = [
            replace(m, **fields) if m.purpose == "gradients" else m
            for m in talk.messages
        ]
        return change_rank(1, communication=replace(talk, messages=tuple(sent)))(old)

    return change


def change_every_rank(**fields: Any) -> Change:
    """Every rank with other fields."""
    return lambda old: replace(
        old, ranks=tuple(replace(rank, **fields) for rank in old.ranks)
    )


def change_facts(**fields: Any) -> Change:
    return lambda old: replace(old, facts=replace(old.facts, **fields))


def change_model(**fields: Any) -> Change:
    return lambda old: replace(old, model=replace(old.model, **fields))


def with_attempt_times(start: str, end: str) -> Change:
    return lambda old: replace(old, attempt=attempt_between(start, end))


def with_neighbours(**fields: Any) -> Change:
    """Other jobs on the cell's nodes."""
    neighbours = Neighbours(**fields)
    return lambda old: replace(old, attempt=replace(old.attempt, neighbours=neighbours))


RESNET = replace(DIGITS, name="resnet18", images=50_000, parameters=11_173_962)


def imported_record(gpus: int = 4, batch: int = 32, **answer: Any) -> Record:
    """A row of a CSV file, of an A100."""
    strategy = Strategy.SINGLE if gpus == 1 else Strategy.DDP
    changes = {
        "workload": RESNET,
        "protocol": Protocol.IMPORTED,
        "gpus": gpus,
        "batch": batch,
    }
    of = a_cell(**changes, strategy=strategy, epochs=0, loader_workers=0)
    size = gradient_bytes(11_173_962)
    return Record(
        cell=of,
        slug=of.slug,
        attempt=Attempt(id="imported", job="imported"),
        outcome=Outcome.OK,
        model=Model(
            name="resnet18",
            parameters=11_173_962,
            tensors=0,
            gradient_bytes=size,
            buffer_bytes=0,
        ),
        facts=Facts(hpml_jobs="", gpu_model=A100),
        imported=Imported(
            file="them.csv", line=2, gpu_model=A100, **({"epoch_s": 10.5} | answer)
        ),
    )


def result_of(given: tuple[CheckResult, ...], check: str) -> CheckResult:
    return next(result for result in given if result.check == check)
