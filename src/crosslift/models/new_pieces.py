"""Which pieces a vocabulary lacks for a language: neighbours that are often seen together, joined."""

from __future__ import annotations

import heapq
import re
from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

from tokenizers import Tokenizer

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

_LONGEST_PIECE = 24  # characters
_BYTE = re.compile(r"<0x[0-9A-F]{2}>")
# Where a word ends within a stretch of text: some tokenizers (Gemma's) mark words, but do not split text at them.
_END = re.compile(r"(?<=[^▁])(?=▁+[^▁])")


@dataclass(frozen=True)
class NewPiece:
    """A piece to add.

    Attributes:
        name: How it is written in the vocabulary.
        pair: The two pieces that it joins, as written there.
        parts: Ids of the old pieces that it replaces.
        count: How often it occurs.
    """

    name: str
    pair: tuple[str, str]
    parts: list[int]
    count: int


def choose_pieces(
    tokenizer: PreTrainedTokenizerBase, texts: Iterable[str], pieces: int, least: int = 5
) -> list[NewPiece]:
    """Join neighbouring pieces within words, the most frequent pair first, until there are enough new ones.

    Args:
        tokenizer: A fast tokenizer.
        texts: Text of the language.
        pieces: How many to make.
        least: Pairs that occur less often are not joined.
    """
    backend = tokenizer.backend_tokenizer
    kind = type(backend.model).__name__
    vocabulary = tokenizer.get_vocab()
    special = set(tokenizer.all_special_tokens)
    counts = _word_counts(backend, texts)
    words = [[token.value for token in backend.model.tokenize(word)] for word in counts]
    weights = list(counts.values())
    places: dict[tuple[str, str], set[int]] = defaultdict(set)
    totals: Counter[tuple[str, str]] = Counter()
    for number, word in enumerate(words):
        for pair in pairwise(word):
            places[pair].add(number)
            totals[pair] += weights[number]
    heap = [(-count, pair) for pair, count in totals.items()]
    heapq.heapify(heap)
    new: dict[str, NewPiece] = {}
    parts: dict[str, list[int]] = {}
    while heap and len(new) < pieces:
        negative, pair = heapq.heappop(heap)
        count = totals[pair]
        if count != -negative:
            if count >= least:
                heapq.heappush(heap, (-count, pair))
            continue
        if count < least:
            break
        name = _joined(pair, kind)
        if special & set(pair) or len(name) > _LONGEST_PIECE or name in special:
            continue
        if any(_BYTE.fullmatch(piece) for piece in pair):  # joined names of bytes spell nothing
            continue
        own = [i for piece in pair for i in parts.get(piece, [vocabulary.get(piece, -1)])]
        if -1 in own:
            continue
        if name not in vocabulary and name not in new:
            parts[name] = own
            new[name] = NewPiece(name, pair, own, count)
        for number in sorted(places.pop(pair, ())):
            word, weight = words[number], weights[number]
            for before in pairwise(word):
                totals[before] -= weight
            words[number] = word = _merge(word, pair, name)
            for after in pairwise(word):
                totals[after] += weight
                places[after].add(number)
                heapq.heappush(heap, (-totals[after], after))
    if kind == "BPE":  # a merge needs the pieces it is made of
        return list(new.values())
    final: Counter[str] = Counter()
    for word, weight in zip(words, weights, strict=True):
        for piece in word:
            final[piece] += weight
    return [piece for piece in new.values() if final[piece.name] >= least]


def _word_counts(backend: Tokenizer, texts: Iterable[str]) -> Counter[str]:
    """Count words as the tokenizer splits text before it looks for pieces."""
    counts: Counter[str] = Counter()
    for line in texts:
        text = backend.normalizer.normalize_str(line) if backend.normalizer else line
        split = backend.pre_tokenizer.pre_tokenize_str(text) if backend.pre_tokenizer else [(text, (0, 0))]
        counts.update(word for stretch, _ in split for word in _END.split(stretch) if word)
    return counts


def _joined(pair: tuple[str, str], kind: str) -> str:
    return pair[0] + (pair[1].removeprefix("##") if kind == "WordPiece" else pair[1])


def _merge(word: list[str], pair: tuple[str, str], name: str) -> list[str]:
    found, place = [], 0
    while place < len(word):
        if place + 1 < len(word) and (word[place], word[place + 1]) == pair:
            found.append(name)
            place += 2
        else:
            found.append(word[place])
            place += 1
    return found
