"""A transformer, `workload.model=gpt`, and the text or the tokens that it is trained on."""

from hpml_jobs.core.features import DataKind, Feature

OPEN = "extras.transformer.text:open_text"
DESCRIBE = "extras.transformer.text:describe_text"
FACTS = "extras.transformer.files:with_windows"

FEATURE = Feature(
    models={"gpt": "extras.transformer.gpt:build"},
    data={
        "text": DataKind(OPEN, DESCRIBE, FACTS),
        "text_folder": DataKind(
            OPEN, DESCRIBE, FACTS, "extras.transformer.files:digest"
        ),
        "tokens": DataKind("extras.transformer.text:open_tokens"),
    },
)
