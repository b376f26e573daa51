"""The accounts that a user may charge, as sacctmgr lists them."""

import re
from collections.abc import Mapping
from typing import NamedTuple

from hpml_jobs.slurm.commands import ASK_TIMEOUT_S, CommandAnswer, ask_slurm

LIMITS = ("MaxJobs", "MaxSubmit", "GrpTRES", "MaxTRES")
ASSOCIATION_FIELDS = ",".join(("Cluster", "Account", "QOS", "DefaultQOS", *LIMITS))

ACCOUNT = re.compile(r"\w[\w.+-]*", re.ASCII)
"""The name of an account."""


class Association(NamedTuple):
    """An account that the user may charge, the QOS that jobs of it may have, and its limits."""

    account: str
    qos: tuple[str, ...] = ()
    default_qos: str = ""
    limits: Mapping[str, str] = {}  # of those in LIMITS what is set, as SLURM prints it


def ask_associations(user: str, timeout_s: float = ASK_TIMEOUT_S) -> CommandAnswer:
    """Ask sacctmgr for the accounts of a user, for `parse_associations`."""
    what = ("show", "associations", f"user={user}", f"format={ASSOCIATION_FIELDS}")
    return ask_slurm("sacctmgr", "-n", "-P", *what, timeout_s=timeout_s)


def parse_associations(text: str, cluster: str) -> tuple[Association, ...]:
    """Parse the answer of `ask_associations`; each account of this cluster once.

    Of an account with several partitions, the first one that sets a limit gives it.

    >>> (lab,) = parse_associations("rig|lab|normal,long|normal|8|100||\\nold|x||||||\\n", "rig")
    >>> lab.qos, lab.default_qos, lab.limits
    (('normal', 'long'), 'normal', {'MaxJobs': '8', 'MaxSubmit': '100'})
    """
    rows = [line.strip().split("|") for line in text.splitlines()]
    clusters = (cluster.lower(), "")
    accounts: dict[str, Association] = {}
    for row in rows:
        if len(row) != 4 + len(LIMITS) or row[0].lower() not in clusters:
            continue
        _, account, qos, default_qos, *values = row
        if ACCOUNT.fullmatch(account):
            earlier = accounts.get(account, Association(account))
            every = dict.fromkeys((*earlier.qos, *filter(None, qos.split(","))))
            are_set = {name: text for name, text in zip(LIMITS, values, strict=True) if text}
            accounts[account] = Association(
                account,
                tuple(every),
                earlier.default_qos or default_qos,
                are_set | dict(earlier.limits),
            )
    return tuple(accounts.values())
