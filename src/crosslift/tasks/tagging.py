"""One tag per word: entities, slots, parts of speech.

The first sub-word of a word carries its tag. No word goes without a prediction: a text of more than
`max_length` tokens is cut between words into several rows, and scores are computed on whole sentences.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, ClassVar, cast

import numpy as np
import torch
from numpy.typing import NDArray

from crosslift.data.words import TokenSpans, WordMaps, ranges, row_starts, token_spans, word_maps
from crosslift.errors import BadInput
from crosslift.tasks import encoded as enc
from crosslift.tasks.encoded import IGNORED, Encoded, Kept, Prediction, Ragged, Rows
from crosslift.tasks.metrics import Metric, entity_f1, token_f1

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

    from crosslift.data.examples import Examples, Spans

Ints = NDArray[np.int64]


@dataclass(frozen=True)
class Tagging:
    """One tag per word.

    Attributes:
        labels: Tags, in the order of the model's outputs.
        max_length: Most tokens of a row; longer texts give several rows.
        label_all: Train on all sub-words of a word, not on its first alone.
    """

    labels: tuple[str, ...]
    max_length: int = 128
    label_all: bool = False

    kind: ClassVar[str] = "tagging"

    def encode(self, examples: Examples, tokenizer: PreTrainedTokenizerBase) -> Encoded:
        """Tokenise a set.

        Targets: `labels`, one per token, -100 where there is no loss. Maps, one entry per word of a row that
        has a token: `first` (its first token) and `word` (its number in the example).
        """
        if examples.spans is None:
            raise BadInput(f"{examples.name or 'examples'}: tagging needs words.", "Give spans, or segment the texts.")
        encoding = enc.tokenize(tokenizer, examples.texts, max_length=self.max_length, return_offsets_mapping=True)
        whole = enc.model_inputs(encoding)
        tokens = token_spans(encoding, tokenizer)
        words = word_maps(tokens, examples.spans)
        pieces = _cut(tokens, words, self.max_length)
        inputs = {name: pieces.take(ragged) for name, ragged in whole.items()}
        word, piece, first, stop = pieces.place(words)
        per_row = row_starts(np.bincount(piece, minlength=len(pieces.row)))
        number = word - words.starts[pieces.row[piece]]
        maps = {
            "first": Ragged(first.astype(np.int32), per_row),
            "word": Ragged(number.astype(np.int32), per_row),
        }
        targets = {}
        if examples.labels is not None:
            starts = inputs["input_ids"].starts
            tags = self._tag_numbers(examples)[word]
            place = starts[piece] + first
            values = np.full(starts[-1], IGNORED, dtype=np.int64)
            # Where words share a token the first one's tag stays: of several assignments the last one counts.
            if self.label_all:
                values[ranges(place, stop - first)[::-1]] = np.repeat(tags, stop - first)[::-1]
            values[place[::-1]] = tags[::-1]
            targets["labels"] = Ragged(values, starts)
        return Encoded(inputs, pieces.row.astype(np.int32), targets, maps)

    def _tag_numbers(self, examples: Examples) -> Ints:
        """Return the number of each word's tag, -100 where it is unknown: (words,)."""
        spans = cast("Sequence[Spans]", examples.spans)
        tags: list[Sequence[str] | None] = []
        for row, (label, words) in enumerate(zip(examples.labels or (), spans, strict=True)):
            tags.append(cast("Sequence[str] | None", label))
            if label is not None and len(label) != len(words):
                raise BadInput(f'Example "{examples.ids[row]}" has {len(words)} words but {len(label)} tags.')
        known = np.repeat([label is not None for label in tags], [len(words) for words in spans])
        numbers = np.full(len(known), IGNORED, dtype=np.int64)
        flat = list(chain.from_iterable(label for label in tags if label is not None))
        numbers[known] = enc.label_index(flat, self.labels, examples)
        return numbers

    def collate(self, encoded: Encoded, rows: Rows, pad_id: int, pad_to: int = 8) -> dict[str, torch.Tensor]:
        """Make one batch of some rows; see `encoded.collate`."""
        return enc.collate(encoded, rows, pad_id, pad_to)

    def units(self, encoded: Encoded, rows: Rows) -> Ints:
        """Return the loss units of each row: labelled tokens; without labels, tokens that tag a word."""
        rows = np.asarray(rows, dtype=np.int64)
        if "labels" in encoded.targets:
            labels = cast("Ragged", encoded.targets["labels"])
            counted, starts = labels.values != IGNORED, labels.starts
        else:
            counted, starts = ~_shares_token(encoded.maps["first"]), encoded.maps["first"].starts
        sums = row_starts(counted)
        return sums[starts[rows + 1]] - sums[starts[rows]]

    def loss(self, logits: Mapping[str, torch.Tensor], batch: Mapping[str, torch.Tensor]) -> torch.Tensor:
        """Return the cross-entropy, averaged over labelled tokens; `logits` are (batch, length, tags)."""
        return enc.mean_cross_entropy(logits["logits"], batch["labels"])

    def keep(self, outputs: Mapping[str, torch.Tensor], encoded: Encoded, rows: Rows) -> list[Kept]:
        """Return the logits at the first token of each word, on the host: `logits` (words, tags)."""
        logits = outputs["logits"].detach()
        first = encoded.maps["first"]
        counts = first.lengths()[rows]
        places = first.pad(rows, int(counts.max(initial=0)), 0).astype(np.int64)
        index = torch.from_numpy(places).to(logits.device).unsqueeze(-1).expand(-1, -1, logits.shape[-1])
        picked = logits.gather(1, index).float().cpu().numpy()
        return [{"logits": row[:count]} for row, count in zip(picked, counts, strict=True)]

    def decode(self, kept: Sequence[Kept], encoded: Encoded, examples: Examples) -> list[Prediction]:
        """Return the tags of each example, one per word.

        A word that vanished in tokenisation is O. Words that share a token share its tag, with I- for B- from
        the second on: a piece over two words of a name is one name.
        """
        spans = cast("Sequence[Spans]", examples.spans)
        starts = row_starts([len(words) for words in spans])
        first, word = encoded.maps["first"], encoded.maps["word"]
        best = np.concatenate([row["logits"] for row in kept]).argmax(axis=1)
        continued = [f"I-{tag[2:]}" if tag.startswith("B-") else tag for tag in self.labels]
        tags = np.full(starts[-1], "O", dtype=object)
        place = np.repeat(starts[encoded.example_of], first.lengths()) + word.values
        names = np.array([self.labels, continued], dtype=object)
        tags[place] = names[_shares_token(first).astype(np.int64), best]
        return [
            {"id": id_, "prediction": part.tolist()}
            for id_, part in zip(examples.ids, np.split(tags, starts[1:-1]), strict=True)
        ]

    def metrics(self, examples: Examples, predictions: Sequence[Prediction]) -> dict[str, Metric]:
        """Return entity F1 (where tags are B- and I-) and token F1, over whole sentences."""
        gold = cast("Sequence[Sequence[str] | None] | None", examples.labels)
        pred = [cast("list[str]", prediction["prediction"]) for prediction in predictions]
        by_token = token_f1(gold, pred)
        if not any(tag.startswith("B-") for tag in self.labels):
            return {by_token.name: by_token}
        by_entity = entity_f1(gold, pred)
        return {by_entity.name: by_entity, by_token.name: by_token}


