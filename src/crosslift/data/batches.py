"""Which rows go together: batches of similar length, so that little of them is padding.

Every function here is pure: the same arguments give the same batches, on any machine and in any process.
Lengths are tokens per row. Where rows are padded to a multiple of 8, pass lengths rounded up to it and the
token budgets hold for what the device sees.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from crosslift.errors import BadInput

Rows = NDArray[np.int64]


def training_batches(
    lengths: Sequence[int] | NDArray[np.integer],
    batch_size: int | None,
    seed: int,
    epoch: int,
    *,
    batch_tokens: int | None = None,
    window: int = 50,
    drop_last: bool = False,
) -> list[Rows]:
    """Return the batches of one epoch, one per optimizer step: a function of seed and epoch alone.

    Rows are shuffled, cut into windows of some `window` batches and sorted by length within each; then
    the batches are shuffled. So neighbours have similar lengths, yet no epoch repeats another's batches.

    Args:
        lengths: (rows,) tokens per row.
        batch_size: Rows per batch; `None` if `batch_tokens` is given.
        seed: Another seed, another order.
        epoch: Another epoch, another order.
        batch_tokens: Rows × longest row of a batch stay within this (a longer row is alone).
        window: Batches among which rows are sorted by length; the larger, the less padding.
        drop_last: Leave out the rows that do not fill a batch of `batch_size`.
    """
    if (batch_size is None) == (batch_tokens is None):
        raise BadInput("Batches are cut either by rows (batch_size) or by tokens (batch_tokens).")
    tokens = np.asarray(lengths, dtype=np.int64)
    random = np.random.default_rng([seed, epoch])
    order = random.permutation(len(tokens))
    if batch_size is not None:
        if drop_last:
            order = order[: len(order) - len(order) % batch_size]
        rows_per_window = window * batch_size
    else:
        assert batch_tokens is not None
        mean = max(1, int(tokens.sum()) // max(1, len(tokens)))
        rows_per_window = max(1, window * batch_tokens // mean)
    batches: list[Rows] = []
    for start in range(0, len(order), rows_per_window):
        part = _longest_first(order[start : start + rows_per_window], tokens)
        batches += _by_size(part, batch_size) if batch_size else _by_tokens(part, tokens, batch_tokens or 1)
    return [batches[i] for i in random.permutation(len(batches))]


def micro_batches(
    rows: Sequence[int] | NDArray[np.integer],
    lengths: Sequence[int] | NDArray[np.integer],
    max_tokens: int | None = None,
    rank: int = 0,
    world: int = 1,
    *,
    size: int | None = None,
) -> list[Rows]:
    """Cut the batch of one step into the micro-batches of one process.

    Rows are dealt out by length, so every process has about as many tokens; over all processes every row
    comes exactly once. A process for which no row is left gets an empty list.

    Args:
        rows: The rows of the step's batch.
        lengths: Tokens of every row there is (not of the batch only).
        max_tokens: Rows × longest row of a micro-batch stay within this (a longer row is alone). Rows come in powers
            of two, so that there are few shapes, each of which a GPU records once (`runs/replay.py`).
        rank: Which process, from 0.
        world: How many processes there are.
        size: Rows per micro-batch, instead of `max_tokens`.
    """
    if (size is None) == (max_tokens is None):
        raise BadInput("Micro-batches are cut either by rows (size) or by tokens (max_tokens).")
    tokens = np.asarray(lengths, dtype=np.int64)
    share = _longest_first(np.asarray(rows, dtype=np.int64), tokens)[rank::world]
    if size is not None:
        return _by_size(share, size)
    assert max_tokens is not None
    return _by_tokens(share, tokens, max_tokens, even=True)


def evaluation_batches(lengths: Sequence[int] | NDArray[np.integer], max_tokens: int) -> list[Rows]:
    """Return batches over all rows, longest rows first, so that a lack of memory shows at once.

    Args:
        lengths: (rows,) tokens per row.
        max_tokens: Rows × longest row of a batch stay within this (a longer row is alone).
    """
    tokens = np.asarray(lengths, dtype=np.int64)
    return _by_tokens(_longest_first(np.arange(len(tokens)), tokens), tokens, max_tokens)


def _longest_first(rows: Rows, tokens: Rows) -> Rows:
    return rows[np.argsort(-tokens[rows], kind="stable")]


def _by_size(rows: Rows, size: int) -> list[Rows]:
    return [rows[start : start + size] for start in range(0, len(rows), size)]


def _by_tokens(rows: Rows, tokens: Rows, budget: int, *, even: bool = False) -> list[Rows]:
    """Cut rows, longest first, into batches of at most `budget` padded tokens; `even`: their rows a power of two.

    What would fit as a whole is never cut, and the last batch has what is left.
    """
    batches = []
    start = 0
    while start < len(rows):
        fitting = max(1, budget // max(1, int(tokens[rows[start]])))
        if even and fitting < len(rows) - start:
            fitting = 1 << (fitting.bit_length() - 1)
        batches.append(rows[start : start + fitting])
        start += fitting
    return batches
