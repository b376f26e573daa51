"""The answer of `hpml_jobs.worker.prepare`: what it counted, and its exit codes."""

from hpml_jobs.core.value import Value
from hpml_jobs.core.workload import SourceFile

NO_TORCH_CODE = 3
"""Exit code of the worker's `prepare` where its Python has no torch or no torchvision."""

TRIAL_CODE = 4
"""Exit code of `prepare` where a batch of the user's code was tried and cannot be trained."""


class Counts(Value, frozen=True, kw_only=True):
    """The answer of `prepare`: training images before and after `limit`, parameters.

    `parameters` is None where the model cannot be built without a GPU. `tokens` is the length of an
    input, where tokens are counted and it has one dimension. `untried` is the reason why no batch
    was tried, although one should be. `imported` are the local files that the user's code imported.
    """

    images: int
    effective: int
    parameters: int | None
    tokens: int | None = None
    untried: str | None = None
    imported: tuple[SourceFile, ...] = ()
