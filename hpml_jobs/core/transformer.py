"""The shape of the built-in transformer, and the number of parameters that follows from it."""

from typing import NamedTuple

from hpml_jobs.errors import UsageError

MODEL = "gpt"
"""The built-in transformer, by `workload.model` (worker/gpt.py)."""


class TransformerShape(NamedTuple):
    """The size of a transformer: blocks, heads of attention, width, window and vocabulary.

    `context` is the number of tokens of a window, `vocab` that of different tokens.
    """

    layers: int
    heads: int
    width: int
    context: int
    vocab: int

    @property
    def parameters(self) -> int:
        """Return its number of parameters, those of GPT-2 (Radford et al. 2019).

        Of a block: attention 4 d^2 + 4 d, MLP 8 d^2 + 5 d, two LayerNorms 4 d, with the width d.
        Around the blocks: (vocab + context) d for embeddings and 2 d for the last LayerNorm. The
        output weights are those of the token embedding.

        >>> TransformerShape(12, 12, 768, 1024, 50_257).parameters
        124439808
        >>> TransformerShape(24, 16, 1024, 1024, 50_257).parameters
        354823168
        """
        width = self.width
        block = 12 * width**2 + 13 * width
        return (self.vocab + self.context) * width + self.layers * block + 2 * width


SHAPE_KEYS = TransformerShape._fields
"""The keys of a workload that are the shape of a transformer."""


def check_heads(width: int | None, heads: int | None) -> None:
    """Refuse a width that does not divide over the heads.

    Raises:
        UsageError: the message names the nearest widths that do.
    """
    if width is None or heads is None or width % heads == 0:
        return
    below = width // heads * heads
    fits = " or ".join(str(near) for near in (below, below + heads) if near)
    raise UsageError(
        f"workload.width={width} does not divide over workload.heads={heads}; use "
        f"workload.width={fits}"
    )
