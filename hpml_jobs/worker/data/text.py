"""Built-in data of tokens: windows of text as bytes, or of synthetic tokens."""

import hashlib
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import Dataset, Subset

from hpml_jobs.core.data_files import BYTES
from hpml_jobs.core.errors import HpmlError
from hpml_jobs.core.formulas import entropy_bits
from hpml_jobs.core.record import Text
from hpml_jobs.core.text_data import read, text_files, windows
from hpml_jobs.core.workload import Workload
from hpml_jobs.worker.data.images import DISTINCT_IMAGES, Transform


class TokenWindows(Dataset[tuple[Tensor, Tensor]]):
    """Windows of `context` tokens that do not overlap; the targets are the tokens one later.

    `tokens` (n,) of any integer type. There are `number` windows; where the tokens have fewer, they
    repeat. `images`, `targets` and `transform` are those of `ImageTensors`.
    """

    transform = Transform()

    def __init__(self, tokens: Tensor, context: int, number: int | None = None) -> None:
        self.tokens = tokens
        self._context = context
        self._distinct = windows(len(tokens), context)
        self._number = self._distinct if number is None else number

    def __len__(self) -> int:
        return self._number

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        start = index % self._distinct * self._context
        window = self.tokens[start : start + self._context + 1].long()
        return window[:-1], window[1:]

    @property
    def images(self) -> Tensor:
        """All distinct windows, int64 (n, context)."""
        return self._windows(0)

    @property
    def targets(self) -> Tensor:
        """Their targets, int64 (n, context)."""
        return self._windows(1)

    def _windows(self, shift: int) -> Tensor:
        end = shift + self._distinct * self._context
        return self.tokens[shift:end].view(self._distinct, self._context).long()


def open_text(
    workload: Workload, root: Path
) -> tuple[TokenWindows, TokenWindows | None]:
    """Return the windows of training text and of held-out text; a byte is a token.

    Raises:
        HpmlError: there is no text, or the vocabulary has fewer than 256 tokens.
    """
    context = _context(workload)
    vocab = workload.vocab
    if vocab is not None and vocab < BYTES:
        raise HpmlError(f"workload.vocab={vocab}: bytes need {BYTES} or more")
    train, test = text_files(workload.data, root)
    training = _of_bytes(read(train), context)
    if not test:
        return training, None
    return training, _of_bytes(read(test), context)


def open_tokens(workload: Workload, _root: Path) -> tuple[TokenWindows, TokenWindows]:
    """Return windows of random tokens, few of which differ, so that loading costs nothing.

    Raises:
        HpmlError: the number of windows or of different tokens is not given.
    """
    number, vocab, context = workload.images, workload.vocab, _context(workload)
    if number is None or vocab is None:
        raise HpmlError(
            "workload.data=tokens needs a number of windows and of different tokens: set "
            "workload.images=N and workload.vocab=V"
        )
    generator = torch.Generator().manual_seed(0)
    length = min(number, DISTINCT_IMAGES) * context + 1
    tokens = torch.randint(vocab, (length,), generator=generator)
    return TokenWindows(tokens, context, number), TokenWindows(
        tokens, context, max(1, number // 5)
    )


def describe_text(workload: Workload, train: Any, test: Any) -> Text | None:
    """Return what the text of a workload is; None without byte data.

    `train` and `test` are its data sets after `data.limit`.
    """
    if workload.bytes_per_token is None:
        return None
    texts = [_below(part).tokens.numpy() for part in (train, test) if part is not None]
    digest = hashlib.sha256()
    for text in texts:
        digest.update(text.data)
    return Text(
        sha256=digest.hexdigest(),
        train_bytes=len(texts[0]),
        test_bytes=sum(map(len, texts[1:])),
        unigram_bits_per_byte=None if test is None else _unigram_entropy(test),
    )


def _of_bytes(text: bytes, context: int) -> TokenWindows:
    return TokenWindows(torch.from_numpy(np.frombuffer(text, np.uint8).copy()), context)


def _context(workload: Workload) -> int:
    if workload.context is None:
        raise HpmlError(
            f"workload.data={workload.data} needs windows: set workload.context=N"
        )
    return workload.context


def _below(images: Any) -> TokenWindows:
    return cast(TokenWindows, images.dataset if isinstance(images, Subset) else images)


def _unigram_entropy(test: Any) -> float:
    """Return the entropy of the targets of the windows that are tested, in bits per byte."""
    targets = _below(test).targets
    if isinstance(test, Subset):
        targets = targets[torch.tensor(list(test.indices))]
    return entropy_bits(torch.bincount(targets.flatten(), minlength=BYTES).tolist())
