"""Learning-rate recipes for large batches, after Goyal et al. 2017.

"Accurate, Large Minibatch SGD" (arXiv 1706.02677). docs/large_batch.md derives them.
"""

from math import ceil

from hpml_jobs.core.value import Value
from hpml_jobs.errors import UsageError

REFERENCE_BATCH = 128
"""The lab's batch on one GPU; the learning rates of workloads are for this batch."""


class Recipe(Value, frozen=True, kw_only=True):
    """A learning-rate recipe; the plain one keeps the workload's rate throughout.

    `scaled`: the rate is the workload's times global batch / `reference_batch` (section 2.1).
    `warmup_epochs`: from the workload's own rate to that one, a little in every iteration (2.2).
    `drop_epochs`: after so many epochs the rate is divided by ten (5.1). `decay_norm`: whether
    weight decay also shrinks BatchNorm's own weights and biases (5.1: it does not).
    """

    name: str = "plain"
    scaled: bool = False
    reference_batch: int = REFERENCE_BATCH
    warmup_epochs: float = 0.0
    drop_epochs: tuple[int, ...] = ()
    decay_norm: bool = True

    def __post_init__(self) -> None:
        """Refuse recipes that no run can follow."""
        if self.reference_batch < 1:
            raise UsageError(f"recipe.reference_batch={self.reference_batch}: must be 1 or more")
        if not 0 <= self.warmup_epochs < float("inf"):
            raise UsageError(f"recipe.warmup_epochs={self.warmup_epochs:g}: must be 0 or more")
        if self.reference_batch != REFERENCE_BATCH and not self.scaled:
            raise UsageError(
                f"recipe.reference_batch={self.reference_batch} with recipe.scaled=false: nothing "
                "is scaled by it; take recipe=scaled, warmup or goyal"
            )
        if self.warmup_epochs and not self.scaled:
            raise UsageError(
                f"recipe.warmup_epochs={self.warmup_epochs:g} with recipe.scaled=false: there is "
                "no larger rate to warm up to; take recipe.scaled=true"
            )
        drops = list(self.drop_epochs)
        if drops != sorted({*drops}) or min(drops, default=1) < 1:
            raise UsageError(
                f"recipe.drop_epochs={drops}: epochs after which the rate drops, "
                "in rising order, from 1"
            )
        if self.warmup_epochs and drops and drops[0] < self.warmup_epochs:
            raise UsageError(
                f"recipe.drop_epochs={drops} with recipe.warmup_epochs={self.warmup_epochs:g}: the "
                "rate cannot drop while it still grows; take later drops, or a shorter warm-up"
            )

    def check(self, epochs: int) -> None:
        """Refuse a recipe that needs more than this many epochs."""
        if self.warmup_epochs > epochs:
            raise UsageError(
                f"recipe={self.name}: warming up takes {self.warmup_epochs:g} epochs, the cell "
                f"trains epochs={epochs}; take epochs={ceil(self.warmup_epochs)} or more, or a "
                "smaller recipe.warmup_epochs="
            )
        late = [epoch for epoch in self.drop_epochs if epoch >= epochs]
        if late:
            raise UsageError(
                f"recipe={self.name}: the rate drops after epoch {late[0]}, the cell trains "
                f"epochs={epochs}; take more epochs=, or other recipe.drop_epochs="
            )

    @property
    def label(self) -> str:
        """Return the recipe in a few words, empty for the plain one: `goyal 2 drops 30+60`.

        The number is that of warm-up epochs. Recipes that differ have different labels; what the
        name of a preset implies is left out.
        """
        if self == PLAIN:
            return ""
        preset = PRESETS.get(self.name, PLAIN)
        words = {
            "scaled": "scaled" if self.scaled else "unscaled",
            "warmup_epochs": f"{self.warmup_epochs:g}",
            "reference_batch": f"from batch {self.reference_batch}",
            "drop_epochs": f"drops {'+'.join(map(str, self.drop_epochs))}",
            "decay_norm": "norm decay" if self.decay_norm else "no norm decay",
        }
        changed = [
            text for key, text in words.items() if getattr(self, key) != getattr(preset, key)
        ]
        return " ".join([self.name, *changed])

    def at(self, global_batch: int) -> "Recipe":
        """Return the recipe, or the plain one where it changes nothing at this batch."""
        is_plain = self.factor(global_batch) == 1 and not self.drop_epochs and self.decay_norm
        return Recipe() if is_plain else self

    def factor(self, global_batch: int) -> float:
        """Return the learning rate after warm-up over the workload's: k of the paper."""
        return global_batch / self.reference_batch if self.scaled else 1.0


PLAIN = Recipe()
PRESETS = {
    "scaled": Recipe(name="scaled", scaled=True),
    "warmup": Recipe(name="warmup", scaled=True),
    "goyal": Recipe(name="goyal", scaled=True, decay_norm=False),
}
"""Settings that the name of a recipe implies; a label names the others."""
