"""What is trained: a `Workload`, and how many images and parameters it has."""

from math import inf

from hpml_jobs.core.value import Value
from hpml_jobs.errors import UsageError


class Workload(Value, frozen=True, kw_only=True):
    """What is trained: model, data and optimizer. `pkg.mod:name` means the user's own code.

    `images` is the number of training images of one epoch, after `limit`; None until it is known.
    `parameters` is the count the model must have; None where nothing is claimed.
    """

    name: str
    model: str
    data: str
    loss: str = "cross_entropy"
    classes: int = 10
    image_size: int = 32
    images: int | None = None
    limit: int | None = None
    parameters: int | None = None
    lr: float = 0.1
    momentum: float = 0.9
    weight_decay: float = 5e-4
    test_batch: int = 100

    def __post_init__(self) -> None:
        """Refuse rates that no optimizer takes."""
        for name in ("lr", "momentum", "weight_decay"):
            value = getattr(self, name)
            if not 0 <= value < inf:
                raise UsageError(f"workload.{name}={value:g}: must be 0 or more")
        if self.test_batch < 1:
            raise UsageError(f"workload.test_batch={self.test_batch}: must be 1 or more")

    @property
    def own_code(self) -> tuple[str, ...]:
        """The `pkg.mod:name` references to the user's own code."""
        return tuple(text for text in (self.model, self.data, self.loss) if ":" in text)


IMAGES_PER_EPOCH = {"cifar10": 50_000, "digits": 20_480}
"""Training images of one epoch of the data sets whose size is fixed."""


NO_TORCH_CODE = 3
"""Exit code of the worker's `prepare` where its Python has no torch or no torchvision."""


class Counts(Value, frozen=True, kw_only=True):
    """What the worker's `prepare` answers: training images before `limit` and after, parameters."""

    images: int
    effective: int
    parameters: int
