"""One round of EM over a corpus, both directions.

The probability of a word pair is what the *other* occurrences say about it: the expected count of a cell itself is
taken away first (collapsed variational Bayes, CVB0; Asuncion et al. 2009). A word that occurs once thus cannot
vouch for itself, which is how rare words otherwise come to attract everything.

    t(f | e) = (n(e, f) - q + α + same·[e = f]) / (n(e) - q + α·V + same·[e is a target word too])
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from crosslift.align.chunks import Chunk
from crosslift.align.hmm import Floats, Jumps, posteriors

_TINY = np.float32(1e-37)


@dataclass(frozen=True)
class Prior:
    """What is believed before any count.

    Attributes:
        alpha: Dirichlet prior of every word pair.
        same: Extra count of a word beside itself.
        null: Probability that a word has no partner.
        diagonal: Strength of the diagonal, while there are no jumps.
    """

    alpha: float
    same: float
    null: float
    diagonal: float


@dataclass(frozen=True)
class Counts:
    """Expected counts over a corpus; direction 0 is target words given source words, 1 the reverse.

    Attributes:
        given: (types,) and (types,): the conditioning word of each word pair, by direction.
        same: (types,) whether the two words are the same string.
        shared: (words,) and (words,): whether a conditioning word is in the other vocabulary, too.
        pairs: (2, types) expected count of each word pair.
        totals: (words,) and (words,): their sums by conditioning word.
        nulls: (words,) and (words,): expected count of each produced word without partner.
        jumps: By direction; `None` while the diagonal prior is used.
    """

    given: tuple[NDArray[np.int64], NDArray[np.int64]]
    same: NDArray[np.bool_]
    shared: tuple[NDArray[np.bool_], NDArray[np.bool_]]
    pairs: NDArray[np.float64]
    totals: tuple[NDArray[np.float64], NDArray[np.float64]]
    nulls: tuple[NDArray[np.float64], NDArray[np.float64]]
    jumps: tuple[Jumps, Jumps] | None


@dataclass
class Own:
    """The posteriors of a chunk's cells in the last round, by direction; the same array where both agree."""

    cells: list[Floats] = field(default_factory=list)


def expect(
    chunk: Chunk, counts: Counts, prior: Prior, own: Own | None
) -> tuple[Floats, Floats, list[NDArray[np.float64]]]:
    """Return how likely each cell is a link, in both directions.

    Args:
        chunk: Some pairs.
        counts: What the corpus says.
        prior: What is believed before.
        own: What these pairs contributed to the counts; `None` = nothing.

    Returns:
        (pairs, J, I) p(source word | target word), (pairs, J, I) p(target word | source word); padding has 0; and
        by direction the expected moves, where jumps are used.
    """
    words = [_emission(chunk, counts, prior, own, direction) for direction in (0, 1)]
    none = [_nothing(chunk, counts, prior, own, direction) for direction in (0, 1)]
    if counts.jumps is None:
        near = _diagonal(chunk, prior.diagonal)
        found = []
        for direction, axis in ((0, 2), (1, 1)):
            share = near / np.maximum(near.sum(axis=axis, keepdims=True), _TINY) * np.float32(1 - prior.null)
            share *= words[direction]
            whole = share.sum(axis=axis) + np.float32(prior.null) * none[direction]
            found.append(share / np.maximum(np.expand_dims(whole, axis), _TINY))
        return found[0], found[1], []
    sizes = [(chunk.source >= 0).sum(axis=1), (chunk.target >= 0).sum(axis=1)]
    forward, moves = posteriors(words[0], none[0], sizes[0], counts.jumps[0], prior.null)
    turned = np.ascontiguousarray(words[1].transpose(0, 2, 1))
    backward, back = posteriors(turned, none[1], sizes[1], counts.jumps[1], prior.null)
    return forward, backward.transpose(0, 2, 1), [moves, back]


