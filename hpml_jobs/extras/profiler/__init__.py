"""A cross-check by torch.profiler: its times and messages beside those of the instruments."""

from hpml_jobs.core.features import Feature, Part

FEATURE = Feature(
    probes={
        "profiler": Part(
            "extras.profiler.iterations:measure_profile", after="microbenchmark"
        )
    },
    record_checks={
        "Communication": {
            "profiler-messages": Part(
                "extras.profiler.checks:profiler_counts_differ", after="exposed"
            )
        },
        "Data quality": {
            "profiler": Part(
                "extras.profiler.checks:profiler_disagrees", after="drift"
            ),
            "buffer-copies": Part(
                "extras.profiler.checks:buffers_are_copied", after="profiler"
            ),
            "profiler-phases": Part(
                "extras.profiler.checks:phases_disagree", after="buffer-copies"
            ),
        },
    },
    tables={
        "phases": Part(
            "extras.profiler.table:phases_beside_profiler", after="communication"
        )
    },
    sheets={"profiler": Part("extras.profiler.table:profiler", after="microbenchmark")},
)
