"""Aligned sentence pairs, tokenised for one encoder: which tokens make up two words that mean the same.

The opening and closing marks of a sentence ([CLS], [SEP]) count as two further words at the end of each row, so
that whatever reads words reads them too.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Literal, cast

import numpy as np
from numpy.typing import NDArray

from crosslift.align.aligned import cut_words
from crosslift.align.links import Alignment
from crosslift.data.examples import Examples
from crosslift.data.words import WordMaps, ranges, row_starts, token_spans, word_maps
from crosslift.errors import BadInput
from crosslift.tasks.encoded import Ragged, tokenize

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

    from crosslift.align.aligned import AlignedBitext

Linked = Literal["all", "words", "specials", "cls"]


@dataclass(frozen=True)
class Side:
    """One side of the pairs.

    Attributes:
        ids: (pairs,) rows of token ids, special tokens included.
        words: The tokens of each word; the last two of a row are its opening and closing mark.
    """

    ids: Ragged
    words: WordMaps

    def select(self, rows: NDArray[np.int64]) -> Side:
        """Return these rows, in this order."""
        ids, words = self.ids, self.words
        tokens, counts = np.diff(ids.starts)[rows], np.diff(words.starts)[rows]
        at = ranges(words.starts[rows], counts)
        return Side(
            Ragged(ids.values[ranges(ids.starts[rows], tokens)], row_starts(tokens)),
            WordMaps(words.first[at], words.stop[at], row_starts(counts)),
        )


@dataclass(frozen=True)
class EncodedPairs:
    """Aligned sentence pairs of one or several languages, ready for batches.

    Attributes:
        source: Sentences of the source language.
        target: Their translations.
        links: Which words (marks included, where they are linked) translate each other.
        texts: Source sentences.
        languages: Language of the target side of each stretch of pairs -> number of its pairs.
        skipped: Reason -> number of pairs, or links, that were left out.
    """

    source: Side
    target: Side
    links: Alignment
    texts: Sequence[str]
    languages: Mapping[str, int]
    skipped: Mapping[str, int] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.links)

    def lengths(self) -> NDArray[np.int64]:
        """Return the tokens of a pair in a padded batch, where both sides are rows: (pairs,)."""
        return 2 * np.maximum(self.source.ids.lengths(), self.target.ids.lengths())

    def select(self, rows: NDArray[np.int64]) -> EncodedPairs:
        """Return these pairs, in this order; they must be of one language."""
        if len(self.languages) > 1:
            raise ValueError("pairs of several languages are chosen before they are joined")
        return replace(
            self,
            source=self.source.select(rows),
            target=self.target.select(rows),
            links=self.links.select(rows),
            texts=[self.texts[i] for i in rows.tolist()],
            languages=dict.fromkeys(self.languages, len(rows)),
        )


def encode_pairs(
    aligned: AlignedBitext,
    tokenizer: PreTrainedTokenizerBase,
    *,
    pieces_of: Examples | None = None,
    linked: Linked = "all",
    keep_identical: bool = False,
    max_words: int = 64,
    max_length: int = 128,
) -> EncodedPairs:
    """Tokenise aligned pairs once, and keep the links that can be used.

    Kept are links whose words are in no other link (1–1) and whose strings differ; a pair without such a link is left
    out, as is one with too many words. Everything that is left out is counted in `skipped`.

    Args:
        aligned: Pairs with words and links.
        tokenizer: The encoder's fast tokenizer.
        pieces_of: The bitext as it was, where the words of `aligned` are the tokenizer's pieces (`pieces_as_words`).
        linked: Which links count: those of words, of the marks ([CLS] and [SEP]), or both; `cls`: the opening one.
        keep_identical: Keep links between equal strings (numbers, names, punctuation).
        max_words: Pairs with more words on a side are left out.
        max_length: Longer sentences are cut, in tokens.
    """
    skipped = {f"pairs: {reason}": count for reason, count in aligned.bitext.skipped.items()}
    words = aligned.alignment
    counts = [np.array([len(spans) for spans in side], dtype=np.int64) for side in (aligned.source, aligned.target)]
    _inside(words, *counts)
    unique = words.one_to_one()
    _count(skipped, "links: not one to one", len(words.source) - len(unique.source))
    if not keep_identical:
        same = replace(aligned, alignment=unique).identical()
        _count(skipped, "links: identical words", int(same.sum()))
        unique = unique.keep(~same)
    if pieces_of is not None:  # pieces are not words
        whole = cut_words(pieces_of)
        counts = [np.array([len(spans) for spans in side], dtype=np.int64) for side in (whole.source, whole.target)]
    short = np.maximum(*counts) <= max_words
    _count(skipped, f"pairs: more than {max_words} words", int((~short).sum()))
    kept = np.flatnonzero(short & (np.diff(unique.starts) > 0))
    _count(skipped, "pairs: no link left", int(short.sum()) - len(kept))
    if not len(kept):
        raise BadInput(f"{aligned.bitext.name}: no pair has a usable link ({_listed(skipped)}).")
    chosen = aligned.select(kept)
    bitext = chosen.bitext if pieces_of is None else pieces_of.select(kept.tolist())
    sides = ((bitext.texts, chosen.source), (cast("Sequence[str]", bitext.pairs), chosen.target))
    source, target = (_side(*side, tokenizer, pieces_of is not None, max_length) for side in sides)
    links = unique.select(kept)
    pair = links.pairs()
    there = (source.words.first[source.words.starts[pair] + links.source] >= 0) & (
        target.words.first[target.words.starts[pair] + links.target] >= 0
    )
    _count(skipped, "links: a word without tokens (cut off, or unknown to the tokenizer)", int((~there).sum()))
    language = bitext.pair_language or "und"
    found = EncodedPairs(source, target, links.keep(there), bitext.texts, {language: len(kept)})
    left = np.flatnonzero(np.diff(found.links.starts) > 0)
    _count(skipped, "pairs: no link left", len(found) - len(left))
    if not len(left):
        raise BadInput(f"{bitext.name}: no pair has a usable link ({_listed(skipped)}).")
    found = found.select(left)
    return replace(found, links=_with_marks(found, linked), skipped=skipped)


def pieces_as_words(bitext: Examples, tokenizer: PreTrainedTokenizerBase, max_length: int = 128) -> Examples:
    """Return a bitext whose words, cut at spaces, are the ids of the encoder's pieces: aligned, it links pieces."""

    def ids(texts: Sequence[str]) -> list[str]:
        rows = tokenize(tokenizer, texts, max_length=max_length, truncation=True, add_special_tokens=False)
        return [" ".join(map(str, row)) for row in rows["input_ids"]]

    return replace(bitext, texts=ids(bitext.texts), pairs=ids(cast("Sequence[str]", bitext.pairs)))


