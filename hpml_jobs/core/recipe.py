"""Learning-rate recipes for large batches after Goyal et al. 2017.

"Accurate, Large Minibatch SGD" (arXiv 1706.02677). docs/keys.md derives them.
"""

from math import ceil

from hpml_jobs.core.errors import UsageError, refuse_below
from hpml_jobs.core.strategies import Sharded, Strategy
from hpml_jobs.core.value import Value
from hpml_jobs.core.workload import Workload

REFERENCE_BATCH = 128
"""The lab's batch on one GPU; the learning rates of workloads are for this batch."""


class Recipe(Value, frozen=True, kw_only=True):
    """A learning-rate recipe; the plain one keeps the workload's rate throughout.

    `scaled`: the rate is the workload's times global batch / `reference_batch` (section 2.1).
    `warmup_epochs`: from the workload's own rate to that one, a little in every iteration (2.2).
    `drop_epochs`: after so many epochs the rate is divided by ten (5.1). `decay_norm`: whether
    weight decay also shrinks BatchNorm's own weights and biases (5.1: it does not).
    `final_share`: of cells before 1.0, whose rate fell along a cosine to this share of its peak.
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
                "is scaled by it; take recipe=scaled or goyal"
            )
        if self.warmup_epochs and not self.scaled and self.final_share is None:
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

    def check(self, epochs: int, strategy: Strategy, workload: Workload) -> None:
        """Refuse a recipe that needs more epochs, or changes what the user's optimizer decides."""
        if self.warmup_epochs > epochs:
            raise UsageError(
                f"recipe={self.name}: warming up takes {self.warmup_epochs:g} epochs, the cell "
                f"trains epochs={epochs}; take epochs={ceil(self.warmup_epochs)} or more, or a "
                "smaller recipe.warmup_epochs="
            )
        for epoch in self.drop_epochs:
            if epoch >= epochs:
                raise UsageError(
                    f"recipe={self.name}: the rate drops after epoch {epoch}, the cell trains "
                    f"epochs={epochs}; take more epochs=, or other recipe.drop_epochs="
                )
        self._check_own_optimizer(strategy, workload)

    def _check_own_optimizer(self, strategy: Strategy, workload: Workload) -> None:
        """Refuse what the user's own optimizer or schedule decides itself."""
        changes_rate = self.warmup_epochs or self.drop_epochs
        if workload.schedule is not None and changes_rate:
            raise UsageError(
                f"recipe={self.name} with workload.schedule={workload.schedule}: both change the "
                "learning rate; use recipe=plain (or scaled), or leave workload.schedule= out"
            )
        if ":" not in workload.optimizer:
            return
        if strategy.traffic.shards is Sharded.OPTIMIZER:
            raise UsageError(
                f"strategy={strategy.value} with workload.optimizer={workload.optimizer}: "
                "ZeroRedundancyOptimizer makes the optimizer of each rank's share by itself; use "
                "strategy=fsdp or ddp, or workload.optimizer=adamw or sgd"
            )
        if not self.decay_norm:
            raise UsageError(
                f"recipe={self.name} with workload.optimizer={workload.optimizer}: your own "
                "optimizer decides what decays; use recipe.decay_norm=true"
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
            "final_share": f"to {self.final_share}",
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
        return self if self.drop_epochs or not self.decay_norm else Recipe()

    def factor(self, global_batch: int) -> float:
        """Return the learning rate after warm-up over the workload's: k of the paper."""
        return global_batch / self.reference_batch if self.scaled else 1.0


PLAIN = Recipe()
PRESETS = {
    "scaled": Recipe(name="scaled", scaled=True),
    "goyal": Recipe(name="goyal", scaled=True, decay_norm=False),
    # of cells before 1.0
    "warmup": Recipe(name="warmup", scaled=True),
    "cosine": Recipe(name="cosine", warmup_epochs=0.1, final_share=0.1),
}
"""Settings that the name of a recipe implies; a label names the others."""
