"""From a table to examples: which column is what, and what its cells mean."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from crosslift.data.draft import UNKNOWN_LANGUAGE, Draft, Reading
from crosslift.data.examples import Answer, Examples, Kind, Label, Spans
from crosslift.data.slots import Malformed, move_slots, parse_slots, slot_tags, word_spans
from crosslift.data.table import NAMES, Table
from crosslift.errors import BadFile, BadInput, nearest

SPACELESS = ("zh", "ja", "th")
"""Languages written without spaces between words."""

# Without a header the order is the customary one: text, then label; or both texts, then label.
_BY_WIDTH = {1: ("text",), 2: ("text", "label"), 3: ("text", "pair", "label")}
_BY_WIDTH_UNLABELLED = _BY_WIDTH | {2: ("text", "pair")}


def table_examples(table: Table, reading: Reading) -> Examples:
    """Turn a table into examples of one language."""
    where = column_names(table, reading)
    kind = reading.kind or _kind(where)
    if missing := _missing(kind, where):
        raise BadFile(table.path, None, f"a {kind} table needs a column for {missing}.", _hint(table))
    rows, language = rows_of_language(table, where, reading.language)
    draft = Draft(table.path, kind, reading)
    cells = _Cells(table, where)
    for number, row in enumerate(rows, start=1):
        if draft.full:
            break
        line = table.lines[row]
        id_ = cells.text("id", row, line) if "id" in where else str(number)
        parallel = cells.text("parallel_id", row, line) if "parallel_id" in where else None
        group = cells.text("group", row, line) if "group" in where else None
        if kind == "tagging":
            content = cells.tagged(row, line, language)
            if content is None:
                draft.skip(line, "slot begins or ends inside a word")
                continue
        else:
            content = cells.plain(kind, row, line)
        draft.add(line, id_, content.text, content.pair, content.spans, content.label, parallel, group)
    found = draft.examples(language)
    if not table.named and not reading.columns and kind == "classification":
        _doubt(table, found)
    return found


def joined_words(words: Sequence[str], language: str) -> tuple[str, Spans]:
    """Write words as a text: with spaces between them, or without where the language has none."""
    gap = "" if language.split("-")[0] in SPACELESS else " "
    lengths = np.fromiter(map(len, words), dtype=np.int32, count=len(words))
    ends = np.cumsum(lengths + len(gap), dtype=np.int32) - len(gap)
    return gap.join(words), np.stack([ends - lengths, ends], axis=1).astype(np.int32)


class _Content(NamedTuple):
    text: str
    pair: str | None
    spans: Spans | None
    label: Label


class _Cells:
    """The cells of a table under our column names."""

    def __init__(self, table: Table, where: Mapping[str, str]) -> None:
        self.path = table.path
        self.values = {ours: table.columns[theirs] for ours, theirs in where.items()}
        self.theirs = where

    def text(self, ours: str, row: int, line: int) -> str:
        value = self.values[ours][row]
        if isinstance(value, str):
            return value
        if isinstance(value, int):
            return str(value)
        what = "is missing" if value is None else f"is not a text: {str(value)[:40]}"
        raise BadFile(self.path, line, f'"{self.theirs[ours]}" {what}.')

    def label(self, row: int, line: int) -> str | None:
        if "label" not in self.values or self.values["label"][row] in (None, ""):
            return None
        return self.text("label", row, line)

    def strings(self, ours: str, row: int, line: int) -> list[str]:
        value = self.values[ours][row]
        if isinstance(value, str):
            return value.split()
        if isinstance(value, list) and all(isinstance(item, str) for item in value):
            return value
        raise BadFile(self.path, line, f'"{self.theirs[ours]}" is not a list of texts.')

    def plain(self, kind: Kind, row: int, line: int) -> _Content:
        text = self.text("text", row, line)
        pair = self.text("pair", row, line) if "pair" in self.values and kind != "text" else None
        label: Label = None
        if kind == "qa" and "answers" in self.values:
            label = self.answers(row, line, pair or "")
        elif kind == "classification":
            label = self.label(row, line)
        return _Content(text, pair, None, label)

    def tagged(self, row: int, line: int, language: str) -> _Content | None:
        if "annotated" in self.values:
            return self._bracketed(row, line, language)
        words = self.strings("words", row, line)
        if "" in words:
            raise BadFile(self.path, line, f"word {words.index('') + 1} is empty.")
        tags = self.strings("tags", row, line) if "tags" in self.values else None
        if tags is not None and len(tags) != len(words):
            raise BadFile(self.path, line, f"{len(words)} words but {len(tags)} tags.")
        text, spans = joined_words(words, language)
        return _Content(text, None, spans, tags)

    def _bracketed(self, row: int, line: int, language: str) -> _Content | None:
        try:
            text, slots = parse_slots(self.text("annotated", row, line))
            if "text" in self.values:
                plain = self.text("text", row, line)
                text, slots = plain, move_slots(slots, text, plain)
        except Malformed as error:
            raise BadFile(self.path, line, str(error)) from None
        spans = word_spans(text, language)
        tags = slot_tags(spans, slots)
        return None if tags is None else _Content(text, None, spans, tags)

    def answers(self, row: int, line: int, context: str) -> list[Answer] | None:
        value = self.values["answers"][row]
        if value is None:
            return None
        texts = value.get("text") if isinstance(value, dict) else None
        starts = value.get("answer_start") if isinstance(value, dict) else None
        if not isinstance(texts, list) or not isinstance(starts, list) or len(texts) != len(starts):
            remedy = 'It is written {"text": […], "answer_start": […]}, both of one length.'
            raise BadFile(self.path, line, "the answers cannot be read.", remedy)
        found = zip(texts, starts, strict=True)
        return [checked_answer(str(self.path), line, context, text, start) for text, start in found]


def checked_answer(path: str, line: int | None, context: str, text: object, start: object, of: str = "") -> Answer:
    """Return a gold answer after checking that it stands where it says in its context."""
    if not isinstance(text, str) or not isinstance(start, int) or isinstance(start, bool) or not text:
        raise BadFile(path, line, f"{of}an answer needs a text and a whole number as answer_start.")
    if start < 0 or context[start : start + len(text)] != text:
        actual = context.find(text)
        where = f"it stands at character {actual}" if actual >= 0 else "it does not occur there"
        raise BadFile(
            path,
            line,
            f'{of}answer "{text[:60]}" does not stand at character {start} of its context; {where}.',
            "answer_start counts characters from 0, not bytes.",
        )
    return Answer(text, start)


def column_names(table: Table, reading: Reading) -> dict[str, str]:
    """Return our names of the columns -> the table's own."""
    given = {("pair" if ours == "text2" else ours): str(name) for ours, name in reading.columns.items()}
    for ours, name in given.items():
        if ours not in NAMES:
            raise BadInput(f'There is no column "{ours}" to name.{nearest(ours, NAMES)}', f"Ours: {', '.join(NAMES)}.")
        if name not in table.columns:
            seen = f'there is no column "{name}".{nearest(name, table.columns)}'
            raise BadFile(table.path, 1, seen, _hint(table))
    if not table.named and not given:
        width = len(table.columns)
        order = (_BY_WIDTH_UNLABELLED if reading.unlabelled else _BY_WIDTH).get(width)
        if reading.kind == "bitext" and width > 1:
            order = ("text", "pair")
        if order is None:
            raise BadFile(table.path, 1, f"{width} columns and no header that says what they are.", _hint(table))
        return {name: str(i + 1) for i, name in enumerate(order)}
    lowered = {name.casefold(): name for name in reversed(list(table.columns))}
    guessed = {ours: lowered[name] for ours, names in NAMES.items() for name in reversed(names) if name in lowered}
    taken = set(given.values())
    where = {ours: name for ours, name in guessed.items() if table.named and name not in taken} | given
    if not {"text", "words", "annotated"} & set(where):
        raise BadFile(table.path, 1, "no column for the text was found.", _hint(table))
    return where


