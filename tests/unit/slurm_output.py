"""Lines of squeue and sacct, as recorded on SLURM 22.05 with SLURM_TIME_FORMAT=%s."""

SUBMITTED = 1795279247
"""The submission time of every job, in seconds since 1970."""


def squeue_line(
    job: str, state: str, reason: str = "None", node: str = "", **more: str
) -> str:
    """Return a line of squeue; a job with a node has run for a minute."""
    start = more.get("start") or (str(SUBMITTED + 30) if node else "N/A")
    elapsed = more.get("elapsed") or ("1:00" if node else "0:00")
    name = more.get("name", "")
    return f"{job}|{state}|{SUBMITTED}|{start}|{elapsed}|30:00|{node}|{reason}|{name}\n"


def sacct_line(
    job: str, state: str, code: str = "0:0", node: str = "gr001", **more: str
) -> str:
    """Return a line of sacct; a job with a node ran for a minute on two GPUs."""
    if node == "None assigned":
        times, tres = "Unknown|Unknown|0", ""
    else:
        end = more.get("end") or str(SUBMITTED + 90)
        times, tres = (
            f"{SUBMITTED + 30}|{end}|60",
            "billing=1,cpu=1,gres/gpu:rtx8000=2,gres/gpu=2",
        )
    suspended = more.get("suspended", "00:00:00")
    name = more.get("name", "")
    return f"{job}|{state}|{code}|{node}|{SUBMITTED}|{times}|30|{tres}|{suspended}|{name}\n"
