"""Post-training quantization to int8, step by step (lab part B)."""

from hpml_jobs.core.features import CellPart, Feature, Part

FEATURE = Feature(
    cell_parts={
        "quantize": CellPart(
            settings="extras.quantization.settings:QuantizeSettings",
            check="extras.quantization.settings:check_cell",
            before_training="extras.quantization.layers:check_quantizable",
            after_training="extras.quantization.steps:quantize_replica",
            result="quantized",
            record_fault="extras.quantization.values:record_fault",
        )
    },
    sheets={"spreads": Part("extras.quantization.table:spreads", after="messages")},
    tables_of_all={
        "quantization": Part("extras.quantization.table:quantization", after="")
    },
)
