"""The cells that come next in a study with `gpus=auto`, `batch=auto` or `repeats=auto`.

A study is a function from its records to its next cells. A typed grid is the constant function;
this one measures only what the answer needs, and judges only what was measured. docs/results.md has
its rules.
"""

from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from math import exp, inf, log, sqrt
from statistics import fmean, median
from typing import NamedTuple

from hpml_jobs.core.formulas import MOST_LAUNCHES, largest_near_best

WORTH = 1.02
"""A larger batch is tried while the last one raised the rate by this factor."""

KEEPS_BATCH = 0.9
"""The batch at which sizes are measured is kept while its rate is this share of the best, less two
errors of a launch."""

DECIDED = 2.41
"""Standard errors from a limit that decide a size: Pocock's constant for five looks at 5 %."""

LEAST_ITERATIONS = 10
"""Iterations of an epoch on the largest size, at least: start-up shall not dominate its time."""

LEAST_NOISE = 0.03
"""Relative error of one launch, at least."""

LEAST_LAUNCHES = 2
"""Launches of the smallest size, at least: they show how launches scatter."""


class Setting(NamedTuple):
    """A number of GPUs and a batch per GPU."""

    gpus: int
    batch: int


class Measured(NamedTuple):
    """What is known of a setting: GPU-seconds per sample of each launch that counts.

    There are none if it did not fit into memory. `launches` are all that ended, disturbed ones
    too. `noise` is the relative error of one launch, as it knows itself. `gpu_hours` are those that
    one launch took, `samples` those of an epoch.
    """

    gpu_s: tuple[float, ...]
    launches: int = 1
    noise: float = 0.0
    gpu_hours: float = 0.0
    samples: float = inf


class Goal(NamedTuple):
    """What the answer must meet, and what may be measured for it.

    `min_efficiency` is of 1. With `gpu_hours` the whole study takes no more. `batches_at_once` are
    tried in one step. `repeats`: cells are launched until the answer is decided.
    """

    min_efficiency: float
    gpu_hours: float | None = None
    batches_at_once: int = 1
    repeats: bool = False


class Chosen(NamedTuple):
    """The largest size that meets the goal, None if no batch fits; another one if undecided."""

    setting: Setting | None
    undecided: Setting | None = None


Known = Mapping[Setting, Measured]


def next_cells(
    goal: Goal, sizes: Sequence[int], batches: Sequence[int], known: Known
) -> list[Setting] | Chosen:
    """Return the settings of which one launch more is needed, or the answer.

    `sizes` and `batches` are the candidates, in rising order.
    """
    smallest = sizes[0]
    gpu_s = _by_batch(smallest, known)
    batch = _begun_batch(smallest, known, gpu_s)
    if batch is None:
        if missing := _missing_batches(goal, sizes, batches, known):
            return missing
        if not gpu_s:
            return Chosen(None)
        batch = largest_near_best(gpu_s)
    reference = Setting(smallest, batch)
    if goal.repeats and known[reference].launches < LEAST_LAUNCHES:
        return [reference]
    row = _SizesAtBatch(goal, known, [Setting(size, batch) for size in sizes])
    if goal.gpu_hours is not None:
        return row.upwards(goal.gpu_hours)
    return row.corner_first()


def _begun_batch(smallest: int, known: Known, gpu_s: Mapping[int, float]) -> int | None:
    """Return the batch at which sizes are measured already: noise shall not choose another one.

    None if by now another batch is clearly faster on the smallest size, which was measured again.
    """
    noise = _noise(known.values())
    begun = [
        setting
        for setting in known
        if setting.gpus > smallest and setting.batch in gpu_s
        if KEEPS_BATCH * exp(-2 * noise) * gpu_s[setting.batch] <= min(gpu_s.values())
    ]
    most = max(begun, key=lambda one: known[one].launches, default=None)
    return most.batch if most else None


def _missing_batches(
    goal: Goal, sizes: Sequence[int], batches: Sequence[int], known: Known
) -> list[Setting]:
    """Return the next batches to measure on the smallest size; none once they bring no more."""
    settings = [Setting(sizes[0], batch) for batch in batches]
    tried = [known[setting] for setting in settings if setting in known]
    if tried and why_no_larger(goal, tried, known):
        return []
    samples = tried[-1].samples if tried else inf
    return [
        setting
        for setting in settings[len(tried) :][: goal.batches_at_once]
        if setting.batch * sizes[-1] * LEAST_ITERATIONS <= samples
    ]


def why_no_larger(goal: Goal, tried: Sequence[Measured], known: Known) -> str:
    """Return why no larger batch than those tried may bring more; empty if one may."""
    *_, last = tried
    if not last.gpu_s:
        return "memory is full"
    if any(one.gpu_s and _gpu_s(one) < WORTH * _gpu_s(last) for one in tried[-2:-1]):
        return "it is not 2 % faster than the one before"
    if goal.gpu_hours is not None:
        left = goal.gpu_hours - spent(known.values())
        if goal.batches_at_once * last.gpu_hours > left:
            return "gpu_hours= allows no more"
    return ""


