"""The record of a finished cell: raw values only, written once, atomically."""

from datetime import datetime
from functools import cached_property
from typing import Any

from hpml_jobs.core.cell import Cell, Outcome
from hpml_jobs.core.formulas import (
    communication_cost_s,
    cost_resolution_s,
    overhead,
    waiting_s,
)
from hpml_jobs.core.gpus import Card, link_gb_per_s
from hpml_jobs.core.measurements import (
    Communication,
    Epoch,
    Exchange,
    Microbenchmark,
    Phases,
    Role,
    Volume,
)
from hpml_jobs.core.rank import Rank, longest_epoch_s, timed_s
from hpml_jobs.core.source import Imported, Measured, ObservedScript, Reported, Source
from hpml_jobs.core.strategies import Strategy
from hpml_jobs.core.text import VERSION, utc_time
from hpml_jobs.core.value import Value, known_mean
from hpml_jobs.core.workload import SourceFile

SCHEMA = 7
"""Version of record.json.

1: first. 2: the full protocol: phases, communication, messages, hashes, profiler, microbenchmark;
imported timings. 3: learning rates, order of images, evaluation by epoch, quantization
(0.4.0). 4: `probe` is `microbenchmark`, a rank's `trace` is `profiler` (0.5.0).
5: more measured fields, all of them optional (0.6.0). 6: more of them (0.9.0).
7: without `profiler` of ranks (1.0.0).
"""


class Neighbours(Value, frozen=True, kw_only=True):
    """Other jobs that ran on the nodes of a job when it started or when it ended.

    `same_user` of the `jobs` belong to the user of the job itself.
    """

    jobs: int
    same_user: int
    users: tuple[str, ...]


class Attempt(Value, frozen=True, kw_only=True):
    """One job for one cell. `id` is unique in the cell: the job's id and its restart count.

    `incomplete` is the reason why the workers ended before all steps after training; None if they
    finished.
    """

    id: str
    job: str
    restart: int = 0
    hosts: tuple[str, ...] = ()
    started: str = ""  # UTC, ISO 8601
    ended: str = ""
    # None where SLURM was not asked or did not answer
    neighbours: Neighbours | None = None
    incomplete: str | None = None

    @property
    def span(self) -> tuple[datetime, datetime] | None:
        """When it started and ended; None where that is not known."""
        started, ended = utc_time(self.started), utc_time(self.ended)
        return (started, ended) if started and ended else None


class Model(Value, frozen=True, kw_only=True):
    """The model that was trained.

    `flop_per_sample` are the FLOP of one sample's forward and backward pass, 2 per multiply-add:
    convolutions and matrix products as torch counts them. None if it cannot be counted (the reason
    is in `Facts.missing`), and in records of versions before 0.7.0 with protocol=lab. `expected`
    are the messages that follow from the shapes of the parameters: those of fsdp and zero1. Under
    fsdp the model is sharded in `shard_groups` groups.
    """

    name: str
    parameters: int
    tensors: int
    gradient_bytes: int
    buffer_bytes: int
    flop_per_sample: int | None = None
    expected: tuple[Volume, ...] = ()
    shard_groups: int | None = None


class Text(Value, frozen=True, kw_only=True):
    """The text of a workload, before `data.limit`: `sha256` of training and then held-out bytes.

    `unigram_bits_per_byte` is the entropy of the frequencies of the held-out bytes that are tested:
    the loss of a model that knows only these. None without held-out text.
    """

    sha256: str
    train_bytes: int
    test_bytes: int
    unigram_bits_per_byte: float | None = None


