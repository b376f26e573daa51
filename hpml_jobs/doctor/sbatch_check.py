"""Check that sbatch accepts the jobs of a submission, with sbatch --test-only."""

import re
import subprocess
import tempfile
from pathlib import Path

from hpml_jobs.core.findings import Finding, ok, problem
from hpml_jobs.doctor.controller import ASK_SUPPORT
from hpml_jobs.plan.plan import Plan
from hpml_jobs.slurm.commands import ASK_TIMEOUT_S
from hpml_jobs.submit.job_requests import JobRequest
from hpml_jobs.submit.scripts import script
from hpml_jobs.submit.send import clean_environment

_ACCEPTED = re.compile(r"to start at (\S+) using \d+ processors on nodes (\S+) in partition (\S+)")

_REMEDIES = (
    ("account", "set cluster.account="),
    ("qos", "set cluster.qos="),
    ("partition", "set cluster.partition="),
    ("time limit", "lower minutes="),
    ("array", "set cluster.max_array_size="),
    ("node configuration", "lower gpus= or cluster.mem_gb_per_gpu=, or choose another gpu_type="),
)
"""Words of SLURM's refusal and remedies; the first word that the refusal contains counts."""


def check_request(plan: Plan, request: JobRequest) -> Finding:
    """Check that sbatch would accept a job request; nothing is submitted."""
    with tempfile.TemporaryDirectory() as folder, clean_environment():
        path = Path(folder) / "test.sh"
        path.write_text(script(plan.study, plan.cluster, request))
        try:
            done = subprocess.run(
                ["sbatch", "--test-only", str(path)],
                capture_output=True,
                text=True,
                timeout=ASK_TIMEOUT_S,
                check=False,
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            timed_out = isinstance(error, subprocess.TimeoutExpired)
            reason = f"no answer within {ASK_TIMEOUT_S} s" if timed_out else str(error)
            return problem("request", f"sbatch --test-only: {reason}", ASK_SUPPORT)
    answer = "; ".join(line.strip() for line in done.stderr.splitlines() if line.strip())
    if done.returncode:
        remedies = (remedy for word, remedy in _REMEDIES if word in answer.lower())
        remedy = next(remedies, "run hpml-jobs plan to see the script that sbatch rejects")
        return problem("request", f"sbatch rejects {request}: {answer}", remedy)
    match = _ACCEPTED.search(answer)
    start = f"it could start at {match[1]} on {match[2]} ({match[3]})" if match else answer
    return ok("request", f"sbatch accepts {request}: {start}")
