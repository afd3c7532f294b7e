"""What two vocabularies make of words: whole, and of every stretch of a word's pieces.

Both vocabularies cut word by word, so a word and a stretch of its monolingual pieces always give the same
multilingual pieces; they are looked up instead of tokenised anew (see `hmlm`).
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass, fields
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors import safe_open
from safetensors.torch import save_file
from tokenizers import Tokenizer, models
from torch import Tensor

from crosslift.data.storage import atomic
from crosslift.data.words import ranges, row_starts
from crosslift.errors import BadInput

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

_BLOCK = 1 << 16  # words that are cut at a time
_LONGEST = 12  # monolingual pieces; a longer word (an address, a table) is never masked


_MADE = "2"
"""Raised where the same words give other tables than before: kept ones are made anew."""


@dataclass(frozen=True)
class WordPieces:
    """What two vocabularies make of each word; all arrays are flat, `…_starts` say where an entry begins.

    A *unit* is a monolingual piece, or several that share a character. Stretch (i, j) of a word of n units, the
    units i … j − 1, is entry `i n − i (i − 1) / 2 + j − i − 1` of the word's stretches.

    Attributes:
        unit_starts: (words + 1,) first unit of each word.
        labels: (units,) id of the piece, or −1 where the unit must not be masked.
        mono_starts: (units + 1,) first monolingual id of each unit.
        mono_ids: Monolingual ids.
        stretch_starts: (words + 1,) first stretch of each word.
        multi_starts: (stretches + 1,) first multilingual id of each stretch.
        multi_ids: Multilingual ids.
    """

    unit_starts: Tensor
    labels: Tensor
    mono_starts: Tensor
    mono_ids: Tensor
    stretch_starts: Tensor
    multi_starts: Tensor
    multi_ids: Tensor

    def to(self, device: torch.device) -> WordPieces:
        """Return the tables on another device."""
        return WordPieces(**{f.name: getattr(self, f.name).to(device) for f in fields(self)})

    def lengths(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return how many multilingual and how many monolingual pieces each word has: (words,) twice."""
        units = (self.unit_starts[1:] - self.unit_starts[:-1]).cpu().numpy()
        first = self.stretch_starts[:-1].cpu().numpy()
        starts = self.multi_starts.cpu().numpy()
        whole = np.where(units > 0, first + units - 1, 0)  # stretch (0, n)
        multi = np.where(units > 0, starts[whole + 1] - starts[whole], 0)
        mono = np.diff(self.mono_starts.cpu().numpy()[self.unit_starts.cpu().numpy()])
        return multi, mono


