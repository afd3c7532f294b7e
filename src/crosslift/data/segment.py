"""Text cut into words, as character spans.

Chinese, Japanese and Thai are written without spaces and need a dictionary: the extra `segment`. All other
languages are cut at white space, and punctuation is split off; this needs nothing. Whatever the segmenter
does, every character that is not white space is in exactly one word, and the words are in reading order.
"""

from __future__ import annotations

import logging
import unicodedata
import warnings
from collections.abc import Callable, Sequence
from functools import cache

import numpy as np
from numpy.typing import NDArray

from crosslift.data.examples import Spans
from crosslift.errors import MissingExtra

# What a character is, for cutting.
_WORD, _DIGIT, _SPACE, _CUT, _JOIN, _JOIN_DIGITS = range(6)
# Punctuation that holds a word together where it stands between two letters or digits: don't, example.com.
_JOINERS = "'’·._"
# Between digits only: 1,000 and 10:30.
_DIGIT_JOINERS = ",:"
# Python's `string.punctuation` that Unicode calls symbols.
_ASCII_SYMBOLS = "$+<=>^`|~"

_ALIASES = {"zho": "zh", "cmn": "zh", "jpn": "ja", "tha": "th"}
_NAMES = {"zh": "jieba", "ja": "mecab-ipadic", "th": "newmm"}


def segmenter_name(language: str) -> str:
    """Return the name of the segmenter used for a language, to be stated beside results."""
    return _NAMES.get(_base(language), "whitespace-punctuation")


def has_spaces(language: str) -> bool:
    """Say whether a language puts spaces between its words."""
    return _base(language) not in _NAMES


def segment(text: str, language: str) -> Spans:
    """Return the words of a text as character spans: (words, 2).

    Args:
        text: Natural text.
        language: Language code; a region or script (`zh-TW`, `jpn_Jpan`) changes nothing.

    Raises:
        MissingExtra: The language needs a segmenter that is not installed.
    """
    return segment_all([text], language)[0]


def segment_all(texts: Sequence[str], language: str) -> list[Spans]:
    """Return the words of many texts in one language, as `segment` does for one."""
    cutter = _CUTTERS.get(_base(language))
    if not texts:
        return []
    # One array of characters for all texts; the space after each text keeps words from crossing it.
    codes = np.frombuffer(" ".join([*texts, ""]).encode("utf-32-le", "surrogatepass"), dtype=np.uint32)
    kinds = _character_kinds()[codes]
    lengths = np.array([len(text) for text in texts], dtype=np.int64)
    starts = np.cumsum(lengths + 1) - (lengths + 1)
    if cutter is None:
        cuts = _punctuation_cuts(kinds)
    else:
        pieces = cutter()
        cuts = np.zeros(len(kinds), dtype=bool)
        for start, text in zip(starts.tolist(), texts, strict=True):
            cuts[_boundaries(text, pieces(text)) + start] = True
    in_word = kinds != _SPACE
    before = np.append(False, in_word[:-1])
    after = np.append(in_word[1:], False)
    begins = np.flatnonzero(in_word & (~before | cuts))
    ends = np.flatnonzero(in_word & (~after | np.append(cuts[1:], True))) + 1
    spans = np.stack([begins, ends], axis=1)
    bounds = np.searchsorted(begins, starts)
    parts = np.split(spans, bounds[1:])
    return [(part - start).astype(np.int32) for part, start in zip(parts, starts, strict=True)]


def _base(language: str) -> str:
    base = language.replace("_", "-").split("-")[0].lower()
    return _ALIASES.get(base, base)


@cache
def _character_kinds() -> NDArray[np.uint8]:
    """Return the kind of every Unicode character, by its code."""
    kinds = np.full(0x110000, _WORD, dtype=np.uint8)
    for code in range(0x110000):
        character = chr(code)
        category = unicodedata.category(character)
        if character.isspace():
            kinds[code] = _SPACE
        elif category[0] == "P" or character in _ASCII_SYMBOLS:
            kinds[code] = _CUT
        elif category == "Nd":
            kinds[code] = _DIGIT
    kinds[[ord(character) for character in _JOINERS]] = _JOIN
    kinds[[ord(character) for character in _DIGIT_JOINERS]] = _JOIN_DIGITS
    return kinds


def _punctuation_cuts(kinds: NDArray[np.uint8]) -> NDArray[np.bool_]:
    """Return where a word must begin: before and after each mark that does not join its neighbours."""
    letter = kinds <= _DIGIT
    digit = kinds == _DIGIT
    before = np.append(False, letter[:-1]) & np.append(letter[1:], False)
    between_digits = np.append(False, digit[:-1]) & np.append(digit[1:], False)
    joins = ((kinds == _JOIN) & before) | ((kinds == _JOIN_DIGITS) & between_digits)
    alone = (kinds >= _CUT) & ~joins
    return np.asarray(alone | np.append(False, alone[:-1]))


def _boundaries(text: str, pieces: Sequence[str]) -> NDArray[np.int64]:
    """Return where the pieces begin and end in the text; what a segmenter left out is passed over."""
    places = []
    position = 0
    for piece in pieces:
        found = text.find(piece, position)
        if found >= 0:
            position = found + len(piece)
            places += [found, position]
    return np.array(places, dtype=np.int64)


@cache
def _jieba() -> Callable[[str], list[str]]:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # jieba's own old idioms; nothing a user can mend
            import jieba
    except ImportError:
        raise MissingExtra("jieba, which cuts Chinese into words,", "segment") from None
    jieba.setLogLevel(logging.WARNING)
    cut: Callable[[str], list[str]] = jieba.lcut
    return cut


@cache
def _mecab() -> Callable[[str], list[str]]:
    try:
        import fugashi
        import ipadic
    except ImportError:
        raise MissingExtra("fugashi with ipadic, which cuts Japanese into words,", "segment") from None
    tagger = fugashi.GenericTagger(ipadic.MECAB_ARGS)
    # MeCab takes a null character for the end of the text.
    return lambda text: [word.surface for part in text.split("\0") for word in tagger(part)]


@cache
def _newmm() -> Callable[[str], list[str]]:
    try:
        from pythainlp.tokenize import word_tokenize
    except ImportError:
        raise MissingExtra("pythainlp, which cuts Thai into words,", "segment") from None
    return lambda text: list(word_tokenize(text, engine="newmm"))


_CUTTERS = {"zh": _jieba, "ja": _mecab, "th": _newmm}
