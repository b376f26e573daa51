"""Rules for the values of a command line: each returns why they are refused, or None.

The rules of a tuple are applied in its order, and the first refusal is raised. Types check
themselves (`Settings`, `Cell`, `Workload`, …). What nodes can give is checked in `capacity`, and
what a data set has where it is read, in `data` and `own_code`.
"""

from collections.abc import Callable, Container, Iterable, Sequence
from typing import ParamSpec

from hpml_jobs.core.built_in import (
    DATASETS,
    GPT,
    MODEL_NAMES,
    MODELS,
    SHAPE_KEYS,
    TOKEN_DATA,
)
from hpml_jobs.core.cell import Cell
from hpml_jobs.core.data_files import BYTE_DATA, TOKENS
from hpml_jobs.core.errors import UsageError
from hpml_jobs.core.script import ScriptLauncher
from hpml_jobs.core.strategies import Device, Loader, Strategy, SyncBuffers
from hpml_jobs.core.text import PROGRAM, alike, did_you_mean
from hpml_jobs.core.workload import Loss, Optimizer, Workload
from hpml_jobs.plan.settings import Settings, Sweep

Judged = ParamSpec("Judged")


def refuse(
    rules: Iterable[Callable[Judged, str | None]],
    *args: Judged.args,
    **kwargs: Judged.kwargs,
) -> None:
    """Apply rules one after another.

    Raises:
        UsageError: with the refusal of the first rule that is broken.
    """
    for rule in rules:
        refusal = rule(*args, **kwargs)
        if refusal is not None:
            raise UsageError(refusal)


# ---- keys that contradict each other ----


def global_batch_gives_batch(sweep: Sweep) -> str | None:
    """A global batch is given without batch=."""
    first = sweep.first
    if first.global_batch is not None and "batch" in sweep.origins:
        return (
            f"batch= with global_batch=: the batch per GPU follows from it ({first.batch} on "
            f"gpus={first.gpus}); leave batch= out ({sweep.origins['batch']})"
        )
    return None


def goal_needs_auto(sweep: Sweep) -> str | None:
    """A limit or a budget is given with `auto`, which measures what they need."""
    goals = ("max_gpus", "min_efficiency", "gpu_hours")
    key = next((key for key in goals if key in sweep.origins), None)
    if key is None or sweep.goal is not None:
        return None
    return (
        f"{key}= without auto: add gpus=auto, batch=auto or repeats=auto; what is measured already "
        f"is judged by {PROGRAM} collect STUDY min_efficiency=0.8"
    )


# ---- scripts ----

KEYS_OF_SCRIPT = ("script", "args", "launcher", "window", "stop", "shared_files")
"""The keys that only a cell with a script reads."""

READ_WITH_SCRIPT = {
    *KEYS_OF_SCRIPT,
    *("workload.unit", "gpus", "nodes", "batch", "global_batch", "strategy"),
    *("gpu_type", "device", "threads", "loader_workers", "seed", "repeats", "study"),
    *("outputs", "minutes", "pack", "rerun"),
    *("collect_after", "max_gpus", "min_efficiency", "gpu_hours"),
}
"""The keys that a cell with a script reads, beside those of the cluster."""

STRATEGIES_OF_SCRIPT = (Strategy.DDP, Strategy.FSDP, Strategy.DP, Strategy.ALLREDUCE)
"""What a script may have; allreduce if it averages gradients without a wrapper."""


def _given_keys(sweep: Sweep) -> list[str]:
    """Return the keys of the command line, then those of the grid."""
    origins = sweep.origins.items()
    typed = [key for key, origin in origins if origin == "command line"]
    return typed + [key for key, origin in origins if origin.startswith("grid=")]


def script_reads_the_keys(sweep: Sweep) -> str | None:
    """With script=, no key is given that it decides by itself; without, none that it has."""
    script = sweep.first.script
    for key in _given_keys(sweep):
        if script is None and key in KEYS_OF_SCRIPT:
            return f"{key}= without script=: only a script has it; add script=train.py"
        is_read = key in READ_WITH_SCRIPT or key.startswith("cluster")
        if script is not None and not is_read:
            return (
                f"{key}= with script={script}: the script decides it by itself; leave {key}= out, "
                "or pass it in args="
            )
    return None


def python_starts_one_process(sweep: Sweep) -> str | None:
    """launcher=python is given no more processes or nodes than it can start."""
    start = "launcher=python starts one process"
    for settings in sweep.settings:
        script = settings.script_of_cell
        if script is None or script.launcher is not ScriptLauncher.PYTHON:
            continue
        if settings.nodes not in (None, 1):
            return f"nodes={settings.nodes}: {start} on one node; use launcher=torchrun"
        is_fixed = settings.device is Device.CPU and not script.has_placeholder("gpus")
        if settings.gpus > 1 and is_fixed:
            return (
                f"gpus={settings.gpus} with device=cpu: {start}, which does not learn how many it "
                "is to start: write {gpus} into args=, or use launcher=torchrun"
            )
    return None


