"""`sync_buffers=syncbn`: BatchNorm over the images of all ranks."""

from hpml_jobs.core.features import Feature

FEATURE = Feature(
    buffers={"syncbn": "extras.syncbn.batchnorm:convert_sync_batchnorm"},
)
