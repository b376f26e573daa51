"""What each kind of record has of a cell: measured here, from outside, or reported elsewhere."""

from collections.abc import Sequence
from functools import cached_property

from hpml_jobs.core.cell import Cell
from hpml_jobs.core.formulas import iterations, samples_processed
from hpml_jobs.core.measurements import Phases, Role
from hpml_jobs.core.rank import Rank, least_waiting, most_stalled, timed_s
from hpml_jobs.core.value import Value, known
from hpml_jobs.core.workload import WORK_SAMPLES


class Measured:
    """A cell that was trained here, by processes that were measured."""

    work_samples: int | None = None
    """Samples that the times are of where these are not an epoch, else None."""

    file: str | None = None
    gpu_model: str | None = None
    """The file and the model of the GPUs of an imported timing."""

    def __init__(self, ranks: Sequence[Rank]) -> None:
        self.ranks = ranks

    def times_in_work(self, role: Role) -> float:
        """Return how often what was measured fits into the work: 1, each epoch is one."""
        return 1.0

    @cached_property
    def per_work(self) -> float:
        """The same of the timed epoch."""
        return self.times_in_work(Role.TIMED)

    @property
    def samples(self) -> int | None:
        """Samples of the timed epoch over all ranks, padding included."""
        return sum(rank.timed.samples for rank in self.ranks)

    @property
    def iterations(self) -> int | None:
        """Iterations of the epoch or work, as they were counted."""
        return round(self.per_work * self.ranks[0].timed.iterations)

    @cached_property
    def epoch_s(self) -> float:
        """Seconds of the timed epoch or the work: the maximum over ranks."""
        return self.per_work * timed_s(self.ranks)

    @property
    def stall_s(self) -> float | None:
        """Seconds of it in which the device waited for a batch, on the most stalled rank."""
        return self.per_work * most_stalled(self.ranks).timed.stall_s

    @property
    def train_s(self) -> float | None:
        """Seconds of it without data loading, epoch_s - stall_s of that rank."""
        timed = most_stalled(self.ranks).timed
        return self.per_work * (timed.epoch_s - timed.stall_s)

    @property
    def step_s(self) -> float | None:
        """Median seconds of an iteration with a full batch, on the rank with the longest."""
        steps = [rank.timed.steps for rank in self.ranks]
        return max((s.full_median_s or s.median_s for s in steps if s), default=None)

    @cached_property
    def least_waiting(self) -> Rank | None:
        """The rank that waits least in the instrumented epoch."""
        number = least_waiting([self.ranks])
        return next((rank for rank in self.ranks if rank.rank == number), None)

    @cached_property
    def phases(self) -> Phases | None:
        """The phases of the instrumented epoch, of the rank that waits least."""
        return self.least_waiting.phases if self.least_waiting else None

    @property
    def compute_s(self) -> float | None:
        """Seconds of computation in it."""
        return self.phases.compute_s if self.phases else None

    @property
    def comm_exposed_s(self) -> float | None:
        """Seconds of exposed communication in it."""
        return self.phases.exposed_s if self.phases else None

    @property
    def comm_s(self) -> float | None:
        """Seconds of communication in it: exposed, and packing by hand."""
        return self.phases.comm_s if self.phases else None

    @cached_property
    def loss(self) -> float | None:
        """Mean training loss of the timed epoch over all samples."""
        return self._mean([rank.timed.loss for rank in self.ranks])

    @property
    def accuracy(self) -> float | None:
        """Mean training accuracy of the timed epoch over all samples."""
        return self._mean([rank.timed.accuracy for rank in self.ranks])

    def _mean(self, values: Sequence[float | None]) -> float | None:
        """Return the mean over all samples of what each rank has; None unless all have it."""
        samples = [rank.timed.samples for rank in self.ranks]
        total_samples = sum(samples)
        reported = known(values)
        if not total_samples or len(reported) < len(values):
            return None
        total = sum(
            value * count for value, count in zip(reported, samples, strict=True)
        )
        return total / total_samples


class ObservedScript(Measured):
    """A script that was measured from outside: passes over its loader, or windows of iterations.

    Times of a window are converted to those of a fixed number of samples.
    """

    def __init__(self, ranks: Sequence[Rank], *, in_windows: bool) -> None:
        super().__init__(ranks)
        self.work_samples = WORK_SAMPLES if in_windows else None

    def times_in_work(self, role: Role) -> float:
        """Return how often the pass or window of a role fits into the work."""
        counted = sum(
            epoch.samples for rank in self.ranks if (epoch := rank.epoch(role))
        )
        return self.samples / counted if self.samples and counted else 1.0

    @property
    def samples(self) -> int | None:
        """Samples of the timed pass over all ranks, or of the work."""
        return super().samples if self.work_samples is None else self.work_samples


class Imported(Value, frozen=True, kw_only=True):
    """An imported timing, one row of a CSV file; None means not reported.

    Only versions before 1.0 wrote other fields than file, line, run, epoch_s, loss, accuracy and
    gpu_model.
    """

    file: str
    line: int
    epoch_s: float
    rate: float | None = None
    unit: str | None = None
    rate_is_per_gpu: bool = False  # before 1.0
    work_samples: int | None = None
    step_s: float | None = None
    train_s: float | None = None
    compute_s: float | None = None
    comm_s: float | None = None
    iterations: int | None = None
    loss: float | None = None
    accuracy: float | None = None
    gpu_model: str | None = None
    gpus_per_node: int | None = None
    date: str | None = None
    run: str | None = None


class Reported:
    """An imported timing: a row of a file, with what it reports."""

    per_work = 1.0
    work_samples = None
    stall_s = None
    step_s = None
    least_waiting = None
    phases = None

    def __init__(self, cell: Cell, imported: Imported) -> None:
        self.cell = cell
        self.epoch_s = imported.epoch_s
        self.train_s = imported.train_s
        self.compute_s = imported.compute_s
        self.comm_s = self.comm_exposed_s = imported.comm_s
        self.file = imported.file
        self.gpu_model = imported.gpu_model
        self.loss = imported.loss
        self.accuracy = imported.accuracy
        self._iterations = imported.iterations

    def times_in_work(self, role: Role) -> float:
        """Return 1: what is reported is the work."""
        return 1.0

    @property
    def samples(self) -> int | None:
        """Samples of the epoch, if the number of images is reported."""
        images = self.cell.workload.images
        return images and samples_processed(images, self.cell.processes)

    @property
    def iterations(self) -> int | None:
        """Iterations of the epoch: reported, else computed; None without the number of images."""
        images = self.cell.workload.images
        if self._iterations or images is None:
            return self._iterations
        return iterations(images, self.cell.gpus, self.cell.batch)


Source = Measured | Reported
