"""From settings to a `Plan`, in steps: defaults resolved and every cell checked."""

from collections.abc import Callable

from hpml_jobs.plan import steps
from hpml_jobs.plan.cells import Plan, PlanDraft
from hpml_jobs.plan.settings import Notify, Sweep

STEPS: tuple[Callable[[PlanDraft], PlanDraft], ...] = (
    # from the command line alone
    steps.refuse_shadowing_files,
    steps.say_notes_of_sweep,
    steps.refuse_contradicting_keys,
    steps.draft_cells,
    steps.check_this_machine,
    steps.say_sizes_of_iterations,
    steps.refuse_unused_options,
    # from the cluster and the study
    steps.check_cluster,
    steps.choose_gpu_types,
    steps.name_study,
    steps.keep_cluster_of_study,
    steps.choose_workers_and_nodes,
    steps.leave_out_equal_workers,
    steps.check_capacity,
    # from the data and the user's code
    steps.resolve_workloads,
    steps.expand_cells,
    steps.leave_out_duplicates,
    steps.name_cells,
)
"""The steps of `make_plan`. Wrong options are refused before the cluster and the data are read."""


def make_plan(
    sweep: Sweep, *, sending: bool = True, fetch: bool = True, notify: Notify
) -> Plan:
    """Resolve and check all cells; nothing is written and nothing is submitted.

    `sending=False` is for a cell that runs in this process (`hpml-jobs run`): the cluster's rules
    for submission and its nodes are not checked. `fetch=False` announces missing data instead of
    downloading it. `notify` gets each decision as a sentence, once.
    """
    first = sweep.first
    draft = PlanDraft(
        sweep=sweep,
        sending=sending,
        fetch=fetch,
        notify=_once(notify),
        cluster=first.cluster,
        origins=sweep.origins,
    )
    for step in STEPS:
        draft = step(draft)
    return Plan(
        study=draft.named_study,
        cluster=draft.cluster,
        cells=list(draft.cells),
        rerun=first.rerun,
        origins=dict(draft.origins),
        pack=first.pack,
        collect_after=first.collect_after,
        retries=first.retries,
    )


def _once(notify: Notify) -> Notify:
    """Return a function that passes each sentence on once."""
    said: set[str] = set()

    def notify_once(sentence: str) -> None:
        if sentence not in said:
            said.add(sentence)
            notify(sentence)

    return notify_once