def _emission(chunk: Chunk, counts: Counts, prior: Prior, own: Own | None, direction: int) -> Floats:
    """Return the probability of each cell's produced word given its conditioning word: (pairs, J, I)."""
    known = counts.pairs[direction, chunk.types] + prior.same * counts.same[chunk.types] + prior.alpha
    top = np.append(known, 0).astype(np.float32)[chunk.cells]
    given = chunk.target if direction else chunk.source
    produced = len(counts.totals[1 - direction])
    sums = counts.totals[direction] + prior.same * counts.shared[direction] + prior.alpha * produced
    bottom = np.expand_dims(sums.astype(np.float32)[given], 2 if direction else 1)
    if own is None or not own.cells:
        return np.asarray(top / bottom)
    share = own.cells[direction]
    # The true differences are never below the prior; rounding may be.
    return np.asarray(np.maximum(top - share, 0) / np.maximum(bottom - share, np.float32(prior.alpha)))


def _nothing(chunk: Chunk, counts: Counts, prior: Prior, own: Own | None, direction: int) -> Floats:
    """Return the probability of each produced word given no partner: (pairs, J) or (pairs, I); padding has 0."""
    word = chunk.source if direction else chunk.target
    alone = counts.nulls[direction]
    found = alone[word]
    if own is not None and own.cells:
        found = found - np.clip(1 - own.cells[direction].sum(axis=1 if direction else 2), 0, 1)
    share = (np.maximum(found, 0) + prior.alpha) / (alone.sum() + prior.alpha * len(alone))
    return np.asarray(share * (word >= 0), dtype=np.float32)


def _diagonal(chunk: Chunk, strength: float) -> Floats:
    """Return how near each cell is to the diagonal: (pairs, J, I); padding has 0."""
    places = []
    for words in (chunk.source, chunk.target):
        there = words >= 0
        place = (np.arange(words.shape[1]) + 0.5) / there.sum(axis=1, keepdims=True)
        places.append(np.where(there, place, np.inf))
    with np.errstate(invalid="ignore"):  # infinity less infinity, where both are padding
        distance = np.abs(places[0][:, None, :] - places[1][:, :, None])
    return np.where(np.isfinite(distance), np.exp(-strength * distance), 0).astype(np.float32)


def round_of(
    chunks: Sequence[Chunk], counts: Counts, prior: Prior, owns: Sequence[Own], *, agree: bool, jumping: bool
) -> Counts:
    """Return the counts after one more round; `owns` is brought up to date.

    Args:
        chunks: The corpus.
        counts: What it said in the last round.
        prior: What is believed before.
        owns: By chunk, what it contributed in the last round.
        agree: Whether a link counts as much as both directions together believe in it.
        jumping: Whether the next round uses jumps instead of the diagonal.
    """
    pairs = np.zeros_like(counts.pairs)
    nulls = tuple(np.zeros_like(alone) for alone in counts.nulls)
    moved: list[list[NDArray[np.float64]]] = [[], []]
    for chunk, own in zip(chunks, owns, strict=True):
        forward, backward, moves = expect(chunk, counts, prior, own)
        both = forward * backward if agree else None
        own.cells = [forward, np.ascontiguousarray(backward)] if both is None else [both, both]
        for direction, share in enumerate(own.cells):
            if direction == 0 or both is None:
                seen = np.bincount(chunk.cells.ravel(), weights=share.ravel(), minlength=len(chunk.types) + 1)[:-1]
            pairs[direction, chunk.types] += seen
            word = chunk.source if direction else chunk.target
            left = np.clip(1 - share.sum(axis=1 if direction else 2), 0, 1)[word >= 0]
            nulls[direction][:] += sum_by(word[word >= 0], left, len(nulls[direction]))
        for direction, table in enumerate(moves):
            moved[direction].append(table)
    jumps = None
    if jumping:
        jumps = (Jumps.from_counts(moved[0]), Jumps.from_counts(moved[1])) if moved[0] else (Jumps.start(),) * 2
    totals = tuple(sum_by(counts.given[d], pairs[d], len(counts.totals[d])) for d in (0, 1))
    return Counts(counts.given, counts.same, counts.shared, pairs, (totals[0], totals[1]), (nulls[0], nulls[1]), jumps)


def sum_by(group: NDArray[np.integer], values: NDArray[np.floating], groups: int) -> NDArray[np.float64]:
    """Return the sum of the values of each group: (groups,)."""
    return np.asarray(np.bincount(group, weights=values, minlength=groups), dtype=np.float64)
