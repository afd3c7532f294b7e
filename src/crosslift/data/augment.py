"""Examples with words replaced by synonyms: labels, tags and answers follow the words.

Static copies are made here and written to a file; `tasks/augmented.py` draws them anew at every training step.
"""

from __future__ import annotations

import json
import unicodedata
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, cast

import numpy as np
from numpy.typing import NDArray

from crosslift.data.examples import Answer, Examples, Spans, concatenate
from crosslift.data.segment import has_spaces, segment_all
from crosslift.data.storage import write_text
from crosslift.data.synonyms import (
    Replaceable,
    Synonyms,
    neighbours,
    part_of,
    read_synonyms,
    replaceable,
    space_spans,
    uniform,
)
from crosslift.data.words import mark_ids
from crosslift.errors import BadInput, nearest

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

Rows = NDArray[np.int64]

NEIGHBOURS = "neighbours"
MOST_NEIGHBOURS = 20_000
"""Words of the data among which neighbours are looked for."""


@dataclass(frozen=True)
class SynonymSettings:
    """Where synonyms come from and how they are drawn."""

    synonyms: str = field(
        default=NEIGHBOURS,
        metadata={"help": "Synonym file (.json, .tsv), WordNet folder, or neighbours: the model's own embeddings."},
    )
    rate: float | None = field(
        default=None,
        metadata={"help": "Chance that a word is replaced (default: uniform over the word and its synonyms)."},
    )
    scale: float = field(default=1.0, metadata={"help": "Share of the dictionary that is used."})
    unprotected: bool = field(default=False, metadata={"help": "Replace negations and numbers too."})
    exact: bool = field(
        default=False, metadata={"help": "Words are cut at spaces and looked up as written, as in the released code."}
    )

    def __post_init__(self) -> None:
        if self.rate is not None and not 0 <= self.rate <= 1:
            raise BadInput(f"--rate is a chance: 0 ≤ rate ≤ 1, not {self.rate:g}.")
        if not 0 < self.scale <= 1:
            raise BadInput(f"--scale is a share of the dictionary: 0 < scale ≤ 1, not {self.scale:g}.")


class Source:
    """Examples, their words, and what each word may become.

    Attributes:
        examples: The examples as they are.
        spans: The words of their texts, for one or two columns of texts.
    """

    def __init__(self, settings: SynonymSettings, examples: Examples) -> None:
        self.settings, self.examples = settings, examples
        self.spans = _words(examples, settings.exact)
        self.columns: list[Replaceable] = []
        if settings.synonyms != NEIGHBOURS:
            if nearest(settings.synonyms, [NEIGHBOURS]) and not Path(settings.synonyms).exists():
                raise BadInput(f"{settings.synonyms}: there is no such file.{nearest(settings.synonyms, [NEIGHBOURS])}")
            self._look_up(read_synonyms(settings.synonyms))

    def look_among_neighbours(self, tokenizer: PreTrainedTokenizerBase, embeddings: NDArray[np.float32]) -> None:
        """Take synonyms from a model's embeddings, where no dictionary was given.

        Args:
            tokenizer: The model's tokenizer; only words that it keeps whole take part.
            embeddings: (vocabulary, width) the model's embedding matrix.
        """
        if self.columns:
            return
        words = _meaningful(self._texts(), self.spans)
        found: Synonyms = {}
        if words:
            whole = _kept_whole(words, tokenizer, spaced=has_spaces(self.examples.language))
            rows = np.array(list(whole), dtype=np.int64)[:MOST_NEIGHBOURS]
            found = neighbours(list(whole.values())[:MOST_NEIGHBOURS], embeddings[rows].astype(np.float32))
        self._look_up(found)

    def draw(self, which: Rows, seed: int, step: int | Rows) -> tuple[Examples, list[list[Spans]]]:
        """Return some examples with words replaced, and the words of each of their texts.

        Args:
            which: Which examples.
            seed: Another seed, other words.
            step: Another step, other words; one for all or one for each.
        """
        # Another column, another draw: else equal words of both texts would always change alike.
        drawn = [
            column.replace(which, self.settings.rate, 2 * seed + number, step)
            for number, column in enumerate(self.columns)
        ]
        old = self.examples.select(which.tolist())
        texts, spans = [part[0] for part in drawn], [part[1] for part in drawn]
        changes: dict[str, object] = {"texts": texts[0]}
        if old.pairs is not None:
            changes["pairs"] = texts[1]
        if old.kind == "tagging":
            changes["spans"] = spans[0]
        if old.kind == "qa" and old.labels is not None:
            changes["labels"] = [
                _moved(gold, self.spans[1][i], new) for gold, i, new in zip(old.labels, which, spans[1], strict=True)
            ]
        return replace(old, **changes), spans  # type: ignore[arg-type]

    def _texts(self) -> list[Sequence[str]]:
        pairs = self.examples.pairs
        return [self.examples.texts] if pairs is None else [self.examples.texts, pairs]

    def _look_up(self, synonyms: Synonyms) -> None:
        chosen = part_of(synonyms, self.settings.scale)
        options = {"protect": not self.settings.unprotected, "exact": self.settings.exact}
        keeps: list[list[list[tuple[int, int]]] | None] = [None, None]
        if self.examples.kind == "qa":
            # An answer is copied from the context as it stands.
            keeps[1] = [[(a.start, a.start + len(a.text)) for a in answers] for answers in self._answers()]
        self.columns = [
            replaceable(texts, spans, chosen, keep=keep, **options)
            for texts, spans, keep in zip(self._texts(), self.spans, keeps, strict=False)
        ]
        if not any(len(column.word) for column in self.columns):
            name = self.examples.name or "the data"
            if self.settings.synonyms == NEIGHBOURS:
                raise BadInput(
                    f"The tokenizer keeps too few words of {name} whole: none has neighbours among them.",
                    "Give a dictionary in the language of the data with --synonyms, or another model.",
                )
            share = f"the {self.settings.scale:g} of " if self.settings.scale < 1 else ""
            raise BadInput(
                f"No word of {name} has a synonym in {share}{self.settings.synonyms}.",
                "Give another file with --synonyms, in the language of the data"
                + (", or a larger --scale." if share else "."),
            )

    def note(self) -> str:
        """Say in a line how many of all running words have synonyms: few, where the language is not the data's."""
        words = sum(len(spans) for column in self.spans for spans in column)
        share = sum(len(column.word) for column in self.columns) / max(1, words)
        return f"synonyms  for {share:.1%} of the words, from {self.settings.synonyms}"

    def _answers(self) -> list[Sequence[Answer]]:
        labels = cast("Sequence[Sequence[Answer] | None] | None", self.examples.labels)
        return [gold or () for gold in labels or [None] * len(self.examples)]


