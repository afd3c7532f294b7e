"""Which words of a `WordCorpus` form a row: a function of (seed, pass, row), so that a run goes on anywhere.

Three ways to cut a text into rows of at most so many tokens: over everything (`corpus`: rows are always full),
within documents, or one row per line.
"""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from crosslift.data.batches import training_batches
from crosslift.data.word_corpus import DOCUMENT_END, LINE_END
from crosslift.errors import BadInput

Packing = Literal["corpus", "documents", "lines"]
Array = NDArray[np.int64]

_SLACK = 1.12  # masks shorten a row by a few percent: more words are handed over than fit, so that it is full
_CHUNK = 1 << 22


class RowPlan:
    """Rows of a text.

    Args:
        numbers: (words of the text,) as in `WordCorpus`.
        lengths: (words of the vocabulary,) tokens of each.
        room: Tokens that fit a row, specials aside.
        packing: How the text is cut.
        scratch: File for the running token counts, which are as long as the text.
    """

    def __init__(self, numbers: NDArray[np.int32], lengths: Array, room: int, packing: Packing, scratch: Path) -> None:
        self.numbers, self.room, self.packing = numbers, room, packing
        self.before = _running(numbers, lengths, scratch)
        self.total = int(self.before[-1])
        if self.total < 1 or len(numbers) < 2:
            raise BadInput("There is too little text to train on.")
        self._rows: tuple[tuple[int, int], Array, Array] | None = None
        self._batches: tuple[tuple[int, int, int], list[Array]] | None = None
        self._order: tuple[tuple[int, int], Array] | None = None
        self._counts: dict[tuple[int, int], list[int]] = {}

    def rows(self, seed: int, epoch: int) -> tuple[Array, Array]:
        """Return first and stop word of every row of a pass; rows of packed text begin elsewhere in each pass."""
        if self._rows is None or (self.packing == "corpus" and self._rows[0] != (seed, epoch)):
            self._rows = ((seed, epoch), *self._cut(seed, epoch))
        return self._rows[1], self._rows[2]

    def step(self, seed: int, step: int, size: int) -> tuple[Array, Array]:
        """Return first and stop word of the rows of a step.

        Args:
            seed: Another seed, another order.
            step: Steps are counted over passes; in a pass no row comes twice.
            size: Rows per step; of lines, which are short, as many as fill so many rows.
        """
        if self.packing == "lines":
            return self._lines_step(seed, step, size)
        rows = self._full_rows() if self.packing == "corpus" else len(self.rows(seed, 0)[0])
        epoch, place = divmod(step, max(1, rows // size))
        first, stop = self.rows(seed, epoch)
        if self._order is None or self._order[0] != (seed, epoch):
            self._order = ((seed, epoch), np.random.default_rng([seed, epoch, 1]).permutation(len(first)))
        chosen = np.take(self._order[1], np.arange(place * size, (place + 1) * size), mode="wrap")
        return first[chosen], stop[chosen]

    def _full_rows(self) -> int:
        """Return how many rows over the corpus a pass has, wherever it begins."""
        return max(1, (self.total - self.room) // self.room)

    def _lines_step(self, seed: int, step: int, size: int) -> tuple[Array, Array]:
        first, stop = self.rows(seed, 0)
        # Passes differ by a few batches: how many each has is remembered, the batches only of the newest.
        counts = self._counts.setdefault((seed, size), [])
        epoch = 0
        while epoch >= len(counts) or step >= counts[epoch]:
            if epoch >= len(counts):
                counts.append(len(self._pass(seed, epoch, size)))
                continue
            step -= counts[epoch]
            epoch += 1
        rows = self._pass(seed, epoch, size)[step]
        return first[rows], stop[rows]

    def _pass(self, seed: int, epoch: int, size: int) -> list[Array]:
        key = (seed, epoch, size)
        if self._batches is None or self._batches[0] != key:
            first, stop = self.rows(seed, 0)
            lengths = np.minimum(self.before[stop] - self.before[first], self.room) + 2
            padded, budget = 8 * -(-lengths // 8), size * (self.room + 2)
            self._batches = (key, training_batches(padded, None, seed, epoch, batch_tokens=budget))
        return self._batches[1]

    def _cut(self, seed: int, epoch: int) -> tuple[Array, Array]:
        if self.packing == "corpus":
            room = self.room if self.total > 2 * self.room else 1
            shift = int(np.random.default_rng([seed, epoch, 0]).integers(room))
            begin = shift + self.room * np.arange(self._full_rows())
            first = np.searchsorted(self.before[:-1], begin).astype(np.int64)
            stop = np.searchsorted(self.before[:-1], self.before[first] + int(_SLACK * self.room)).astype(np.int64)
            return first, np.minimum(stop + 1, len(self.numbers))
        lines = self.packing == "lines"
        marks = np.flatnonzero(self.numbers == (LINE_END if lines else DOCUMENT_END))
        starts = np.append(0, marks + 1)
        # A row closes by itself: of a line that is a row, the mark, which may stand for a closing token, is left out.
        ends = np.append(marks if lines else marks + 1, len(self.numbers))
        tokens = self.before[ends] - self.before[starts]
        starts, ends, tokens = (part[tokens > 0] for part in (starts, ends, tokens))
        parts = -(-tokens // self.room)
        piece = np.arange(parts.sum()) - np.repeat(np.cumsum(parts) - parts, parts)
        begin = np.repeat(self.before[starts], parts) + piece * self.room
        # Marks without tokens stand at the same count as what follows them: a row begins behind its neighbour's.
        first = np.maximum(np.searchsorted(self.before[:-1], begin), np.repeat(starts, parts)).astype(np.int64)
        stop = np.minimum(np.searchsorted(self.before[:-1], begin + self.room), np.repeat(ends, parts)).astype(np.int64)
        kept = stop > first
        return first[kept], stop[kept]


def _running(numbers: NDArray[np.int32], lengths: Array, file: Path) -> Array:
    """Return (words + 1,) tokens before each word, in a memory-mapped file."""
    file.parent.mkdir(parents=True, exist_ok=True)
    running = np.memmap(file, dtype=np.int64, mode="w+", shape=(len(numbers) + 1,))
    running[0] = total = 0
    for at in range(0, len(numbers), _CHUNK):
        part = np.cumsum(lengths[numbers[at : at + _CHUNK]]) + total
        running[at + 1 : at + 1 + len(part)] = part
        total = int(part[-1])
    return running
