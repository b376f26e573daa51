"""Why SLURM lets a job wait: its reasons in people's words, and who must act."""

import re
from typing import NamedTuple

YOU, ADMINS = "you", "the cluster's admins"


class Pending(NamedTuple):
    """Why a job waits; `who` must act before it can start, nobody where it will by itself."""

    words: str
    who: str = ""

    def __str__(self) -> str:
        return f"{self.words}; {self.who} must act" if self.who else self.words


_AGAIN = "cancel it and send it again"

_WORDS = {
    "None": Pending("SLURM has not looked at it yet"),
    "Priority": Pending("others have a higher priority"),
    "Resources": Pending("next in line, until nodes are free"),
    "Dependency": Pending("its turn comes after other jobs"),
    "JobArrayTaskLimit": Pending("its turn comes after other cells of its array"),
    "BeginTime": Pending("may not start yet: its begin time, or the pause after a requeue"),
    "Cleaning": Pending("requeued, its last run is being cleaned up"),
    "Prolog": Pending("its node is being made ready"),
    "Licenses": Pending("a licence it asks for is in use"),
    "Reservation": Pending("its reservation has not begun"),
    "NodeDown": Pending("a node it needs is down", ADMINS),
    "PartitionDown": Pending("its partition is down", ADMINS),
    "PartitionInactive": Pending("its partition starts no jobs", ADMINS),
    "FrontEndDown": Pending("the cluster's front end is down", ADMINS),
    "SystemFailure": Pending("a failure of SLURM or of a node", ADMINS),
    "JobHeldAdmin": Pending("held by an administrator", ADMINS),
    "JobHeldUser": Pending("held: scontrol release JOB lets it go", YOU),
    "JobHoldMaxRequeue": Pending("requeued too often and held: scontrol release JOB", YOU),
    "DependencyNeverSatisfied": Pending(
        f"what it waits for did not end as asked, it can never start: {_AGAIN}", YOU
    ),
    "BadConstraints": Pending(
        f"no node is as it asks (gpu_type, cluster.constraint): {_AGAIN} corrected", YOU
    ),
    "PartitionTimeLimit": Pending(
        f"asks for more minutes than its partition gives: {_AGAIN} with fewer", YOU
    ),
    "PartitionNodeLimit": Pending(
        f"asks for more nodes than its partition gives, or they are down: {_AGAIN} with fewer", YOU
    ),
    "PartitionConfig": Pending(f"its partition can never give what it asks for: {_AGAIN}", YOU),
    "MaxMemPerLimit": Pending(
        f"asks for more memory than is allowed: {_AGAIN} with less cluster.mem_gb_per_gpu", YOU
    ),
    "AccountNotAllowed": Pending(f"its account may not use this partition: {_AGAIN}", YOU),
    "QOSNotAllowed": Pending(f"its QOS may not use this partition: {_AGAIN}", YOU),
    "InvalidAccount": Pending(f"its account is not valid: {_AGAIN} with cluster.account", YOU),
    "InvalidQOS": Pending(f"its QOS is not valid: {_AGAIN} with cluster.qos", YOU),
    "ReservationDeleted": Pending(f"its reservation is gone: {_AGAIN}", YOU),
}

_PATTERNS = (
    (
        r"ReqNodeNotAvail|.*ReservedForMaintenance",
        Pending("nodes it needs are down, drained or reserved (maintenance?)"),
    ),
    (
        r".*held.*",
        Pending("its start failed and SLURM holds it: scontrol release JOB, or cancel it", YOU),
    ),
    (
        r"(QOS|Assoc)Min.*|(QOS|Assoc)Max.*Per(Job|Node).*",
        Pending(f"asks for more than one job may have: {_AGAIN} with less", YOU),
    ),
    (
        r"(QOS|Assoc)(Grp|Max).*Minutes.*|QOSUsageThreshold|AssociationTimeLimit",
        Pending("the budget of its account or QOS is used up", "who owns the account"),
    ),
    (r"(QOS|Assoc)Grp.*", Pending("its group's running jobs use the group's limit")),
    (r"(QOS|Assoc)(Max|iation).*|QOS\w*Limit", Pending("your running jobs use your limit")),
)
"""Families of reasons, the first that fits."""


def why_pending(reason: str) -> Pending:
    """A reason in people's words, SLURM's own beside them; an unknown one in SLURM's alone.

    >>> str(why_pending("QOSMaxGRESPerUser"))
    'your running jobs use your limit (QOSMaxGRESPerUser)'
    >>> str(why_pending("JobHeldAdmin"))
    "held by an administrator (JobHeldAdmin); the cluster's admins must act"
    >>> why_pending("ReqNodeNotAvail, UnavailableNodes:gr001").who, why_pending("Novel").words
    ('', 'Novel')
    """
    word = reason.partition(",")[0].strip()
    known = _WORDS.get(word) or next(
        (told for pattern, told in _PATTERNS if re.fullmatch(pattern, word)), None
    )
    if known is None:
        return Pending(reason)
    return known._replace(words=f"{known.words} ({reason})")