def word_pieces(
    words: Sequence[str], multi: PreTrainedTokenizerBase, mono: PreTrainedTokenizerBase, *, separate: bool
) -> WordPieces:
    """Cut every word by both vocabularies, whole and in all stretches.

    Args:
        words: The words of a `WordCorpus`, its two marks first.
        multi: Vocabulary of the input.
        mono: Vocabulary of the labels.
        separate: Whether a line ends with the closing token (where rows run over documents) or with nothing.
    """
    texts = list(words[2:])
    check_word_by_word(texts, multi)
    check_word_by_word(texts, mono)
    # What a tokenizer says of a word takes kilobytes: of a large text's millions, some at a time.
    blocks = [_tabulated(texts[i : i + _BLOCK], multi, mono) for i in range(0, len(texts), _BLOCK)]
    units, labels, mono_sizes, tokens, multi_sizes, multi_ids = map(np.concatenate, zip(*blocks, strict=True))
    # The two marks come first: one unit each, that is never masked; the second one stands for nothing.
    line = int(separate)
    lead = np.array([1, 1])
    arrays = {
        "unit_starts": row_starts(np.concatenate([lead, units])),
        "labels": np.concatenate([[-1, -1], labels]),
        "mono_starts": row_starts(np.concatenate([[line, 0], mono_sizes])),
        "mono_ids": np.concatenate([[closing_id(mono)] * line, tokens]).astype(np.int32),
        "stretch_starts": row_starts(np.concatenate([lead, units * (units + 1) // 2])),
        "multi_starts": row_starts(np.concatenate([[line, 0], multi_sizes])),
        "multi_ids": np.concatenate([[closing_id(multi)] * line, multi_ids]).astype(np.int32),
    }
    return WordPieces(**{name: torch.from_numpy(array) for name, array in arrays.items()})


def _tabulated(
    texts: Sequence[str], multi: PreTrainedTokenizerBase, mono: PreTrainedTokenizerBase
) -> tuple[NDArray[np.integer], ...]:
    """Cut some words.

    Returns:
        Units of each word; label and number of monolingual ids of each unit; these ids; number of multilingual ids of
        each stretch; these ids.
    """
    tokens, lengths, begin, end = _cut(texts, mono)
    of_word = np.repeat(np.arange(len(texts)), lengths)
    opens = _units(lengths, of_word, begin, end)
    mono_sizes = np.diff(opens, append=len(tokens))
    units = np.bincount(of_word[opens], minlength=len(texts))
    plain = (mono_sizes == 1) & (end > begin)[opens] & ~np.isin(tokens[opens], mono.all_special_ids)
    bounds = begin[opens]
    bounds[row_starts(units)[:-1]] = 0  # a word's first unit begins the word, whatever its offset says
    multi_ids, multi_sizes = _stretches(texts, units, bounds, multi)
    labels = np.where(plain, tokens[opens], -1)
    return units, labels, mono_sizes, _as_text(tokens, mono), multi_sizes, _as_text(multi_ids, multi)


def _as_text(ids: NDArray[np.integer], tokenizer: PreTrainedTokenizerBase) -> NDArray[np.integer]:
    """Take the unknown piece for special ones: a `<mask>` or `</s>` that stands in a text hides and ends nothing."""
    return np.where(np.isin(ids, tokenizer.all_special_ids), tokenizer.unk_token_id or 0, ids)


def kept_word_pieces(
    file: Path,
    words: Sequence[str],
    multi: PreTrainedTokenizerBase,
    mono: PreTrainedTokenizerBase,
    *,
    separate: bool,
) -> WordPieces:
    """Return `word_pieces`, from a file where it holds those of the same words and vocabularies, else into it."""
    vocabularies = "".join(tokenizer.backend_tokenizer.to_str() for tokenizer in (multi, mono))
    what = hashlib.sha256("\n".join([_MADE, vocabularies, *words]).encode()).hexdigest()
    if file.exists():
        with safe_open(file, "pt") as kept:
            if (kept.metadata() or {}).get("of") == what:
                return WordPieces(**{name: kept.get_tensor(name) for name in kept.keys()})  # noqa: SIM118
    made = word_pieces(words, multi, mono, separate=separate)
    with atomic(file) as draft:
        save_file({f.name: getattr(made, f.name) for f in fields(made)}, draft, metadata={"of": what})
    return made


def closing_id(tokenizer: PreTrainedTokenizerBase) -> int:
    """Return the id of the token that ends a text."""
    found = tokenizer.sep_token_id if tokenizer.sep_token_id is not None else tokenizer.eos_token_id
    if found is None:
        raise BadInput(f"The tokenizer of {tokenizer.name_or_path} has no token that ends a text.")
    return int(found)


def check_word_by_word(words: Sequence[str], tokenizer: PreTrainedTokenizerBase) -> None:
    """Refuse a vocabulary whose pieces run over spaces: a word of it has no pieces of its own."""
    sample = [word for word in words[:2000] if word.isalpha()][:400]
    lines = [sample[i : i + 20] for i in range(0, len(sample), 20)]
    backend = tokenizer.backend_tokenizer
    whole = backend.encode_batch([f" {' '.join(line)}" for line in lines], add_special_tokens=False)
    apart = [backend.encode_batch([f" {word}" for word in line], add_special_tokens=False) for line in lines]
    wrong = sum(a.ids != list(chain.from_iterable(e.ids for e in b)) for a, b in zip(whole, apart, strict=True))
    if wrong > 0.1 * len(lines):
        raise BadInput(
            f"The vocabulary of {tokenizer.name_or_path} has pieces that run over several words.",
            "Heterogeneous masked LM needs one that cuts word by word, as those of BERT, RoBERTa and XLM-R do.",
        )


def _cut(
    texts: Sequence[str], tokenizer: PreTrainedTokenizerBase
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """Return ids of all words, how many each word has, and the first and stop character of each in its word."""
    encoded = tokenizer.backend_tokenizer.encode_batch([f" {text}" for text in texts], add_special_tokens=False)
    # A word of which the vocabulary keeps nothing (control characters) stands for the unknown piece.
    unknown = [tokenizer.unk_token_id or 0]
    ids = [e.ids or unknown for e in encoded]
    offsets = [e.offsets or [(0, 0)] for e in encoded]
    flat = np.fromiter(chain.from_iterable(chain.from_iterable(offsets)), dtype=np.int64).reshape(-1, 2)
    begin, end = np.maximum(flat - 1, 0).T  # without the space in front
    lengths = np.fromiter(map(len, ids), dtype=np.int64)
    return np.fromiter(chain.from_iterable(ids), dtype=np.int64), lengths, begin.copy(), end.copy()


def _units(
    lengths: NDArray[np.int64], of_word: NDArray[np.int64], begin: NDArray[np.int64], end: NDArray[np.int64]
) -> NDArray[np.int64]:
    """Return the token that opens each unit.

    Pieces that share a character (bytes of it) stay together, and so does a lone word mark with what follows.
    """
    empty = end <= begin
    opens = np.ones(len(of_word), dtype=bool)
    opens[1:] = (of_word[1:] != of_word[:-1]) | ~((begin[1:] < end[:-1]) | empty[1:] | empty[:-1])
    first = np.cumsum(lengths) - lengths
    opens &= ~(np.add.reduceat(opens, first, dtype=np.int64) > _LONGEST)[of_word]
    opens[first] = True
    return np.flatnonzero(opens)


def _stretches(
    texts: Sequence[str], units: NDArray[np.int64], bounds: NDArray[np.int64], multi: PreTrainedTokenizerBase
) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
    """Return the multilingual ids of every stretch of every word, and how many each has."""
    word, first, stop = _triangle(units)
    start = row_starts(units)
    ends = np.append(bounds[1:], 0)
    ends[start[1:] - 1] = [len(text) for text in texts]  # a word's last unit ends it
    from_ = bounds[start[word] + first].tolist()
    to = ends[start[word] + stop - 1].tolist()
    # Many stretches are the same text: it is cut once. WordPiece also asks which character goes before it.
    looks_back = json.loads(multi.backend_tokenizer.to_str())["model"]["type"] == "WordPiece"
    keys: dict[tuple[str, str], int] = {}
    number = [
        keys.setdefault(((texts[w][a - 1] if looks_back else "-") if a else "", texts[w][a:b]), len(keys))
        for w, a, b in zip(word.tolist(), from_, to, strict=True)
    ]
    ids = _encode(list(keys), multi)
    lengths = np.fromiter(map(len, ids), dtype=np.int64, count=len(ids))
    flat = np.fromiter(chain.from_iterable(ids), dtype=np.int32)
    which = np.array(number, dtype=np.int64)
    return flat[ranges((np.cumsum(lengths) - lengths)[which], lengths[which])], lengths[which]


def _triangle(units: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """Return word, first unit and stop unit of every stretch, in the order that `WordPieces` states."""
    per_word = units * (units + 1) // 2
    word = np.repeat(np.arange(len(units)), per_word)
    place = np.arange(len(word)) - np.repeat(np.cumsum(per_word) - per_word, per_word)
    first = np.zeros(len(word), dtype=np.int64)
    stop = np.zeros(len(word), dtype=np.int64)
    for n in np.unique(units):
        rows, columns = np.triu_indices(n)
        own = units[word] == n
        first[own], stop[own] = rows[place[own]], columns[place[own]] + 1
    return word, first, stop


def _encode(stretches: Sequence[tuple[str, str]], tokenizer: PreTrainedTokenizerBase) -> list[list[int]]:
    """Cut (character before it, text) pairs; one with a character before it gets no word mark."""
    backend = tokenizer.backend_tokenizer
    opening = [k for k, (before, _) in enumerate(stretches) if not before]
    within = [k for k, (before, _) in enumerate(stretches) if before]
    ids: list[list[int]] = [[] for _ in stretches]
    begun = backend.encode_batch_fast([f" {stretches[k][1]}" for k in opening], add_special_tokens=False)
    for k, encoding in zip(opening, begun, strict=True):
        ids[k] = encoding.ids
    for k, found in zip(within, encode_within([stretches[k] for k in within], backend), strict=True):
        ids[k] = found
    return ids


def encode_within(stretches: Sequence[tuple[str, str]], tokenizer: Tokenizer) -> list[list[int]]:
    """Cut texts that stand inside a word, so that none gets the mark of a word's beginning.

    Args:
        stretches: The character before the text (WordPiece asks for it), and the text.
        tokenizer: A fast tokenizer's backend.
    """
    description = json.loads(tokenizer.to_str())
    if description["model"]["type"] == "WordPiece":
        return _encode_within_wordpiece(stretches, tokenizer, description)
    unmarked = {key: _unmarked(description[key]) for key in ("normalizer", "pre_tokenizer")}
    twin = Tokenizer.from_str(json.dumps({**description, **unmarked}))
    return [e.ids for e in twin.encode_batch_fast([text for _, text in stretches], add_special_tokens=False)]


def _unmarked(step: Any) -> Any:  # noqa: ANN401  JSON
    """Return a step of a tokenizer's description without what puts a word mark before a text."""
    if isinstance(step, list):
        return [_unmarked(part) for part in step if not (isinstance(part, dict) and part.get("type") == "Prepend")]
    if not isinstance(step, dict):
        return step
    if step.get("type") == "Prepend":
        return None
    never = {"prepend_scheme": "never", "add_prefix_space": False}
    return {key: never[key] if key in never else _unmarked(value) for key, value in step.items()}


def _encode_within_wordpiece(
    stretches: Sequence[tuple[str, str]], tokenizer: Tokenizer, description: dict[str, Any]
) -> list[list[int]]:
    """WordPiece marks continuations instead: the first word of a text that goes on a word has only such pieces."""
    prefix = description["model"]["continuing_subword_prefix"]
    vocabulary = description["model"]["vocab"]
    plain = {piece: number for piece, number in vocabulary.items() if len(piece) == 1 or not piece.isalnum()}
    going_on = {piece.removeprefix(prefix): n for piece, n in vocabulary.items() if piece.startswith(prefix)}
    unknown = description["model"]["unk_token"]
    inner = Tokenizer(models.WordPiece({**plain, **going_on, unknown: vocabulary[unknown]}, unk_token=unknown))
    inner.normalizer = tokenizer.normalizer
    inner.pre_tokenizer = tokenizer.pre_tokenizer

    def split(text: str) -> int:
        """Return where the first word of a text ends."""
        end = int(tokenizer.pre_tokenizer.pre_tokenize_str(text)[0][1][1])
        if tokenizer.normalizer is None or text.isascii():
            return end
        # The normaliser sets spaces around ideographs: each is a word.
        alone = (n for n, sign in enumerate(text[:end]) if tokenizer.normalizer.normalize_str(sign).startswith(" "))
        return min(end, next(alone, end) or 1)

    heads, tails = [], []
    for before, text in stretches:
        goes_on = bool(text) and split(before + text[:1]) == len(before + text[:1])
        cut = split(text) if goes_on else 0
        heads.append(text[:cut])
        tails.append(text[cut:])
    first = inner.encode_batch(heads, add_special_tokens=False)
    rest = tokenizer.encode_batch(tails, add_special_tokens=False)
    return [a.ids + b.ids for a, b in zip(first, rest, strict=True)]