def script_has_one_strategy(sweep: Sweep) -> str | None:
    """strategy= says which one the script has."""
    strategies = list(dict.fromkeys(settings.strategy for settings in sweep.settings))
    is_one = len(strategies) == 1 and strategies[0] in STRATEGIES_OF_SCRIPT
    if sweep.first.script is None or is_one:
        return None
    return (
        f"strategy={','.join(strategies)} with script={sweep.first.script}: say which one it has, "
        f"{', '.join(STRATEGIES_OF_SCRIPT[:-1])} or {STRATEGIES_OF_SCRIPT[-1]}"
    )


def script_gets_swept_values(sweep: Sweep) -> str | None:
    """A batch or a seed that is swept has its place in args=."""
    script = sweep.first.script_of_cell
    if script is None:
        return None
    places = {"batch": script.takes_batch, "seed": script.has_placeholder("seed")}
    for key, has_place in places.items():
        values = {getattr(settings, key) for settings in sweep.settings}
        if len(values) > 1 and not has_place:
            return (
                f"several values of {key}=, but args has no {{{key}}}: all cells would be equal; "
                f"write it where the script takes it, e.g. args='--{key} {{{key}}}'"
            )
    return None


def batch_of_script_is_given(sweep: Sweep) -> str | None:
    """The batch of a script is typed, or passed to it: it does not know our default.

    The last rule of scripts: first there has to be one.
    """
    script = sweep.first.script_of_cell
    is_given = {"batch", "global_batch"} & sweep.origins.keys()
    if script is None or is_given or script.has_placeholder("batch"):
        return None
    return (
        f"script={script.path} needs batch=, the samples of an iteration on one GPU: as the "
        "script has them (batch=32), or passed to it (batch=64 args='--batch-size {batch}')"
    )


RULES_OF_SWEEP = (
    global_batch_gives_batch,
    goal_needs_auto,
    script_reads_the_keys,
    python_starts_one_process,
    script_has_one_strategy,
    script_gets_swept_values,
)

# ---- options that no cell would use: one is enough, as cells of one GPU share the baseline ----


def options_of_ranks_need_ranks(sweep: Sequence[Settings]) -> str | None:
    """set_epoch= and sync_buffers= are given with several ranks."""
    if any(s.gpus > 1 and s.strategy.under_torchrun for s in sweep):
        return None
    remedy = "use strategy=ddp with gpus=2 or more"
    if not all(settings.set_epoch for settings in sweep):
        return f"set_epoch=false: no cell has ranks that share the data; {remedy}"
    buffers = next((s.sync_buffers for s in sweep if s.sync_buffers is not None), None)
    if buffers is not None:
        return f"sync_buffers={buffers.value}: no cell has several ranks; {remedy}"
    return None


def workers_need_their_loader(sweep: Sequence[Settings]) -> str | None:
    """loader_workers= is given with a loader that has workers."""
    workers = next(
        (settings.loader_workers for settings in sweep if settings.loader_workers), None
    )
    if workers is None or any(
        settings.loader is not Loader.DEVICE for settings in sweep
    ):
        return None
    return (
        f"loader_workers={workers} with loader=device: the device makes the batches; leave "
        "loader_workers= out"
    )


def syncbn_runs_on_gpus(cells: Sequence[Cell]) -> str | None:
    """sync_buffers=syncbn is given with GPUs: torch's SyncBatchNorm refuses CPUs."""
    on_cpus = [cell for cell in cells if cell.device is Device.CPU]
    if all(cell.sync_buffers is not SyncBuffers.SYNCBN for cell in on_cpus):
        return None
    return (
        "sync_buffers=syncbn with device=cpu: torch's SyncBatchNorm needs GPUs; leave "
        "sync_buffers= out"
    )


RULES_OF_OPTIONS = (options_of_ranks_need_ranks, workers_need_their_loader)

# ---- a workload: what is built in, and what transformers and tokens have ----

IMAGE_KEYS = ("classes", "image_size")
"""The keys of a workload that nothing reads where the data are tokens."""


def names_are_known(workload: Workload) -> str | None:
    """Data, model, loss and optimizer are built in, or refer to the user's code."""
    choices = {
        "data": DATASETS,
        "model": MODEL_NAMES,
        "loss": [*Loss],
        "optimizer": [*Optimizer],
    }
    for key, names in choices.items():
        name = getattr(workload, key)
        if ":" not in name and name not in names:
            return (
                f"workload.{key}={name}: choose one of {', '.join(names)}, or your own pkg.mod:name"
                f"{did_you_mean(alike(name, names))}"
            )
    return None


