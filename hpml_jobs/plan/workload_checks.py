"""Checks of a workload's keys against the built-in data sets, models, losses and optimizers."""

from hpml_jobs.core.built_in import DATASETS, MODEL_NAMES, MODELS, Dataset
from hpml_jobs.core.text import nearest
from hpml_jobs.core.workload import Loss, Optimizer, Workload
from hpml_jobs.errors import UsageError


def check_names(workload: Workload) -> None:
    """Refuse data, models and so on that neither are built in nor refer to the user's code."""
    choices = {"data": DATASETS, "model": MODEL_NAMES, "loss": [*Loss], "optimizer": [*Optimizer]}
    for key, names in choices.items():
        name = getattr(workload, key)
        if ":" not in name and name not in names:
            near = nearest(name, names)
            hint = f"; did you mean {near}?" if near else ""
            raise UsageError(
                f"workload.{key}={name}: choose one of {', '.join(names)}, or your own pkg.mod:name"
                f"{hint}"
            )


def check_facts(workload: Workload, dataset: Dataset | None) -> None:
    """Refuse classes, image sizes or units that a built-in data set or model does not have."""
    if dataset is not None and workload.unit not in (None, dataset.unit):
        raise UsageError(
            f"workload.unit={workload.unit}: workload.data={workload.data} has "
            f"{dataset.unit.value}; leave workload.unit= out"
        )
    facts = () if dataset is None else ("classes", "image_size")
    for key in facts:
        given, fact = getattr(workload, key), getattr(dataset, key)
        if fact is not None and given != fact:
            raise UsageError(
                f"workload.{key}={given}: workload.data={workload.data} has {key}={fact}; leave "
                f"workload.{key}= out"
            )
    model = MODELS.get(workload.model)
    if model is not None:
        least, most = model.image_sizes
        if not least <= workload.image_size <= most:
            accepted = f"{least:g}" if least == most else f"{least:g} or more"
            raise UsageError(
                f"workload.image_size={workload.image_size}: workload.model={workload.model} "
                f"accepts {accepted}"
            )
