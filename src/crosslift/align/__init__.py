"""Word alignment: which word of a sentence translates which word of its translation."""

from crosslift.align.aligned import AlignedBitext, align_gold, align_words, explain
from crosslift.align.links import Alignment, Candidates, symmetrise
from crosslift.align.pharaoh import read_pharaoh, write_pharaoh
from crosslift.align.score import AlignmentScores, score_alignment
from crosslift.align.statistical import Aligner

__all__ = [
    "AlignedBitext",
    "Aligner",
    "Alignment",
    "AlignmentScores",
    "Candidates",
    "align_gold",
    "align_words",
    "explain",
    "read_pharaoh",
    "score_alignment",
    "symmetrise",
    "write_pharaoh",
]
