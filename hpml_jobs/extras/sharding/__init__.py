"""Strategies that share a model over the ranks: `fsdp`; `zero1` the optimizer's state only."""

from hpml_jobs.core.features import Feature

FEATURE = Feature(
    strategies={
        "fsdp": "extras.sharding.fsdp:FSDP",
        "zero1": "extras.sharding.zero1:ZeRO1",
    }
)
