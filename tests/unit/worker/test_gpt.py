"""The transformer: parameters, causality, tied weights, initial weights, FLOP, learning."""

from math import log, sqrt
from pathlib import Path

import pytest
import torch
import yaml

from hpml_jobs.core.built_in import SHAPE_KEYS, TransformerShape
from hpml_jobs.core.workload import Workload
from hpml_jobs.worker import models
from hpml_jobs.worker.gpt import GPT
from hpml_jobs.worker.models import count_flop
from tests.unit.worker.conftest import change_workload

CONF = Path(__file__).parents[3] / "conf" / "workload"
SMALL = TransformerShape(layers=2, heads=2, width=16, context=12, vocab=20)
TOKENS = Workload(
    name="tokens",
    model="gpt",
    data="tokens",
    images=8,
    parameters=None,
    **SMALL._asdict(),
)


def config(name):
    """Return a config with those that it is made of."""
    values = yaml.safe_load((CONF / f"{name}.yaml").read_text())
    parents = [parent for parent in values.pop("defaults", []) if parent != "_self_"]
    return {
        key: value for parent in parents for key, value in config(parent).items()
    } | values


def small():
    torch.manual_seed(0)
    return GPT(SMALL).eval()


def windows(number=3):
    return torch.randint(
        SMALL.vocab, (number, SMALL.context), generator=torch.Generator()
    )


@pytest.mark.parametrize(
    ("name", "parameters"),
    [("gpt_nano", 224_640), ("gpt2_124m", 124_439_808), ("gpt2_350m", 354_823_168)],
)
def test_configs_have_the_parameters_of_gpt2(name, parameters):
    values = config(name)
    shape = TransformerShape(**{key: values[key] for key in SHAPE_KEYS})
    with torch.device("meta"):
        model = GPT(shape)
    counted = models.count_parameters(model)
    assert counted == shape.parameters == values["parameters"] == parameters


def test_scores_depend_on_no_later_token():
    model, tokens = small(), windows(1)
    scores = model(tokens)
    for place in range(SMALL.context):
        changed = tokens.clone()
        changed[0, place] = (changed[0, place] + 1) % SMALL.vocab
        differs = (model(changed) != scores).any(-1)[0]
        assert not differs[:place].any()
        assert differs[place:].all()


def test_padded_vocabulary_is_the_same_model():
    """The rows of the padding change no score and get no gradient."""
    model, tokens, wide = small(), windows(), SMALL.vocab + 12
    padded = GPT(SMALL, padded_vocab=wide).eval()
    weights = model.state_dict()
    rows = torch.full((wide - SMALL.vocab, SMALL.width), 3.0)
    weights["tokens.weight"] = torch.cat([weights["tokens.weight"], rows])
    padded.load_state_dict(weights)
    gradients = []
    for each in (model, padded):
        scores = each(tokens)
        assert scores.shape == (3, SMALL.context, SMALL.vocab)
        models.token_cross_entropy(scores, tokens).backward()
        gradients.append(each.tokens.weight.grad)
    torch.testing.assert_close(model(tokens), padded(tokens))
    torch.testing.assert_close(gradients[0], gradients[1][: SMALL.vocab])
    assert not gradients[1][SMALL.vocab :].any()


def test_initial_weights_are_those_of_gpt2():
    shape = TransformerShape(layers=8, heads=4, width=64, context=64, vocab=256)
    torch.manual_seed(0)
    model = GPT(shape)
    for name, parameter in model.named_parameters():
        if name.endswith("bias"):
            assert (parameter == 0).all()
        elif "norm" in name:
            assert (parameter == 1).all()
        else:
            expected = 0.02 / sqrt(16) if "output" in name else 0.02
            assert parameter.std().item() == pytest.approx(expected, rel=0.05), name
    tokens, targets = torch.randint(256, (2, 4, 64))
    loss = models.token_cross_entropy(model(tokens), targets).item()
    assert loss == pytest.approx(log(256), rel=0.05)


def test_loss_is_the_mean_over_all_positions():
    scores = torch.randn(3, 5, 7)
    targets = torch.randint(7, (3, 5))
    chosen = scores.log_softmax(-1).gather(-1, targets[..., None])
    loss = models.build_loss(TOKENS)
    assert loss(scores, targets).item() == pytest.approx(-chosen.mean().item())


@pytest.mark.parametrize("name", ["gpt_nano", "gpt2_124m"])
def test_torch_counts_all_products_of_attention(name):
    """torch counts 6 FLOP per weight of a matrix product, and the whole square of attention.

    That is 12 L d T per token (2 products of T x T, forward and twice in backward), although half
    of the square is masked. Embeddings, biases and LayerNorms are no matrix products: the formula 6
    N + 12 L d T with N = all parameters but the positions is larger.
    """
    shape = TransformerShape(**{key: config(name)[key] for key in SHAPE_KEYS})
    workload = change_workload(TOKENS, **shape._asdict())
    batch = (
        torch.zeros(2, shape.context, dtype=torch.int64),
        torch.zeros(2, shape.context).long(),
    )
    counted = count_flop(
        workload, models.build_loss(workload), lambda: batch
    ).per_sample
    weights = shape.layers * 12 * shape.width**2 + shape.vocab * shape.width
    attention = 12 * shape.layers * shape.width * shape.context
    assert counted == shape.context * (6 * weights + attention)
    parameters = shape.parameters - shape.context * shape.width
    formula = shape.context * (6 * parameters + attention)
    assert 0.98 < counted / formula < 1
