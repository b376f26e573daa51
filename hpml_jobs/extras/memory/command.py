"""Commands submit and plan with `largest_batch=auto`."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from hpml_jobs.cli import submit as kernel
from hpml_jobs.cli.commands import repeated
from hpml_jobs.cli.console import print_note
from hpml_jobs.cli.options import (
    AllCells,
    ConfigDir,
    DryRun,
    Json,
    Multirun,
    Overrides,
    Yes,
)
from hpml_jobs.core.cluster import Launcher
from hpml_jobs.core.text import counted, hours_text

if TYPE_CHECKING:
    from hpml_jobs.plan.cells import Plan


def submit(  # noqa: D103  (its help is that of the kernel's command)
    overrides: Overrides = None,
    multirun: Multirun = False,
    config_dir: ConfigDir = None,
    dry_run: DryRun = False,
    yes: Yes = False,
    all_cells: AllCells = False,
    json: Json = False,
) -> None:
    from hpml_jobs.extras.memory.largest_batch import AUTO, ladder_words, with_batch
    from hpml_jobs.plan.keys import LadderFirstError
    from hpml_jobs.plan.resolve import make_plan
    from hpml_jobs.plan.sweep import expand

    words = overrides or []

    def planned(words: list[str], notify: Callable[[str], None] = print_note) -> "Plan":
        sweep = expand(words, multirun=multirun, config_dir=config_dir)
        return make_plan(sweep, fetch=not dry_run, notify=notify)

    if AUTO in words:
        ladder_words(words)  # refuses it without a grid
    manner = kernel.Manner(json, yes, all_cells, dry_run)
    try:
        kernel.submit(words, multirun, config_dir, dry_run, yes, all_cells, json)
    except LadderFirstError as fault:
        options = ["--config-dir", str(config_dir.resolve())] if config_dir else []
        if multirun:
            options.append("-m")
        batch = _batch_of_ladder(words, str(fault), planned, manner, options)
        if batch is not None:  # else the ladder's follow-up job submits the cells
            words = with_batch(words, batch)
            kernel.submit(words, multirun, config_dir, dry_run, yes, all_cells, json)


submit.__doc__ = kernel.submit.__doc__


def plan(  # noqa: D103  (its help is that of the kernel's command)
    overrides: Overrides = None,
    multirun: Multirun = False,
    config_dir: ConfigDir = None,
    all_cells: AllCells = False,
    json: Json = False,
) -> None:
    submit(
        overrides, multirun, config_dir, dry_run=True, all_cells=all_cells, json=json
    )


plan.__doc__ = kernel.plan.__doc__


def _batch_of_ladder(
    words: list[str],
    typed: str,
    planned: "Callable[..., Plan]",
    manner: kernel.Manner,
    options: Sequence[str],
) -> int | None:
    """Return the batch that the ladder of a grid found; None if the ladder had to be submitted.

    On this machine the ladder runs at once. `typed` is `AUTO` or `LADDER`, and
    `options` are those of the command beside its words.
    """
    from hpml_jobs.extras.memory import largest_batch
    from hpml_jobs.submit.selection import select

    ladder = planned(largest_batch.ladder_words(words))
    may_submit = typed == largest_batch.AUTO
    batch = largest_batch.largest_that_fits(select(ladder), may_submit=may_submit)
    if batch is None:
        some = largest_batch.with_batch(words, ladder.cells[0].cell.batch)
        later = planned(some, lambda _: None).cells
        hours = sum(cell.gpu_hours for cell in later)
        print_note(
            f"{largest_batch.AUTO}: first the ladder, then {counted(len(later), 'cell')} with its "
            f"batch, up to {hours_text(hours)} GPU-hours"
        )
        then = [word for word in words if not word.startswith(largest_batch.KEY)]
        then += [largest_batch.LADDER, *_words_of_variables(ladder)]
        ladder = ladder._replace(
            then=("submit", *options, *then, "--yes"), later_gpu_hours=hours
        )
        kernel.deliver(ladder.study, lambda: select(ladder), manner, command=repeated())
        if manner.dry_run or ladder.cluster.launcher is not Launcher.LOCAL:
            return None
        batch = largest_batch.largest_that_fits(select(ladder), may_submit=False)
    print_note(
        f"largest_batch={batch}: the largest batch of the study's ladder that fits"
    )
    return batch


def _words_of_variables(plan: "Plan") -> list[str]:
    """Return what variables of sbatch have given to keys, as a command line has it.

    In a job these variables are not read.
    """
    from hpml_jobs.core.sbatch import OPTIONS
    from hpml_jobs.submit.explain import values_of

    keys = {option.default_of for option in OPTIONS.values()}
    return [
        f"{key}={value}"
        for key, value in values_of(plan)
        if key in keys and plan.origins.get(key, "").startswith(("SBATCH_", "SLURM_"))
    ]
