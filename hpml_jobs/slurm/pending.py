"""SLURM's reasons for pending jobs in plain words, and who must act."""

import re
from typing import NamedTuple

YOU, ADMINS = "you", "the cluster's admins"


class PendingReason(NamedTuple):
    """The reason of a pending job; `who` must act before it can start (empty: nobody)."""

    text: str
    who: str = ""

    def __str__(self) -> str:
        return f"{self.text}; {self.who} must act" if self.who else self.text


_RESUBMIT = "cancel it and resubmit it"

_NO_REASON = "None"
"""SLURM's word of a pending job that its scheduler has not considered yet."""

_REASONS = {
    _NO_REASON: PendingReason("not yet considered by SLURM's scheduler"),
    "Priority": PendingReason("jobs with a higher priority come first"),
    "Resources": PendingReason("next in the queue, until nodes are free"),
    "Dependency": PendingReason("starts after the jobs that it depends on"),
    "JobArrayTaskLimit": PendingReason("starts after other cells of its array"),
    "BeginTime": PendingReason(
        "its begin time has not come, or it pauses after a requeue"
    ),
    "Cleaning": PendingReason("requeued; its last run is being cleaned up"),
    "Prolog": PendingReason("its node is being prepared"),
    "Licenses": PendingReason("a licence that it needs is in use"),
    "Reservation": PendingReason("its reservation has not begun"),
    "NodeDown": PendingReason("a node that it needs is down", ADMINS),
    "PartitionDown": PendingReason("its partition is down", ADMINS),
    "PartitionInactive": PendingReason("its partition starts no jobs", ADMINS),
    "FrontEndDown": PendingReason("the cluster's front end is down", ADMINS),
    "SystemFailure": PendingReason("SLURM or a node has failed", ADMINS),
    "JobHeldAdmin": PendingReason("held by an administrator", ADMINS),
    "JobHeldUser": PendingReason("held; release it with scontrol release JOB", YOU),
    "JobHoldMaxRequeue": PendingReason(
        "held after too many requeues; release it with scontrol release JOB", YOU
    ),
    "DependencyNeverSatisfied": PendingReason(
        f"can never start: a job that it depends on did not end as required; {_RESUBMIT}",
        YOU,
    ),
    "BadConstraints": PendingReason(
        f"no node matches its request (gpu_type, constraint); correct it: {_RESUBMIT}",
        YOU,
    ),
    "PartitionTimeLimit": PendingReason(
        f"requests more minutes than its partition allows; {_RESUBMIT} with fewer", YOU
    ),
    "PartitionNodeLimit": PendingReason(
        f"requests more nodes than its partition has or than are up; {_RESUBMIT} with fewer",
        YOU,
    ),
    "PartitionConfig": PendingReason(
        f"requests resources that its partition can never provide; {_RESUBMIT} with fewer",
        YOU,
    ),
    "MaxMemPerLimit": PendingReason(
        f"requests more memory than is allowed; {_RESUBMIT} with less cluster.mem_gb_per_gpu",
        YOU,
    ),
    "AccountNotAllowed": PendingReason(
        f"its account may not use this partition; {_RESUBMIT} with another cluster.account",
        YOU,
    ),
    "QOSNotAllowed": PendingReason(
        f"its QOS may not use this partition; {_RESUBMIT} with another sbatch.qos", YOU
    ),
    "InvalidAccount": PendingReason(
        f"its account is not valid; {_RESUBMIT} with another cluster.account", YOU
    ),
    "InvalidQOS": PendingReason(
        f"its QOS is not valid; {_RESUBMIT} with another cluster.sbatch.qos", YOU
    ),
    "ReservationDeleted": PendingReason(
        f"its reservation was deleted; {_RESUBMIT}", YOU
    ),
    "Constraints": PendingReason("no node with the features that it requests is free"),
    "MaxPoweredUpNodes": PendingReason(
        "as many nodes are powered up as the cluster allows"
    ),
}

_FAMILIES = (
    (
        r"ReqNodeNotAvail|.*ReservedForMaintenance|Nodes required for job are DOWN",
        PendingReason(
            "nodes that it needs are down, drained or reserved (maintenance?)"
        ),
    ),
    (
        r".*\btopology\b.*|Required nodes lack available resources",
        PendingReason(
            "next in the queue, until nodes that are close together are free"
        ),
    ),
    (
        r".*held.*",
        PendingReason(
            "its start failed and SLURM holds it; release it with scontrol release JOB, or cancel "
            "it",
            YOU,
        ),
    ),
    (
        r"(QOS|Assoc)Min.*|(QOS|Assoc)Max.*Per(Job|Node).*",
        PendingReason(
            f"requests more than one job may have; {_RESUBMIT} with less", YOU
        ),
    ),
    (
        r"(QOS|Assoc)(Grp|Max).*Minutes.*|QOSUsageThreshold|AssociationTimeLimit",
        PendingReason(
            "the budget of its account or QOS is used up", "the owner of the account"
        ),
    ),
    (
        r"(QOS|Assoc)Grp.*|Max\w+PerAccount",
        PendingReason("running jobs of its group have reached the group limit"),
    ),
    (
        r"(QOS|Assoc)(Max|iation).*|QOS\w*Limit|Max\w+PerUser",
        PendingReason("your running jobs have reached your limit"),
    ),
)
"""Families of reasons, as patterns; the first match counts."""


def why_pending(reason: str) -> PendingReason:
    """Return a reason in plain words with SLURM's word; an unknown reason stays as it is.

    >>> str(why_pending("QOSMaxGRESPerUser"))
    'your running jobs have reached your limit (QOSMaxGRESPerUser)'
    >>> str(why_pending("JobHeldAdmin"))
    "held by an administrator (JobHeldAdmin); the cluster's admins must act"
    >>> why_pending("ReqNodeNotAvail, UnavailableNodes:gr001").who, why_pending("Novel").text
    ('', 'Novel')
    """
    word = reason.partition(",")[0].strip()
    families = (family for pattern, family in _FAMILIES if re.fullmatch(pattern, word))
    explained = _REASONS.get(word) or next(families, None)
    if explained is None:
        return PendingReason(reason)
    if word == _NO_REASON:
        return explained
    return explained._replace(text=f"{explained.text} ({reason})")
