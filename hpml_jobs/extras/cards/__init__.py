"""The GPUs of a cell while it runs: clocks, power, heat, other users, health; their checks."""

from hpml_jobs.core.features import Feature, Part

FEATURE = Feature(
    watchers={"cards": "extras.cards.samples:sampler_of"},
    checks={"Power": ("extras.cards.checks:slow_by_power",)},
    record_checks={
        "Correctness": {
            "memory-bandwidth": Part(
                "extras.cards.memory:faster_than_memory", after="flops"
            )
        },
        "Data quality": {
            "throttled": Part("extras.cards.checks:throttled", after="loader-cpus"),
            "other-processes": Part(
                "extras.cards.checks:shared_gpus", after="throttled"
            ),
            "visible-gpus": Part(
                "extras.cards.checks:more_gpus_visible", after="other-processes"
            ),
            "gpu-health": Part("extras.cards.checks:unhealthy", after="visible-gpus"),
            "gpu-cpus": Part("extras.cards.checks:far_cpus", after="gpu-health"),
            "gpu-utilization": Part(
                "extras.cards.checks:little_used", after="gpu-cpus"
            ),
        },
    },
)
