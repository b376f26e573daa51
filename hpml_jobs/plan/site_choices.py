"""Partition, GPU type, account and QOS of a personal profile: what is set, what is a comment."""

import os
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from hpml_jobs.core.cluster import GpuRequest, Rule
from hpml_jobs.core.text import counted, duration_text
from hpml_jobs.plan.profile import Entry
from hpml_jobs.slurm.site import Association, Partition, Site


class Choice(NamedTuple):
    """The entries of one key; `chosen` is the value in effect, `decision` what is left open."""

    entries: tuple[Entry, ...]
    chosen: str | None = None
    decision: str = ""


_IS_DEFAULT = "SLURM's default partition"


def choose_partition(site: Site, known: Mapping[str, Any]) -> Choice:
    """Return the partition: SLURM's default if it has GPUs, or the only one that has."""
    if known["partition_rule"] == Rule.FORBIDDEN:
        source = f"cluster={known['name']} rejects jobs that name a partition"
        return Choice((Entry("partition", "NAME", source, is_set=False),))
    if not site.partitions:
        source = "sinfo did not answer; ask the site which partitions have GPUs"
        return Choice((Entry("partition", "NAME", source, is_set=False),))
    chosen, reason, decision = _chosen_partition(site, is_generic=known["name"] == "slurm")
    entries = [] if chosen is None else [Entry("partition", chosen, reason)]
    for each in site.partitions:
        source = f"{_IS_DEFAULT}; {_described(each)}" if each.is_default else _described(each)
        if each.name != chosen:
            entries.append(Entry("partition", each.name, source, is_set=False))
        elif each.is_default and reason == _IS_DEFAULT:
            entries[0] = Entry("partition", each.name, source)
        else:
            entries[0] = Entry("partition", each.name, f"{reason}; {_described(each)}")
    return Choice(tuple(entries), chosen, decision)


def _chosen_partition(site: Site, *, is_generic: bool) -> tuple[str | None, str, str]:
    """Return the partition to set, the reason, and what is left to decide.

    In a profile that is made for its cluster, only the environment sets one: the site's rules
    choose it by the GPUs of a job.
    """
    if given := os.environ.get("SBATCH_PARTITION"):
        return given, "from SBATCH_PARTITION", ""
    if not is_generic:
        return None, "", ""
    up = [each for each in site.partitions if each.is_up]
    with_gpus = [each for each in up if each.has_gpus]
    able = [each.name for each in with_gpus or up]
    default = next((each.name for each in site.partitions if each.is_default), None)
    if default in able:
        return default, _IS_DEFAULT, ""
    kind = "with GPUs " if with_gpus else ""
    if len(able) == 1:
        return able[0], f"the only partition {kind}that is up; SLURM's default: {default}", ""
    why = "SLURM has no default" if default is None else f"SLURM's default, {default}, has no GPUs"
    names = ", ".join(able) or "none"
    return None, "", f"cluster.partition: {why}; partitions {kind}that are up: {names}"


def _described(partition: Partition) -> str:
    """Return a partition's nodes and time limit in words."""
    nodes = ", ".join(
        f"{counted(kind.nodes, 'node')} x {_gpus_text(kind.gpu_type, kind.gpus)}"
        for kind in partition.kinds
    )
    limit = partition.minutes
    words = "no time limit" if limit is None else f"at most {duration_text(60 * limit)}"
    state = "" if partition.is_up else "; down"
    return f"{nodes}; {words}{state}"


def _gpus_text(gpu_type: str | None, gpus: int) -> str:
    return f"{gpus} {gpu_type or 'GPUs without a type'}" if gpus else "no GPU"


