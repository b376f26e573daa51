"""What sbatch says of a job that is not submitted: `sbatch --test-only`."""

import re
import subprocess
import tempfile
from pathlib import Path

from hpml_jobs.plan.cells import Plan
from hpml_jobs.slurm.commands import ASK_TIMEOUT_S, sbatch_environment
from hpml_jobs.slurm.jobs import parse_time
from hpml_jobs.submit.job_requests import JobRequest
from hpml_jobs.submit.scripts import script

ACCEPTED = re.compile(
    r"to start at (\S+).*using \d+ processors on nodes (\S+) in partition (\S+)"
)
"""Its answer: the moment, the nodes, the partition."""


def expected_start(plan: Plan, request: JobRequest) -> float | None:
    """Return when sbatch expects a job to start, Unix time; None if it does not say."""
    try:
        done = ask_sbatch(script(plan.study, plan.cluster, request))
    except (OSError, subprocess.TimeoutExpired):
        return None
    match = ACCEPTED.search(done.stderr)
    return parse_time(match[1]) if match else None


def ask_sbatch(text: str) -> subprocess.CompletedProcess[str]:
    """Ask sbatch about a script that is not submitted.

    Raises:
        OSError, subprocess.TimeoutExpired: it does not answer.
    """
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "test.sh"
        path.write_text(text)
        return subprocess.run(
            ["sbatch", "--test-only", str(path)],
            capture_output=True,
            text=True,
            timeout=ASK_TIMEOUT_S,
            env=sbatch_environment(text),
            check=False,
        )
