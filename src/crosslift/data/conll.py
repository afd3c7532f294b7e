"""CoNLL files: one word a line with its tag, an empty line after each sentence.

Comment lines before a sentence may carry `# key = value`: `# text` is the sentence as it was written,
`# intent` its class (as in xSID).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from crosslift.data.columns import joined_words
from crosslift.data.draft import TAG, UNKNOWN_LANGUAGE, Draft, Reading
from crosslift.data.examples import Examples, Spans
from crosslift.data.files import read_lines
from crosslift.errors import BadFile, BadInput, nearest

_META = re.compile(r"#\s*([^\s=:]+)\s*[=:]\s*(.*)")


@dataclass(frozen=True)
class Sentence:
    """One block of a CoNLL file.

    Attributes:
        meta: Key -> value of its comments.
        columns: Its columns, with one cell per word.
        lines: The line of each word.
    """

    meta: Mapping[str, str]
    columns: Sequence[Sequence[str]]
    lines: Sequence[int]


def read_sentences(path: Path) -> list[Sentence]:
    """Read the sentences of a CoNLL file; every word has the same number of columns."""
    lines = read_lines(path)
    tabs = any("\t" in line for line in lines)
    blank = [i for i, line in enumerate(lines) if not line or line.isspace()]
    sentences: list[Sentence] = []
    meta: dict[str, str] = {}
    width, first = 0, 0
    for start, end in zip([-1, *blank], [*blank, len(lines)], strict=True):
        numbers: Sequence[int] = range(start + 1, end)
        comments = [i for i in numbers if lines[i][0] == "#" and _is_comment(lines[i], tabs)]
        if comments:
            meta |= _meta([lines[i] for i in comments])
            numbers = sorted(set(numbers) - set(comments))
        if not numbers:  # comments of their own belong to the next sentence
            continue
        cells = [lines[i].split("\t") if tabs else lines[i].split() for i in numbers]
        if cells[0][0] != "-DOCSTART-":
            width, first = width or len(cells[0]), first or numbers[0] + 1
            if set(map(len, cells)) != {width}:
                at = next(i for i, row in enumerate(cells) if len(row) != width)
                count = f"{len(cells[at])} column{'' if len(cells[at]) == 1 else 's'}"
                raise BadFile(path, numbers[at] + 1, f"{count}, but line {first} has {width}.")
            # One range instead of a list of numbers: a training file has hundreds of thousands of words.
            whole = numbers[-1] - numbers[0] + 1 == len(numbers)
            places = range(numbers[0] + 1, numbers[-1] + 2) if whole else [i + 1 for i in numbers]
            sentences.append(Sentence(meta, list(zip(*cells, strict=True)), places))
        meta = {}
    if not sentences:
        raise BadFile(path, None, "has comments but no words.")
    return sentences


def read_conll(path: Path, reading: Reading) -> Examples:
    """Read tagged sentences, or with kind "classification" their intents."""
    return conll_examples(path, read_sentences(path), reading)


def conll_examples(
    path: Path,
    sentences: Sequence[Sentence],
    reading: Reading,
    ids: Sequence[str] | None = None,
    parallel_ids: Sequence[str] | None = None,
) -> Examples:
    """Turn CoNLL sentences into examples.

    Args:
        path: The file, for messages.
        sentences: What `read_sentences` found there.
        reading: What the caller asked for. `columns` may number the `words` and `tags` columns (from 1; the
            last is the tag, and the first the word unless it counts the words), or name the comment that
            holds the `label` ("intent") or the `id`.
        ids: Names of the sentences; without them they are numbered from 1.
        parallel_ids: Names that translations share.
    """
    kind = reading.kind or "tagging"
    if kind not in ("tagging", "classification", "text"):
        raise BadInput(f"{path} is a CoNLL file, which holds no {kind} examples.")
    language = reading.language or UNKNOWN_LANGUAGE
    word_column, tag_column = _columns(path, sentences[0], reading.columns)
    draft = Draft(path, kind, reading)
    for row, sentence in enumerate(sentences):
        if draft.full:
            break
        words = sentence.columns[word_column]
        tags = None if tag_column is None else sentence.columns[tag_column]
        lines = sentence.lines
        if not any(words):
            draft.skip(lines[0], "empty text")
            continue
        if not all(words):
            words, tags, lines = _without_empty(draft, words, tags, lines)
        text, spans = _text(sentence, words, language)
        id_ = ids[row] if ids else _id(path, sentence, row, reading.columns)
        parallel = parallel_ids[row] if parallel_ids else None
        if kind == "tagging":
            draft.add(sentence.lines[0], id_, text, None, spans, tags, parallel, tag_lines=lines)
        else:
            label = None if kind == "text" else _class(path, sentence, reading.columns)
            draft.add(sentence.lines[0], id_, text, None, None, label, parallel)
    return draft.examples(language)


def find_words(words: Sequence[str], text: str) -> Spans | None:
    """Return where the words stand in the text, each after the one before, or `None`."""
    spans, end = [], 0
    for word in words:
        start = text.find(word, end)
        if start < 0:
            return None
        end = start + len(word)
        spans.append((start, end))
    return np.array(spans, dtype=np.int32).reshape(-1, 2)


def _is_comment(line: str, tabs: bool) -> bool:
    # "#" can also be a word of the sentence; then its line ends in a tag.
    if tabs:
        return "\t" not in line or line[1] == " "
    cells = line.split()
    return bool(_META.match(line)) or (len(cells) > 1 and not TAG.fullmatch(cells[-1]))


def _meta(comments: list[str]) -> dict[str, str]:
    matches = map(_META.match, comments)
    return {match[1]: match[2].strip() for match in matches if match}


def _text(sentence: Sentence, words: Sequence[str], language: str) -> tuple[str, Spans]:
    text = sentence.meta.get("text", "")
    spans = find_words(words, text) if text else None
    return joined_words(words, language) if spans is None else (text, spans)


def _without_empty(
    draft: Draft, words: Sequence[str], tags: Sequence[str] | None, lines: Sequence[int]
) -> tuple[Sequence[str], Sequence[str] | None, Sequence[int]]:
    keep = [i for i, word in enumerate(words) if word]
    for i in sorted(set(range(len(words))) - set(keep)):
        if tags is not None and tags[i] != "O":
            raise BadFile(draft.path, lines[i], f'tag "{tags[i]}" but no word.')
        draft.skip(lines[i], "empty word")
    return [words[i] for i in keep], tags and [tags[i] for i in keep], [lines[i] for i in keep]


def _columns(path: Path, first: Sentence, columns: Mapping[str, str | int]) -> tuple[int, int | None]:
    width = len(first.columns)
    numbered = list(first.columns[0]) == [str(i + 1) for i in range(len(first.lines))]
    given = {name: _number(path, name, columns[name], width) for name in ("words", "tags") if name in columns}
    if unknown := set(columns) - {"words", "tags", "label", "id"}:
        name = sorted(unknown)[0]
        raise BadInput(f'A CoNLL file has no column "{name}" to name.{nearest(name, ["words", "tags", "label", "id"])}')
    words = given.get("words", 1 if width >= 3 and numbered else 0)
    return words, given.get("tags", width - 1 if width - 1 > words else None)


def _number(path: Path, name: str, value: str | int, width: int) -> int:
    if not str(value).isascii() or not str(value).isdigit() or not 1 <= int(value) <= width:
        raise BadInput(f"{path}: the {name} cannot be in column {value}; columns are numbered 1 to {width}.")
    return int(value) - 1


def _id(path: Path, sentence: Sentence, row: int, columns: Mapping[str, str | int]) -> str:
    return _comment(path, sentence, str(columns["id"])) if "id" in columns else str(row + 1)


def _class(path: Path, sentence: Sentence, columns: Mapping[str, str | int]) -> str | None:
    return _comment(path, sentence, str(columns["label"])) if "label" in columns else sentence.meta.get("intent")


def _comment(path: Path, sentence: Sentence, key: str) -> str:
    if key not in sentence.meta:
        seen = f'no comment "# {key} = …" before this sentence.{nearest(key, sentence.meta)}'
        raise BadFile(path, sentence.lines[0], seen)
    return sentence.meta[key]
