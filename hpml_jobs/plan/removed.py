"""Keys, recipes and grids that versions before 1.0 had, with what to type instead."""

from collections.abc import Mapping

from hpml_jobs.core.cluster import OPTIONS_BEFORE_1_0
from hpml_jobs.core.errors import UsageError

REMOVED: Mapping[str, str] = {
    "path": "for path=auto type precision=bf16 channels_last=true loader=device",
    "cudnn_benchmark": "leave it out; cuDNN searches its fastest kernels, except with strategy=dp",
    **dict.fromkeys(
        ("bucket_cap_mb", "gradient_as_bucket_view", "static_graph"),
        "measure DDP with other options in a script of your own, script=train.py",
    ),
    "reshard": "leave it out; fsdp frees gathered parameters after forward (ZeRO-3)",
    "baseline": "leave it out; gpus=1 is the plain loop",
    "try_batch": "leave it out; a short trial is epochs=2 protocol=lab data.limit=1000",
    "quiet_minutes": "leave it out; hpml-jobs resubmit --disturbed repeats disturbed cells",
    **{
        f"cluster.{option}": f"+cluster.sbatch.{option}=NAME"
        for option in OPTIONS_BEFORE_1_0
    },
    "cluster.requeue": "for requeue=false type +cluster.sbatch.no-requeue=true",
    "cluster.account_example": "leave it out; cluster.account=NAME",
    "cluster.interactive_partition": "leave it out; srun --partition=NAME",
    "cluster.partition_rule": "leave it out; with gpu_request: partition none may be named",
    "cluster.known_as": "name the file as SLURM's ClusterName, cluster/NAME.yaml",
    **dict.fromkeys(
        ("cluster.max_array_size", "cluster.max_minutes"),
        "leave it out; SLURM says it",
    ),
    "cluster.array_parallelism": "leave it out; 64 cells of an array run at a time at most",
    **dict.fromkeys(
        ("cluster.link_gb_per_s", "cluster.peak_tflop_per_s"),
        "leave it out; NVML and a table of GPUs say it",
    ),
    **dict.fromkeys(
        ("ladder", "ladder.start", "ladder.factor", "grid=ladder", "largest_batch"),
        "batch=auto finds the largest batch that is worth it; or name one, gpus=4 batch=2048",
    ),
    "retries": "leave it out; hpml-jobs resubmit --lost, and gpus=auto does it by itself",
    "recipe=auto": "leave it out; the default is recipe=plain",
    "recipe=warmup": "recipe=goyal recipe.decay_norm=true",
    **dict.fromkeys(
        ("recipe=cosine", "recipe.final_share"),
        "write your own schedule, workload.schedule=pkg.mod:name",
    ),
    "grid=accumulate": "sweep the key: -m gpus=1,4 global_batch=512 accumulate=1,2,4,8",
    "grid=gpt": "sweep the key: -m workload=gpt2_124m gpus=1,2,4 batch=4,16 precision=bf16 "
    "strategy=ddp,zero1,fsdp",
    "grid=lab_dp": "grid=lab strategy=dp",
    "grid=precision": "sweep the key: -m gpus=1,4 precision=fp32,bf16",
    "grid=workers": "sweep the key: -m loader_workers=2,null",
    "grid=buckets": "measure DDP with other buckets in a script of your own, script=train.py",
}
"""What to type instead of a key, or of a choice of a group."""


def refuse_removed(word: str, place: str = "") -> None:
    """Refuse a key, or a choice (`grid=buckets`), that went; `place` begins the message."""
    if word in REMOVED:
        raise UsageError(f"{place}{word} was removed: {REMOVED[word]}")
