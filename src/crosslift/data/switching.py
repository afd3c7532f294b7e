"""Words of two languages tied together by a lexicon: code-switched sentences and links inside real pairs.

Both give *links*: this English word, as characters of the English text, is that word of the other text. They
carry what is known about an English word (a teacher's vector, its place in the sentence) to other languages.
"""

from __future__ import annotations

import functools
import re
import sys
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from crosslift.data.files import read_lines
from crosslift.errors import BadFile

Lexicon = Mapping[str, Sequence[str]]
"""English entry in lower case -> its translations, the best first."""

UNSPACED = ("zh", "ja", "th")
"""Languages written without spaces: a translation is looked for anywhere in the text."""

# Dictionaries translate these by their rarest senses ("in" as inches); they carry no meaning to align either.
_FUNCTION_WORDS = frozenset(
    """a an the and or but if of in on at to for from by with as is are was were be been am do does did have has had
    will would can could shall should may might must not no so than that this these those it its i you he she we they
    me him her us them my your his our their what which who whom there here then when where how why all any some
    up out off over into about just only very too also s t re ve ll d m""".split()  # noqa: SIM905  readable so
)
_ENGLISH_WORD = re.compile(r"[^\W_]+(?:['’][^\W_]+)*")
_ENDINGS = (("ies", "y"), ("es", ""), ("s", ""), ("ing", ""), ("ing", "e"), ("ed", ""), ("ed", "e"), ("d", ""))


class Link(NamedTuple):
    """One English word and its counterpart.

    Attributes:
        word: Its number among the English words of the sentence, from 0.
        left: Its characters in the English text: start and end.
        right: The counterpart's characters in the other text: start and end.
    """

    word: int
    left: tuple[int, int]
    right: tuple[int, int]


def read_lexicon(path: Path) -> dict[str, list[str]]:
    """Read a lexicon file: `english TAB word` a line; several lines with one English entry are its choices."""
    lexicon: dict[str, list[str]] = {}
    for number, line in enumerate(read_lines(path), start=1):
        parts = line.split("\t")
        if len(parts) != 2 or not all(part.strip() for part in parts):
            raise BadFile(path, number, "is not `english TAB word`.", "Each line holds one English entry and one word.")
        lexicon.setdefault(parts[0].strip().lower(), []).append(parts[1].strip())
    return lexicon


def english_words(text: str) -> list[tuple[int, int]]:
    """Return the words of an English text as character spans; a word keeps its apostrophe."""
    return [match.span() for match in _ENGLISH_WORD.finditer(text)]


@functools.cache
def _marks() -> str:
    """Return all punctuation characters, for a character class."""
    points = range(sys.maxunicode + 1)
    return "".join(re.escape(chr(c)) for c in points if unicodedata.category(chr(c)).startswith("P"))


@functools.cache
def _loose_marks() -> re.Pattern[str]:
    marks = _marks()
    return re.compile(rf"(?<!\S)[{marks}]+|[{marks}]+(?!\S)")


def plain(text: str) -> str:
    """Return the text as it is spoken to a machine: lower case, no marks around words.

    Marks inside a word ("it's", "3.5") stay, so the words keep their number and order.
    """
    return " ".join(_loose_marks().sub(" ", text).lower().split())


def translations(word: str, lexicon: Lexicon) -> Sequence[str]:
    """Return the lexicon's words for an English word, trying its base form where it is inflected."""
    lower = word.lower()
    if lower in _FUNCTION_WORDS or (len(lower) < 2 and not lower.isdigit()):
        return ()
    found = lexicon.get(lower)
    if found:
        return found
    for ending, instead in _ENDINGS:
        if lower.endswith(ending) and len(lower) - len(ending) >= 3:
            found = lexicon.get(lower[: -len(ending)] + instead)
            if found:
                return found
    return ()


def switch(text: str, lexicon: Lexicon, rate: float, rng: np.random.Generator) -> tuple[str, list[Link]]:
    """Replace English words by dictionary translations, each with probability `rate`.

    Args:
        text: An English sentence.
        lexicon: English -> words of the other language.
        rate: Share of the translatable words that are replaced.
        rng: Draws the words, and one of their translations (the first is the likeliest).

    Returns:
        The mixed sentence, and a link for each replaced word.
    """
    pieces: list[str] = []
    links: list[Link] = []
    done = length = 0
    for number, (start, end) in enumerate(english_words(text)):
        choices = translations(text[start:end], lexicon)
        if not choices or rng.random() >= rate:
            continue
        word = choices[min(int(rng.geometric(0.6)), len(choices)) - 1]
        before = text[done:start]
        pieces += [before, word]
        length += len(before)
        links.append(Link(number, (start, end), (length, length + len(word))))
        length += len(word)
        done = end
    pieces.append(text[done:])
    return "".join(pieces), links


def link(english: str, other: str, lexicon: Lexicon, spaced: bool) -> list[Link]:
    """Link the words of a real pair that a lexicon, or their own spelling, ties together beyond doubt.

    A link needs one candidate only: the English word occurs once, and one place in the other text fits. A word
    fits a translation if they are equal or share a stem (all but two letters, at least four).

    Args:
        english: The English sentence.
        other: Its translation.
        lexicon: English -> words of the other language; names and numbers are tied by equal spelling without it.
        spaced: Whether the other language puts spaces between words.
    """
    spans = english_words(english)
    words = [english[start:end].lower() for start, end in spans]
    places = _Places(other.lower(), spaced)
    links = []
    for number, (span, word) in enumerate(zip(spans, words, strict=True)):
        if words.count(word) > 1:
            continue
        found = places.of(word, exact=True) if word not in _FUNCTION_WORDS else []
        for choice in () if found else translations(word, lexicon):
            found += places.of(choice.lower(), exact=False)
        if len(set(found)) == 1:
            links.append(Link(number, span, found[0]))
    return links


class _Places:
    """Where words stand in one text."""

    def __init__(self, text: str, spaced: bool) -> None:
        self.text, self.spaced = text, spaced
        self.exact: dict[str, list[tuple[int, int]]] = {}
        self.stems: dict[str, list[tuple[int, int]]] = {}
        for start, end in _spans(text) if spaced else ():
            self.exact.setdefault(text[start:end], []).append((start, end))
            if end - start >= 4:
                self.stems.setdefault(text[start : start + 4], []).append((start, end))

    def of(self, word: str, *, exact: bool) -> list[tuple[int, int]]:
        """Return the places that fit a word of this language."""
        if not self.spaced or " " in word:
            if len(word) < 2 or self.text.count(word) != 1:
                return []
            start = self.text.index(word)
            return [(start, start + len(word))]
        found = self.exact.get(word, [])
        if found or exact:
            return list(found) if len(word) > 1 or word.isdigit() else []
        stem = word[: max(4, len(word) - 2)]
        near = self.stems.get(word[:4], []) if len(word) >= 4 else []
        return [(s, e) for s, e in near if self.text.startswith(stem, s) and e - s <= len(word) + 4]


def _spans(text: str) -> Iterator[tuple[int, int]]:
    """Yield the words between spaces, without the marks around them."""
    marks = _mark_set()
    for match in re.finditer(r"\S+", text):
        start, end = match.span()
        while start < end and text[start] in marks:
            start += 1
        while end > start and text[end - 1] in marks:
            end -= 1
        if end > start:
            yield start, end


@functools.cache
def _mark_set() -> frozenset[str]:
    return frozenset(chr(c) for c in range(sys.maxunicode + 1) if unicodedata.category(chr(c)).startswith("P"))