def copy_numbers(which: Rows, seed: int, step: int, copies: int) -> Rows:
    """Say which of its stored copies each example is read as at a step: (which,), from 0 to copies − 1."""
    return (uniform(seed, step, which, np.zeros_like(which), 2) * copies).astype(np.int64)


def augmented_copies(source: Source, copies: int, seed: int, *, originals: bool = False) -> Examples:
    """Return `copies` versions of every example with words replaced; ids end in `-` and the number of the copy.

    All versions of an example share its parallel id (its id, where it has none). Where an original that stays has such
    an id already, all copies have one more `-`.

    Args:
        source: Examples with synonyms.
        copies: How many of each; a copy may by chance equal the original or another copy.
        seed: Another seed, other words.
        originals: Put the examples as they are before their copies.
    """
    if copies < 1:
        raise BadInput(f"--copies must be at least 1, not {copies}.")
    examples = source.examples
    rows = np.arange(len(examples))
    # A split must keep the copies of an example on one side.
    source_ids = examples.parallel_ids or examples.ids
    parts = [replace(examples, parallel_ids=source_ids)] if originals else []
    taken = set(examples.ids) if originals else set()
    mark = "-"
    while not taken.isdisjoint(f"{id_}{mark}{copy + 1}" for id_ in taken for copy in range(copies)):
        mark += "-"
    for copy in range(copies):
        drawn, _ = source.draw(rows, seed, copy)
        parts.append(replace(drawn, ids=[f"{id_}{mark}{copy + 1}" for id_ in drawn.ids], parallel_ids=source_ids))
    return concatenate(parts)


def check_suffix(examples: Examples, path: Path) -> None:
    """Refuse a file whose suffix does not say how examples of this kind are written."""
    wanted = ".conll" if examples.kind == "tagging" else ".jsonl"
    if path.suffix != wanted:
        raise BadInput(f"{path}: {examples.kind} examples are written as {wanted}.", f"Name it {path.stem}{wanted}.")


def write_examples(examples: Examples, path: Path) -> None:
    """Write examples so that `crosslift.load` reads the same ones: tagging as CoNLL, other kinds as JSON lines.

    The suffix must say so (`.conll` or `.jsonl`).
    """
    check_suffix(examples, path)
    write_text(path, _conll(examples) if examples.kind == "tagging" else _json_lines(examples))