def _shares_token(first: Ragged) -> NDArray[np.bool_]:
    """Return which words have the same first token as the word before them in their row: (words,)."""
    same = np.zeros(len(first.values), dtype=bool)
    same[1:] = first.values[1:] == first.values[:-1]
    begins = first.starts[:-1]
    same[begins[begins < len(same)]] = False
    return same


@dataclass(frozen=True)
class _Pieces:
    """Rows cut into pieces of tokens, each with the special tokens around it.

    Attributes:
        row: (pieces,) which row a piece is cut from, in order.
        begin: (pieces,) its first token within that row.
        end: (pieces,) one past its last one.
        before: Special tokens at the start of a row.
        after: Special tokens at its end.
        starts: (rows + 1,) of the whole rows.
    """

    row: Ints
    begin: Ints
    end: Ints
    before: int
    after: int
    starts: Ints

    def take(self, whole: Ragged) -> Ragged:
        """Return the pieces of some whole rows, special tokens repeated."""
        start, end = self.starts[self.row], self.starts[self.row + 1]
        counts = self.end - self.begin
        parts = np.stack([start, start + self.begin, end - self.after], axis=1)
        sizes = np.stack([np.full_like(counts, self.before), counts, np.full_like(counts, self.after)], axis=1)
        index = ranges(parts.ravel(), sizes.ravel())
        return Ragged(whole.values[index], row_starts(sizes.sum(axis=1)))

    def place(self, words: WordMaps) -> tuple[Ints, Ints, Ints, Ints]:
        """Return the words that have tokens: number in the flat map, piece, first token and stop in it."""
        row = np.repeat(np.arange(len(words)), np.diff(words.starts))
        word = np.flatnonzero(words.first >= 0)
        size = int(self.end.max(initial=0)) + 1
        piece = np.searchsorted(self.row * size + self.begin, row[word] * size + words.first[word], "right") - 1
        shift = self.before - self.begin[piece]
        stop = np.minimum(words.stop[word], self.end[piece])
        return word, piece, words.first[word] + shift, stop + shift


