"""The choice where predicted cells count too: beside the measured one, never in place of it."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import msgspec

from hpml_jobs.predict import band
from hpml_jobs.predict.values import Forecast, Observation, Prediction, Refusal
from hpml_jobs.report.merge import choice as measured
from hpml_jobs.report.merge.choice import Candidate, Charged, Choice
from hpml_jobs.report.merge.groups import ConditionGroup
from hpml_jobs.report.merge.outlook import setup_of
from hpml_jobs.report.merge.rows import Row, Timing
from hpml_jobs.slurm.states import Outcome


class PredictedCell(NamedTuple):
    """A predicted cell as a candidate; its row has no runs. `low_s` to `high_s`: band of its epoch.

    An epoch is as much longer or shorter than that of the nearest measured cell as its samples per
    second are fewer or more.
    """

    candidate: Candidate
    prediction: Prediction
    low_s: float | None
    high_s: float | None

    def at_upper_end(self, choice: Choice) -> Candidate | None:
        """Return the cell as it would be at the upper end of its band; None without a band."""
        if self.high_s is None:
            return None
        slower = msgspec.structs.replace(self.candidate, epoch_s=self.high_s)
        return measured.judged(slower, choice.reference, choice.wish)


class PredictedChoice(NamedTuple):
    """The predicted cells of a group, the fastest first; `ask` replaces the measured choice.

    `ask` is None where no predicted cell is better by the rule of the choice. `refusals` are the
    places that cannot be predicted.
    """

    cells: tuple[PredictedCell, ...]
    ask: PredictedCell | None
    refusals: tuple[Refusal, ...]


def with_predictions(
    group: ConditionGroup, choice: Choice, forecast: Forecast, charged: Charged
) -> PredictedChoice:
    """Return the choice among the measured cell to ask for and the predicted cells."""
    rows = {slug: row for row in group.timed for slug in row.cells}
    cells = [
        cell
        for prediction in forecast.predictions
        if (cell := _cell(prediction, forecast.observations, rows, choice, charged))
    ]
    cells.sort(key=lambda cell: (cell.candidate.epoch_s, cell.candidate.gpu_s))
    return PredictedChoice(tuple(cells), _ask(cells, choice), forecast.refusals)


def _cell(
    prediction: Prediction,
    observations: Sequence[Observation],
    rows: Mapping[str, Row],
    choice: Choice,
    charged: Charged,
) -> PredictedCell | None:
    """Return a prediction as a cell; None where no measured epoch is near it."""
    target = prediction.target
    alike = [o for o in observations if o.cells and o.path == target.path]
    alike = [o for o in alike if o.strategy is target.strategy] or alike
    near = band.nearest(target, alike)
    row = rows.get(near.cells[0]) if isinstance(near, Observation) else None
    if not isinstance(near, Observation) or row is None or row.timing is None:
        return None
    per_s = near.samples / near.step_s
    epoch_s = row.timing.epoch_s * per_s / prediction.samples_per_s
    setup = setup_of(target)
    candidate = Candidate(
        row=Row(
            **setup._asdict(),
            batch_per_gpu=target.batch,
            accumulate=target.accumulate,
            outcome=Outcome.MISSING,
            timing=_timing(row.timing, epoch_s),
        ),
        epoch_s=epoch_s,
        charged_gpus=charged(setup),
        efficiency=1.0,
    )
    scale = epoch_s / prediction.step_s
    low_s, high_s = (
        None if end is None else end * scale for end in (prediction.low_s, prediction.high_s)
    )
    judged = measured.judged(candidate, choice.reference, choice.wish)
    return PredictedCell(judged, prediction, low_s, high_s)


def _timing(near: Timing, epoch_s: float) -> Timing:
    """Return the timing of no run: what is not predicted is not known."""
    return msgspec.structs.replace(
        near, runs=0, epoch_s=epoch_s, train_s=None, stall_s=None, step_s=None, iterations=None
    )


def _ask(cells: Sequence[PredictedCell], choice: Choice) -> PredictedCell | None:
    """Return the predicted cell to ask for by the rule of the choice; None: none is better."""
    able = [cell for cell in cells if cell.candidate.exclusion is None]
    if not able or choice.measure_again:  # efficiencies are against a time that is not the cell's
        return None
    rivals = [cell.candidate for cell in able]
    rivals += [choice.ask.candidate] if choice.ask else []
    best = measured.preferred(rivals, choice.wish)
    return next((cell for cell in able if cell.candidate is best), None)
