"""Sentence pairs before training: read, given their second form, tokenised, their words linked.

This file knows nothing of torch, so that the processes that tokenise start quickly.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, NamedTuple, cast

import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer

from crosslift.data.files import read_lines
from crosslift.data.switching import UNSPACED, Lexicon, Link, english_words, link, plain, switch
from crosslift.data.tokenise import Workers, chunk_tokenizer, flat_ids, segments, token_spans
from crosslift.errors import BadFile, BadInput

How = Literal["pair", "plain", "switched", "same"]
LINKS = 8
"""Links kept per pair; where there are more, a random choice."""
_SWITCH_RATE = 0.7


class Draft(NamedTuple):
    """A pair before it is tokenised.

    Attributes:
        how: `pair` as it is; `plain` in lower case without marks; `switched` (the right side is made from the
            left by a lexicon); `same` (the right side is the left in plain form).
        language: Language of the right side.
        left: The anchor's side, English as a rule.
        right: The other side; empty where it is made from the left.
        anchor: Number of the text whose teacher vector both sides learn.
    """

    how: How
    language: str
    left: str
    right: str
    anchor: int


@dataclass(frozen=True)
class Tokenised:
    """Tokenised pairs on the host.

    Attributes:
        left: (tokens,) ids of all left sides; `left_lengths` (pairs,).
        right: As `left`.
        spans: (pairs, LINKS, 4) int16: first and stop token of a linked word, left then right; -1 = no link.
        words: (pairs, LINKS) int16: number of the word among the words of the left text; -1 = no link.
    """

    left: NDArray[np.int32]
    left_lengths: NDArray[np.int32]
    right: NDArray[np.int32]
    right_lengths: NDArray[np.int32]
    spans: NDArray[np.int16]
    words: NDArray[np.int16]


def read_pairs(path: Path) -> Iterator[tuple[str, str, str]]:
    """Yield the pairs of a file: `language TAB english TAB translation` a line."""
    for number, line in enumerate(read_lines(path), start=1):
        parts = line.split("\t")
        if len(parts) != 3 or not all(part.strip() for part in parts):
            raise BadFile(
                path,
                number,
                f"has {len(parts)} columns with text, expected 3.",
                "Each line holds a language code, an English sentence and its translation, split by tabs.",
            )
        yield parts[0], parts[1], parts[2]


def tokenise_pairs(
    drafts: Sequence[Draft],
    tokenizer: Tokenizer,
    lexicons: Mapping[str, Lexicon],
    *,
    longest: int,
    seed: int,
    workers: Workers,
) -> Tokenised:
    """Tokenise pairs in several processes, make the switched sides, and find the linked words.

    Args:
        drafts: The pairs.
        tokenizer: A fast tokenizer with `<s> … </s>` around a text.
        lexicons: Language -> lexicon.
        longest: Tokens per side; the rest is cut.
        seed: Draws the switched words and the links that are kept.
        workers: Processes that tokenise.
    """
    tokenizer = Tokenizer.from_str(tokenizer.to_str())
    tokenizer.no_padding()
    tokenizer.enable_truncation(longest)
    parts = workers.map(_tokenise_chunk, drafts, tokenizer, (lexicons, seed))
    if not parts:
        raise BadInput("There are no sentence pairs.")
    return Tokenised(*(np.concatenate([getattr(part, f) for part in parts]) for f in Tokenised.__annotations__))


def _tokenise_chunk(number: int, drafts: Sequence[Draft], tokenizer: str, extra: object) -> Tokenised:
    lexicons, seed = cast("tuple[Mapping[str, Lexicon], int]", extra)
    rng = np.random.default_rng([seed, number])
    texts = [_sides(draft, lexicons.get(draft.language, {}), rng) for draft in drafts]
    left = chunk_tokenizer(tokenizer).encode_batch([one for one, _, _ in texts])
    right = chunk_tokenizer(tokenizer).encode_batch([other for _, other, _ in texts])
    spans = np.full((len(drafts), LINKS, 4), -1, dtype=np.int16)
    words = np.full((len(drafts), LINKS), -1, dtype=np.int16)
    flat = [(row, slot, found) for row, (_, _, links) in enumerate(texts) for slot, found in enumerate(links)]
    if flat:
        rows, slots = np.array([f[0] for f in flat]), np.array([f[1] for f in flat])
        for side, encoded in enumerate((left, right)):
            characters = np.array([f[2][1 + side] for f in flat])
            spans[rows, slots, 2 * side : 2 * side + 2] = token_spans(encoded, rows, characters)
        words[rows, slots] = [f[2].word for f in flat]
        # A word cut off by truncation, or swallowed by the normaliser, has no tokens.
        gone = (spans[..., 1] <= spans[..., 0]) | (spans[..., 3] <= spans[..., 2])
        spans[gone], words[gone] = -1, -1
    return Tokenised(*flat_ids(left), *flat_ids(right), spans, words)


def _sides(draft: Draft, lexicon: Lexicon, rng: np.random.Generator) -> tuple[str, str, list[Link]]:
    """Return both texts and at most `LINKS` links between them."""
    left, right = draft.left, draft.right
    if draft.how == "switched":
        if rng.random() < 0.5:
            left = plain(left)
        right, links = switch(left, lexicon, _SWITCH_RATE, rng)
    elif draft.how == "same":
        right = plain(left)
        pairs = zip(english_words(left), english_words(right), strict=False)
        links = [Link(number, one, other) for number, (one, other) in enumerate(pairs)]
    else:
        if draft.how == "plain":
            left, right = plain(left), plain(right)
        links = link(left, right, lexicon, draft.language not in UNSPACED)
    if len(links) > LINKS:
        links = [links[i] for i in sorted(rng.choice(len(links), LINKS, replace=False).tolist())]
    return left, right, links


def pair_stream(
    pairs: Tokenised, members: NDArray[np.int64], rng: np.random.Generator, *, both: bool
) -> NDArray[np.int32]:
    """Return the sentences of some pairs as one run of tokens, each closed by `</s>`.

    Args:
        pairs: Tokenised pairs, each side as `<s> … </s>`.
        members: Which pairs, in this order.
        rng: Draws which side comes first.
        both: Both sides after each other (translation LM), or the right side alone.
    """
    right = np.cumsum(pairs.right_lengths, dtype=np.int64) - pairs.right_lengths
    if not both:
        return segments(pairs.right, right[members] + 1, pairs.right_lengths[members] - 1)
    left = np.cumsum(pairs.left_lengths, dtype=np.int64) - pairs.left_lengths
    begins = np.stack([left[members], len(pairs.left) + right[members]], axis=1) + 1
    sizes = np.stack([pairs.left_lengths[members], pairs.right_lengths[members]], axis=1) - 1
    first = (rng.random(len(members)) < 0.5).astype(np.int64)[:, None]
    order = np.concatenate([first, 1 - first], axis=1)
    begins, sizes = (np.take_along_axis(part, order, axis=1).ravel() for part in (begins, sizes))
    return segments(np.concatenate([pairs.left, pairs.right]), begins, sizes)