def choose_gpu_type(site: Site, known: Mapping[str, Any], partition: str | None) -> Choice:
    """Return the GPU type: the one with the most GPUs in the partition."""
    types = known["gpu_types"]
    if types:
        others = ", ".join(name for name in types if name != known["gpu_type"])
        source = f"the default of cluster={known['name']}; others: {others or 'none'}"
        return Choice((Entry("gpu_type", known["gpu_type"], source, is_set=False),))
    within = [each for each in site.partitions if each.name == partition] or site.partitions
    totals: dict[str, int] = {}
    has_untyped = False
    for kind in (kind for each in within for kind in each.kinds if kind.gpus):
        if kind.gpu_type is None:
            has_untyped = True
        else:
            totals[kind.gpu_type] = totals.get(kind.gpu_type, 0) + kind.nodes * kind.gpus
    where = f"in partition {partition}" if partition else "by sinfo"
    if not totals:
        return _without_types(site, has_untyped=has_untyped)
    order = sorted(totals, key=lambda name: (-totals[name], name))
    rest = ", ".join(f"{totals[name]} {name}" for name in order[1:])
    most = f"most GPUs {where} ({totals[order[0]]}); others: {rest}"
    reason = most if rest else f"the only type {where}"
    entries = [Entry("gpu_type", order[0], reason)]
    entries += [
        Entry("gpu_type", name, f"{counted(totals[name], 'GPU')} {where}", is_set=False)
        for name in order[1:]
    ]
    decision = f"cluster.gpu_type={order[0]}: {reason}" if rest else ""
    return Choice(tuple(entries), order[0], decision)


def _without_types(site: Site, *, has_untyped: bool) -> Choice:
    """Return what is known of the GPUs where SLURM has no type of them."""
    if not site.partitions:
        source = "sinfo did not answer; ask the site which GPU types there are"
        return Choice((Entry("gpu_type", "TYPE", source, is_set=False),))
    if not has_untyped:
        return Choice((Entry("device", "cpu", "sinfo lists no GPU"),))
    kinds = [kind for each in site.partitions for kind in each.kinds if kind.gpus]
    features = sorted({feature for kind in kinds for feature in kind.features})
    named = f"node features are {', '.join(features)}" if features else "nodes have no features"
    source = f"SLURM has no GPU types here; {named}: ask the site which of them names a GPU model"
    per_node = max(kind.gpus for kind in kinds)
    return Choice(
        (
            Entry("gpu_request", GpuRequest.GRES_CONSTRAINT.value, source, is_set=False),
            Entry("gpu_type", "FEATURE", "that feature", is_set=False),
            Entry("gpu_types.FEATURE", per_node, "GPUs per node", is_set=False),
        ),
        decision=f"cluster.gpu_types: {source}",
    )


def choose_account(site: Site, known: Mapping[str, Any]) -> Choice:
    """Return the account: of the environment, SLURM's default, or the only one."""
    names = [each.account for each in site.associations]
    if given := os.environ.get("SBATCH_ACCOUNT"):
        chosen, source = given, "from SBATCH_ACCOUNT"
    elif site.default_account:
        chosen, source = site.default_account, "your default account, by sacctmgr"
    elif len(names) == 1:
        chosen, source = names[0], "your only account, by sacctmgr"
    else:
        chosen, source = None, ""
    entries = [Entry("account", chosen, source)] if chosen else []
    entries += [
        Entry("account", name, "an account of yours, by sacctmgr", is_set=False)
        for name in names
        if name != chosen
    ]
    decision = ""
    if not entries:
        needed = "is required here" if known["account_rule"] == Rule.REQUIRED else "may be needed"
        source = f"{needed}; sacctmgr names none: ask the site which account you may charge"
        entries = [Entry("account", known["account_example"], source, is_set=False)]
        decision = f"cluster.account {source}"
    elif not chosen:
        decision = f"cluster.account: SLURM names no default of yours: {', '.join(names)}"
    return Choice(tuple(entries), chosen, decision)


def qos_entries(site: Site, account: str | None) -> Iterator[Entry]:
    """Yield the QOS that jobs of the account may have."""
    empty = Association(account or "")
    association = next((each for each in site.associations if each.account == account), empty)
    given = os.environ.get("SBATCH_QOS")
    if given:
        yield Entry("qos", given, "from SBATCH_QOS")
    for qos in association.qos:
        if qos != given:
            is_default = qos == association.default_qos
            source = "SLURM takes it by itself" if is_default else "also allowed, by sacctmgr"
            yield Entry("qos", qos, source, is_set=False)
