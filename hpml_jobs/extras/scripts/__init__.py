"""Training scripts of the user, started unchanged and measured from outside."""

from hpml_jobs.core.features import Feature, Observer

FEATURE = Feature(
    observers={
        "script": Observer(
            workload="extras.scripts.submission:workload_of",
            command="extras.scripts.job:script_command",
            environment="extras.scripts.job:script_environment",
            merge="extras.scripts.job:merge_observed",
        )
    }
)
