"""Which sentence pairs are worth keeping: lengths, ratio, copies, wrong scripts, repetitions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache

import numpy as np
from numpy.typing import NDArray

from crosslift.data.examples import Examples
from crosslift.data.scripts import SCRIPTS, script_of, wrong_script
from crosslift.errors import BadFile, BadInput

_UNSPACED = ("zh", "ja", "th", "lo", "km", "my")
_CHARACTERS_PER_WORD = 2
_SLACK = 3
_FEW = 20


@dataclass(frozen=True)
class BitextFilter:
    """What a sentence pair must be like; a length is in words, or in pairs of characters where none are spaced."""

    min_words: int = field(default=1, metadata={"help": "Words of the shorter side, at least."})
    max_words: int = field(default=80, metadata={"help": "Words of the longer side, at most; 0 = any number."})
    ratio: float = field(
        default=3.0,
        metadata={"help": "The longer side has at most so many times the words of the other, plus 3; 0 = any."},
    )
    script: float = field(
        default=0.5, metadata={"help": "Share of letters in the script of the language, at least; 0 = any."}
    )
    copies: bool = field(default=False, metadata={"help": "Keep pairs whose two sides are the same text."})
    duplicates: bool = field(default=False, metadata={"help": "Keep pairs that came before."})

    def __post_init__(self) -> None:
        if self.max_words and self.max_words < self.min_words:
            raise BadInput(f"--max-words {self.max_words} is below --min-words {self.min_words}.")
        if self.min_words < 0:
            raise BadInput(f"--min-words must not be below 0, not {self.min_words}.")
        if self.ratio != 0 and not self.ratio >= 1:
            raise BadInput(f"--ratio is at least 1, or 0 for any, not {self.ratio:g}.")
        if not 0 <= self.script <= 1:
            raise BadInput(f"--script is a share from 0 to 1, not {self.script:g}.")


def dropped_pairs(bitext: Examples, wanted: BitextFilter | None = None) -> dict[str, NDArray[np.int64]]:
    """Return, by reason, the rows that a filter drops; a row has the first reason that applies.

    Args:
        bitext: Sentence pairs.
        wanted: What to keep.
    """
    wanted = wanted or BitextFilter()
    if bitext.kind != "bitext" or bitext.pairs is None:
        raise BadInput(f"{bitext.name or 'The data'} holds no sentence pairs: it is a {bitext.kind} set.")
    languages = (bitext.language, bitext.pair_language or bitext.language)
    sides = (bitext.texts, bitext.pairs)
    words = np.stack([_words(side, code) for side, code in zip(sides, languages, strict=True)])
    plain = [[" ".join(text.casefold().split()) for text in side] for side in sides]
    shorter, longer = words.min(axis=0), words.max(axis=0)
    reasons: dict[str, NDArray[np.bool_]] = {
        f"shorter than {wanted.min_words} words": shorter < wanted.min_words,
        f"longer than {wanted.max_words} words": (longer > wanted.max_words) & bool(wanted.max_words),
        f"one side more than {wanted.ratio:g} times as long": (longer > wanted.ratio * shorter + _SLACK)
        & bool(wanted.ratio),
    }
    if not wanted.copies:
        reasons["both sides are the same"] = np.array([a == b for a, b in zip(*plain, strict=True)], dtype=bool)
    if wanted.script:
        for side, code in zip(sides, languages, strict=True):
            reasons[f"not in the script of {code}"] = script_shares(side, code) < wanted.script
    if not wanted.duplicates:
        first: dict[tuple[str, str], int] = {}
        seen = [first.setdefault(pair, row) != row for row, pair in enumerate(zip(*plain, strict=True))]
        reasons["came before"] = np.array(seen, dtype=bool)
    taken = np.zeros(len(bitext), dtype=bool)
    found = {}
    for reason, rows in reasons.items():
        new = np.flatnonzero(rows & ~taken)
        taken |= rows
        if len(new):
            found[reason] = new
    return found


def filter_bitext(bitext: Examples, wanted: BitextFilter | None = None) -> Examples:
    """Return the pairs worth keeping; what was dropped is counted in `skipped`, by reason."""
    return without_pairs(bitext, dropped_pairs(bitext, wanted))


def without_pairs(bitext: Examples, dropped: Mapping[str, NDArray[np.int64]]) -> Examples:
    """Return the pairs without some rows, which are counted by reason."""
    gone = np.zeros(len(bitext), dtype=bool)
    skipped = dict(bitext.skipped)
    for reason, rows in dropped.items():
        gone[rows] = True
        skipped[reason] = skipped.get(reason, 0) + len(rows)
    if gone.all() and len(bitext):
        reasons = ", ".join(f"{reason}: {len(rows):,}" for reason, rows in dropped.items())
        raise BadFile(bitext.name or "the bitext", None, f"no pair is left ({reasons}).")
    return replace(bitext.select(np.flatnonzero(~gone).tolist()), skipped=skipped)


def check_scripts(bitext: Examples) -> None:
    """Refuse pairs a side of which is, as a whole, not in the script of its language.

    Raises:
        BadFile: Names the first such line.
    """
    assert bitext.pairs is not None
    sides = ((bitext.texts, bitext.language), (bitext.pairs, bitext.pair_language or bitext.language))
    for (texts, language), (_, other) in zip(sides, reversed(sides), strict=True):
        odd = wrong_script(texts, language)
        shares = script_shares(texts, language)
        # In a few lines there may be no kana by chance.
        if odd is None or (len(texts) < _FEW and shares.mean() >= 0.5):
            continue
        row = int(np.argmin(shares))
        line = int(bitext.ids[row]) if bitext.ids[row].isdigit() else row + 1
        swapped = wrong_script(texts, other) is None and wrong_script(sides[0][0], sides[0][1]) is not None
        remedy = "Are the two sides swapped?" if swapped else "Is it the right file?"
        raise BadFile(bitext.name or "the bitext", line, f"this is not {language}: {odd} in the whole file.", remedy)


def script_shares(texts: Sequence[str], language: str) -> NDArray[np.float64]:
    """Return the share of each text's letters that are in the script of a language: (texts,).

    It is 1 for text without letters, and for languages whose script is not known.
    """
    code = _base(language)
    if code not in SCRIPTS or not texts:
        return np.ones(len(texts))
    codes = np.frombuffer("".join(texts).encode("utf-32-le", "surrogatepass"), dtype=np.uint32)
    text = np.repeat(np.arange(len(texts)), [len(text) for text in texts])
    kind = _letters(SCRIPTS[code])[codes]
    right, letters = (np.bincount(text[kind >= least], minlength=len(texts)) for least in (2, 1))
    return np.where(letters > 0, right / np.maximum(letters, 1), 1.0)


@cache
def _letters(scripts: tuple[str, ...]) -> NDArray[np.uint8]:
    """Return by character: 0 = no letter, 1 = a letter of another script, 2 = one of these scripts."""
    return np.array(
        [(1 + (script_of(letter) in scripts)) if letter.isalpha() else 0 for letter in map(chr, range(0x30000))]
        + [0] * (0x110000 - 0x30000),
        dtype=np.uint8,
    )


def _words(texts: Sequence[str], language: str) -> NDArray[np.int64]:
    """Return about how many words each text has: (texts,)."""
    if _base(language) in _UNSPACED:
        return np.array([-(-len("".join(text.split())) // _CHARACTERS_PER_WORD) for text in texts], dtype=np.int64)
    return np.array([len(text.split()) for text in texts], dtype=np.int64)


def _base(language: str) -> str:
    return language.lower().replace("_", "-").split("-")[0]