def _conll(examples: Examples) -> str:
    blocks = []
    for row in range(len(examples)):
        words = examples.words(row)
        tags = cast("Sequence[str] | None", examples.labels and examples.labels[row])
        lines = words if tags is None else [f"{word}\t{tag}" for word, tag in zip(words, tags, strict=True)]
        # The text as a person would write it; a line break would end the comment.
        text = " ".join(examples.texts[row].splitlines())
        blocks.append("\n".join([f"# id = {examples.ids[row]}", f"# text = {text}", *lines]) + "\n")
    return "\n".join(blocks)


def _json_lines(examples: Examples) -> str:
    lines = []
    for row in range(len(examples)):
        content: dict[str, object] = {"id": examples.ids[row], "language": examples.language}
        if examples.parallel_ids is not None:
            content["parallel_id"] = examples.parallel_ids[row]
        if examples.groups is not None:
            content["group_id"] = examples.groups[row]
        content["text"] = examples.texts[row]
        if examples.pairs is not None:
            content["pair"] = examples.pairs[row]
        label = examples.labels[row] if examples.labels is not None else None
        if examples.kind == "qa" and label is not None:
            answers = cast("Sequence[Answer]", label)
            content["answers"] = {"text": [a.text for a in answers], "answer_start": [a.start for a in answers]}
        elif label is not None:
            content["label"] = label
        lines.append(json.dumps(content, ensure_ascii=False) + "\n")
    return "".join(lines)


def _kept_whole(words: Sequence[str], tokenizer: PreTrainedTokenizerBase, *, spaced: bool) -> dict[int, str]:
    """Return piece -> word for the words that are one piece, in their order; of two words with one piece the first.

    Args:
        words: Different words.
        tokenizer: The tokenizer.
        spaced: Whether their language puts spaces between words.
    """
    # Within a text without spaces no word mark stands before a word.
    marks = set() if spaced else mark_ids(tokenizer)
    found: dict[int, str] = {}
    cut = tokenizer([" " + word for word in words], add_special_tokens=False)["input_ids"]
    for word, ids in zip(words, cut, strict=True):
        pieces = [piece for piece in ids if piece not in marks]
        # The mean over the pieces of a longer word tells its spelling more than its meaning.
        if len(pieces) == 1 and pieces[0] != tokenizer.unk_token_id:
            found.setdefault(pieces[0], word)
    return found


def _is_spelled(word: str) -> bool:
    """Whether a word is letters alone, and more than one unless it is an ideograph.

    Marks count, without which Thai and Hindi have few words, and so do the joiners inside Persian ones.
    """
    if not all(unicodedata.category(character)[0] in "LM" or character in "\u200c\u200d" for character in word):
        return False
    return len(word) > 1 or "\u3400" <= word <= "\u9fff"


def _meaningful(columns: Sequence[Sequence[str]], spans: Sequence[Sequence[Spans]]) -> list[str]:
    """Return the words that may have synonyms, the most frequent first: letters only, and not the commonest."""
    texts = [text for column in columns for text in column]
    words = [part for column in spans for part in column]
    counts = Counter(t[a:b] for t, part in zip(texts, words, strict=True) for a, b in part.tolist())
    # Of "The" and "the" the second.
    found = [w for w in counts if _is_spelled(w) and (w == w.lower() or w.lower() not in counts)]
    found.sort(key=lambda word: (-counts[word], word))
    # The commonest words, a quarter of the text, are "the" and "of": they have neighbours but no synonyms.
    sums = np.cumsum([counts[word] for word in found])
    return found[int(np.searchsorted(sums, sums[-1] / 4)) + 1 :] if found else []


def _words(examples: Examples, exact: bool) -> list[list[Spans]]:
    """Return the words of each text, for one or two columns of texts."""
    if examples.spans is not None:
        return [list(examples.spans)]
    columns = [(examples.texts, examples.language)]
    if examples.pairs is not None:
        columns.append((examples.pairs, examples.pair_language or examples.language))
    return [space_spans(texts) if exact else segment_all(texts, language) for texts, language in columns]


def _moved(gold: object, old: Spans, new: Spans) -> list[Answer] | None:
    """Return the answers where they stand after the words before them have grown or shrunk."""
    if not gold:
        return cast("list[Answer] | None", gold)
    moved = []
    for answer in cast("Sequence[Answer]", gold):
        before = int(np.searchsorted(old[:, 1], answer.start, side="right"))
        shift = int(new[before - 1, 1] - old[before - 1, 1]) if before else 0
        moved.append(Answer(answer.text, answer.start + shift))
    return moved
