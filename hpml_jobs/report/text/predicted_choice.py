"""The choice with predicted cells in sentences: marked as predicted, with band and errors."""

from collections.abc import Iterator, Sequence

import msgspec

from hpml_jobs.core.strategies import Device
from hpml_jobs.report.merge import forecasts
from hpml_jobs.report.merge.choice import Choice, Winner
from hpml_jobs.report.merge.predicted_choice import PredictedCell, PredictedChoice
from hpml_jobs.report.text import choice as words
from hpml_jobs.report.text.captions import work_text
from hpml_jobs.report.text.numbers import seconds
from hpml_jobs.report.text.predictions import errors

PREDICTED = "Predicted, not measured"
NO_ERROR = "no cell could be left out to measure its error"


def answer(predicted: PredictedChoice, choice: Choice, device: Device) -> str:
    """Return the predicted cell to ask for, with its band and errors; or that none is better."""
    if not predicted.cells:
        return f"{PREDICTED}: no cell can be predicted."
    if choice.measure_again:
        return f"{PREDICTED}: nothing can be chosen before the disturbed cells are measured again."
    if predicted.ask is None:
        rule = words.rule(choice, device)
        return f"{PREDICTED}: no predicted cell replaces the measured choice ({rule})."
    asked, skill = predicted.ask.candidate, predicted.ask.prediction.skill
    per = work_text(asked.work)
    figures = (
        f"{seconds(asked.epoch_s)} s{band(predicted.ask)} per {per}, efficiency "
        f"{words.efficiency(asked, choice, device)}, {words.cost(asked.gpu_s)} "
        f"{words.cost_unit(device)} per {per}"
    )
    provisional = "provisional: " if choice.reference.exclusion else ""
    text = f"{PREDICTED}: {provisional}{words.name(asked, device)}: {figures}"
    if choice.wish.epochs:
        text += f"; {words.training(asked, choice.wish.epochs, device)}"
    return f"{text}; {errors(skill) if skill else NO_ERROR}."


def band(cell: PredictedCell) -> str:
    """Return the band of an epoch behind its time; empty where there is none."""
    if cell.low_s is None or cell.high_s is None:
        return ""
    return f" [{seconds(cell.low_s)}, {seconds(cell.high_s)}]"


def why(cell: PredictedCell, predicted: PredictedChoice, choice: Choice, device: Device) -> str:
    """Return why a predicted cell replaces the measured choice, or why not."""
    if cell is predicted.ask:
        return f"instead of the measured choice: {words.rule(choice, device)}"
    if predicted.ask is not None:
        choice = msgspec.structs.replace(choice, ask=Winner(predicted.ask.candidate))
    return words.why(cell.candidate, choice, device)


def doubts(
    predicted: PredictedChoice, choice: Choice, commands: Sequence[str], device: Device
) -> Iterator[str]:
    """Yield what the upper end of the band changes for the cell to ask for; how to measure it."""
    if predicted.ask is None:
        return
    slower = predicted.ask.at_upper_end(choice)
    if slower is not None and slower.exclusion is not None:
        yield (
            f"at the upper end of its band it is {slower.exclusion.value}: "
            f"{seconds(slower.epoch_s)} s, efficiency {words.efficiency(slower, choice, device)}"
        )
    command = forecasts.command_of(predicted.ask.prediction.target, None, commands)
    yield f"measure it before you ask for it{f': {command}' if command else ''}"
