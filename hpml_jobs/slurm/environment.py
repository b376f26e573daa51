"""Environment variables of jobs: those that must not leak, and those of the allocation."""

import re
from collections.abc import Mapping

LEAKING = re.compile(
    r"SLURM_|SLURMD_|SRUN_|SBATCH_|SALLOC_|PET_|PMI|TORCHELASTIC_|SUBMITIT_|GROUP_RANK|ROLE_|"
    r"(RANK|LOCAL_RANK|WORLD_SIZE|LOCAL_WORLD_SIZE|GROUP_WORLD_SIZE|MASTER_ADDR|MASTER_PORT)$"
)


def scrubbed(environment: dict[str, str], *, inside_job: bool) -> dict[str, str]:
    """Return an environment without the variables that a surrounding job leaks; SLURM_CONF stays.

    Outside a job, SBATCH_* variables are the user's defaults and stay too.

    >>> scrubbed({"SLURM_CPU_BIND": "x", "SLURM_CONF": "c", "RANK": "0", "A": "b"}, inside_job=True)
    {'SLURM_CONF': 'c', 'A': 'b'}
    """

    def is_kept(name: str) -> bool:
        if name == "SLURM_CONF" or (name.startswith("SBATCH_") and not inside_job):
            return True
        return LEAKING.match(name) is None

    return {name: value for name, value in environment.items() if is_kept(name)}


_ALLOCATION = re.compile(
    r"SLURM_(JOB_(ID|NAME|NODELIST|NUM_NODES|PARTITION|QOS|GPUS|CPUS_PER_NODE)|ARRAY_(JOB|TASK)_ID|"
    r"CLUSTER_NAME|RESTART_COUNT|CPUS_.*|GPUS.*|MEM_.*|STEP_(ID|GPUS|NODELIST|NUM_NODES)|NNODES|"
    r"NODEID|NTASKS.*|TRES_PER_TASK|TOPOLOGY_ADDR|SUBMIT_HOST|CONF)"
)


def about_allocation(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that describe a job's allocation; a list, because tokens must stay out.

    >>> about_allocation({"SLURM_JOB_ID": "17", "SLURM_JWT": "secret", "HOME": "/"})
    {'SLURM_JOB_ID': '17'}
    """
    return {name: v for name, v in environment.items() if _ALLOCATION.fullmatch(name)}
