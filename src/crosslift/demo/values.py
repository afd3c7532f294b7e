"""The language files of the embedded corpus: phrasings with slots, and the values that fill them.

A language file (`corpus/<language>.toml`) holds ten phrasings per intent and a list of values per slot.
Phrasing i and value i mean the same in every file, so everything made from them is parallel. A value may
come in several forms (`{city.in}`, `{person.dat}`), because most languages inflect what fills a slot.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import NamedTuple

from crosslift.errors import BadFile, BadInput, nearest

LANGUAGES = ("en", "de", "es", "fr", "pt", "ru", "tr", "ar", "hi", "zh", "ja", "sw", "th", "el")
"""Languages of the corpus; English is the reference for order and slots."""

SPLITS = ("train", "dev", "test")

PHRASINGS = (6, 2, 2)
"""Phrasings of each intent in train, dev and test, in file order."""

VALUES = {"person": (12, 5, 7), "item": (8, 4, 4)}
"""Values of a slot in train, dev and test, in file order, where they are not `USUAL_VALUES`."""

USUAL_VALUES = (7, 3, 4)

BASE = "base"
_SLOT = re.compile(r"\{([A-Za-z]+)(\d?)(?:\.(\w+))?\}")


class Slot(NamedTuple):
    """A place in a phrasing: which slot, which of several (`item2`), in which form."""

    name: str
    number: str
    form: str
    capital: bool

    @property
    def key(self) -> str:
        """Return the name that is the same in every language: `item`, `item2`."""
        return self.name + self.number


Phrasing = tuple[str | Slot, ...]
"""Literal text and slots, in the order of the language."""


@dataclass(frozen=True)
class Language:
    """One language file.

    Attributes:
        code: Language code.
        script: Name of the script as in Unicode character names, e.g. `CYRILLIC`.
        joined: Words are written together: a space in the file is only a word boundary.
        phrasings: Intent -> its phrasings.
        values: Slot -> form -> surface forms, parallel across forms and languages.
    """

    code: str
    script: str
    joined: bool
    phrasings: Mapping[str, tuple[Phrasing, ...]]
    values: Mapping[str, Mapping[str, tuple[str, ...]]]


def part(sizes: tuple[int, int, int], split: str) -> range:
    """Return the positions of a list that belong to a split."""
    where = SPLITS.index(split)
    return range(sum(sizes[:where]), sum(sizes[: where + 1]))


def value_positions(slot: str, split: str) -> range:
    """Return which values of a slot belong to a split."""
    return part(VALUES.get(slot, USUAL_VALUES), split)


def phrasing_positions(split: str) -> range:
    """Return which phrasings of an intent belong to a split."""
    return part(PHRASINGS, split)


def slot_keys(phrasing: Phrasing) -> tuple[str, ...]:
    """Return the slots of a phrasing, sorted: the same in every language."""
    return tuple(sorted(piece.key for piece in phrasing if isinstance(piece, Slot)))


def parse_phrasing(text: str) -> Phrasing:
    """Cut a phrasing of a language file into literal text and slots."""
    pieces: list[str | Slot] = []
    end = 0
    for match in _SLOT.finditer(text):
        name, number, form = match.groups()
        pieces += [text[end : match.start()], Slot(name.lower(), number, form or BASE, name[0].isupper())]
        end = match.end()
    pieces.append(text[end:])
    return tuple(piece for piece in pieces if piece != "")


def check_split(split: str) -> str:
    """Return the split if it exists; say what exists if it does not."""
    if split not in SPLITS:
        raise BadInput(
            f'No split "{split}" in the embedded corpus.{nearest(split, SPLITS)}', "Choose train, dev or test."
        )
    return split


@cache
def read_language(code: str) -> Language:
    """Read and check the file of one language."""
    if code not in LANGUAGES:
        raise BadInput(
            f'The embedded corpus has no language "{code}".{nearest(code, LANGUAGES)}',
            f"It has {', '.join(LANGUAGES)}.",
        )
    path = f"corpus/{code}.toml"
    raw = tomllib.loads(files("crosslift.demo").joinpath(path).read_text(encoding="utf-8"))
    language = Language(
        code=raw["language"],
        script=raw["script"],
        joined=raw.get("joined", False),
        phrasings={intent: tuple(parse_phrasing(text) for text in texts) for intent, texts in raw["templates"].items()},
        values={
            slot: {form: tuple(listed) for form, listed in forms.items()}
            if isinstance(forms, dict)
            else {BASE: tuple(forms)}
            for slot, forms in raw["values"].items()
        },
    )
    check_language(language, language if code == "en" else read_language("en"), path)
    return language


def check_language(language: Language, reference: Language, path: str) -> None:
    """Compare a language file with the reference, so that "parallel" is true by construction."""
    if list(language.phrasings) != list(reference.phrasings):
        raise BadFile(path, None, f"intents are {list(language.phrasings)}, expected {list(reference.phrasings)}.")
    if set(language.values) != set(reference.values):
        difference = sorted(set(language.values) ^ set(reference.values))
        raise BadFile(path, None, f"slots differ from English: {', '.join(difference)}.")
    for slot, forms in language.values.items():
        for form, listed in forms.items():
            expected = sum(VALUES.get(slot, USUAL_VALUES))
            if len(listed) != expected:
                raise BadFile(path, None, f"{slot}.{form} has {len(listed)} values, expected {expected}.")
    for intent, phrasings in language.phrasings.items():
        if len(phrasings) != sum(PHRASINGS):
            raise BadFile(path, None, f"{intent} has {len(phrasings)} phrasings, expected {sum(PHRASINGS)}.")
        for i, (ours, theirs) in enumerate(zip(phrasings, reference.phrasings[intent], strict=True), start=1):
            if slot_keys(ours) != slot_keys(theirs):
                raise BadFile(path, None, f"{intent}.{i} has slots {slot_keys(ours)}, expected {slot_keys(theirs)}.")
            for piece in ours:
                if isinstance(piece, Slot) and piece.form not in language.values[piece.name]:
                    raise BadFile(path, None, f"{intent}.{i} wants {piece.name}.{piece.form}, which is not listed.")
