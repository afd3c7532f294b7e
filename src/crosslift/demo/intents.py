"""Intent and slot examples, made from the phrasings and values of the language files."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from functools import cache
from itertools import product
from typing import NamedTuple

import numpy as np

from crosslift.data.examples import Examples, Spans
from crosslift.demo.values import (
    Language,
    Phrasing,
    Slot,
    check_split,
    phrasing_positions,
    read_language,
    slot_keys,
    value_positions,
)

PER_PHRASING = {"train": 24, "dev": 10, "test": 16}
"""Examples made from one phrasing, at most."""

FINGERPRINT = "3bfa25cce084ef3306cf6ae7a4065996881b1bca3af9826c8bb62c284ff9179e"
"""SHA-256 of everything generated with seed 0; a test makes it again."""

BOUNDARY = "|"
"""A word boundary where no space is written (French `l'|eau`); not part of the text."""

SPACE = "_"
"""A written space in a language file whose spaces are only word boundaries."""

_MARKS = '!?…"“”„«»()¿¡。，！？；：、「」『』《》،؟؛।'
_EDGE_MARKS = ".,;:"  # punctuation at the end of a word, part of it inside: 6:30, 22.5
_CHUNK = re.compile(rf"[{_MARKS}]|[^\s{BOUNDARY}{_MARKS}]+")
_CORE = re.compile(r"\[(.*)\]")


class Sentence(NamedTuple):
    """One sentence of the corpus: its text, words as character spans, one tag per word."""

    text: str
    spans: Spans
    tags: tuple[str, ...]


class Choice(NamedTuple):
    """A phrasing and the value of each of its slots; the same choice exists in every language."""

    intent: str
    phrasing: int
    values: tuple[tuple[str, int], ...]

    @property
    def template(self) -> str:
        """Return the id of the phrasing, counted from 1: `set_alarm.3`."""
        return f"{self.intent}.{self.phrasing + 1}"

    @property
    def id(self) -> str:
        """Return the parallel id: `set_alarm.3:date=1,time=4`."""
        return f"{self.template}:" + ",".join(f"{key}={value + 1}" for key, value in self.values)


def load_intents(language: str, split: str, seed: int = 0) -> Examples:
    """Return intent classification examples; labels are intents."""
    choices, sentences = _corpus(language, split, seed)
    return _examples("classification", "demo-intent", language, split, choices, sentences)


def load_slots(language: str, split: str, seed: int = 0) -> Examples:
    """Return slot tagging examples; labels are BIO tags, one per word."""
    choices, sentences = _corpus(language, split, seed)
    return _examples("tagging", "demo-slots", language, split, choices, sentences)


def load_parallel(source: str, target: str, split: str, seed: int = 0) -> Examples:
    """Return the sentences of two languages as pairs, row by row translations of each other."""
    choices, sources = _corpus(source, split, seed)
    targets = _corpus(target, split, seed)[1]
    ids = [choice.id for choice in choices]
    return Examples(
        kind="bitext",
        language=source,
        ids=ids,
        texts=[sentence.text for sentence in sources],
        pairs=[sentence.text for sentence in targets],
        parallel_ids=ids,
        groups=[choice.template for choice in choices],
        pair_language=target,
        name=f"demo-intent/{source}-{target}/{split}",
    )


def fingerprint(languages: Sequence[str]) -> str:
    """Return the SHA-256 of all ids, texts, words and tags of the given languages, seed 0."""
    digest = hashlib.sha256()
    for language in languages:
        for split in PER_PHRASING:
            for choice, sentence in zip(*_corpus(language, split, 0), strict=True):
                words = " ".join(f"{start}-{end}" for start, end in sentence.spans.tolist())
                line = "\t".join((language, split, choice.id, sentence.text, words, " ".join(sentence.tags)))
                digest.update(f"{line}\n".encode())
    return digest.hexdigest()


def choose(split: str, seed: int) -> list[Choice]:
    """Draw the examples of a split: at most `PER_PHRASING` sets of values per phrasing.

    Drawn by the hash of the id, so the draw is the same on every platform and Python version. Sorted by
    a second hash, so that the first rows of a split are a fair sample of all intents.
    """
    drawn: list[Choice] = []
    for intent, phrasings in read_language("en").phrasings.items():
        for position in phrasing_positions(split):
            keys = slot_keys(phrasings[position])
            places = [value_positions(key.rstrip("0123456789"), split) for key in keys]
            options = [
                Choice(intent, position, tuple(zip(keys, values, strict=True)))
                for values in product(*places)
                if _distinct(keys, values)
            ]
            drawn += sorted(options, key=lambda option: _hash(f"draw {seed}", option))[: PER_PHRASING[split]]
    return sorted(drawn, key=lambda choice: _hash(f"order {seed}", choice))


def _distinct(keys: Sequence[str], values: Sequence[int]) -> bool:
    """Tell whether slots of the same kind (`item`, `item2`) have different values."""
    filled = [(key.rstrip("0123456789"), value) for key, value in zip(keys, values, strict=True)]
    return len(set(filled)) == len(filled)


def _hash(purpose: str, choice: Choice) -> bytes:
    return hashlib.blake2b(f"{purpose}\t{choice.id}".encode(), digest_size=16).digest()


@cache
def _corpus(language: str, split: str, seed: int) -> tuple[tuple[Choice, ...], tuple[Sentence, ...]]:
    read = read_language(language)
    choices = tuple(choose(check_split(split), seed))
    sentences = (fill(read, read.phrasings[c.intent][c.phrasing], dict(c.values)) for c in choices)
    return choices, tuple(sentences)


def _examples(
    kind: str,
    name: str,
    language: str,
    split: str,
    choices: Sequence[Choice],
    sentences: Sequence[Sentence],
) -> Examples:
    tagging = kind == "tagging"
    ids = [choice.id for choice in choices]
    return Examples(
        kind="tagging" if tagging else "classification",
        language=language,
        ids=ids,
        texts=[sentence.text for sentence in sentences],
        spans=[sentence.spans for sentence in sentences] if tagging else None,
        labels=[s.tags for s in sentences] if tagging else [c.intent for c in choices],
        parallel_ids=ids,
        groups=[choice.template for choice in choices],
        name=f"{name}/{language}/{split}",
    )


def fill(language: Language, phrasing: Phrasing, values: dict[str, int]) -> Sentence:
    """Put values into a phrasing and cut the result into tagged words.

    Args:
        language: The language file the phrasing comes from.
        phrasing: Literal text and slots.
        values: Slot key -> position of its value.
    """
    marked = ""
    filled: list[tuple[int, int, str]] = []  # start and end in `marked`, slot name
    for piece in phrasing:
        if isinstance(piece, Slot):
            surface = language.values[piece.name][piece.form][values[piece.key]]
            if piece.capital:
                surface = capitalise(surface, language.code)
            core = _CORE.search(surface)
            before, inside, after = (
                (surface[: core.start()], core.group(1), surface[core.end() :]) if core else ("", surface, "")
            )
            start = len(marked) + len(before)
            filled.append((start, start + len(inside), piece.name))
            marked += before + inside + after
        else:
            marked += piece
    return _cut(marked, filled, language.joined)


def _cut(marked: str, filled: Sequence[tuple[int, int, str]], joined: bool) -> Sentence:
    """Cut marked-up text into words, tag them, and take the marks out."""
    unwritten = BOUNDARY + " " if joined else BOUNDARY
    shift = np.cumsum([character in unwritten for character in marked])  # marks up to and including here
    spans: list[tuple[int, int]] = []
    tags: list[str] = []
    previous: tuple[int, int, str] | None = None
    for start, end in _words(marked):
        owner = next((slot for slot in filled if start < slot[1] and end > slot[0]), None)
        tags.append("O" if owner is None else f"{'I' if owner is previous else 'B'}-{owner[2]}")
        previous = owner
        moved = int(shift[start])
        spans.append((start - moved, end - moved))
    text = "".join(character for character in marked if character not in unwritten)
    if joined:
        text = text.replace(SPACE, " ")
    return Sentence(text, np.array(spans, dtype=np.int32).reshape(-1, 2), tuple(tags))


def _words(marked: str) -> list[tuple[int, int]]:
    """Return the words of marked-up text: what stands between spaces and boundaries, punctuation split off."""
    words: list[tuple[int, int]] = []
    for match in _CHUNK.finditer(marked.replace(SPACE, " ")):
        start, end = match.span()
        if end - start > 1 and marked[end - 1] in _EDGE_MARKS and not _ordinal(marked, start, end):
            words += [(start, end - 1), (end - 1, end)]
        else:
            words.append((start, end))
    return words


def _ordinal(marked: str, start: int, end: int) -> bool:
    """Tell whether a final dot belongs to a number, as in German "3. März"."""
    return marked[end - 1] == "." and marked[start : end - 1].isdigit() and marked[end : end + 1] == " "


def capitalise(surface: str, language: str) -> str:
    """Write the first letter as a capital, past an opening bracket or mark; Turkish i becomes İ."""
    first = len(surface) - len(surface.lstrip("[¿"))
    letter = surface[first]
    capital = "İ" if language == "tr" and letter == "i" else letter.upper()
    return surface[:first] + capital + surface[first + 1 :]