def _cut(tokens: TokenSpans, words: WordMaps, max_length: int) -> _Pieces:
    """Cut rows of more than `max_length` tokens between words; a longer word is cut where it must be."""
    lengths = np.diff(tokens.starts)
    special = tokens.sequence < 0
    rows = np.repeat(np.arange(len(lengths)), lengths)
    specials = np.bincount(rows[special], minlength=len(lengths))
    full = np.flatnonzero(lengths > specials)
    before = int(np.argmin(special[tokens.starts[full[0]] :])) if len(full) else 0
    after = int(specials[full[0]]) - before if len(full) else 0
    room = max_length - before - after
    if room < 1:
        raise BadInput(f"max_length {max_length} leaves no room for text.", "Use 16 or more.")
    pieces: list[tuple[int, int, int]] = []
    for row in np.flatnonzero(lengths > max_length).tolist():
        end = int(lengths[row]) - after
        places = _between_words(words[row].first, words[row].stop)
        begin = before
        while begin < end:
            fitting = places[(places > begin) & (places <= begin + room)]
            stop = min(end, begin + room)
            if stop < end and len(fitting):
                stop = int(fitting[-1])
            pieces.append((row, begin, stop))
            begin = stop
    short = np.flatnonzero(lengths <= max_length)
    # A row without text has special tokens only; both ends then meet, wherever they are.
    begins = np.minimum(before, lengths[short])
    ends = np.maximum(lengths[short] - after, begins)
    cut = np.array(pieces, dtype=np.int64).reshape(-1, 3)
    row, begin, end = np.concatenate([np.stack([short, begins, ends], axis=1), cut]).T
    order = np.argsort(row, kind="stable")
    return _Pieces(row[order], begin[order], end[order], before, after, tokens.starts)


def _between_words(first: NDArray[np.int32], stop: NDArray[np.int32]) -> NDArray[np.int32]:
    """Return the places in a row where one word ends and no other goes on."""
    present = first >= 0
    first, stop = first[present], stop[present]
    alone: NDArray[np.bool_] = np.append(first[1:] >= stop[:-1], True)[: len(stop)]
    return stop[alone]
