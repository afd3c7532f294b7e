"""Slots written inside the sentence, as MASSIVE does: `wake me up at [time : five am]`.

A slot becomes a character span of the plain sentence, and then one tag per word. Words are what stands
between white space; in Chinese and Japanese each Han or kana character is a word of its own (a run of
anything else, such as Latin letters, is one). Thai keeps the white-space runs: its sentences have spaces
at phrases, and MASSIVE has them around every slot. The cut never looks at the slots, so words tell a
model nothing about the answer; a slot that begins or ends inside a word therefore has no tags.
"""

from __future__ import annotations

import re
from typing import NamedTuple

import numpy as np

from crosslift.data.examples import Spans

_BRACKETED = re.compile(r"\[([^\[\]]*)\]")
_CJK = r"\u2e80-\u30ff\u3100-\u312f\u31f0-\u9fff\uf900-\ufaff\uff00-\uffef\U00020000-\U0003ffff"
_WORD = re.compile(r"\S+")
_CJK_WORD = re.compile(rf"[{_CJK}]|[^\s{_CJK}]+")


class Slot(NamedTuple):
    """A named part of a sentence: characters `start` to `end`."""

    name: str
    start: int
    end: int


class Malformed(ValueError):
    """Brackets that cannot be read; the text says why."""


def parse_slots(annotated: str) -> tuple[str, list[Slot]]:
    """Take the brackets out of a sentence.

    Returns:
        The plain sentence, and its slots in order.

    Raises:
        Malformed: A bracket without partner, nested, or not of the form `[name : words]`.
    """
    pieces: list[str] = []
    slots: list[Slot] = []
    length = after = 0
    for match in _BRACKETED.finditer(annotated):
        before = annotated[after : match.start()]
        name, colon, words = (part.strip() for part in match[1].partition(":"))
        if not (name and colon and words):
            raise Malformed(f'malformed slot "{match[0]}": it is written [name : words].')
        start = length + len(before)
        length = start + len(words)
        slots.append(Slot(name, start, length))
        pieces += (before, words)
        after = match.end()
    pieces.append(annotated[after:])
    outside = "".join(pieces[::2])
    if "[" in outside or "]" in outside:
        raise Malformed(f'malformed brackets in "{annotated}".')
    return "".join(pieces), slots


def move_slots(slots: list[Slot], source: str, target: str) -> list[Slot]:
    """Carry slots over to the same sentence with other white space.

    Raises:
        Malformed: The sentences differ in more than white space.
    """
    if source == target:
        return slots
    here = [i for i, char in enumerate(source) if not char.isspace()]
    there = [i for i, char in enumerate(target) if not char.isspace()]
    if [source[i] for i in here] != [target[i] for i in there]:
        raise Malformed(f'the annotated sentence reads "{source}", the plain one "{target}".')
    place = dict(zip(here, there, strict=True))
    return [Slot(slot.name, place[slot.start], place[slot.end - 1] + 1) for slot in slots]


def word_spans(text: str, language: str) -> Spans:
    """Return the words of a text as character spans: (words, 2)."""
    pattern = _CJK_WORD if language.split("-")[0] in ("zh", "ja") else _WORD
    spans = [match.span() for match in pattern.finditer(text)]
    return np.array(spans, dtype=np.int32).reshape(-1, 2)


def slot_tags(spans: Spans, slots: list[Slot]) -> list[str] | None:
    """Return one tag per word, or `None` if a slot begins or ends inside a word."""
    starts = {start: i for i, start in enumerate(spans[:, 0].tolist())}
    ends = {end: i for i, end in enumerate(spans[:, 1].tolist())}
    tags = ["O"] * len(spans)
    for name, start, end in slots:
        if start not in starts or end not in ends:
            return None
        first, last = starts[start], ends[end]
        tags[first : last + 1] = [f"B-{name}"] + [f"I-{name}"] * (last - first)
    return tags
