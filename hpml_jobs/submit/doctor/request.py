"""What would be asked of SLURM: would it take the default cell?"""

import re
import subprocess
import tempfile
from pathlib import Path

from hpml_jobs.checkup import Finding, ok, problem
from hpml_jobs.cluster import sbatch_options
from hpml_jobs.slurm_jobs import span_s
from hpml_jobs.submit.batches import Batch, Way
from hpml_jobs.submit.cells import Plan
from hpml_jobs.submit.doctor.controller import SUPPORT
from hpml_jobs.submit.launch import script
from hpml_jobs.submit.machine import ASK_TIMEOUT_S, ask_slurm
from hpml_jobs.submit.sbatch import clean_environment

_TAKEN = re.compile(r"to start at (\S+) using \d+ processors on nodes (\S+) in partition (\S+)")

_REMEDIES = (
    ("account", "cluster.account=…"),
    ("qos", "cluster.qos=…"),
    ("partition", "cluster.partition=…"),
    ("time limit", "fewer minutes=…"),
    ("array", "cluster.max_array_size=…"),
    ("node configuration", "fewer gpus=, another gpu_type=, less cluster.mem_gb_per_gpu="),
)
"""A word of SLURM's refusal, and what to change; the first that is in it."""


def parse_time_limits(text: str) -> dict[str, float]:
    """Minutes that each partition gives at most, by `sinfo -h -o '%P|%l'`; `*` marks the default.

    >>> parse_time_limits("main*|1:00:00\\nlong|2-00:00:00\\nfree|infinite\\n")
    {'main*': 60.0, 'long': 2880.0}
    """
    rows = [line.strip().partition("|")[::2] for line in text.splitlines()]
    spans = {name: span_s(limit) for name, limit in rows}
    return {name: seconds / 60 for name, seconds in spans.items() if seconds is not None}


def too_long(plan: Plan, batch: Batch) -> Finding | None:
    """A time limit that its partition never gives: sbatch takes it, and the job waits for ever."""
    limits = parse_time_limits(ask_slurm("sinfo", "-h", "-o", "%P|%l").text)
    default = next((name for name in limits if name.endswith("*")), "")
    asked = sbatch_options(batch.shape, plan.cluster).get("partition", default)
    most = limits.get(asked, limits.get(f"{asked}*"))
    if most is None or batch.shape.minutes <= most:
        return None
    name = str(asked).rstrip("*")
    seen = f"{batch}: partition {name} gives {most:g} min at most, so the job would wait for ever"
    mend = (
        f"minutes={most:g} or fewer" if batch.way is Way.ARRAY else f"cluster.max_minutes={most:g}"
    )
    return problem("request", seen, f"{mend}, or another cluster.partition=")


def taken(plan: Plan, batch: Batch) -> Finding:
    """Whether sbatch would take a batch, by its own --test-only: nothing is sent."""
    if found_long := too_long(plan, batch):
        return found_long
    with tempfile.TemporaryDirectory() as folder, clean_environment():
        path = Path(folder) / "test.sh"
        path.write_text(script(plan, batch))
        try:
            done = subprocess.run(
                ["sbatch", "--test-only", str(path)],
                capture_output=True,
                text=True,
                timeout=ASK_TIMEOUT_S,
                check=False,
            )
        except (OSError, subprocess.TimeoutExpired) as fault:
            silent = isinstance(fault, subprocess.TimeoutExpired)
            said = f"no answer within {ASK_TIMEOUT_S} s" if silent else str(fault)
            return problem("request", f"sbatch --test-only: {said}", SUPPORT)
    said = "; ".join(line.strip() for line in done.stderr.splitlines() if line.strip())
    if done.returncode:
        mend = next((mend for word, mend in _REMEDIES if word in said.lower()), "")
        remedy = mend or "hpml-jobs plan shows the script that sbatch refuses"
        return problem("request", f"sbatch would refuse {batch}: {said}", remedy)
    found = _TAKEN.search(said)
    when = f"it could start at {found[1]} on {found[2]} ({found[3]})" if found else said
    return ok("request", f"sbatch would take {batch}: {when}")
