"""Posteriors of a hidden Markov model over word positions, for many sentence pairs at once.

A target word is produced by a source word (a state) or by none (NULL). The next state depends on the jump from the
last one; a NULL word remembers it (Vogel et al. 1996; Och & Ney 2003). With e the emission, m the moves:

    real_t(i) = e_t(i) · Σ_p total_{t-1}(p) · (1 - null) · m(p, i) / Σ_{k < I} m(p, k)
    none_t(p) = n_t · null · total_{t-1}(p)
    total_t   = real_t + none_t

State p = 0 stands before the sentence. All steps of all pairs are products with one (I + 1, I) matrix of moves;
the sum in the denominator, which depends on the length, scales the rows.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float32]

REACH = 24
"""Longer jumps count as jumps of this length."""
_TINY = np.float32(1e-37)


@dataclass(frozen=True)
class Jumps:
    """How alignment moves along the source.

    Attributes:
        between: (2 REACH + 1,) weight of a jump from -REACH to REACH words.
        first: (REACH + 1,) weight of the first word's place.
    """

    between: Floats
    first: Floats

    @classmethod
    def start(cls) -> Jumps:
        """Return a preference for the next word, falling off on both sides."""
        distance = np.abs(np.arange(-REACH, REACH + 1) - 1)
        return cls(np.exp(-0.5 * distance).astype(np.float32), np.exp(-0.5 * np.arange(REACH + 1)).astype(np.float32))

    def moves(self, states: int) -> Floats:
        """Return the weight of each move: (states + 1, states); row 0 is the start."""
        place = np.arange(states)
        jump = np.clip(place[None, :] - place[:, None], -REACH, REACH) + REACH
        return np.concatenate([self.first[np.minimum(place, REACH)][None, :], self.between[jump]])

    @classmethod
    def from_counts(cls, counts: list[NDArray[np.float64]], smoothing: float = 1.0) -> Jumps:
        """Estimate from expected moves, each a (states + 1, states) table; `smoothing` is added to each count."""
        between, first = np.full(2 * REACH + 1, float(smoothing)), np.full(REACH + 1, float(smoothing))
        for table in counts:
            place = np.arange(table.shape[1])
            jump = np.clip(place[None, :] - place[:, None], -REACH, REACH) + REACH
            between += np.bincount(jump.ravel(), weights=table[1:].ravel(), minlength=2 * REACH + 1)
            first += np.bincount(np.minimum(place, REACH), weights=table[0], minlength=REACH + 1)
        return cls((between / between.sum()).astype(np.float32), (first / first.sum()).astype(np.float32))


def posteriors(
    emission: Floats, nothing: Floats, states: NDArray[np.int64], jumps: Jumps, null: float
) -> tuple[Floats, NDArray[np.float64]]:
    """Return how likely each word comes from each state, and the expected moves.

    Args:
        emission: (pairs, steps, states) probability of the word of each step given each state; 0 = padding.
        nothing: (pairs, steps) probability of that word given NULL; 0 = padding.
        states: (pairs,) number of states of each pair.
        jumps: Preferences for moves.
        null: Probability of NULL.

    Returns:
        (pairs, steps, states) posteriors; what is missing to 1 is NULL's share, padding has 0. And
        (states + 1, states) expected moves, summed.
    """
    pairs, steps, width = emission.shape
    moves = jumps.moves(width)
    room = np.cumsum(moves, axis=1)[:, np.maximum(states - 1, 0)].T  # (pairs, states + 1)
    scale = (np.float32(1 - null) / room).astype(np.float32)
    peak = np.maximum(emission.max(axis=2, initial=0), nothing)
    padding = peak == 0
    peak[padding] = 1
    words = np.ascontiguousarray((emission / peak[:, :, None]).transpose(1, 0, 2))  # (steps, pairs, states)
    # At a padded step NULL leaves everything as it is.
    none = (np.float32(null) * nothing / peak).T
    none[padding.T] = 1
    before = np.zeros((steps + 1, pairs, width + 1), dtype=np.float32)
    before[0, :, 0] = 1
    real = np.empty_like(words)
    for step in range(steps):
        np.matmul(before[step] * scale, moves, out=real[step])
        real[step] *= words[step]
        total = none[step][:, None] * before[step]
        total[:, 1:] += real[step]
        total /= np.maximum(total.sum(axis=1, keepdims=True), _TINY)
        before[step + 1] = total
    after = np.ones((pairs, width + 1), dtype=np.float32)
    seen = np.zeros((width + 1, width), dtype=np.float64)
    for step in reversed(range(steps)):
        coming = words[step] * after[:, 1:]
        real[step] *= after[:, 1:]
        after = none[step][:, None] * after + scale * (coming @ moves.T)
        whole = np.maximum(np.einsum("ps,ps->p", before[step], after), _TINY)
        real[step] /= whole[:, None]
        seen += (before[step] * scale).T @ (coming / whole[:, None])
        after /= np.maximum(after.max(axis=1, keepdims=True), _TINY)
    return np.ascontiguousarray(real.transpose(1, 0, 2)), seen * moves
