"""`largest_batch=auto`: the ladder of a grid, which runs first."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from hpml_jobs.cli.commands import repeated
from hpml_jobs.cli.console import print_note
from hpml_jobs.cli.submit import Manner, deliver
from hpml_jobs.core.cluster import Launcher
from hpml_jobs.core.text import counted, hours_text

if TYPE_CHECKING:
    from hpml_jobs.plan.cells import Plan


def batch_of_ladder(
    words: list[str],
    typed: str,
    planned: "Callable[..., Plan]",
    manner: Manner,
    options: Sequence[str],
) -> int | None:
    """Return the batch that the ladder of a grid found; None if the ladder had to be submitted.

    On this machine the ladder runs at once. `typed` is `AUTO` or `LADDER`, and
    `options` are those of the command beside its words.
    """
    from hpml_jobs.submit import largest_batch
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
        deliver(ladder.study, lambda: select(ladder), manner, command=repeated())
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
