"""The steps of `make_plan`, in their order: each takes what is known of a plan and adds to it.

The first line of a step says what it gives; one that only refuses or notifies gives nothing new.
What it needs beside the sweep is said after that.
"""

import os
import sys
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path

import msgspec

from hpml_jobs.core.cluster import Cluster, Launcher
from hpml_jobs.core.environment import refusal
from hpml_jobs.core.errors import UsageError
from hpml_jobs.core.paths import resolve_path
from hpml_jobs.core.strategies import Device, Loader
from hpml_jobs.plan import machine, rules
from hpml_jobs.plan.capacity import check_shape
from hpml_jobs.plan.cells import (
    CellDraft,
    GivenWorkload,
    PlanDraft,
    PlannedCell,
    ResolvedWorkload,
    device_of,
    draft_of,
    given_workload,
    placed,
    planned_cells,
    with_workers,
)
from hpml_jobs.plan.data import resolve_workload, with_facts
from hpml_jobs.plan.loader import chooser
from hpml_jobs.plan.own_code import examined, working_tree
from hpml_jobs.plan.script import workload_of
from hpml_jobs.plan.settings import Notify, Settings
from hpml_jobs.slurm import commands
from hpml_jobs.study.selection import check_name
from hpml_jobs.study.study import Study

# ---- from the command line alone ----


def refuse_shadowing_files(plan: PlanDraft) -> PlanDraft:
    """Refuse to submit from a folder in which jobs would find a file instead of Python's module."""
    folder = Path.cwd()
    packages = (path.parent for path in folder.glob("*/__init__.py"))
    python_own = sys.stdlib_module_names - {"test"}  # which no program imports
    files = [
        path for path in [*folder.glob("*.py"), *packages] if path.stem in python_own
    ]
    if files:
        raise UsageError(
            f"{files[0]} has the name of a module of Python, and jobs would import it instead: "
            "rename it, or submit from another folder"
        )
    return plan


def say_notes_of_sweep(plan: PlanDraft) -> PlanDraft:
    """Say what was decided when the command line was read."""
    for note in plan.sweep.notes:
        plan.notify(note)
    return plan


def refuse_contradicting_keys(plan: PlanDraft) -> PlanDraft:
    """Refuse keys that contradict each other, or that a script decides."""
    rules.refuse(rules.RULES_OF_SWEEP, plan.sweep)
    return plan


def draft_cells(plan: PlanDraft) -> PlanDraft:
    """Give the drafts of all cells, and the origins of keys that follow from other keys."""
    first = plan.sweep.first
    drafts = map(draft_of, plan.sweep.settings, plan.sweep.blocks)
    origins = dict(plan.origins)
    if first.global_batch:
        origins["batch"] = "global_batch / gpus / accumulate"
    if first.iterations:
        origins["data.limit"] = "iterations x gpus x batch"
    return replace(plan, drafts=tuple(drafts), origins=origins)


def check_this_machine(plan: PlanDraft) -> PlanDraft:
    """Say where a machine without GPUs decides the device; refuse variables that its cells inherit.

    Needs the drafts. The jobs of a cluster refuse the variables that they inherit themselves.
    """
    if not plan.cluster.is_local or plan.cluster.hosts:
        return plan
    for draft in plan.drafts:
        cell = draft.cell
        if cell.device is Device.CPU:
            _say_what_cpus_mean(draft, plan)
        refused = refusal(os.environ, cell.device, communicates=cell.processes > 1)
        if plan.sending and refused:
            raise UsageError(refused)
    return plan


def _say_what_cpus_mean(draft: CellDraft, plan: PlanDraft) -> None:
    if draft.settings.device is None and plan.cluster.device is None:
        plan.notify("no NVIDIA GPU answers here: device=cpu")
    cpus = len(os.sched_getaffinity(0))
    if draft.cell.processes * draft.cell.threads > cpus:
        plan.notify(
            f"more processes than the {cpus} CPUs of this machine: speedups of such cells "
            "measure the scheduler; use fewer gpus="
        )


def say_sizes_of_iterations(plan: PlanDraft) -> PlanDraft:
    """Say how to get speedups where cells of several sizes train on other numbers of samples."""
    sweep = plan.sweep
    if not sweep.first.iterations:
        return plan
    limits = {(settings.batch, settings.data.limit or 0) for settings in sweep.settings}
    batches = {batch for batch, _ in limits}
    sizes = {settings.gpus for settings in sweep.settings}
    if len(sizes) > 1 and len(limits) > len(batches):
        plan.notify(
            f"iterations={sweep.first.iterations} trains more samples on more GPUs, so there will "
            f"be no speedups: for these use data.limit={max(limit for _, limit in limits)} "
            "instead, which is the same for all sizes"
        )
    return plan


def refuse_unused_options(plan: PlanDraft) -> PlanDraft:
    """Refuse options that no cell would use. Needs the drafts."""
    cells = [draft.cell for draft in plan.drafts]
    rules.refuse(rules.RULES_OF_OPTIONS, plan.sweep.settings, cells)
    rules.refuse([rules.workers_need_their_loader], plan.sweep.settings)
    return plan


