"""Sentence pairs as padded tables of word pairs: what a round of EM walks over.

A cell is one source word beside one target word of a pair. Cells with the same two words share a number, the word
pair's place in one sorted table, so that counts are gathered and added as arrays.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import chain, count, repeat

import numpy as np
from numpy.typing import NDArray

from crosslift.data.words import ranges, row_starts

_CELLS = 120_000
"""Cells of a chunk: some 0.5 MB an array, so that a chunk stays in the cache."""


@dataclass(frozen=True)
class Sentences:
    """One side of a corpus as word numbers.

    Attributes:
        words: (words,) all sentences one after another.
        starts: (sentences + 1,) where each starts.
    """

    words: NDArray[np.int32]
    starts: NDArray[np.int64]

    @property
    def lengths(self) -> NDArray[np.int64]:
        """Words of each sentence: (sentences,)."""
        return np.diff(self.starts)

    def pad(self, rows: NDArray[np.integer]) -> NDArray[np.int32]:
        """Return these sentences as (rows, most words), filled with -1."""
        counts = self.lengths[rows]
        table = np.full((len(rows), int(counts.max(initial=0))), -1, dtype=np.int32)
        table[np.arange(table.shape[1]) < counts[:, None]] = self.words[ranges(self.starts[rows], counts)]
        return table


def vocabulary(sentences: Iterable[Sequence[str]], known: Iterable[str] = ()) -> dict[str, int]:
    """Number the words of some sentences after those known already; case is ignored."""
    lower = map(str.lower, chain.from_iterable(sentences))
    return dict(zip(dict.fromkeys(chain(known, lower)), count(), strict=False))


def numbered(sentences: Sequence[Sequence[str]], known: dict[str, int]) -> Sentences:
    """Return sentences as word numbers; case is ignored."""
    flat = map(str.lower, chain.from_iterable(sentences))
    starts = row_starts([len(sentence) for sentence in sentences])
    return Sentences(np.fromiter(map(known.get, flat, repeat(-1)), dtype=np.int32, count=int(starts[-1])), starts)


@dataclass(frozen=True)
class Chunk:
    """Some sentence pairs of similar lengths.

    Attributes:
        rows: (pairs,) which pairs of the corpus.
        source: (pairs, I) word numbers; -1 = padding.
        target: (pairs, J) likewise.
        types: (types,) places in the table of word pairs, ascending.
        cells: (pairs, J, I) which of `types` a cell has; `len(types)` = padding.
    """

    rows: NDArray[np.int64]
    source: NDArray[np.int32]
    target: NDArray[np.int32]
    types: NDArray[np.int64]
    cells: NDArray[np.int32]


def make_chunks(
    source: Sentences, target: Sentences, targets: int, longest: int
) -> tuple[list[Chunk], NDArray[np.int64]]:
    """Cut a corpus into chunks.

    Args:
        source: Source sentences.
        target: Target sentences.
        targets: Size of the target vocabulary.
        longest: Pairs with a longer side (in words) are in no chunk, as are those with an empty one.

    Returns:
        The chunks, and the table of word pairs: (types,) `source word * targets + target word`, ascending.
    """
    drafts = []
    for rows in _chunk_rows(source.lengths, target.lengths, longest):
        left, right = source.pad(rows), target.pad(rows)
        keys = left[:, None, :].astype(np.int64) * targets + right[:, :, None]
        padding = (left < 0)[:, None, :] | (right < 0)[:, :, None]
        keys[padding] = np.iinfo(np.int64).max
        types, cells = np.unique(keys, return_inverse=True)
        types = types[:-1] if padding.any() else types
        drafts.append((rows, left, right, types, cells.reshape(keys.shape).astype(np.int32)))
    table = np.unique(np.concatenate([np.empty(0, dtype=np.int64), *(types for *_, types, _ in drafts)]))
    return [
        Chunk(rows, left, right, np.asarray(np.searchsorted(table, types), dtype=np.int64), cells)
        for rows, left, right, types, cells in drafts
    ], table


def _chunk_rows(source: NDArray[np.int64], target: NDArray[np.int64], longest: int) -> list[NDArray[np.int64]]:
    """Sort pairs of these lengths into chunks."""
    usable = np.flatnonzero((np.minimum(source, target) > 0) & (np.maximum(source, target) <= longest))
    usable = usable[np.lexsort((target[usable], -(-source[usable] // 4)))]
    chunks: list[NDArray[np.int64]] = []
    first = 0
    while first < len(usable):
        # As many as fit, with the padding that the longest of them brings.
        ahead = usable[first : first + _CELLS]
        wide, high = np.maximum.accumulate(source[ahead]), np.maximum.accumulate(target[ahead])
        fitting = np.searchsorted(wide * high * np.arange(1, len(ahead) + 1), _CELLS, side="right")
        chunks.append(ahead[: max(1, int(fitting))])
        first += len(chunks[-1])
    return chunks
