"""Commands submit and plan: from the typed line to a plan, which is delivered or shown."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from hpml_jobs.cli.console import print_note
from hpml_jobs.cli.deliver import Manner, deliver
from hpml_jobs.cli.options import (
    AllCells,
    ConfigDir,
    DryRun,
    Json,
    Multirun,
    Overrides,
    Yes,
)
from hpml_jobs.cli.terminal import repeated
from hpml_jobs.core.errors import UsageError
from hpml_jobs.core.text import (
    PROGRAM,
    counted,
    hours_text,
    nearest,
    with_command,
)
from hpml_jobs.study.selection import all_studies

if TYPE_CHECKING:
    from hpml_jobs.plan.cells import Plan


SIMILAR = 0.75
"""How much the name of a new study is like that of a study that is probably meant, at least."""


def submit(
    overrides: Overrides = None,
    multirun: Multirun = False,
    config_dir: ConfigDir = None,
    dry_run: DryRun = False,
    yes: Yes = False,
    all_cells: AllCells = False,
    json: Json = False,
) -> None:
    """Submit a study, or run it here if there is no SLURM.

    Finished, pending and running cells are skipped. On a terminal it asks before more than
    cluster.confirm_gpu_hours GPU-hours are requested.

    Example: hpml-jobs -m gpus=1,2,4 batch=32,128,512
    """
    from hpml_jobs.plan.keys import LadderFirstError
    from hpml_jobs.plan.resolve import make_plan
    from hpml_jobs.plan.sweep import expand
    from hpml_jobs.submit.largest_batch import AUTO, ladder_words, with_batch
    from hpml_jobs.submit.selection import select

    words = overrides or []
    if AUTO in words:
        ladder_words(words)  # refuses it without a grid
    if not dry_run:
        _refuse_name_alone(words)
    manner = Manner(json, yes, all_cells, dry_run)

    def planned(words: list[str], notify: Callable[[str], None] = print_note) -> "Plan":
        sweep = expand(words, multirun=multirun, config_dir=config_dir)
        return make_plan(sweep, fetch=not dry_run, notify=notify)

    try:
        plan = planned(words)
    except LadderFirstError as fault:
        options = ["--config-dir", str(config_dir.resolve())] if config_dir else []
        if multirun:
            options.append("-m")
        batch = _batch_of_ladder(words, str(fault), planned, manner, options)
        if batch is None:  # the ladder's follow-up job submits the cells
            return
        plan = planned(with_batch(words, batch))
    deliver(plan.study, lambda: select(plan), manner, command=repeated())


def plan(
    overrides: Overrides = None,
    multirun: Multirun = False,
    config_dir: ConfigDir = None,
    all_cells: AllCells = False,
    json: Json = False,
) -> None:
    """Show the cells, GPU-hours and values of a submission, with --all its scripts; submit nothing.

    Example: hpml-jobs plan -m gpus=1,2,4 batch=32,128,512 cluster=greene
    """
    submit(
        overrides, multirun, config_dir, dry_run=True, all_cells=all_cells, json=json
    )


def _refuse_name_alone(words: list[str]) -> None:
    """Refuse to add the default cell to a study that was probably to be shown."""
    from hpml_jobs.plan.user_config import user_outputs

    name = words[0].removeprefix("study=") if len(words) == 1 else ""
    if words != [f"study={name}"]:
        return
    names = [study.name for study in all_studies(user_outputs().expanduser())]
    if shown := nearest(name, names, SIMILAR):
        sentence = (
            f"study={name} alone names no cell: add e.g. gpus=1; to see study {shown}"
        )
        raise UsageError(with_command(sentence, f"{PROGRAM} status {shown}"))


def _batch_of_ladder(
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
        most = f", up to {hours_text(hours)} GPU-hours" if hours else ""
        print_note(
            f"{largest_batch.AUTO}: first the ladder, then {counted(len(later), 'cell')} with its "
            f"batch{most}"
        )
        then = largest_batch.words_after_ladder(words, ladder)
        ladder = ladder._replace(
            then=("submit", *options, *then, "--yes"), later_gpu_hours=hours
        )
        deliver(ladder.study, lambda: select(ladder), manner, command=repeated())
        if manner.dry_run or not ladder.cluster.is_local:
            return None
        batch = largest_batch.largest_that_fits(select(ladder), may_submit=False)
    print_note(
        f"largest_batch={batch}: the largest batch of the study's ladder that fits"
    )
    return batch
