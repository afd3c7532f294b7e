"""Which sub-words make up which word, read from the character offsets of a fast tokenizer.

Text goes to the tokenizer as it is; words are character spans of that text (`Spans`). A token belongs
to every word it shares a character with. So one rule serves every kind of tokenizer:

* offsets with or without the leading space: a space is in no word;
* byte-fallback pieces: several tokens with equal offsets all belong to the word;
* pieces over several words (zh, ja, th): each of these words has the token;
* words that vanish (control characters) or are cut away share no character with a token: -1.

One exception: a lone word mark (`▁` of SentencePiece, `Ġ` of byte-level BPE). At the start of a text, where
no space precedes the word, the tokenizer may give the mark the word's first character as its offset; yet it
carries nothing of the word, so it is left out.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, Literal

import numpy as np
import torch
from numpy.typing import NDArray

from crosslift.data.examples import Spans
from crosslift.errors import BadInput

if TYPE_CHECKING:
    from transformers import BatchEncoding, PreTrainedTokenizerBase

MARKS = ("▁", "Ġ")


@dataclass(frozen=True)
class TokenSpans:
    """Where the tokens of a batch of encodings lie in their texts; rows are stored one after another.

    Attributes:
        begin: (tokens,) first character of each token.
        end: (tokens,) one past its last character.
        sequence: (tokens,) 0 = first text, 1 = second text, -1 = special token or padding.
        mark: (tokens,) whether the token is a lone word mark.
        starts: (rows + 1,) where each row starts in the flat arrays.
    """

    begin: NDArray[np.int32]
    end: NDArray[np.int32]
    sequence: NDArray[np.int8]
    mark: NDArray[np.bool_]
    starts: NDArray[np.int64]

    def has_text(self, sequence: int) -> NDArray[np.bool_]:
        """Return which tokens stand for characters of the given text: (tokens,)."""
        return np.asarray((self.sequence == sequence) & (self.end > self.begin) & ~self.mark)


@dataclass(frozen=True)
class WordMap:
    """The tokens of each word of one row.

    Attributes:
        first: (words,) index of the word's first token within its row; -1 = vanished or cut away.
        stop: (words,) one past its last token; -1 where `first` is. Neighbours may share a token.
    """

    first: NDArray[np.int32]
    stop: NDArray[np.int32]


@dataclass(frozen=True)
class WordMaps:
    """The word maps of many rows, stored flat; `maps[row]` is a `WordMap`.

    Attributes:
        first: (words,) as in `WordMap`, all rows one after another.
        stop: (words,) likewise.
        starts: (rows + 1,) where each row starts in the flat arrays.
    """

    first: NDArray[np.int32]
    stop: NDArray[np.int32]
    starts: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.starts) - 1

    def __getitem__(self, row: int) -> WordMap:
        if not 0 <= row < len(self):
            raise IndexError(row)
        part = slice(self.starts[row], self.starts[row + 1])
        return WordMap(self.first[part], self.stop[part])

    def pad(self, rows: NDArray[np.integer]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return `first` and `stop` of the given rows as two arrays (rows, most words), filled with -1."""
        counts = self.starts[rows + 1] - self.starts[rows]
        inside = np.arange(counts.max(initial=0)) < counts[:, None]
        first, stop = np.full(inside.shape, -1), np.full(inside.shape, -1)
        where = ranges(self.starts[rows], counts)
        first[inside], stop[inside] = self.first[where], self.stop[where]
        return first, stop


def ranges(starts: NDArray[np.integer], counts: NDArray[np.integer]) -> NDArray[np.int64]:
    """Return `starts[i], starts[i] + 1, …` (`counts[i]` numbers) for every i, one after another."""
    ends = np.cumsum(counts, dtype=np.int64)
    total = int(ends[-1]) if len(ends) else 0
    return np.repeat(np.asarray(starts, dtype=np.int64) - (ends - counts), counts) + np.arange(total)


def row_starts(lengths: Sequence[int] | NDArray[np.integer]) -> NDArray[np.int64]:
    """Return where each row starts when rows of these lengths are stored one after another: (rows + 1,)."""
    starts = np.zeros(len(lengths) + 1, dtype=np.int64)
    np.cumsum(lengths, out=starts[1:])
    return starts


def token_spans(encoding: BatchEncoding, tokenizer: PreTrainedTokenizerBase) -> TokenSpans:
    """Read where the tokens of a batch lie in their texts.

    Args:
        encoding: What `tokenizer([...], return_offsets_mapping=True)` returned, as lists.
        tokenizer: The same tokenizer; it must be a fast one.
    """
    if not encoding.is_fast or "offset_mapping" not in encoding:
        raise BadInput(
            f"{type(tokenizer).__name__} gives no character offsets.",
            "Use a model whose tokenizer has a tokenizer.json (a fast tokenizer).",
        )
    starts = row_starts([len(ids) for ids in encoding["input_ids"]])
    total = int(starts[-1])
    numbers = chain.from_iterable(chain.from_iterable(encoding["offset_mapping"]))
    offsets = np.fromiter(numbers, dtype=np.int32, count=2 * total).reshape(total, 2)
    # Special tokens have `None` here, which becomes NaN.
    of_text = list(chain.from_iterable(encoding.sequence_ids(row) for row in range(len(starts) - 1)))
    sequence = np.nan_to_num(np.array(of_text, dtype=np.float32), nan=-1).astype(np.int8)
    ids = np.fromiter(chain.from_iterable(encoding["input_ids"]), dtype=np.int64, count=total)
    mark = np.isin(ids, list(mark_ids(tokenizer)))
    return TokenSpans(offsets[:, 0], offsets[:, 1], sequence, mark, starts)