def _kind(where: Mapping[str, str]) -> Kind:
    if "answers" in where:
        return "qa"
    if "label" not in where and ("tags" in where or "annotated" in where or "text" not in where):
        return "tagging"
    if where.get("text") in ("source", "src") and "pair" in where:
        return "bitext"
    return "classification" if "label" in where or "pair" in where else "text"


def _missing(kind: Kind, where: Mapping[str, str]) -> str:
    if kind == "tagging":
        return "" if {"words", "annotated"} & set(where) else "words"
    needed = ("text", "pair") if kind in ("qa", "bitext") else ("text",)
    return next((name for name in needed if name not in where), "")


def _hint(table: Table) -> str:
    found = ", ".join(table.columns) if table.named else f"numbers 1 to {len(table.columns)}"
    return f"Name them with --columns text=…,label=…; the file has {found}."


def rows_of_language(table: Table, where: Mapping[str, str], language: str | None) -> tuple[Sequence[int], str]:
    """Return the rows of the language asked for, and the code to call it by."""
    everything = range(len(table))
    if "language" not in where:
        return everything, language or UNKNOWN_LANGUAGE
    codes = [str(code) for code in table.columns[where["language"]]]
    found = list(dict.fromkeys(codes))
    if language is None:
        if len(found) > 1:
            seen = f"holds {len(found)} languages: {', '.join(found)}."
            raise BadFile(table.path, None, seen, "Say which one with --language.")
        return everything, found[0]
    wanted = {code for code in found if code == language} or {
        code for code in found if code.replace("_", "-").split("-")[0] == language
    }
    if not wanted:
        seen = f'no row is in "{language}"; the languages are {", ".join(found)}.{nearest(language, found)}'
        raise BadFile(table.path, None, seen)
    return [row for row, code in enumerate(codes) if code in wanted], language


def _doubt(table: Table, found: Examples) -> None:
    names = len(found.label_names())
    if len(found) >= 20 and names > len(found) / 2:
        seen = f"column {len(table.columns)} was taken for the label, but has {names} different values."
        raise BadFile(table.path, None, seen, "Name the columns with --columns text=1,pair=2 or the like.")
