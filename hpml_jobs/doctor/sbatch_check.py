"""What would be asked of SLURM: would it take the default cell?"""

import re
import subprocess
import tempfile
from pathlib import Path

from hpml_jobs.core.findings import Finding, ok, problem
from hpml_jobs.doctor.controller import SUPPORT
from hpml_jobs.plan.plan import Plan
from hpml_jobs.slurm.commands import ASK_TIMEOUT_S
from hpml_jobs.submit.batches import Batch
from hpml_jobs.submit.sbatch import clean_environment
from hpml_jobs.submit.send import script

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


def taken(plan: Plan, batch: Batch) -> Finding:
    """Whether sbatch would take a batch, by its own --test-only: nothing is sent."""
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
