"""What fits into memory: training paths and sharding, the largest batch."""

from hpml_jobs.core.features import Feature, Part

FEATURE = Feature(
    tables={
        "largest": Part("extras.memory.tables:largest", after="iterations"),
        "paths": Part("extras.memory.tables:training_paths", after="largest"),
    }
)
