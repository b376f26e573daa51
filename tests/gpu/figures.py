"""Figures measured on a GPU, the file that keeps them, and their verdicts."""

from collections import Counter
from collections.abc import Iterable, Iterator
from enum import StrEnum
from pathlib import Path
from typing import NamedTuple, Self

import msgspec

from hpml_jobs.core.text import counted
from hpml_jobs.core.training_path import Precision
from hpml_jobs.core.value import Value
from hpml_jobs.results.gpus import gpu_key, peak_rate, peaks
from hpml_jobs.study.files import encode, reading, write_whole, writing

RESULTS = Path(__file__).parents[2] / "docs" / "gpu.json"
SCHEMA = 1


class Figure(Value, frozen=True, kw_only=True):
    """One measured value; None if it could not be measured, with the reason in `note`.

    `is_left_out`: this machine cannot give it, so it is no finding.
    """

    key: str
    value: float | None
    note: str = ""
    is_left_out: bool = False


class Machine(Value, frozen=True, kw_only=True):
    """The card and the versions that figures belong to; `card` is None without a GPU."""

    card: str | None
    driver: str | None = None
    torch: str = ""
    cuda: str | None = None
    cudnn: str | None = None
    nccl: str | None = None
    python: str = ""
    commit: str | None = None


class PartResult(Value, frozen=True, kw_only=True):
    """One run of one part. `date` is UTC, ISO 8601; `failure` says why the part did not end.

    `is_short`: with the sizes of a visit of minutes. `is_interrupted`: a signal, or the end of the
    visit, came before the end of the part.
    """

    part: str
    date: str
    seconds: float
    machine: Machine
    figures: tuple[Figure, ...] = ()
    failure: str | None = None
    is_short: bool = False
    is_interrupted: bool = False

    @property
    def completeness(self) -> tuple[bool, bool]:
        """The order of runs: those that ended are more than others, full ones more than short."""
        return (not self.is_interrupted, not self.is_short)

    @property
    def series(self) -> str:
        """The card, and what a run lacks that is not full: the column of its figures."""
        words = (self.machine.card or "", "short" * self.is_short)
        return ", ".join(filter(None, (*words, "interrupted" * self.is_interrupted)))

    def figure(self, key: str) -> Figure | None:
        """Return a figure, if the part came to it."""
        return next((figure for figure in self.figures if figure.key == key), None)


class Results(Value, frozen=True, kw_only=True):
    """The latest runs of each part on each card, from any number of visits."""

    parts: tuple[PartResult, ...] = ()
    schema: int = SCHEMA

    @classmethod
    def read(cls, path: Path = RESULTS) -> Self:
        """Read the results of earlier visits; none if the file does not exist.

        Raises:
            HpmlError: it cannot be read.
        """
        with reading(path):
            return (
                msgspec.json.decode(path.read_bytes(), type=cls)
                if path.exists()
                else cls()
            )

    def with_part(self, result: PartResult) -> Self:
        """Return the results with one more; it replaces those of its part and card up to its own
        completeness.

        Raises:
            ValueError: it was not measured on a GPU.
        """
        if result.machine.card is None:
            raise ValueError(
                f"part {result.part} was not measured on a GPU: it is not kept"
            )
        place = (result.part, result.machine.card)
        others = [
            part
            for part in self.parts
            if (part.part, part.machine.card) != place
            or part.completeness > result.completeness
        ]
        return msgspec.structs.replace(self, parts=(*others, result))

    def write(self, path: Path = RESULTS) -> None:
        """Write the results, to be read by people as well.

        Raises:
            HpmlError: it cannot be written; the file is as it was.
        """
        with writing(path):
            write_whole(path, encode(self))

    @property
    def series(self) -> tuple[str, ...]:
        """The names of the cards, with what runs lack that are not full, in alphabetical order."""
        return tuple(sorted({part.series for part in self.parts}))

    def of(self, part: str, series: str) -> PartResult | None:
        """Return the run of a part in a series."""
        return next(
            (run for run in self.parts if (run.part, run.series) == (part, series)),
            None,
        )


class Basis(StrEnum):
    """What a range rests on."""

    ESTIMATE = "estimate"  # nobody has measured it
    EXACT = "exact"  # by arithmetic, or what the program promises
    MEASURED = "measured"  # around figures of a visit


