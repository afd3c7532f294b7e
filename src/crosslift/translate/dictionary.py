"""Word by word with a bilingual dictionary: what is left where there is no translator.

Word order and inflection stay as they were, so this is a gloss more than a translation. It keeps case and
punctuation, and every translated word is tied to the words it came from (`gloss`), so that labels of words need no
aligner.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

import numpy as np

from crosslift.data.examples import Spans
from crosslift.data.files import read_bytes
from crosslift.data.segment import segment_all
from crosslift.data.switching import UNSPACED, read_lexicon, translations
from crosslift.translate.languages import short_code


class Gloss(NamedTuple):
    """A text put into another language word by word.

    Attributes:
        text: The new text.
        spans: (new words, 2) its words as character spans; a phrase of the dictionary is one.
        origin: (new words, 2) first and last + 1 of the old words that each stands for.
    """

    text: str
    spans: Spans
    origin: Spans


class Dictionary:
    """A bilingual dictionary file, used word by word and phrase by phrase; the first translation of an entry counts.

    Args:
        path: Lines `source TAB target`; several lines with one entry are its choices, the best first.
        source: Language of the texts.
        target: Language of the translations.
        back: Read the file from right to left: for `english TAB word` and texts that are not English.
    """

    chunk = 0

    def __init__(self, path: Path, source: str, target: str, *, back: bool = False) -> None:
        self.path, self.source, self.target, self.back = path, source, target, back
        self.name = f"dictionary {path.name}{', read backwards' if back else ''}"

    @cached_property
    def fingerprint(self) -> str:
        """A digest of the file and the way it is read."""
        print_ = hashlib.blake2b(read_bytes(self.path), digest_size=8).hexdigest()
        return f"dictionary-{'back-' if self.back else ''}{print_}"

    @cached_property
    def entries(self) -> Mapping[str, Sequence[str]]:
        """Entry in lower case, with single spaces -> its translations, the best first."""
        forward = read_lexicon(self.path)
        if not self.back:
            return forward
        turned: dict[str, list[str]] = {}
        # An entry's first translation is its likeliest, so what names a word first is likeliest to be meant by it.
        for rank in range(max(map(len, forward.values()))):
            for entry, choices in forward.items():
                if rank < len(choices):
                    turned.setdefault(choices[rank].lower(), []).append(entry)
        return turned

    @cached_property
    def longest(self) -> int:
        """Most words of an entry."""
        return max(entry.count(" ") + 1 for entry in self.entries)

    def translate(self, texts: Sequence[str]) -> list[str]:
        """Translate texts word by word; a word that is not in the dictionary stays."""
        return [gloss.text for gloss in self.glosses(texts, segment_all(texts, self.source))]

    def coverage(self, texts: Sequence[str]) -> float:
        """Return the share of words (punctuation and numbers aside) that the dictionary knows."""
        known = total = 0
        for text, words in zip(texts, segment_all(texts, self.source), strict=True):
            pieces = [text[start:end] for start, end in words.tolist()]
            letters = [i for i, piece in enumerate(pieces) if any(map(str.isalpha, piece))]
            taken = np.zeros(len(pieces), dtype=bool)
            for first, last, choice in self._matches(pieces):
                taken[first:last] = choice is not None
            known += int(taken[letters].sum())
            total += len(letters)
        return known / max(1, total)

    def glosses(self, texts: Sequence[str], words: Sequence[Spans]) -> list[Gloss]:
        """Return texts with known words (character spans of theirs) replaced, and what came from where."""
        return [self._gloss(text, spans) for text, spans in zip(texts, words, strict=True)]

    def _gloss(self, text: str, spans: Spans) -> Gloss:
        words = [text[start:end] for start, end in spans.tolist()]
        places, origin = [], []
        new = ""
        end_before = 0
        for first, last, choice in self._matches(words):
            start, end = int(spans[first, 0]), int(spans[last - 1, 1])
            piece = text[start:end] if choice is None else _cased(choice, words[first:last])
            if short_code(self.target) in UNSPACED and choice is not None:
                piece = piece.replace(" ", "")
            gap = text[end_before:start]
            new += self._gap(gap, new, piece) + piece
            places.append((len(new) - len(piece), len(new)))
            origin.append((first, last))
            end_before = end
        new += text[end_before:]
        shape = (-1, 2)
        return Gloss(new, np.array(places, np.int32).reshape(shape), np.array(origin, np.int32).reshape(shape))

    def _matches(self, words: Sequence[str]) -> list[tuple[int, int, str | None]]:
        """Return (first, last + 1, translation or `None`) over all words, the longest entry at each place."""
        lower = [word.lower() for word in words]
        found: list[tuple[int, int, str | None]] = []
        place = 0
        while place < len(words):
            for size in range(min(self.longest, len(words) - place), 0, -1):
                choices = self._choices(lower[place : place + size])
                if choices:
                    break
            found.append((place, place + size, choices[0] if choices else None))
            place += size
        return found

    def _choices(self, words: Sequence[str]) -> Sequence[str]:
        # Entries of unspaced languages are written together.
        found = self.entries.get(("" if short_code(self.source) in UNSPACED else " ").join(words), ())
        if not found and len(words) == 1 and short_code(self.source) == "en":
            return translations(words[0], self.entries)  # tries the base form
        return found

    def _gap(self, gap: str, before: str, piece: str) -> str:
        """Return what stands between two words: spaces go, or come, with the target's writing."""
        if short_code(self.target) in UNSPACED:
            latin = before[-1:].isascii() and piece[:1].isascii()
            return gap if latin or gap.strip() else ""
        if not gap and short_code(self.source) in UNSPACED and before and before[-1].isalnum() and piece[0].isalnum():
            return " "
        return gap


def _cased(choice: str, words: Sequence[str]) -> str:
    """Write a translation as its words were written: capitals for capitals, a capital for a capital."""
    text = "".join(words)
    if text.isupper() and len(text) > 1:
        return choice.upper()
    return choice[0].upper() + choice[1:] if text[0].isupper() else choice
