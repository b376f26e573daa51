"""A site as SLURM describes it: partitions with their GPUs, the user's accounts, and defaults."""

import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from hpml_jobs.core.sbatch import parse_duration_s
from hpml_jobs.slurm.commands import (
    ACCOUNT,
    Association,
    CommandAnswer,
    ask_associations,
    ask_slurm,
    limits,
    parse_associations,
)
from hpml_jobs.slurm.nodes import parse_gpus, parse_size

ACCOUNTS_TOOL = "my_slurm_accounts"
"""NYU's list of a user's accounts."""

SITE_TIMEOUT_S = 5.0
"""How long each command may take; the user waits for all of them."""

PARTITIONS_FORMAT = "%P|%a|%l|%D|%c|%m|%G|%f"


class NodeKind(NamedTuple):
    """Equal nodes of a partition; `gpu_type` is None if SLURM has no type of their GPUs."""

    nodes: int
    gpu_type: str | None
    gpus: int
    cpus: int
    memory_gb: float
    features: tuple[str, ...] = ()


class Partition(NamedTuple):
    """A partition; `minutes` is its longest time limit, None without one."""

    name: str
    is_default: bool
    is_up: bool
    minutes: float | None
    kinds: tuple[NodeKind, ...]

    @property
    def has_gpus(self) -> bool:
        """Whether any of its nodes has a GPU."""
        return any(kind.gpus for kind in self.kinds)


class Site(NamedTuple):
    """What SLURM reports about itself and the user; `config` is that of `scontrol show config`.

    `complaints` names each command that did not answer, and why; `accounts_from` the one that named
    the accounts.
    """

    config: Mapping[str, str] = {}
    partitions: tuple[Partition, ...] = ()
    associations: tuple[Association, ...] = ()
    default_account: str = ""
    complaints: tuple[str, ...] = ()
    accounts_from: str = "sacctmgr"

    @property
    def default_partition(self) -> str | None:
        """The partition of jobs that name none; None if there is none."""
        return next((part.name for part in self.partitions if part.is_default), None)

    def association(self, account: str | None) -> Association:
        """Return what SLURM reports of an account of the user; an empty one if it is none."""
        for association in self.associations:
            if association.account == account:
                return association
        return Association("")


def read_site(user: str) -> Site:
    """Ask sinfo, scontrol and, about the user, sacctmgr; one that fails costs its answer only.

    Where sacctmgr names no account, NYU's my_slurm_accounts is asked, if it exists.
    """
    config, complaints = limits(), []
    if not config:
        complaints.append("scontrol show config: no answer")
    sinfo = ask_slurm("sinfo", "-h", "-o", PARTITIONS_FORMAT, timeout_s=SITE_TIMEOUT_S)
    partitions = parse_partitions(sinfo.text) if sinfo.code == 0 else ()
    if not partitions:
        complaints.append(_complaint("sinfo", sinfo, "it lists no partition"))
    if not user:
        complaints.append("sacctmgr: not asked, this user id has no login name")
        return Site(config, partitions, complaints=tuple(complaints))
    answer = ask_associations(user, SITE_TIMEOUT_S)
    associations = parse_associations(answer.text, config.get("ClusterName", ""))
    source = "sacctmgr"
    if not associations:
        tool = ask_slurm(ACCOUNTS_TOOL, timeout_s=SITE_TIMEOUT_S)
        associations, source = parse_accounts(tool.text), ACCOUNTS_TOOL
    default_account = ""
    if answer.code:
        complaints.append(_complaint("sacctmgr", answer, f"exit code {answer.code}"))
    else:
        default_account = _default_account(user)
    return Site(
        config, partitions, associations, default_account, tuple(complaints), source
    )


def _default_account(user: str) -> str:
    show = ("sacctmgr", "-n", "-P", "show", "user", user, "format=DefaultAccount")
    answer = ask_slurm(*show, timeout_s=SITE_TIMEOUT_S)
    account = answer.text.strip()
    return account if answer.code == 0 and ACCOUNT.fullmatch(account) else ""


def _complaint(command: str, answer: CommandAnswer, otherwise: str) -> str:
    """Return what is wrong with an answer, with the command's name once."""
    return f"{command}: {answer.complaint.removeprefix(f'{command}: ') or otherwise}"


def parse_partitions(text: str) -> tuple[Partition, ...]:
    """Parse `sinfo -h -o '%P|%a|%l|%D|%c|%m|%G|%f'`, one line per partition and kind of node.

    >>> parse_partitions("main*|up|1:00:00|2|16|9000|gpu:v100:4|v100,ib\\n")[0][:4]
    ('main', True, True, 60.0)
    """
    partitions: dict[Partition, Partition] = {}
    for line in text.splitlines():
        fields = line.strip().split("|")
        if len(fields) == 8:
            name, state, limit, *sizes, gres, features = fields
            seconds = parse_duration_s(limit)
            minutes = None if seconds is None else seconds / 60
            empty = Partition(
                name.rstrip("*"), name.endswith("*"), state == "up", minutes, ()
            )
            partition = partitions.get(empty, empty)
            kinds = (*partition.kinds, *_node_kinds(sizes, gres, features))
            partitions[empty] = partition._replace(kinds=kinds)
    return tuple(partition for partition in partitions.values() if partition.kinds)


def _node_kinds(sizes: Sequence[str], gres: str, features: str) -> Iterator[NodeKind]:
    """Yield the kinds of nodes of a line: one for each GPU type; none if it has other sizes."""
    nodes, cpus, memory_mb = map(parse_size, sizes)
    if nodes is None or cpus is None or memory_mb is None:
        return
    named = tuple(word for word in features.split(",") if word != "(null)")
    for gpu_type, gpus in parse_gpus(gres):
        yield NodeKind(nodes, gpu_type, gpus, cpus, memory_mb / 1000, named)


def parse_accounts(text: str) -> tuple[Association, ...]:
    """Parse the answer of my_slurm_accounts: a head, a line of dashes, an account per line.

    >>> parse_accounts("Account  Descr\\n-------  -----\\ntorch_pr_1_lab  our lab\\n")[0].account
    'torch_pr_1_lab'
    """
    words = [line.split()[0] for line in text.splitlines() if line.strip()]
    rows = itertools.dropwhile(lambda word: not word.startswith("--"), words)
    return tuple(Association(word) for word in rows if ACCOUNT.fullmatch(word))
