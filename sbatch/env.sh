# Sourced by the templates in this folder: selects the Python that runs hpml_jobs. Edit this file
# once, or set the variables before sbatch. All jobs must use the same version of hpml_jobs.

# 1. Your environment. Activate it here, or submit from a shell in which it is active.
#    source "$HOME/hpml/.venv/bin/activate"
#    module load …

# 2. A container as on NYU's clusters, off unless HPML_IMAGE is set (see docs/start.md#nyu-clusters):
#    HPML_IMAGE=/share/apps/images/cuda-13.3.1-ubuntu-26.04.sif
#    HPML_OVERLAY=$SCRATCH/hpml/overlay.ext3
if [ -n "${HPML_IMAGE:-}" ]; then
    unset PYTHONPATH
    hpml=("${HPML_RUNTIME:-apptainer}" exec --nv)
    if [ -n "${HPML_OVERLAY:-}" ]; then
        hpml+=(--overlay "$HPML_OVERLAY:ro")    # read-only: many jobs share it
    fi
    hpml+=("$HPML_IMAGE" /bin/bash -c 'source /ext3/env.sh; exec python -m hpml_jobs "$@"' hpml)
else
    hpml=("${HPML_PYTHON:-python}" -m hpml_jobs)
    if ! "${hpml[@]}" --version >/dev/null; then
        echo "${hpml[0]} has no hpml_jobs: activate its environment in sbatch/env.sh, or set HPML_PYTHON" >&2
        exit 1
    fi
fi

# The hosts of the job, for jobs on several nodes. Inside a container, scontrol may be missing.
HPML_JOBS_HOSTS=$(scontrol show hostnames "${SLURM_JOB_NODELIST:-}" | tr '\n' ' ')
export HPML_JOBS_HOSTS
