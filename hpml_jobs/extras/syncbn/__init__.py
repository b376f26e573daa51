"""`sync_buffers=syncbn`: BatchNorm over the images of all ranks, and the check of what it costs."""

from hpml_jobs.core.features import Feature, Part

FEATURE = Feature(
    buffers={"syncbn": "extras.syncbn.batchnorm:convert_sync_batchnorm"},
    record_checks={
        "Data quality": {
            "host-waits": Part(
                "extras.syncbn.checks:host_waits_in_syncbn", after="buffers"
            )
        }
    },
)
