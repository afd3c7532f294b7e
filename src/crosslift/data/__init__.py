"""Data: files, public sets, and examples in one form."""

from crosslift.data.bitext import read_bitext
from crosslift.data.checks import check_labels, check_parallel
from crosslift.data.examples import Answer, Examples, concatenate
from crosslift.data.halves import halves
from crosslift.data.load import languages_of, load, splits_of
from crosslift.data.mixed import cross, mixed

__all__ = [
    "Answer",
    "Examples",
    "check_labels",
    "check_parallel",
    "concatenate",
    "cross",
    "halves",
    "languages_of",
    "load",
    "mixed",
    "read_bitext",
    "splits_of",
]
