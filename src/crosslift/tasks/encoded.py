"""Tokenised examples, kept flat: rows of unequal length without padding, and how batches are made of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray

from crosslift.data.words import ranges, row_starts
from crosslift.errors import BadInput, BadLabels, nearest

if TYPE_CHECKING:
    from transformers import BatchEncoding, PreTrainedTokenizerBase

    from crosslift.data.examples import Examples

IGNORED = -100
"""The target of a position that carries no loss."""

Rows = NDArray[np.integer]
Kept = dict[str, NDArray[np.float32]]
Prediction = dict[str, object]


@dataclass(frozen=True)
class Ragged:
    """Rows of unequal length, stored one after another.

    Attributes:
        values: (total, ...) all rows.
        starts: (rows + 1,) where each row starts in `values`.
    """

    values: NDArray[Any]
    starts: NDArray[np.int64]

    @classmethod
    def of(cls, rows: Sequence[Sequence[int]], dtype: type[np.generic] = np.int32) -> Ragged:
        """Store lists of numbers flat."""
        starts = row_starts([len(row) for row in rows])
        return cls(np.fromiter(chain.from_iterable(rows), dtype=dtype, count=int(starts[-1])), starts)

    def __len__(self) -> int:
        return len(self.starts) - 1

    def __getitem__(self, row: int) -> NDArray[Any]:
        if not 0 <= row < len(self):
            raise IndexError(row)
        return self.values[self.starts[row] : self.starts[row + 1]]

    def lengths(self) -> NDArray[np.int64]:
        """Return the length of every row: (rows,)."""
        return np.diff(self.starts)

    def pad(self, rows: Rows, length: int, fill: float) -> NDArray[Any]:
        """Return some rows side by side: (len(rows), length, ...), filled up with `fill`.

        No row may be longer than `length`.
        """
        rows = np.asarray(rows, dtype=np.int64)
        counts = self.starts[rows + 1] - self.starts[rows]
        padded = np.full((len(rows), length, *self.values.shape[1:]), fill, dtype=self.values.dtype)
        padded[np.arange(length) < counts[:, None]] = self.values[ranges(self.starts[rows], counts)]
        return padded


@dataclass(frozen=True)
class Encoded:
    """Examples tokenised once. A row is one model input; a long text may give several rows.

    Attributes:
        inputs: `input_ids`, and `token_type_ids` where the tokenizer gives them.
        example_of: (rows,) which example a row belongs to, in the order of the examples.
        targets: What the loss reads; empty if unlabelled. Ragged targets are padded with -100.
        maps: What the task needs to read the model's outputs.
    """

    inputs: Mapping[str, Ragged]
    example_of: NDArray[np.int32]
    targets: Mapping[str, NDArray[np.int64] | Ragged] = field(default_factory=dict)
    maps: Mapping[str, Ragged] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.example_of)

    def lengths(self) -> NDArray[np.int64]:
        """Return the number of tokens of every row: (rows,)."""
        return self.inputs["input_ids"].lengths()


def tokenize(
    tokenizer: PreTrainedTokenizerBase,
    texts: Sequence[str],
    pairs: Sequence[str] | None = None,
    *,
    max_length: int,
    **options: object,
) -> BatchEncoding:
    """Tokenise a set in one call of the fast tokenizer; nothing is padded.

    Args:
        tokenizer: A fast tokenizer.
        texts: The (first) texts.
        pairs: The second texts, or `None`.
        max_length: Most tokens of a row, special tokens included.
        options: Further arguments of the tokenizer, such as `truncation`.
    """
    if not texts:
        raise BadInput("There are no examples to encode.")
    if max_length > tokenizer.model_max_length:
        raise BadInput(
            f"max_length is {max_length}, but the model reads at most {tokenizer.model_max_length} tokens.",
            f"Use max_length {tokenizer.model_max_length} or less.",
        )
    if max_length <= tokenizer.num_special_tokens_to_add(pair=pairs is not None):
        # The tokenizer takes 0 for "no limit" and stops at less.
        raise BadInput(f"max_length {max_length} leaves no room for text.", "Use 16 or more.")
    if options.get("truncation"):
        options["max_length"] = max_length
    columns = [list(texts)] if pairs is None else [list(texts), list(pairs)]
    # verbose=False: rows that we cut ourselves need no warning about their length.
    return tokenizer(*columns, padding=False, return_attention_mask=False, verbose=False, **options)


def model_inputs(encoding: BatchEncoding) -> dict[str, Ragged]:
    """Return what the model reads of an encoding, flat."""
    names = ("input_ids", "token_type_ids")
    return {name: Ragged.of(encoding[name]) for name in names if name in encoding}


def collate(encoded: Encoded, rows: Rows, pad_id: int, pad_to: int = 8) -> dict[str, torch.Tensor]:
    """Make one batch: inputs, attention mask (1 = token, 0 = padding) and targets of some rows.

    Args:
        encoded: The set.
        rows: Which rows.
        pad_id: The tokenizer's `pad_token_id`.
        pad_to: The length is rounded up to a multiple of this; 1 = the longest row.
    """
    rows = np.asarray(rows, dtype=np.int64)
    lengths = encoded.lengths()[rows]
    longest = -(-int(lengths.max()) // pad_to) * pad_to
    batch = {
        name: ragged.pad(rows, longest, pad_id if name == "input_ids" else 0) for name, ragged in encoded.inputs.items()
    }
    batch["attention_mask"] = np.arange(longest) < lengths[:, None]
    for name, target in encoded.targets.items():
        batch[name] = target.pad(rows, longest, IGNORED) if isinstance(target, Ragged) else target[rows]
    return {name: torch.from_numpy(values.astype(np.int64)) for name, values in batch.items()}


def label_index(names: Sequence[str], labels: Sequence[str], examples: Examples) -> NDArray[np.int64]:
    """Return the place of each name among the labels.

    Raises:
        BadLabels: A name is not among the labels.
    """
    place = {label: i for i, label in enumerate(labels)}
    for name in dict.fromkeys(names):
        if name not in place:
            raise BadLabels(
                f'{examples.name or "examples"} ({examples.language}): unknown label "{name}".' + nearest(name, labels),
                f"Known labels: {', '.join(labels)}.",
            )
    return np.fromiter(map(place.__getitem__, names), dtype=np.int64, count=len(names))


def mean_cross_entropy(logits: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """Return the cross-entropy averaged over the targets that are not -100; 0 if there are none.

    Args:
        logits: (..., classes).
        targets: (...) class numbers.
    """
    total = torch.nn.functional.cross_entropy(
        logits.flatten(0, -2).float(), targets.flatten(), ignore_index=IGNORED, reduction="sum"
    )
    return total / (targets != IGNORED).sum().clamp(min=1)
