"""Sentence pairs, tokenised once and kept on the device, drawn by language and length.

All pairs of one step come from one group (a language) and one length class: so nothing is gained by telling
languages apart, and little is padded.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, NamedTuple, cast

import numpy as np
import torch
from numpy.typing import NDArray
from tokenizers import Tokenizer
from torch import Tensor

from crosslift.data.files import read_lines
from crosslift.data.streams import Rows
from crosslift.data.switching import UNSPACED, Lexicon, Link, english_words, link, plain, switch
from crosslift.data.tokenise import chunk_tokenizer, flat_ids, map_chunks, token_spans
from crosslift.errors import BadFile, BadInput

How = Literal["pair", "plain", "switched", "same"]
LINKS = 8
"""Links kept per pair; where there are more, a random choice."""
_SWITCH_RATE = 0.5


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
    processes: int | None = None,
) -> Tokenised:
    """Tokenise pairs in several processes, make the switched sides, and find the linked words.

    Args:
        drafts: The pairs.
        tokenizer: A fast tokenizer with `<s> … </s>` around a text.
        lexicons: Language -> lexicon.
        longest: Tokens per side; the rest is cut.
        seed: Draws the switched words and the links that are kept.
        processes: Default: one per core.
    """
    tokenizer = Tokenizer.from_str(tokenizer.to_str())
    tokenizer.no_padding()
    tokenizer.enable_truncation(longest)
    parts = map_chunks(_tokenise_chunk, drafts, tokenizer, (lexicons, seed), processes)
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


@dataclass(frozen=True)
class PairRows:
    """Tokenised pairs on the device, and which of them belong together.

    Attributes:
        left: Rows of the anchor's side.
        right: Rows of the other side.
        anchors: (pairs,) number of the text whose teacher vector both sides learn.
        spans: (pairs, LINKS, 4) first and stop token of linked words, left then right.
        words: (pairs, LINKS) row of the linked word in the teacher's word vectors; -1 = no link.
        pools: Group and length class -> (members,) pair numbers; `length` is the padded length of the class.
        weights: Probability of each pool.
    """

    left: Rows
    right: Rows
    anchors: Tensor
    spans: Tensor
    words: Tensor
    pools: tuple[tuple[str, int, Tensor], ...]
    weights: NDArray[np.float64]

    def draw(self, seed: int, step: int, tokens: int, generator: torch.Generator) -> tuple[int, Tensor]:
        """Draw the pairs of a step, all from one pool.

        Args:
            seed: Draws the pool, together with the step: the same one in every process.
            step: The step.
            tokens: Padded tokens per side; gives the number of pairs.
            generator: Draws the pairs.

        Returns:
            The padded length, and (pairs,) pair numbers.
        """
        choice = int(np.random.default_rng([seed, step]).choice(len(self.pools), p=self.weights))
        _, length, members = self.pools[choice]
        count = max(2, tokens // length)
        drawn = torch.randint(len(members), (count,), generator=generator, device=members.device)
        return length, members[drawn]


def pools_of(
    groups: Mapping[str, NDArray[np.int64]],
    lengths: NDArray[np.int64],
    classes: Sequence[int],
    shares: Mapping[str, float],
    exponent: float,
) -> tuple[list[tuple[str, int, NDArray[np.int64]]], NDArray[np.float64]]:
    """Sort pairs into pools by group and length class, with the probability of each.

    Args:
        groups: `kind/language` -> pair numbers.
        lengths: (pairs,) tokens of the longer side.
        classes: Padded lengths, ascending; longer pairs are cut to the last.
        shares: Kind -> its share of the steps; inside a kind, languages go by size ** `exponent`.
        exponent: See `shares`; inside a language, length classes go by their number of tokens.
    """
    pools, weights = [], []
    kinds = {name.split("/")[0] for name in groups}
    per_kind = {k: sum(len(m) ** exponent for name, m in groups.items() if name.split("/")[0] == k) for k in kinds}
    total = sum(shares.get(kind, 0.0) for kind in kinds)
    if total <= 0:
        raise BadInput("No kind of pair has a share above 0.")
    for name, members in groups.items():
        kind = name.split("/")[0]
        of_group = shares.get(kind, 0.0) / total * len(members) ** exponent / per_kind[kind]
        class_of = np.minimum(np.searchsorted(classes, lengths[members]), len(classes) - 1)
        sizes = np.array([classes[c] * (class_of == c).sum() for c in range(len(classes))], dtype=float)
        for number, length in enumerate(classes):
            inside = members[class_of == number]
            if len(inside) and of_group > 0:
                pools.append((name, length, inside))
                weights.append(of_group * sizes[number] / sizes.sum())
    return pools, np.array(weights) / np.sum(weights)


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
    left = np.concatenate([[0], np.cumsum(pairs.left_lengths, dtype=np.int64)])
    right = np.concatenate([[0], np.cumsum(pairs.right_lengths, dtype=np.int64)])
    one = _without_first(pairs.right, right, members)
    if not both:
        return np.concatenate(list(one)) if len(members) else np.empty(0, np.int32)
    other = _without_first(pairs.left, left, members)
    flips = rng.random(len(members)) < 0.5
    parts = [np.concatenate((b, a) if flip else (a, b)) for a, b, flip in zip(one, other, flips, strict=True)]
    return np.concatenate(parts) if parts else np.empty(0, np.int32)


def _without_first(ids: NDArray[np.int32], starts: NDArray[np.int64], members: NDArray[np.int64]) -> Iterator[
    NDArray[np.int32]
]:
    return (ids[starts[i] + 1 : starts[i + 1]] for i in members.tolist())