def join_pairs(parts: Sequence[EncodedPairs]) -> EncodedPairs:
    """Put the pairs of several languages one after another."""
    skipped: dict[str, int] = {}
    languages: dict[str, int] = {}
    for part in parts:
        for reason, count in part.skipped.items():
            _count(skipped, reason, count)
        for language, count in part.languages.items():
            languages[language] = languages.get(language, 0) + count
    links = [part.links for part in parts]
    counts = np.concatenate([np.diff(part.starts) for part in links])
    ends = (np.concatenate([getattr(part, side) for part in links]) for side in ("source", "target"))
    return EncodedPairs(
        _joined([part.source for part in parts]),
        _joined([part.target for part in parts]),
        Alignment(row_starts(counts), *ends),
        [text for part in parts for text in part.texts],
        languages,
        skipped,
    )


def _joined(sides: Sequence[Side]) -> Side:
    lengths = np.concatenate([side.ids.lengths() for side in sides])
    counts = np.concatenate([np.diff(side.words.starts) for side in sides])
    first, stop = (np.concatenate([getattr(side.words, name) for side in sides]) for name in ("first", "stop"))
    values = np.concatenate([side.ids.values for side in sides])
    return Side(Ragged(values, row_starts(lengths)), WordMaps(first, stop, row_starts(counts)))


