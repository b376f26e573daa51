"""The user's functions before submission: their source files, counts, and a tried batch."""

import sys
from collections.abc import Callable
from pathlib import Path

import msgspec

from hpml_jobs.core.built_in import DATASETS, Unit
from hpml_jobs.core.cluster import Cluster
from hpml_jobs.core.counts import Counts
from hpml_jobs.core.source_files import source_files, without
from hpml_jobs.core.workload import Workload
from hpml_jobs.errors import UsageError
from hpml_jobs.plan import data, tried_batches
from hpml_jobs.plan.data import NotStartedError, TrialRequest

_ON_A_NODE = "hpml-jobs doctor tries one on a node"


def examined(
    workload: Workload,
    root: Path,
    cluster: Cluster,
    trial: TrialRequest,
    notify: Callable[[str], None],
) -> Workload:
    """Return the workload with its source files and, by running the functions, its counts.

    The batches of `trial` are tried, unless they were before.

    Raises:
        HpmlError: a function raises or does not return what it should, or cannot be run here.
    """
    code = source_files(workload.own_code, Path.cwd())
    workload = msgspec.structs.replace(workload, code=code)
    key = tried_batches.key(workload, root, cluster.python_command(sys.executable), trial)
    wanted = trial._replace(batches=()) if tried_batches.has(key) else trial
    try:
        counts = data.prepare(workload, root, cluster, trial=wanted)
    except NotStartedError as error:
        counts = _given_counts(workload, error)
        notify(f"{error}; your code was not tried: {_ON_A_NODE}")
    if counts.untried:
        notify(f"{workload.name}: no batch was tried here: {counts.untried}; {_ON_A_NODE}")
    elif wanted.batches and counts.parameters is not None:
        tried_batches.add(key)
    return msgspec.structs.replace(
        workload,
        images=counts.images,
        parameters=counts.parameters,
        context=_context(workload, counts),
        imported=without(counts.imported, code),
    )


def _context(workload: Workload, counts: Counts) -> int | None:
    """Return the tokens of a sample, where it has tokens.

    Raises:
        UsageError: the user gave another number than the data has.
    """
    counted, given = counts.tokens, workload.context
    if workload.throughput_unit is not Unit.TOKENS or counted is None:
        return given
    if given not in (None, counted):
        raise UsageError(
            f"workload.context={given}: an input of workload.data={workload.data} has {counted} "
            f"tokens; leave workload.context= out, or use workload.context={counted}"
        )
    return counted


def _given_counts(workload: Workload, error: NotStartedError) -> Counts:
    """Return what is known without running the functions.

    Raises:
        NotStartedError: the number of images is not.
    """
    dataset = DATASETS.get(workload.data)
    images = workload.images or (dataset.images if dataset else None)
    if images is None:
        raise NotStartedError(
            f"{error}, or give workload.images=, and workload.parameters= if you know it"
        ) from error
    return Counts(images=images, effective=images, parameters=workload.parameters)
