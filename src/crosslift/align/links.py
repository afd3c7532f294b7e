"""Word links of a corpus as flat arrays, and two directions made one."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
from numpy.typing import NDArray

from crosslift.data.words import ranges, row_starts
from crosslift.errors import BadInput, nearest

Symmetrise = Literal["intersection", "grow-diag-final-and", "union", "forward", "backward"]
WAYS: tuple[str, ...] = get_args(Symmetrise)
_SLAB = 20_000  # pairs whose links grow at once: a table for each of them is held


@dataclass(frozen=True)
class Alignment:
    """Word links of a corpus, sorted by pair, then source word, then target word.

    Attributes:
        starts: (pairs + 1,) pair p has the links `starts[p]:starts[p + 1]`.
        source: (links,) source word within its sentence, from 0.
        target: (links,) target word within its sentence, from 0.
        scores: (links,) from 0 to 1, how sure the aligner is; `None` = not asked for.
    """

    starts: NDArray[np.int64]
    source: NDArray[np.int32]
    target: NDArray[np.int32]
    scores: NDArray[np.float32] | None = None

    def __len__(self) -> int:
        return len(self.starts) - 1

    def __repr__(self) -> str:
        return f"Alignment({len(self):,} pairs, {len(self.source):,} links)"

    @classmethod
    def build(
        cls,
        count: int,
        pair: NDArray[np.integer],
        source: NDArray[np.integer],
        target: NDArray[np.integer],
        scores: NDArray[np.floating] | None = None,
    ) -> Alignment:
        """Make an alignment of `count` pairs from links in any order: (links,) each."""
        order = np.lexsort((target, source, pair))
        starts = row_starts(np.bincount(pair, minlength=count))
        kept = None if scores is None else scores[order].astype(np.float32)
        return cls(starts, source[order].astype(np.int32), target[order].astype(np.int32), kept)

    @classmethod
    def from_pairs(cls, rows: Iterable[Iterable[tuple[int, int]]]) -> Alignment:
        """Make an alignment from the links of each pair."""
        found = [sorted(set(row)) for row in rows]
        flat = np.array([link for row in found for link in row], dtype=np.int32).reshape(-1, 2)
        return cls(row_starts([len(row) for row in found]), flat[:, 0].copy(), flat[:, 1].copy())

    @classmethod
    def join(cls, parts: Sequence[Alignment]) -> Alignment:
        """Return the alignment of several corpora, one after another."""
        scores = [part.scores for part in parts if part.scores is not None]
        return cls(
            _joined_starts([part.starts for part in parts]),
            np.concatenate([np.empty(0, dtype=np.int32), *(part.source for part in parts)]),
            np.concatenate([np.empty(0, dtype=np.int32), *(part.target for part in parts)]),
            np.concatenate(scores) if scores and len(scores) == len(parts) else None,
        )

    def pairs(self) -> NDArray[np.int64]:
        """Return the number of the pair of each link: (links,)."""
        return np.repeat(np.arange(len(self)), np.diff(self.starts))

    def links(self, pair: int) -> list[tuple[int, int]]:
        """Return the links of one pair."""
        part = slice(self.starts[pair], self.starts[pair + 1])
        return list(zip(self.source[part].tolist(), self.target[part].tolist(), strict=True))

    def select(self, rows: Sequence[int] | NDArray[np.integer]) -> Alignment:
        """Return these pairs in this order; a pair may come more than once."""
        rows = np.asarray(rows, dtype=np.int64)
        counts = np.diff(self.starts)[rows]
        where = ranges(self.starts[rows], counts)
        scores = None if self.scores is None else self.scores[where]
        return Alignment(row_starts(counts), self.source[where], self.target[where], scores)

    def keep(self, mask: NDArray[np.bool_]) -> Alignment:
        """Return the links for which `mask` (links,) is true; pairs stay, even without a link."""
        starts = row_starts(np.bincount(self.pairs()[mask], minlength=len(self)))
        scores = None if self.scores is None else self.scores[mask]
        return Alignment(starts, self.source[mask], self.target[mask], scores)

    def one_to_one(self) -> Alignment:
        """Return only links both of whose words are in no other link."""
        pair = self.pairs()
        return self.keep(_once(pair, self.source) & _once(pair, self.target))


@dataclass(frozen=True)
class Candidates:
    """The best partner of every word of one side: why a word is linked, or is not.

    Attributes:
        starts: (pairs + 1,) where the words of each pair start.
        partner: (words,) the likeliest word of the other side; -1 = none was looked for (empty or over-long pair).
        score: (words,) how likely it is.
        none: (words,) how likely it is that the word has no partner.
    """

    starts: NDArray[np.int64]
    partner: NDArray[np.int32]
    score: NDArray[np.float32]
    none: NDArray[np.float32]

    @classmethod
    def empty(cls, lengths: NDArray[np.integer]) -> Candidates:
        """Return candidates for sentences of these lengths that are yet to be filled in."""
        words = int(lengths.sum())
        partner = np.full(words, -1, dtype=np.int32)
        return cls(row_starts(lengths), partner, np.zeros(words, np.float32), np.ones(words, np.float32))

    @classmethod
    def join(cls, parts: Sequence[Candidates]) -> Candidates:
        """Return the candidates of several corpora, one after another."""
        if not parts:
            return cls.empty(np.empty(0, dtype=np.int64))
        return cls(
            _joined_starts([part.starts for part in parts]),
            np.concatenate([part.partner for part in parts]),
            np.concatenate([part.score for part in parts]),
            np.concatenate([part.none for part in parts]),
        )

    def links(self, side: Literal["source", "target"]) -> Alignment:
        """Return the links of all words whose partner is likelier than none; `side` is whose words these are."""
        pair = np.repeat(np.arange(len(self.starts) - 1), np.diff(self.starts))
        kept = np.flatnonzero((self.partner >= 0) & (self.score > self.none))
        own = kept - self.starts[pair[kept]]
        source, target = (own, self.partner[kept]) if side == "source" else (self.partner[kept], own)
        return Alignment.build(len(self.starts) - 1, pair[kept], source, target, self.score[kept])


def _joined_starts(parts: Sequence[NDArray[np.int64]]) -> NDArray[np.int64]:
    """Return where rows start when several flat arrays are put one after another."""
    return row_starts(np.concatenate([np.empty(0, dtype=np.int64), *(np.diff(part) for part in parts)]))


def _once(pair: NDArray[np.int64], word: NDArray[np.int32]) -> NDArray[np.bool_]:
    """Return which (pair, word) occur a single time: (links,)."""
    keys = pair * (int(word.max(initial=0)) + 1) + word
    _, where, counts = np.unique(keys, return_inverse=True, return_counts=True)
    return np.asarray(counts[where] == 1)


def symmetrise(forward: Alignment, backward: Alignment, how: str = "intersection") -> Alignment:
    """Make one alignment of two directions.

    `grow-diag-final-and` (Koehn et al. 2003) starts from the intersection and adds links of the union that touch
    a link, also diagonally, while one of their words has none; at the end, links of either direction between two
    words that both have none. Candidates are taken in order of their words, round after round.

    Args:
        forward: Links found for each target word.
        backward: Links found for each source word, also as (source, target).
        how: One of `intersection`, `grow-diag-final-and`, `union`, `forward`, `backward`.
    """
    if how not in WAYS:
        raise BadInput(f'There is no symmetrisation "{how}".{nearest(how, WAYS)}', f"One of {', '.join(WAYS)}.")
    if how in ("forward", "backward"):
        return forward if how == "forward" else backward
    count = len(forward)
    if how == "grow-diag-final-and" and count > _SLAB:
        slabs = [np.arange(first, min(first + _SLAB, count)) for first in range(0, count, _SLAB)]
        return Alignment.join([symmetrise(forward.select(s), backward.select(s), how) for s in slabs])
    width = 2 + int(max(forward.source.max(initial=0), backward.source.max(initial=0)))
    height = 2 + int(max(forward.target.max(initial=0), backward.target.max(initial=0)))
    keys = [(a.pairs() * width + a.source) * height + a.target for a in (forward, backward)]
    both, first, second = np.intersect1d(keys[0], keys[1], assume_unique=True, return_indices=True)
    if how == "intersection":
        scores = None
        if forward.scores is not None and backward.scores is not None:
            scores = np.sqrt(forward.scores[first] * backward.scores[second])
        return _from_keys(count, both, width, height, scores)
    union = np.union1d(keys[0], keys[1])
    scores = _scores_of(union, keys, (forward.scores, backward.scores))
    if how == "union":
        return _from_keys(count, union, width, height, scores)
    taken = np.isin(union, both, assume_unique=True)
    pair, rest = np.divmod(union, width * height)
    source, target = np.divmod(rest, height)
    grown = _Growing(pair, source, target, taken, count)
    grown.grow()
    for key in keys:
        grown.fill(np.isin(union, key, assume_unique=True))
    return _from_keys(count, union[grown.taken], width, height, None if scores is None else scores[grown.taken])


def _scores_of(
    union: NDArray[np.int64],
    keys: Sequence[NDArray[np.int64]],
    scores: Sequence[NDArray[np.float32] | None],
) -> NDArray[np.float32] | None:
    """Return the geometric mean of the two directions where both have the link, else half of the one."""
    if any(s is None for s in scores):
        return None
    found = np.zeros((2, len(union)), dtype=np.float32)
    for side, (key, score) in enumerate(zip(keys, scores, strict=True)):
        found[side, np.searchsorted(union, key)] = score
    joint = np.where(found.all(axis=0), np.sqrt(found.prod(axis=0)), found.sum(axis=0) / 2)
    return np.asarray(joint, dtype=np.float32)


def _from_keys(
    count: int, keys: NDArray[np.int64], width: int, height: int, scores: NDArray[np.floating] | None
) -> Alignment:
    pair, rest = np.divmod(keys, width * height)
    source, target = np.divmod(rest, height)
    return Alignment.build(count, pair, source, target, scores)


class _Growing:
    """Candidate links of all pairs; a round looks at the n-th candidate of every pair at once.

    Args:
        pair: (links,) sorted; `source` and `target` (links,) sorted within it.
        taken: (links,) the intersection, to start from.
        count: Number of pairs.
    """

    def __init__(
        self,
        pair: NDArray[np.int64],
        source: NDArray[np.int64],
        target: NDArray[np.int64],
        taken: NDArray[np.bool_],
        count: int,
    ) -> None:
        self.taken = taken.copy()
        rank = np.arange(len(pair)) - row_starts(np.bincount(pair, minlength=count))[pair]
        self.ranks = np.split(np.argsort(rank, kind="stable"), np.cumsum(np.bincount(rank))[:-1]) if len(rank) else []
        # A border around each pair's table spares the test for its edges.
        rows, columns = (np.zeros(count, dtype=np.int64) for _ in range(2))
        np.maximum.at(rows, pair, source + 3)
        np.maximum.at(columns, pair, target + 3)
        self.stride = columns[pair]
        self.cell = row_starts(rows * columns)[pair] + (source + 1) * self.stride + target + 1
        self.row = row_starts(rows)[pair] + source
        self.column = row_starts(columns)[pair] + target
        self.table = np.zeros(int((rows * columns).sum()) + 1, dtype=bool)
        self.row_used = np.zeros(int(rows.sum()), dtype=bool)
        self.column_used = np.zeros(int(columns.sum()), dtype=bool)
        self._add(np.flatnonzero(self.taken))

    def _add(self, links: NDArray[np.int64]) -> None:
        self.taken[links] = True
        self.table[self.cell[links]] = True
        self.row_used[self.row[links]] = True
        self.column_used[self.column[links]] = True

    def grow(self) -> None:
        """Add candidates that touch a link while one of their words is free, until there are none."""
        added = True
        while added:
            added = False
            for links in self.ranks:
                links = links[~self.taken[links]]
                links = links[~self.row_used[self.row[links]] | ~self.column_used[self.column[links]]]
                around = self.stride[links, None] * np.array([-1, -1, -1, 0, 0, 1, 1, 1])
                around += np.array([-1, 0, 1, -1, 1, -1, 0, 1])
                links = links[self.table[self.cell[links, None] + around].any(axis=1)]
                added |= len(links) > 0
                self._add(links)

    def fill(self, allowed: NDArray[np.bool_]) -> None:
        """Add allowed candidates both of whose words are free."""
        for links in self.ranks:
            links = links[allowed[links] & ~self.row_used[self.row[links]] & ~self.column_used[self.column[links]]]
            self._add(links)
