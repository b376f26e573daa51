"""The microbenchmark of collectives: times by message size on idle devices, beside training."""

from hpml_jobs.core.features import Feature, Part

FEATURE = Feature(
    probes={
        "microbenchmark": Part(
            "extras.microbenchmark.step:measure_collectives", after=""
        )
    },
)