def _side(
    texts: Sequence[str],
    spans: Sequence[NDArray[np.int32]],
    tokenizer: PreTrainedTokenizerBase,
    pieces: bool,
    max_length: int,
) -> Side:
    """Tokenise one side and find the tokens of its words and marks."""
    encoding = tokenize(tokenizer, texts, max_length=max_length, truncation=True, return_offsets_mapping=True)
    ids = Ragged.of(encoding["input_ids"])
    tokens = token_spans(encoding, tokenizer)
    special = tokens.sequence < 0
    last = ids.starts[1:] - 1
    opening = np.where(special[ids.starts[:-1]], 0, -1)
    closing = np.where(special[last], ids.lengths() - 1, -1)
    if not pieces:
        maps = word_maps(tokens, spans)
    else:
        counts = np.array([len(part) for part in spans], dtype=np.int64)
        number = np.arange(counts.sum()) - np.repeat(row_starts(counts)[:-1], counts)
        inner = np.add.reduceat((~special).astype(np.int64), ids.starts[:-1])
        first = np.where(number < np.repeat(inner, counts), number + np.repeat(opening + 1, counts), -1)
        maps = WordMaps(
            first.astype(np.int32), np.where(first >= 0, first + 1, -1).astype(np.int32), row_starts(counts)
        )
    return Side(ids, _marked(maps, opening, closing))


def _marked(maps: WordMaps, opening: NDArray[np.int64], closing: NDArray[np.int64]) -> WordMaps:
    """Add the marks of each row as its last two words."""
    counts = np.diff(maps.starts)
    starts = row_starts(counts + 2)
    at = ranges(starts[:-1], counts)
    first, stop = (np.full(int(starts[-1]), -1, dtype=np.int32) for _ in range(2))
    first[at], stop[at] = maps.first, maps.stop
    for shift, place in ((2, opening), (1, closing)):
        where = starts[1:] - shift
        first[where], stop[where] = place, np.where(place >= 0, place + 1, -1)
    return WordMaps(first, stop, starts)


def _with_marks(pairs: EncodedPairs, linked: Linked) -> Alignment:
    """Return the links that count, those between marks included."""
    links = pairs.links
    if linked == "words":
        return links
    everything = [(links.pairs(), links.source, links.target)] if linked == "all" else []
    sides = (pairs.source.words, pairs.target.words)
    for shift in (2,) if linked == "cls" else (2, 1):
        last = [np.diff(words.starts) - shift for words in sides]
        there = np.logical_and(*(words.first[words.starts[1:] - shift] >= 0 for words in sides))
        everything.append((np.flatnonzero(there), last[0][there], last[1][there]))
    pair, source, target = (np.concatenate(column) for column in zip(*everything, strict=True))
    if not len(pair):
        raise BadInput(f'This tokenizer has no marks around a sentence, so "{linked}" links nothing.', "Use words.")
    return Alignment.build(len(links), pair, source, target)


def _inside(links: Alignment, source: NDArray[np.int64], target: NDArray[np.int64]) -> None:
    """Refuse links past the end of their sentences; files are checked earlier, with their line numbers."""
    pair = links.pairs()
    bad = np.flatnonzero((links.source >= source[pair]) | (links.target >= target[pair]))
    if len(bad):
        k = int(bad[0])
        p = int(pair[k])
        raise BadInput(
            f"Pair {p + 1}: link {links.source[k]}-{links.target[k]} points past the end: "
            f"{source[p]} source and {target[p]} target words.",
            "Words are counted from 0; were the sentences cut into words as the aligner cut them?",
        )


def _count(skipped: dict[str, int], reason: str, count: int) -> None:
    if count:
        skipped[reason] = skipped.get(reason, 0) + count


def _listed(skipped: Mapping[str, int]) -> str:
    return "; ".join(f"{reason}: {count:,}" for reason, count in skipped.items()) or "no links at all"