def _by_batch(gpus: int, known: Known) -> dict[int, float]:
    """Return the GPU-seconds per sample of a size at each batch that fits."""
    return {
        setting.batch: _gpu_s(measured)
        for setting, measured in known.items()
        if setting.gpus == gpus and measured.gpu_s
    }


def _gpu_s(measured: Measured) -> float:
    return median(measured.gpu_s)


class _SizesAtBatch:
    """The sizes at one batch, compared with the smallest one."""

    def __init__(self, goal: Goal, known: Known, settings: Sequence[Setting]) -> None:
        self._goal = goal
        self._known = known
        self._settings = settings
        self._reference = settings[0]
        self._scatter = _scatter(known.values())

    def corner_first(self) -> list[Setting] | Chosen:
        """Measure the largest size, then halve the sizes between, until the answer is decided."""
        low, high = 0, len(self._settings)
        trial = high - 1
        while trial > low:
            setting = self._settings[trial]
            if needed := self._launch_of(setting):
                return [needed]
            if self._meets(setting):
                low = trial
            else:
                high = trial
            trial = (low + high) // 2
        unmeasured = [s for s in self._settings if s not in self._known]
        if unmeasured and self._rises():
            return unmeasured
        return self._answer()

    def upwards(self, gpu_hours: float) -> list[Setting] | Chosen:
        """Measure size after size, as long as the budget lasts and the limit is met."""
        left = gpu_hours - spent(self._known.values())
        for before, setting in pairwise(self._settings):
            if needed := self._launch_of(setting):
                # a larger size takes no longer than the last one took
                most = self._known.get(needed, self._known[before]).gpu_hours
                if needed not in self._known:
                    most *= setting.gpus / before.gpus
                return [needed] if most <= left else self._answer()
            if not self._meets(setting):
                break
        return self._answer()

    def _launch_of(self, setting: Setting) -> Setting | None:
        """Return what must be launched to judge a size, itself or the smallest; None: nothing."""
        if setting not in self._known:
            return setting
        if not self._is_near(setting):
            return None
        pair = (setting, self._reference)
        for one in sorted(pair, key=lambda one: len(self._known[one].gpu_s)):
            if self._known[one].launches < MOST_LAUNCHES:
                return one
        return None

    def _answer(self) -> Chosen:
        """Return the largest measured size that meets the limit."""
        measured = [s for s in self._settings if s in self._known]
        chosen = max(filter(self._meets, measured))
        place = measured.index(chosen)
        if self._is_near(chosen):
            return Chosen(chosen, measured[place - 1])
        near = [None, *filter(self._is_near, measured[place:])]
        return Chosen(chosen, near[-1])

    def _meets(self, setting: Setting) -> bool:
        return setting == self._reference or self._distance(setting) >= 0

    def _distance(self, setting: Setting) -> float:
        """Return ln(efficiency / limit); minus infinity of a size that did not fit."""
        efficiency = self._efficiency(setting)
        return log(efficiency / self._goal.min_efficiency) if efficiency else -inf

    def _efficiency(self, setting: Setting) -> float:
        measured = self._known[setting]
        if not measured.gpu_s:
            return 0.0
        return _gpu_s(self._known[self._reference]) / _gpu_s(measured)

    def _error(self, *settings: Setting) -> float:
        """Return the standard error of the logarithm of a ratio of two settings."""
        known = [self._known[setting] for setting in settings]
        noise = max(self._scatter, _noise(known))
        return noise * sqrt(sum(1 / len(measured.gpu_s) for measured in known))

    def _is_near(self, setting: Setting) -> bool:
        """Return whether the limit is within the error of a size's efficiency."""
        has_error = self._goal.repeats and self._known[setting].gpu_s
        if setting == self._reference or not has_error:
            return False
        error = self._error(self._reference, setting)
        return abs(self._distance(setting)) <= DECIDED * error

    def _rises(self) -> bool:
        """Return whether a larger size is more efficient than a smaller one, beyond the noise."""
        fits = [s for s in self._settings if s in self._known and self._known[s].gpu_s]
        return any(
            log(self._efficiency(larger) / self._efficiency(smaller))
            > DECIDED * self._error(smaller, larger)
            for smaller, larger in pairwise(fits)
        )


def spent(known: Iterable[Measured]) -> float:
    """Return the GPU-hours of all launches."""
    return sum(measured.launches * measured.gpu_hours for measured in known)


def _noise(known: Iterable[Measured]) -> float:
    """Return the relative error of one launch, as launches know it themselves."""
    return max([LEAST_NOISE, *(measured.noise for measured in known)])


def _scatter(known: Iterable[Measured]) -> float:
    """Return the relative error of one launch by the scatter of all that were repeated.

    Few launches may be alike by chance: the error is then taken to be larger.
    """
    squares = []
    degrees = 0
    for measured in known:
        logarithms = [log(gpu_s) for gpu_s in measured.gpu_s]
        squares += [(value - fmean(logarithms)) ** 2 for value in logarithms]
        degrees += max(0, len(logarithms) - 1)
    if not degrees:
        return 0.0
    return sqrt(sum(squares) / degrees) * (1 + 3 / degrees)