class Facts(Value, frozen=True, kw_only=True):
    """The software and hardware of a measurement."""

    hpml_jobs: str = VERSION
    commit: str | None = None
    dirty: bool | None = None
    python: str = ""
    torch: str = ""
    torchvision: str = ""
    cuda: str | None = None
    cudnn: int | None = None
    nccl: str | None = None
    backend: str | None = None  # gloo | nccl; None without a process group
    backend_class: str | None = None  # e.g. ProcessGroupNCCL2; since 0.10.0
    driver: str | None = None
    gpu_model: str | None = None
    gpus_visible: int = 0
    topology: str | None = None
    cpu_model: str = ""
    cpu_count: int = 0
    os: str = ""
    tf32_matmul: bool | None = None
    tf32_cudnn: bool | None = None
    cudnn_benchmark: bool | None = None
    cudnn_deterministic: bool | None = None
    container: str | None = None
    slurm: dict[str, str] = {}
    compute_capability: str | None = (
        None  # of the first GPU, e.g. 8.0; None before 0.8.0
    )
    nccl_environment: dict[str, str] = {}
    # other variables that may change numbers (core.environment)
    environment: dict[str, str] = {}
    nccl_algorithm: str | None = (
        None  # of versions before 0.10: NCCL_ALGO where it was set
    )
    # the link's specified one-way speed, of the cluster's config before 1.0
    link_gb_per_s: float | None = None
    # of a device at the cell's precision, of the cluster's config before 1.0
    peak_tflop_per_s: float | None = None
    cancel_below_percent: int | None = None  # the site's limit of GPU utilization
    # of the working tree of the user's functions, at submission
    code_commit: str | None = None
    code_dirty: bool | None = None  # whether their source files differed from it
    precision: str = "fp32"  # unknown for own models: they may compute in another one
    text: Text | None = None  # of byte data
    # that own code imports, versions; None before 0.9.0
    packages: dict[str, str] | None = None
    # own files that the cell's workload does not name
    imported: tuple[SourceFile, ...] = ()
    # those of a script, named from its folder; since 0.10.0
    helpers: tuple[SourceFile, ...] = ()
    # a script was measured in windows of iterations, not in passes
    in_windows: bool = False
    missing: tuple[str, ...] = ()  # facts that could not be read, with the reason


