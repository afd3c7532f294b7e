"""Whether training text holds evaluation text: equal lines, or long stretches in common.

A line is normalised (compatibility folding, lower case, letters and digits only). It overlaps with a text of the
evaluation if both are equal so, or share eight consecutive words; in languages without spaces, twenty characters.
"""

from __future__ import annotations

import hashlib
import unicodedata
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from crosslift.data.switching import UNSPACED

WORDS = 8
CHARACTERS = 20
_SHORTEST_EQUAL = 3  # words: "Yes." is in every corpus and gives nothing away


class _Folding(dict[int, str]):
    """Character -> itself if it is part of a word (letter, vowel sign or other mark, digit), else a space."""

    def __missing__(self, point: int) -> str:
        character = chr(point)
        self[point] = character if unicodedata.category(character)[0] in "LMN" else " "
        return self[point]


_WORDS_ONLY = _Folding()


@dataclass
class EvaluationText:
    """The texts that must not be trained on, as fingerprints.

    Attributes:
        whole: Normalised texts.
        stretches: All their stretches of eight words or twenty characters.
    """

    whole: set[int] = field(default_factory=set)
    stretches: set[int] = field(default_factory=set)

    def add(self, texts: Iterable[str], language: str) -> None:
        """Take in evaluation texts of one language."""
        for text in texts:
            units = normalised(text, language)
            if _long_enough(units, language):
                self.whole.add(_fingerprint(units))
            self.stretches.update(_stretches(units, language))

    def holds(self, text: str, language: str) -> bool:
        """Whether a line of training text is, or shares a stretch with, a text of the evaluation."""
        units = normalised(text, language)
        if _long_enough(units, language) and _fingerprint(units) in self.whole:
            return True
        return any(stretch in self.stretches for stretch in _stretches(units, language))


def overlapping(lines: Iterable[str], language: str, evaluation: EvaluationText) -> list[tuple[int, str]]:
    """Return the lines, with their numbers from 1, that hold evaluation text."""
    return [(number, line) for number, line in enumerate(lines, start=1) if evaluation.holds(line, language)]


def normalised(text: str, language: str) -> list[str]:
    """Return the words of a text (its characters, where the language writes no spaces), folded and without marks."""
    words = unicodedata.normalize("NFKC", text).lower().translate(_WORDS_ONLY).split()
    return list("".join(words)) if language in UNSPACED else words


def _long_enough(units: list[str], language: str) -> bool:
    return len(units) >= (2 * _SHORTEST_EQUAL if language in UNSPACED else _SHORTEST_EQUAL)


def _stretches(units: list[str], language: str) -> Iterator[int]:
    size = CHARACTERS if language in UNSPACED else WORDS
    return (_fingerprint(units[i : i + size]) for i in range(len(units) - size + 1))


def _fingerprint(units: list[str]) -> int:
    return int.from_bytes(hashlib.blake2b(" ".join(units).encode(), digest_size=8).digest(), "big")
