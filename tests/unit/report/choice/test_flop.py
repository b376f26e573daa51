"""FLOP of transformers by the formula beside torch's count, and MFU of the precision's peak."""

import pytest
from msgspec.structs import replace

from hpml_jobs.core.cell import Protocol
from hpml_jobs.core.record import Model
from hpml_jobs.core.workload import Workload
from hpml_jobs.results.conditions import precision_of
from hpml_jobs.results.gpus import flop_of, peak_of
from tests.unit.builders import V100, a_cell, a_record, texts_by_label

GPT2 = Workload(
    name="gpt2_124m",
    model="gpt",
    data="tokens",
    images=64,
    parameters=124_439_808,
    layers=12,
    heads=12,
    width=768,
    context=1_024,
    vocab=50_257,
)
COUNTED = 854_438_400
"""torch's count of a token: 6 (12 L d^2 + vocab d) + 12 L d T."""

H100 = replace(V100, gpu_model="NVIDIA H100 80GB HBM3", precision="bf16")


def gpt2_record(facts=H100, epoch_s=0.14, workload=GPT2, **changes):
    """64 windows of 1,024 tokens on one GPU in 0.14 s: llm.c's 524,288 tokens on eight."""
    cell = a_cell(gpus=1, batch=32, workload=workload, protocol=Protocol.LAB, **changes)
    model = Model(
        name="gpt",
        parameters=124_439_808,
        tensors=148,
        gradient_bytes=4 * 124_439_808,
        buffer_bytes=0,
        flop_per_sample=COUNTED * 1_024,
    )
    return a_record(cell, epoch_s=epoch_s, facts=facts, model=model)


def test_flop_of_gpt2_by_formula_and_count():
    flop = flop_of(gpt2_record())
    assert flop.by_formula == 1_024 * (6 * 123_653_376 + 12 * 12 * 768 * 1_024)
    assert flop.figure == flop.by_formula
    assert flop.counted == 1_024 * COUNTED


def test_padding_of_the_vocabulary_is_no_work():
    padded = replace(GPT2, padded_vocab=50_304)
    record = gpt2_record(workload=padded)
    model = replace(record.model, parameters=padded.built_in_parameters)
    flop = flop_of(replace(record, model=model))
    assert model.parameters == 124_439_808 + 47 * 768
    plain = flop_of(gpt2_record())
    assert flop.by_formula == plain.by_formula


def test_mfu_of_gpt2_by_hand(builder):
    """468,114 tokens/s x 855,166,464 FLOP = 400.3 TFLOP/s, of 989.4 at most."""
    table = builder.with_record(gpt2_record()).table("choice")
    assert texts_by_label(table)["1 GPU, batch 32"][-3:-1] == ("!400", "!40.5")
    (values,) = (
        dict(zip(table.sheet.columns, row, strict=True)) for row in table.sheet.rows
    )
    assert values["flop_per_s_per_gpu"] == pytest.approx(65_536 / 0.14 * 855_166_464)
    assert values["utilization"] == pytest.approx(0.40460, abs=1e-5)
    assert table.caption[1].startswith(
        "TFLOP/s: 875.7 GFLOP of a sample (6 N + 12 L H Q T for each token: "
    )
    assert (
        "% of peak (MFU): TFLOP/s / 989.4 TFLOP/s dense bf16, NVIDIA H100 80GB HBM3"
        in " ".join(table.caption)
    )


@pytest.mark.parametrize(
    ("matmul", "words", "tflop_per_s"), [(False, "fp32", 66.9), (True, "tf32", 494.7)]
)
def test_transformer_uses_tf32_only_in_matrix_products(matmul, words, tflop_per_s):
    """TF32 in convolutions, torch's default, is not that of a model without any."""
    facts = replace(
        H100,
        precision="fp32",
        compute_capability="9.0",
        tf32_matmul=matmul,
        tf32_cudnn=True,
    )
    record = gpt2_record(facts)
    assert precision_of(record) == words
    assert peak_of(record).flop_per_s == pytest.approx(tflop_per_s * 1e12)