class Record(Value, frozen=True, kw_only=True, dict=True):
    """record.json: the cell, the attempt that measured it, and raw values of every rank.

    Outcome `ok` carries ranks, model and facts, or, for a CSV row, `imported`; outcome `oom`
    carries the reason. What is not known is None.
    """

    cell: Cell
    slug: str
    attempt: Attempt
    outcome: Outcome
    reason: str | None = None
    model: Model | None = None
    facts: Facts | None = None
    ranks: tuple[Rank, ...] = ()
    exchange: Exchange | None = None
    microbenchmark: Microbenchmark | None = None
    imported: Imported | None = None
    quantized: dict[str, Any] | None = None
    schema: int = SCHEMA

    @property
    def trained(self) -> list[Epoch]:
        """The epochs of training of its first rank, which are those of all."""
        return self.ranks[0].trained if self.ranks else []

    @cached_property
    def source(self) -> Source:
        """Where its numbers come from."""
        if self.imported is not None:
            return Reported(self.cell, self.imported)
        if self.cell.origin.has_fixed_epochs:
            return Measured(self.ranks)
        in_windows = self.facts is not None and self.facts.in_windows
        return ObservedScript(self.ranks, in_windows=in_windows)

    @property
    def measured_facts(self) -> Facts | None:
        """The software and hardware; None of an imported timing, which reports little of them."""
        return self.facts if self.cell.origin.has_facts else None

    @property
    def least_waiting(self) -> Rank | None:
        """The rank that waits least in the instrumented epoch; the cell's phases are its own.

        Ranks of synchronous training end together, so the longest epoch is a coin flip; the rank
        that waits least is the one the others wait for. Its phases add up to its epoch, and its
        communication belongs to the same epoch.
        """
        return self.source.least_waiting

    def rank_of(self, number: int | None) -> Rank | None:
        """Return the rank with a number."""
        return next((rank for rank in self.ranks if rank.rank == number), None)

    @property
    def cards(self) -> list[Card]:
        """The GPUs of all ranks."""
        return [card for rank in self.ranks for card in rank.cards]

    @property
    def epoch_s(self) -> float:
        """Seconds of the timed epoch, everything included: the maximum over ranks.

        Of a row with `work_samples`, those of this work.
        """
        return self.source.epoch_s

    @property
    def work_samples(self) -> int | None:
        """Samples that `epoch_s` is the time of where these are not an epoch, else None."""
        return self.source.work_samples

    @property
    def per_work(self) -> float:
        """How often a measured window fits into the work; 1 where an epoch was measured."""
        return self.source.per_work

    @property
    def per_instrumented(self) -> float:
        """How often the instrumented window fits into the work; 1 where it was an epoch."""
        return self.source.times_in_work(Role.INSTRUMENTED)

    @property
    def timed_s(self) -> float:
        """Seconds of the timed epoch or window as it was measured: the maximum over ranks."""
        return timed_s(self.ranks)

    @property
    def stall_s(self) -> float | None:
        """Seconds of the timed epoch in which the device waited for a batch, on `most_stalled`."""
        return self.source.stall_s

    @property
    def train_s(self) -> float | None:
        """Seconds of the timed epoch without data loading, epoch_s - stall_s of `most_stalled`."""
        return self.source.train_s

    @property
    def joules(self) -> float | None:
        """Joules of the cell's GPUs in the timed epoch; None unless all of them have a counter.

        A GPU that several ranks share counts once.
        """
        energies = [rank.timed.energy for rank in self.ranks]
        by_gpu = {
            (rank.host, gpu.uuid): gpu.joules
            for rank, energy in zip(self.ranks, energies, strict=True)
            for gpu in energy or ()
        }
        is_known = None not in energies and by_gpu
        return self.per_work * sum(by_gpu.values()) if is_known else None

    @property
    def gpu_utilization_percent(self) -> float | None:
        """Mean utilization of the GPUs in the timed epoch, by NVML; None if it is not known."""
        return known_mean(card.utilization_percent for card in self.cards)

    @property
    def link_gb_per_s(self) -> float | None:
        """Specified one-way speed between the GPUs, in GB/s: by the cluster's config, else by NVML.

        None between nodes unless the config has it: NVML does not know the network.
        """
        if self.facts and self.facts.link_gb_per_s is not None:
            return self.facts.link_gb_per_s
        return link_gb_per_s(self.cards) if self.cell.nodes == 1 else None

    @property
    def iterations(self) -> int | None:
        """Iterations of the epoch or work: counted; where imported without them, computed.

        None where an imported row has neither them nor the number of images, and where samples are
        tokens: a batch counts sequences.
        """
        return self.source.iterations

    @property
    def instrumented_iterations(self) -> int | None:
        """Iterations of the instrumented epoch; None without one."""
        epoch = self.ranks[0].epoch(Role.INSTRUMENTED) if self.ranks else None
        return epoch.iterations if epoch else None

    @property
    def samples(self) -> int | None:
        """Samples of the timed epoch over all ranks, padding included; None: not reported.

        Where `epoch_s` is the time of other samples, it is those.
        """
        return self.source.samples

    @property
    def units(self) -> int | None:
        """Images, tokens or samples of the same: what throughput counts; None: not known."""
        per_sample = self.cell.workload.units_per_sample
        if self.samples is None or per_sample is None:
            return None
        return self.samples * per_sample

    @property
    def phases(self) -> Phases | None:
        """The phases of the instrumented epoch, of the rank that waits least."""
        return self.source.phases

    @property
    def communication(self) -> Communication | None:
        """The collectives of the same rank and epoch."""
        return self.least_waiting.communication if self.least_waiting else None

    @property
    def compute_s(self) -> float | None:
        """Seconds of computation in the instrumented epoch (imported: as reported)."""
        return self.source.compute_s

    @property
    def comm_exposed_s(self) -> float | None:
        """Seconds of exposed communication in it (imported: as reported)."""
        return self.source.comm_exposed_s

    @property
    def exchange_s(self) -> float | None:
        """Seconds of exposed communication that are not waiting.

        Before version 0.9.0 those of the least rank of each iteration, which may contain waiting.
        None where they cannot be told apart, as in gathers and scatters before version 0.10.0.
        """
        exchange = self.exchange
        if exchange is None:
            return None
        has_roots = exchange.rooted_s is not None
        is_old = exchange.service_s is None
        # of ddp these are broadcasts of buffers, which are small
        if has_roots and is_old and self.cell.strategy is not Strategy.DDP:
            return None
        return exchange.exchange_s

    @property
    def waiting_s(self) -> float | None:
        """Seconds of the exposed communication spent waiting for ranks that were later."""
        if self.phases is None or self.exchange_s is None:
            return None
        return waiting_s(self.phases.exposed_s, self.exchange_s)

    @property
    def skew_s(self) -> float | None:
        """Seconds of waiting for late ranks in all-reduces; before schema 5 in all collectives."""
        exchange = self.exchange
        if exchange is None:
            return None
        return exchange.all_reduce_skew_s if exchange.tells_kinds else exchange.skew_s

    @property
    def net_s(self) -> float | None:
        """Seconds of all-reduces on the rank with the least; before schema 5 of all collectives."""
        exchange = self.exchange
        if exchange is None:
            return None
        return exchange.all_reduce_net_s if exchange.tells_kinds else exchange.net_s

    @property
    def rooted_s(self) -> float | None:
        """Seconds of broadcasts, gathers and scatters on their root."""
        return self.exchange.rooted_s if self.exchange else None

    @property
    def comm_s(self) -> float | None:
        """Seconds of communication in it: exposed, and packing by hand (imported: as reported)."""
        return self.source.comm_s

    @property
    def step_s(self) -> float | None:
        """Median seconds of an iteration with a full batch in the timed epoch, stall included.

        Ranks end each iteration together; it is of the rank with the longest. Before schema 5
        a smaller last batch is included.
        """
        return self.source.step_s

    @property
    def comm_total_s(self) -> float | None:
        """Seconds in which any collective was running."""
        return self.communication.total_s if self.communication else None

    @property
    def gradients_net_s(self) -> float | None:
        """Seconds that the gradient collectives needed once all ranks were there.

        A collective's duration on an early rank contains waiting for the late one. Where gradients
        have a root, and before version 0.9.0, all of them on the rank with the least.
        """
        if self.exchange and self.exchange.gradients_net_s is not None:
            return self.exchange.gradients_net_s
        of_ranks = [
            rank.communication.gradients_s for rank in self.ranks if rank.communication
        ]
        return min(of_ranks, default=None)

    @property
    def comm_cost_s(self) -> float | None:
        """The timed epoch less the epoch without gradient exchange."""
        unsynced = longest_epoch_s(self.ranks, Role.UNSYNCED)
        return (
            None if unsynced is None else communication_cost_s(self.timed_s, unsynced)
        )

    @property
    def comm_cost_resolution_s(self) -> float | None:
        """The resolution of `comm_cost_s`, +- seconds; None before schema 5."""
        widths = [*map(self._quartile_width_s, (Role.TIMED, Role.UNSYNCED))]
        if widths[0] is None or widths[1] is None:
            return None
        return cost_resolution_s(self.ranks[0].timed.iterations, widths[0], widths[1])

    def _quartile_width_s(self, role: Role) -> float | None:
        """Return the largest quartile width of an epoch's steps over the ranks."""
        steps = [epoch.steps for rank in self.ranks if (epoch := rank.epoch(role))]
        widths = [
            s.quartile_width_s for s in steps if s and s.quartile_width_s is not None
        ]
        return max(widths, default=None)

    @cached_property
    def overhead(self) -> float | None:
        """Return the overhead of the instruments: instrumented epoch / timed epoch - 1."""
        instrumented = longest_epoch_s(self.ranks, Role.INSTRUMENTED)
        if instrumented is None:
            return None
        return overhead(
            self.per_instrumented * instrumented, self.per_work * self.timed_s
        )

    @property
    def loss(self) -> float | None:
        """Mean training loss of the timed epoch over all samples (imported: as reported)."""
        return self.source.loss

    @property
    def accuracy(self) -> float | None:
        """Mean training accuracy of the timed epoch over all samples, 0 to 1 (imported: too)."""
        return self.source.accuracy
