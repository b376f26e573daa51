"""A decoder-only transformer: GPT-2 (Radford et al. 2019), without dropout.

Pre-norm blocks with biases, learned positions, a GELU MLP of four times the width, and the token
embedding as output weights. `TransformerShape.parameters` counts it.
"""

from math import sqrt

import torch
from torch import Tensor, nn
from torch.nn import functional

from hpml_jobs.core.built_in import SHAPE_KEYS, TransformerShape
from hpml_jobs.core.errors import HpmlError
from hpml_jobs.core.workload import Workload

INITIAL_STD = 0.02
"""Standard deviation of initial weights; biases are 0."""

MLP_FACTOR = 4


class Attention(nn.Module):
    """Causal self-attention: a position looks at itself and at those before it."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.queries_keys_values = nn.Linear(width, 3 * width)
        self.output = nn.Linear(width, width)

    def forward(self, inputs: Tensor) -> Tensor:
        """Map (n, positions, width) to the same shape."""
        number, positions, width = inputs.shape
        projected = self.queries_keys_values(inputs).view(
            number, positions, 3, self.heads, -1
        )
        # each (n, heads, positions, -1)
        queries, keys, values = projected.permute(2, 0, 3, 1, 4)
        mixed = functional.scaled_dot_product_attention(
            queries, keys, values, is_causal=True
        )
        outputs: Tensor = self.output(
            mixed.transpose(1, 2).reshape(number, positions, width)
        )
        return outputs


class MLP(nn.Module):
    """Two linear layers with GELU between them, in the approximation by tanh."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.hidden = nn.Linear(width, MLP_FACTOR * width)
        self.output = nn.Linear(MLP_FACTOR * width, width)

    def forward(self, inputs: Tensor) -> Tensor:
        """Map (n, positions, width) to the same shape."""
        outputs: Tensor = self.output(
            functional.gelu(self.hidden(inputs), approximate="tanh")
        )
        return outputs


class TransformerBlock(nn.Module):
    """Attention, then the MLP, each of normalized inputs and added to them."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.attention_norm = nn.LayerNorm(width)
        self.attention = Attention(width, heads)
        self.mlp_norm = nn.LayerNorm(width)
        self.mlp = MLP(width)

    def forward(self, inputs: Tensor) -> Tensor:
        """Map (n, positions, width) to the same shape."""
        attended = inputs + self.attention(self.attention_norm(inputs))
        outputs: Tensor = attended + self.mlp(self.mlp_norm(attended))
        return outputs


class GPT(nn.Module):
    """The transformer: windows of tokens to scores of the next token at every position.

    With `padded_vocab` the embedding has more rows than tokens, so that the rows of the largest
    product are aligned in memory, which tensor cores need to be fast (nanoGPT pads 50,257 to
    50,304). The scores of these rows are left out: the model is the same as without them.
    """

    def __init__(
        self, shape: TransformerShape, padded_vocab: int | None = None
    ) -> None:
        super().__init__()
        width = shape.width
        self.vocab = shape.vocab
        self.tokens = nn.Embedding(padded_vocab or shape.vocab, width)
        self.positions = nn.Embedding(shape.context, width)
        self.blocks = nn.ModuleList(
            TransformerBlock(width, shape.heads) for _ in range(shape.layers)
        )
        self.norm = nn.LayerNorm(width)
        self._initialize(shape.layers)

    def forward(self, tokens: Tensor) -> Tensor:
        """Map tokens (n, positions) to scores (n, positions, vocab)."""
        places = torch.arange(tokens.shape[1], device=tokens.device)
        hidden = self.tokens(tokens) + self.positions(places)
        for block in self.blocks:
            hidden = block(hidden)
        scores = functional.linear(self.norm(hidden), self.tokens.weight)
        # FSDP2 warns of outputs that are views
        return scores if scores.shape[-1] == self.vocab else scores[..., : self.vocab]

    def fsdp_groups(self) -> list[nn.Module]:
        """Return the modules that fsdp gathers one after another: the blocks.

        The token embedding is used at both ends of forward, so it stays with the model.
        """
        return list(self.blocks)

    def _initialize(self, layers: int) -> None:
        """Draw the weights as GPT-2 does.

        The layers whose outputs are added to the residual stream, two of each block, are smaller by
        the square root of their number, so that the stream does not grow with the depth.
        """
        for name, parameter in self.named_parameters():
            if parameter.ndim > 1:
                is_added = name.endswith("output.weight")
                std = INITIAL_STD / sqrt(2 * layers) if is_added else INITIAL_STD
                nn.init.normal_(parameter, std=std)
            elif name.endswith("bias"):
                nn.init.zeros_(parameter)


def build(workload: Workload) -> GPT:
    """Return the transformer of a workload.

    Raises:
        HpmlError: it has no shape.
    """
    if workload.shape is None:
        missing = [
            f"workload.{key}=" for key in SHAPE_KEYS if getattr(workload, key) is None
        ]
        raise HpmlError(f"workload.model=gpt needs {', '.join(missing)}")
    return GPT(workload.shape, workload.padded_vocab)
