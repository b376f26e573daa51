"""Learning-rate recipes: for large batches after Goyal et al. 2017, and warm-up with a cosine.

"Accurate, Large Minibatch SGD" (arXiv 1706.02677). docs/keys.md derives them.
"""

from math import ceil, cos, pi

import msgspec

from hpml_jobs.core.errors import UsageError, refuse_below
from hpml_jobs.core.value import Value
from hpml_jobs.core.workload import Optimizer, Workload

REFERENCE_BATCH = 128
"""The lab's batch on one GPU; the learning rates of workloads are for this batch."""


class Recipe(Value, frozen=True, kw_only=True):
    """A learning-rate recipe; the plain one keeps the workload's rate throughout.

    `scaled`: the rate is the workload's times global batch / `reference_batch` (section 2.1).
    `warmup_epochs`: from the workload's own rate to that one, a little in every iteration (2.2).
    `drop_epochs`: after so many epochs the rate is divided by ten (5.1). `decay_norm`: whether
    weight decay also shrinks BatchNorm's own weights and biases (5.1: it does not).
    `final_share`: the rate rises from 0 in the warm-up, and then falls along a cosine, which
    ends after the last epoch at this share of it; None: no cosine.
    """

    name: str = "plain"
    scaled: bool = False
    reference_batch: int = REFERENCE_BATCH
    warmup_epochs: float = 0.0
    drop_epochs: tuple[int, ...] = ()
    decay_norm: bool = True
    final_share: float | None = None

    def __post_init__(self) -> None:
        """Refuse recipes that no run can follow."""
        refuse_below(1, "recipe.reference_batch", self.reference_batch)
        refuse_below(0, "recipe.warmup_epochs", self.warmup_epochs)
        if self.reference_batch != REFERENCE_BATCH and not self.scaled:
            raise UsageError(
                f"recipe.reference_batch={self.reference_batch} with recipe.scaled=false: nothing "
                "is scaled by it; take recipe=scaled, warmup or goyal"
            )
        if self.warmup_epochs and not self.scaled and self.final_share is None:
            raise UsageError(
                f"recipe.warmup_epochs={self.warmup_epochs:g} with recipe.scaled=false: there is "
                "no larger rate to warm up to; take recipe.scaled=true, or recipe=cosine"
            )
        if self.final_share is not None:
            self._check_cosine(self.final_share)
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

    def _check_cosine(self, final_share: float) -> None:
        if not 0 <= final_share <= 1:
            raise UsageError(
                f"recipe.final_share={final_share:g}: the share of the peak rate at the end of "
                "training must be 0 to 1"
            )
        if self.drop_epochs:
            raise UsageError(
                f"recipe.drop_epochs={list(self.drop_epochs)} with recipe.final_share="
                f"{final_share:g}: the cosine already lowers the rate; leave one of them out"
            )

    def check(self, epochs: int) -> None:
        """Refuse a recipe that needs more than this many epochs."""
        if self.final_share is not None and self.warmup_epochs >= epochs:
            raise UsageError(
                f"recipe={self.name}: warming up takes {self.warmup_epochs:g} of epochs={epochs}, "
                "nothing is left for the cosine; take more epochs=, or a smaller "
                "recipe.warmup_epochs="
            )
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
        is_cosine = self.final_share is not None
        words = {
            "scaled": "scaled" if self.scaled else "unscaled",
            "warmup_epochs": f"{'warm-up ' if is_cosine else ''}{self.warmup_epochs:g}",
            "final_share": f"to {self.final_share:g}" if is_cosine else "no cosine",
            "reference_batch": f"from batch {self.reference_batch}",
            "drop_epochs": f"drops {'+'.join(map(str, self.drop_epochs))}",
            "decay_norm": "norm decay" if self.decay_norm else "no norm decay",
        }
        changed = [
            text
            for key, text in words.items()
            if getattr(self, key) != getattr(preset, key)
        ]
        return " ".join([self.name, *changed])

    def at(self, global_batch: int) -> "Recipe":
        """Return the recipe without what changes nothing at this batch: often the plain one."""
        if self.factor(global_batch) != 1:
            return self
        if self.final_share is not None:
            return msgspec.structs.replace(
                self, scaled=False, reference_batch=REFERENCE_BATCH
            )
        return self if self.drop_epochs or not self.decay_norm else Recipe()

    @property
    def changes_rate(self) -> bool:
        """Whether the rate is not the same in all iterations."""
        return bool(
            self.warmup_epochs or self.drop_epochs or self.final_share is not None
        )

    def is_usual(self, workload: Workload) -> bool:
        """Return whether the workload usually has it, so that it is no treatment of a cell.

        That is a cosine, with any warm-up and end, or the plain recipe: see `usual_recipe`.
        """
        if usual_recipe(workload.optimizer, workload.schedule) == PLAIN.name:
            return self == PLAIN
        return self.final_share is not None and not self.scaled and self.decay_norm

    def factor(self, global_batch: int) -> float:
        """Return the learning rate after warm-up over the workload's: k of the paper."""
        return global_batch / self.reference_batch if self.scaled else 1.0


def cosine_factor(iteration: int, warmup: int, total: int, final_share: float) -> float:
    """Return the learning rate of an iteration (from 0) over the peak rate.

    It rises linearly in `warmup` iterations, (i + 1) / (W + 1), and falls along half a cosine to
    `final_share` at the end of `total` iterations: f + (1 - f) (1 + cos(pi (i - W) / (T - W))) / 2.
    It is the shape of torch's LinearLR and CosineAnnealingLR one after the other.

    >>> [round(cosine_factor(i, 3, 11, 0.1), 3) for i in (0, 2, 3, 7, 10, 11, 99)]
    [0.25, 0.75, 1.0, 0.55, 0.134, 0.1, 0.1]
    """
    if iteration < warmup:
        return (iteration + 1) / (warmup + 1)
    share = min(1.0, (iteration - warmup) / max(1, total - warmup))
    fall = (1 + cos(pi * share)) / 2
    return final_share + (1 - final_share) * fall


def usual_recipe(optimizer: str, schedule: str | None) -> str:
    """Return what `recipe=auto` becomes: cosine with AdamW, unless the schedule is the user's.

    >>> usual_recipe("adamw", None), usual_recipe("sgd", None), usual_recipe("adamw", "mygpt:decay")
    ('cosine', 'plain', 'plain')
    """
    is_cosine = optimizer == Optimizer.ADAMW and schedule is None
    return COSINE.name if is_cosine else PLAIN.name


PLAIN = Recipe()
COSINE = Recipe(name="cosine", warmup_epochs=0.1, final_share=0.1)
PRESETS = {
    "scaled": Recipe(name="scaled", scaled=True),
    "warmup": Recipe(name="warmup", scaled=True),
    "goyal": Recipe(name="goyal", scaled=True, decay_norm=False),
    "cosine": COSINE,
}
"""Settings that the name of a recipe implies; a label names the others."""