# ---- from the cluster and the study ----


def check_cluster(plan: PlanDraft) -> PlanDraft:
    """Give the cluster with its GPU types; to submit, refuse one that does not accept jobs.

    Without `fetch` (`hpml-jobs plan`) this machine may be one without sbatch. Needs the cluster of
    the sweep.
    """
    cluster = plan.cluster
    is_slurm = not cluster.is_local
    if is_slurm:
        commands.ask_cluster(cluster.clusters)
    if not plan.sending:
        return plan
    if is_slurm and not cluster.gpu_types:
        cluster = msgspec.structs.replace(cluster, gpu_types=_listed_gpu_types())
    cluster.check()
    if is_slurm and plan.fetch:
        machine.check_can_submit(cluster)
    return replace(plan, cluster=cluster)


def _listed_gpu_types() -> dict[str, int]:
    """Return the GPU types that sinfo lists, with the most GPUs that a node has of each."""
    most: dict[str, int] = {}
    for node in commands.inventory():
        if node.gpu_type and node.gpus:
            most[node.gpu_type] = max(node.gpus, most.get(node.gpu_type, 0))
    return most


def choose_gpu_types(plan: PlanDraft) -> PlanDraft:
    """Give the drafts GPU types: as given, else the cluster's default. Needs the cluster."""
    drafts = [
        draft._replace(gpu_type=_gpu_type(draft.settings, plan.cluster, plan.notify))
        for draft in plan.drafts
    ]
    return replace(plan, drafts=tuple(drafts))


def _gpu_type(settings: Settings, cluster: Cluster, notify: Notify) -> str | None:
    """Return the GPU type to request; None without GPUs, or on a local machine."""
    wants_gpus = device_of(settings) is Device.CUDA or cluster.request_gpus_for_cpu
    if not wants_gpus or cluster.is_local:
        return None
    gpu_type = cluster.gpu_type_for(settings.gpu_type)
    if settings.gpu_type is None and gpu_type is not None:
        notify(
            f"GPU type: {gpu_type}, the default of cluster={cluster.name} (change it: gpu_type=)"
        )
    return gpu_type


def name_study(plan: PlanDraft) -> PlanDraft:
    """Give the study: of the given name, or WORKLOAD-CLUSTER[-GPUTYPE].

    Needs GPU types. A study of a newer version is refused.
    """
    study = Study(resolve_path(plan.sweep.first.outputs) / _study_name(plan))
    study.check_schema()
    return replace(plan, study=study)


def _study_name(plan: PlanDraft) -> str:
    first = plan.sweep.first
    if first.study is not None:
        return check_name(first.study)
    workloads = dict.fromkeys(draft.settings.workload.name for draft in plan.drafts)
    # a local machine's cells request no type
    types = {draft.gpu_type for draft in plan.drafts if draft.gpu_type is not None}
    return check_name(
        "-".join(["_".join(workloads), first.cluster.name, *sorted(types)])
    )


def keep_cluster_of_study(plan: PlanDraft) -> PlanDraft:
    """Give the SLURM cluster that has the study's jobs, where none is given.

    Needs the study.

    Raises:
        UsageError: another one is given; its jobs may have the same numbers.
    """
    study, cluster = plan.named_study, plan.cluster
    earlier = study.last_cluster() if plan.sending else None
    if earlier is None or Launcher.LOCAL in (earlier.launcher, cluster.launcher):
        return plan
    if earlier.clusters == cluster.clusters or not study.history().has_jobs:
        return plan
    if earlier.clusters is None or cluster.clusters is not None:
        jobs_are_on = earlier.clusters or _THIS_MACHINES_CLUSTER
        raise UsageError(
            f"cluster.clusters={cluster.clusters}: the jobs of study {study.name} are on "
            f"{jobs_are_on}; use another study="
        )
    commands.ask_cluster(earlier.clusters)
    cluster = msgspec.structs.replace(cluster, clusters=earlier.clusters)
    return replace(plan, cluster=cluster)


_THIS_MACHINES_CLUSTER = "the cluster of this machine (SLURM_CLUSTERS was not set)"


def choose_workers_and_nodes(plan: PlanDraft) -> PlanDraft:
    """Give the drafts loader workers and nodes, cell by cell.

    Needs GPU types and the study, whose cells keep the number of workers that it has, unless
    numbers are compared.
    """
    numbers = {settings.loader_workers for settings in plan.sweep.settings}
    are_compared = len(numbers) > 1
    choose = chooser(plan.cluster, None if are_compared else plan.study, plan.notify)
    drafts = [
        placed(with_workers(draft, choose), plan.cluster) for draft in plan.drafts
    ]
    return replace(plan, drafts=tuple(drafts))


