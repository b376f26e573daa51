"""Table of predicted cells beside the choice, by speed, with the reason why or why not."""

from collections.abc import Sequence

from hpml_jobs.predict.values import Forecast
from hpml_jobs.report.merge.choice import Choice
from hpml_jobs.report.merge.groups import ConditionGroup
from hpml_jobs.report.merge.predicted_choice import PredictedCell, PredictedChoice
from hpml_jobs.report.table import Table
from hpml_jobs.report.tables.builder import Columns, TableText, column, item_table, place_columns
from hpml_jobs.report.text import captions, predicted_choice, predictions
from hpml_jobs.report.text import choice as words
from hpml_jobs.report.text.numbers import percent, ratio, seconds, significant

CAPTION = (
    "Predicted, not measured: seconds of {what}, that of the nearest measured cell times the ratio "
    "of their predicted and measured {counted}/s. Band: meant to contain 90 % of measurements. "
    "Errors: mean of the model, and of no change per {unit}, on cells that were left out. "
    "Efficiency and costs as in the table above."
)


def predicted_table(
    group: ConditionGroup,
    choice: Choice,
    forecast: Forecast,
    predicted: PredictedChoice,
    commands: Sequence[str],
) -> Table:
    """Return the table of the predicted cells, with its answer above."""
    device = group.device
    caption = CAPTION.format(
        what=captions.an_epoch(group.work),
        counted=group.a_cell.workload.throughput_unit.value,
        unit=captions.unit(device),
    )
    shown = (caption,) if predicted.cells else ()
    text = TableText("predicted", "Predicted cells", "", shown, on_screen=False)
    text = text._replace(answer=predicted_choice.answer(predicted, choice, device))
    items = [
        (captions.cell_label(cell.candidate.row.place, device), cell) for cell in predicted.cells
    ]
    notes = [
        *predicted_choice.doubts(predicted, choice, commands, device),
        *forecast.notes,
        *predictions.remarks(forecast, device),
        *predictions.refused(forecast.refusals, device),
    ]
    return item_table([group], text, items, _heads(choice, predicted, group), notes)


def _heads(
    choice: Choice, predicted: PredictedChoice, group: ConditionGroup
) -> tuple[Columns[PredictedCell], ...]:
    device = group.device

    def model_error(cell: PredictedCell) -> float | None:
        return cell.prediction.skill.model.mean if cell.prediction.skill else None

    def null_error(cell: PredictedCell) -> float | None:
        return cell.prediction.skill.null.mean if cell.prediction.skill else None

    return (
        Columns("", place_columns(lambda cell: cell.candidate.row.setup)),
        Columns("", (column("batch", "", lambda cell: cell.candidate.row.batch_per_gpu),)),
        Columns(
            "s",
            (
                column("epoch_s", "predicted", lambda cell: cell.candidate.epoch_s, seconds),
                column("low_s", "band from", lambda cell: cell.low_s, seconds),
                column("high_s", "to", lambda cell: cell.high_s, seconds),
            ),
        ),
        Columns(
            f"effic.{words.against(choice, device)}",
            (column("efficiency", "", lambda c: c.candidate.efficiency, ratio),),
        ),
        Columns(
            words.cost_unit(device),
            (column("charged_gpu_s", "", lambda c: c.candidate.gpu_s, words.cost),),
        ),
        Columns(
            words.hours_unit(device),
            (
                column(
                    "charged_gpu_hours",
                    "",
                    lambda c: c.candidate.gpu_hours,
                    lambda v: significant(v, 3),
                ),
            ),
        ),
        Columns(
            "error, %",
            (
                column("model_error", "model", model_error, percent),
                column("null_error", "no change", null_error, percent),
            ),
        ),
        Columns(
            "why",
            (
                column(
                    "why",
                    "",
                    lambda cell: predicted_choice.why(cell, predicted, choice, device),
                ),
            ),
            words=True,
        ),
    )
