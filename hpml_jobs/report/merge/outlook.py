"""The row of a table that a predicted place would have."""

from hpml_jobs.core.training_path import accumulation
from hpml_jobs.predict.values import Place
from hpml_jobs.report.merge.rows import Setup


def setup_of(place: Place) -> Setup:
    """Return the setup of a row at this place: its path and treatment name the accumulation.

    >>> from hpml_jobs.core.strategies import Strategy
    >>> place = Place(gpus=4, batch=32, strategy=Strategy.DDP, accumulate=2, treatment="scaled")
    >>> setup_of(place)[3:]
    ('accumulate 2, scaled', 'accumulate 2')
    """
    rest = place.treatment.removeprefix(place.path).removeprefix(", ")
    path = _joined(place.path, accumulation(place.accumulate))
    return Setup(place.gpus, place.nodes, place.strategy, _joined(path, rest), path)


def _joined(*parts: str) -> str:
    return ", ".join(filter(None, parts))