def mark_ids(tokenizer: PreTrainedTokenizerBase) -> set[int]:
    """Return the ids of the lone word marks that a tokenizer has."""
    return set(tokenizer.convert_tokens_to_ids(list(MARKS))) - {tokenizer.unk_token_id, None}


def word_maps(
    tokens: TokenSpans,
    spans: Sequence[Spans],
    *,
    sequence: int = 0,
    example_of: NDArray[np.integer] | None = None,
) -> WordMaps:
    """Find the tokens of each word, for a whole batch at once.

    Args:
        tokens: Where the tokens lie, from `token_spans`.
        spans: The words of each text, in reading order.
        sequence: Whether the words are those of the first (0) or of the second (1) text of a row.
        example_of: (rows,) which entry of `spans` belongs to each row, where a long text gave several
            rows; `None`: row i has `spans[i]`.
    """
    rows = len(tokens.starts) - 1
    counts_of = np.array([len(part) for part in spans], dtype=np.int64)
    flat = np.concatenate([np.zeros((0, 2), dtype=np.int32), *spans]).astype(np.int64)
    if example_of is None:
        counts = counts_of
    else:
        counts = counts_of[example_of]
        flat = flat[ranges(row_starts(counts_of)[example_of], counts)]
    if len(counts) != rows:
        raise ValueError(f"{rows} rows of tokens but {len(counts)} rows of words")
    kept = np.flatnonzero(tokens.has_text(sequence))
    longest = max(int(tokens.end.max(initial=0)), int(flat.max(initial=0)))
    # Row and character in one number, so that one sorted array serves the whole batch.
    base = np.repeat(np.arange(rows), np.diff(tokens.starts))[kept] * (longest + 1)
    ends = np.maximum.accumulate(base + tokens.end[kept])
    begins = np.minimum.accumulate((base + tokens.begin[kept])[::-1])[::-1]
    word_row = np.repeat(np.arange(rows), counts)
    shift = word_row * (longest + 1)
    from_ = np.searchsorted(ends, shift + flat[:, 0], side="right")
    to = np.searchsorted(begins, shift + flat[:, 1], side="left")
    found = (from_ < to) & (flat[:, 0] < flat[:, 1])
    first = np.full(len(flat), -1, dtype=np.int32)
    stop = np.full(len(flat), -1, dtype=np.int32)
    offset = tokens.starts[word_row[found]]
    first[found] = kept[from_[found]] - offset
    stop[found] = kept[to[found] - 1] + 1 - offset
    return WordMaps(first, stop, row_starts(counts))


def token_words(maps: WordMaps, lengths: NDArray[np.integer]) -> NDArray[np.int32]:
    """Return the word each token belongs to, the earliest one where words share it; -1 = none.

    Args:
        maps: Word maps of some rows.
        lengths: (rows,) tokens of each row.

    Returns:
        (tokens,) number of the word within its row; all rows one after another.
    """
    words = np.full(int(np.sum(lengths)), -1, dtype=np.int32)
    counts = np.diff(maps.starts)
    number = np.arange(len(maps.first)) - np.repeat(maps.starts[:-1], counts)
    where = ranges(maps.first + np.repeat(row_starts(lengths)[:-1], counts), maps.stop - maps.first)
    # Of several values assigned to one place the last one stays: backwards, that is the earliest word.
    words[where[::-1]] = np.repeat(number, maps.stop - maps.first)[::-1]
    return words


def pool_words(
    hidden: torch.Tensor,
    first: torch.Tensor,
    stop: torch.Tensor,
    how: Literal["mean", "first", "last"] = "mean",
) -> torch.Tensor:
    """Make one vector per word from the vectors of its tokens.

    The mean is a product with a (words, length) matrix of weights: shapes are static, the gradient is
    plain, and no precision is lost, as it would be with differences of long cumulative sums.

    Args:
        hidden: (batch, length, width).
        first: (batch, words) index of each word's first token; -1 = no such word.
        stop: (batch, words) one past its last token.
        how: Mean of its tokens, its first or its last one.

    Returns:
        (batch, words, width); zeros, with no gradient, where `first` is -1.
    """
    present = (first >= 0).unsqueeze(-1)
    if how == "mean":
        place = torch.arange(hidden.shape[1], device=hidden.device)
        inside = (place >= first.unsqueeze(-1)) & (place < stop.unsqueeze(-1))
        weights = inside.to(hidden.dtype) / (stop - first).clamp(min=1).unsqueeze(-1)
        return torch.bmm(weights.to(hidden.dtype), hidden)
    index = (first if how == "first" else stop - 1).clamp(min=0).unsqueeze(-1)
    picked = hidden.gather(1, index.expand(-1, -1, hidden.shape[-1]))
    return picked.masked_fill(~present, 0)
