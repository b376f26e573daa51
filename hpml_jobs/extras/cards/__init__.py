"""The GPUs of a cell while it runs: clocks, power, heat, other users, health; their checks."""

from hpml_jobs.core.features import Feature, Part

FEATURE = Feature(
    watchers={"cards": "extras.cards.samples:sampler_of"},
    record_checks={
        "Data quality": {
            "throttled": Part("extras.cards.checks:throttled", after="oversubscribed"),
            "other-processes": Part(
                "extras.cards.checks:shared_gpus", after="throttled"
            ),
            "gpu-health": Part(
                "extras.cards.checks:unhealthy", after="other-processes"
            ),
            "gpu-utilization": Part(
                "extras.cards.checks:little_used", after="gpu-health"
            ),
        },
    },
)