def unit_is_that_of_data(workload: Workload) -> str | None:
    """The unit is that of a built-in data set."""
    dataset = DATASETS.get(workload.data)
    if dataset is None or workload.unit in (None, dataset.unit):
        return None
    return (
        f"workload.unit={workload.unit}: workload.data={workload.data} has {dataset.unit.value}; "
        "leave workload.unit= out"
    )


def facts_are_those_of_data(workload: Workload) -> str | None:
    """The classes and the image size are those of a built-in data set."""
    dataset = DATASETS.get(workload.data)
    for key in IMAGE_KEYS:
        value = getattr(workload, key)
        fact = getattr(dataset, key, None)
        if fact is not None and value != fact:
            return (
                f"workload.{key}={value}: workload.data={workload.data} has {key}={fact}; leave "
                f"workload.{key}= out"
            )
    return None


def image_size_fits_model(workload: Workload) -> str | None:
    """A built-in model accepts the image size."""
    model = MODELS.get(workload.model)
    if model is None:
        return None
    least, most = model.image_sizes
    if least <= workload.image_size <= most:
        return None
    accepted = f"{least:g}" if least == most else f"{least:g} or more"
    return (
        f"workload.image_size={workload.image_size}: workload.model={workload.model} accepts "
        f"{accepted}"
    )


def gpt_has_its_shape(workload: Workload) -> str | None:
    """The built-in transformer has each number of its shape."""
    if workload.model != GPT:
        return None
    remedy = "; workload=gpt_nano has them"
    return _missing(workload, SHAPE_KEYS, f"workload.model={GPT}", remedy)


def _missing(
    workload: Workload, keys: Iterable[str], what: str, remedy: str = ""
) -> str | None:
    missing = [f"workload.{key}=" for key in keys if getattr(workload, key) is None]
    return f"{what} needs {', '.join(missing)}{remedy}" if missing else None


def gpt_reads_tokens(workload: Workload) -> str | None:
    """The data of the built-in transformer are tokens, or the user's own."""
    is_readable = workload.data in TOKEN_DATA or ":" in workload.data
    if workload.model != GPT or is_readable:
        return None
    return (
        f"workload.model={GPT} with workload.data={workload.data}: it reads tokens; use "
        f"workload.data={', '.join(BYTE_DATA)}, {TOKENS} or your own pkg.mod:dataset"
    )


def image_model_reads_images(workload: Workload) -> str | None:
    """The data of the other built-in models are images."""
    if workload.model not in MODELS or workload.data not in TOKEN_DATA:
        return None
    return (
        f"workload.model={workload.model} with workload.data={workload.data}: it reads images; use "
        f"workload.model={GPT} or your own pkg.mod:build"
    )


def shape_is_of_gpt(workload: Workload) -> str | None:
    """The other built-in models have no number of a transformer's shape."""
    keys = (*SHAPE_KEYS, "padded_vocab")
    key = next((key for key in keys if getattr(workload, key) is not None), None)
    if workload.model not in MODELS or key is None:
        return None
    return (
        f"workload.{key}={getattr(workload, key)} with workload.model={workload.model}: only "
        f"workload.model={GPT} reads it; leave workload.{key}= out"
    )


def tokens_have_a_context(workload: Workload) -> str | None:
    """The length of a sample of tokens is given; of synthetic ones, also their number."""
    if workload.data not in TOKEN_DATA:
        return None
    keys = ("context", "vocab") if workload.data == TOKENS else ("context",)
    return _missing(workload, keys, f"workload.data={workload.data}")


RULES_OF_WORKLOAD = (
    names_are_known,
    unit_is_that_of_data,
    facts_are_those_of_data,
    image_size_fits_model,
    gpt_has_its_shape,
    gpt_reads_tokens,
    image_model_reads_images,
    shape_is_of_gpt,
    tokens_have_a_context,
)


def tokens_have_no_image_keys(workload: Workload, given: Container[str]) -> str | None:
    """Keys of images are not among the `given` keys where the data are tokens."""
    key = next((key for key in IMAGE_KEYS if f"workload.{key}" in given), None)
    if workload.data not in TOKEN_DATA or key is None:
        return None
    return f"workload.{key}= with workload.data={workload.data}: tokens have no {key}; leave it out"


# ---- cells whose data are counted ----


def iterations_fit_into_an_epoch(
    settings: Settings, workload: Workload, global_batch: int
) -> str | None:
    """An epoch has as many full iterations as iterations= asks for."""
    images = workload.images or 0
    if not settings.iterations or (settings.data.limit or 0) <= images:
        return None
    most = images // global_batch
    remedy = f"iterations<={most}, or " if most > 1 else ""
    return (
        f"iterations={settings.iterations}: an epoch has {most} full ones ({images:,} "
        f"{workload.samples_name}, batch={settings.batch} on gpus={settings.gpus}): use {remedy}a "
        "smaller batch="
    )