class Expected(NamedTuple):
    """A figure's name and the range that it is expected in; None: no limit on that side.

    The range was estimated for `card`; empty: it holds on all of them. With a `precision` it is
    scaled to other cards by their rates at it (`on`). `published` is what others reach, with the
    card and the source; empty where no such figure is at hand.
    """

    key: str
    text: str
    low: float | None = None
    high: float | None = None
    card: str = ""
    published: str = ""
    precision: Precision | None = None
    basis: Basis = Basis.ESTIMATE

    @classmethod
    def exactly(
        cls, key: str, text: str, low: float, high: float | None = None
    ) -> Self:
        """Return a figure whose value, or range, is exact: no estimate."""
        return cls(key, text, low, low if high is None else high, basis=Basis.EXACT)

    @property
    def has_range(self) -> bool:
        """Whether a value can be outside."""
        return self.low is not None or self.high is not None

    def on(self, card: str) -> "Expected":
        """Return the figure with its range on a card; without a range where none is known there.

        A range is scaled by the peak FLOP/s and by the memory's bandwidth, of which one limits
        training: the low end by the smaller ratio, the high end by the larger one.

        >>> figure = Expected("k", "t", 10_000, 20_000, "h200", precision=Precision.BF16)
        >>> [figure.on(card).range_text for card in ("NVIDIA H200", "NVIDIA L4", "GeForce 256")]
        ['10,000 to 20,000 (h200)', '625 to 2,446 (scaled from h200)', '–']
        """
        if not self.card or gpu_key(card) == gpu_key(self.card):
            return self
        speeds = zip(
            _speeds(card, self.precision),
            _speeds(self.card, self.precision),
            strict=True,
        )
        ratios = [here / there for here, there in speeds if here and there]
        if not ratios:
            return self._replace(low=None, high=None)
        low = None if self.low is None else self.low * min(ratios)
        high = None if self.high is None else self.high * max(ratios)
        return self._replace(low=low, high=high, card=f"scaled from {self.card}")

    @property
    def range_text(self) -> str:
        """The range in words; a dash without one."""
        on_card = f" ({self.card})" if self.card else ""
        if not self.has_range:
            return "–"
        if self.low is None:
            return f"at most {number_text(self.high)}{on_card}"
        if self.high is None:
            return f"at least {number_text(self.low)}{on_card}"
        if self.low == self.high:
            return f"{number_text(self.low)}{on_card}"
        return f"{number_text(self.low)} to {number_text(self.high)}{on_card}"

    def judge(self, figure: Figure | None, card: str) -> "Verdict":
        """Compare a measured figure with the range on its card."""
        if figure is None or figure.value is None:
            is_left_out = figure is not None and figure.is_left_out
            return Verdict.LEFT_OUT if is_left_out else Verdict.NOT_MEASURED
        here = self.on(card)
        if not here.has_range:
            return Verdict.NOT_JUDGED
        low = float("-inf") if here.low is None else here.low
        high = float("inf") if here.high is None else here.high
        return Verdict.EXPECTED if low <= figure.value <= high else Verdict.FINDING


def _speeds(
    card: str, precision: Precision | None
) -> tuple[float | None, float | None]:
    """Return a card's peak FLOP/s at a precision, and its memory's bandwidth."""
    peak = peak_rate(card, precision) if precision else None
    return (peak.flop_per_s, peaks()[gpu_key(card)].gb_per_s) if peak else (None, None)


class Verdict(StrEnum):
    """A figure compared with its expected range."""

    EXPECTED = "as expected"
    FINDING = "finding"
    NOT_JUDGED = "not judged"
    NOT_MEASURED = "not measured"
    LEFT_OUT = "left out"


SHUT_BY = {Verdict.FINDING, Verdict.NOT_MEASURED}
"""Verdicts of a gate's figure that end a run."""


class Part(NamedTuple):
    """A part: what it decides, the minutes it may take on an H200, and its figures.

    A finding in one of its `gates` makes what later parts measure useless. With the sizes of a
    short visit it may take `short_s` seconds. With less than `least_s` left it is not begun.
    """

    name: str
    decides: str
    minutes: float
    expected: tuple[Expected, ...]
    gates: tuple[str, ...] = ()
    short_s: float = 60
    least_s: float = 15


def findings(part: Part, result: PartResult) -> list[str]:
    """Return a line for each figure outside its range or not measured, and for a failed part.

    That a part was interrupted is none.
    """
    card = result.machine.card or ""
    has_failed = result.failure and not result.is_interrupted
    lines = [f"{part.name}: {result.failure}"] if has_failed else []
    for expected in part.expected:
        figure = result.figure(expected.key)
        verdict = expected.judge(figure, card)
        if verdict is Verdict.FINDING and figure is not None:
            lines.append(
                f"{part.name}: {expected.text} is {number_text(figure.value)}, expected "
                f"{expected.on(card).range_text}"
                + (f" ({figure.note})" if figure.note else "")
            )
        elif verdict is Verdict.NOT_MEASURED and not result.failure:
            reason = figure.note if figure else "the part did not come to it"
            lines.append(f"{part.name}: {expected.text} was not measured: {reason}")
    return lines


def gate_finding(part: Part, result: PartResult) -> str:
    """Return the finding that makes later parts useless; empty without one."""
    gates = part._replace(
        expected=tuple(e for e in part.expected if e.key in part.gates)
    )
    card = result.machine.card or ""
    verdicts = {
        expected.judge(result.figure(expected.key), card) for expected in gates.expected
    }
    shut_by = {Verdict.FINDING} if result.is_interrupted else SHUT_BY
    return findings(gates, result)[0] if verdicts & shut_by else ""


def left_out(keys: Iterable[str], reason: str) -> Iterator[Figure]:
    """Yield figures that this machine cannot give."""
    for key in keys:
        yield Figure(key=key, value=None, note=reason, is_left_out=True)


def left_out_lines(part: Part, result: PartResult) -> list[str]:
    """Return a line for each reason why figures are left out."""
    counts = Counter(figure.note for figure in result.figures if figure.is_left_out)
    return [
        f"{part.name}: {counted(number, 'figure')} left out: {reason}"
        for reason, number in counts.items()
    ]


def number_text(value: float | None) -> str:
    """Return a number with four digits, or whole with separators from 1,000 on.

    >>> number_text(0.012345), number_text(41234.5), number_text(1.0), number_text(None)
    ('0.01235', '41,234', '1', '–')
    """
    if value is None:
        return "–"
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"
