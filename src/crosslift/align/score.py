"""Links against gold: precision, recall and alignment error rate (Och & Ney 2003)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass

import numpy as np
from numpy.typing import NDArray

from crosslift.align.links import Alignment
from crosslift.data.wordalign import GoldAlignment
from crosslift.errors import BadInput


@dataclass(frozen=True)
class AlignmentScores:
    """How good an alignment is, in percent; A are its links, S the sure and P ⊇ S the possible gold links.

    Attributes:
        aer: 100 · (1 - (|A ∩ S| + |A ∩ P|) / (|A| + |S|)); lower is better.
        precision: |A ∩ P| / |A|.
        recall: |A ∩ S| / |S|.
        f1: Harmonic mean of the two.
        links: |A|.
        sure: |S|.
    """

    aer: float
    precision: float
    recall: float
    f1: float
    links: int
    sure: int

    def to_dict(self) -> dict[str, float]:
        """Return the figures by name."""
        return asdict(self)


def score_alignment(alignment: Alignment, gold: Sequence[GoldAlignment]) -> AlignmentScores:
    """Compare an alignment with gold, link by link over all pairs.

    Args:
        alignment: Links of the pairs, in the order of the gold ones.
        gold: Gold links.
    """
    if len(alignment) != len(gold):
        raise BadInput(f"{len(alignment):,} pairs were aligned, but there are {len(gold):,} with gold links.")
    sure = Alignment.from_pairs([pair.sure for pair in gold])
    possible = Alignment.from_pairs([pair.sure | pair.possible for pair in gold])
    found, must, may = _keys(alignment), _keys(sure), _keys(possible)
    hits_sure, hits_possible = (int(np.isin(found, keys, assume_unique=True).sum()) for keys in (must, may))
    precision = hits_possible / len(found) if len(found) else 0.0
    recall = hits_sure / len(must) if len(must) else 0.0
    both = len(found) + len(must)
    return AlignmentScores(
        aer=100 * (1 - (hits_sure + hits_possible) / both) if both else 0.0,
        precision=100 * precision,
        recall=100 * recall,
        f1=100 * 2 * precision * recall / (precision + recall) if precision + recall else 0.0,
        links=len(found),
        sure=len(must),
    )


def _keys(alignment: Alignment) -> NDArray[np.int64]:
    """Return one number per link: pair, source word and target word."""
    wide = np.int64(1 << 20)
    return np.asarray((alignment.pairs() * wide + alignment.source) * wide + alignment.target, dtype=np.int64)