def leave_out_equal_workers(plan: PlanDraft) -> PlanDraft:
    """Give the drafts without loader_workers=null where it is the number it is compared with.

    Needs loader workers.
    """
    given = {settings.loader_workers for settings in plan.sweep.settings}
    chosen = {draft.cell.loader_workers for draft in plan.drafts}
    is_equal = None in given and len(chosen) == 1 and len(given) > 1
    if not is_equal:
        return plan
    plan.notify(
        f"loader_workers=null is {max(chosen)} here, so there is nothing to compare: name two "
        "numbers, e.g. loader_workers=2,4"
    )
    drafts = (
        draft for draft in plan.drafts if draft.settings.loader_workers is not None
    )
    return replace(plan, drafts=tuple(drafts))


def check_capacity(plan: PlanDraft) -> PlanDraft:
    """Refuse cells that the cluster, or this machine, can never run. Needs workers and nodes."""
    is_here = plan.cluster.is_local and "SLURM_JOB_ID" not in os.environ
    if plan.sending or is_here:
        for draft in plan.drafts:
            check_shape(draft.shape(plan.cluster), draft.cell, plan.cluster)
    return plan


# ---- from the data and the user's code ----


def resolve_workloads(plan: PlanDraft) -> PlanDraft:
    """Give each workload with its images counted, and origins; each is looked at once.

    Needs the cluster.
    """
    given = dict.fromkeys(given_workload(settings) for settings in plan.sweep.settings)
    if plan.sweep.first.script is None:
        workloads = {workload: _resolved(workload, plan) for workload in given}
    else:
        workloads = _of_script(given, plan)
    origins = dict(plan.origins) | _derived(workloads)
    return replace(plan, workloads=workloads, origins=origins)


def _resolved(given: GivenWorkload, plan: PlanDraft) -> ResolvedWorkload:
    workload, root = given
    counted = with_facts(workload, root, plan.cluster, plan.sweep.origins, plan.notify)
    if workload.own_code:
        users = (s for s in plan.sweep.settings if given_workload(s) == given)
        as_tensors = any(settings.loader is Loader.DEVICE for settings in users)
        counted = examined(
            counted, root, plan.cluster, plan.notify, as_tensors=as_tensors
        )
    fetch, notify = plan.fetch, plan.notify
    resolved = resolve_workload(counted, root, plan.cluster, fetch=fetch, notify=notify)
    return ResolvedWorkload(resolved, root, working_tree(Path.cwd(), resolved.code))


def _of_script(
    given: Iterable[GivenWorkload], plan: PlanDraft
) -> dict[GivenWorkload, ResolvedWorkload]:
    script = workload_of(plan.sweep.settings, plan.notify)
    rules.refuse([rules.batch_of_script_is_given], plan.sweep)
    tree = working_tree(Path.cwd(), script.code)
    return {
        workload: ResolvedWorkload(script, workload.root, tree) for workload in given
    }


def _derived(workloads: Mapping[GivenWorkload, ResolvedWorkload]) -> dict[str, str]:
    """Return the origin of the keys whose values are those of the data and the model."""
    return {
        f"workload.{key}": "derived from data and model"
        for given, resolved in workloads.items()
        for key in ("classes", "parameters", "images", "context")
        if getattr(given.workload, key) != getattr(resolved.workload, key)
    }


def expand_cells(plan: PlanDraft) -> PlanDraft:
    """Give the complete cells: per batch of a ladder, per repeat. Needs drafts and workloads."""
    cells: list[PlannedCell] = []
    for draft in plan.drafts:
        workload = plan.workloads[given_workload(draft.settings)]
        cells += planned_cells(draft, workload, plan.cluster)
    return replace(plan, cells=tuple(cells))


def leave_out_duplicates(plan: PlanDraft) -> PlanDraft:
    """Give each cell once, of the block where it is first. Needs the cells."""
    unique: dict[str, PlannedCell] = {}
    for planned in plan.cells:
        first = unique.get(planned.cell.digest, planned)
        unique[planned.cell.digest] = planned._replace(block=first.block)
    if len(unique) < len(plan.cells):
        reason = ""
        if len({settings.strategy for settings in plan.sweep.settings}) > 1:
            reason = ": with gpus=1 all strategies share one baseline (single)"
        plan.notify(
            f"{len(plan.cells)} combinations, {len(unique)} without duplicates{reason}"
        )
    return replace(plan, cells=tuple(unique.values()))


def name_cells(plan: PlanDraft) -> PlanDraft:
    """Give the cells names that are unique in the study. Needs the study, and each cell once.

    Where 6 digits of the hash are those of another cell, of this plan or of the study, the later
    cell has more. The same cells get the same names again, because a study's cells keep theirs.
    """
    study = plan.named_study
    history = study.history()
    digests: dict[str, str | None] = {}  # of the cell that has each name

    def is_free(slug: str, digest: str) -> bool:
        if slug not in digests:
            copy = history.copy_of(slug)  # a cell without its folder keeps its name
            of_copy = copy.cell.digest if copy else None
            digests[slug] = study.cell(slug).digest() or of_copy
        return digests[slug] in (None, digest)

    cells = []
    for planned in plan.cells:
        digest = planned.cell.digest
        slug = next(
            (slug for slug in planned.cell.slugs() if is_free(slug, digest)), None
        )
        if slug is not None:
            digests[slug] = digest
            cells.append(planned._replace(slug=slug))
    return replace(plan, cells=tuple(cells))
