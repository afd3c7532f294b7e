"""Training examples x beside their augmented selves xᵃ: some words replaced by synonyms, drawn anew every step.

Words map one to one between x and xᵃ, whatever the tokenizer makes of them; labels follow the words.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from crosslift.data.examples import Answer, Examples, Spans
from crosslift.data.segment import segment_all
from crosslift.data.synonyms import (
    Replaceable,
    Synonyms,
    neighbours,
    part_of,
    read_synonyms,
    replaceable,
    space_spans,
)
from crosslift.data.words import WordMaps, token_spans, word_maps
from crosslift.errors import BadInput
from crosslift.tasks import encoded as enc
from crosslift.tasks.encoded import Encoded

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

    from crosslift.tasks import Task

Rows = NDArray[np.int64]

MOST_NEIGHBOURS = 20_000
"""Words of the training data among which neighbours are looked for."""


@dataclass(frozen=True)
class SynonymSettings:
    """Where synonyms come from and how they are drawn."""

    synonyms: str = field(
        default="neighbours",
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


@dataclass(frozen=True)
class Places:
    """Which tokens each word has, for examples that are one row each; special tokens count as words.

    Attributes:
        columns: Word maps of the first and, with pairs, of the second text.
        special: (examples, special tokens) where they stand.
        known: (examples,) False where an example is more than one row: none of its words has a place.
    """

    columns: Sequence[WordMaps]
    special: Rows
    known: NDArray[np.bool_]

    def pad(self, which: Rows) -> tuple[Rows, Rows]:
        """Return the first token of each word and one past its last one: (which, words) each; -1 = none."""
        parts = [maps.pad(which) for maps in self.columns]
        special = self.special[which]
        first = np.concatenate([special, *(part[0] for part in parts)], axis=1)
        stop = np.concatenate([special + 1, *(part[1] for part in parts)], axis=1)
        first[~self.known[which]] = stop[~self.known[which]] = -1
        return first, stop


class Augmented:
    """The training set as x and xᵃ.

    Attributes:
        encoded: x, tokenised once.
    """

    def __init__(
        self, settings: SynonymSettings, task: Task, tokenizer: PreTrainedTokenizerBase, examples: Examples
    ) -> None:
        self.settings, self.task, self.tokenizer, self.examples = settings, task, tokenizer, examples
        self.pad_id = int(cast("int", tokenizer.pad_token_id))
        self.encoded = task.encode(examples, tokenizer)
        self.spans = _words(examples, settings.exact)
        self.places = word_places(task, tokenizer, examples, self.spans, self.encoded)
        self.seed = 0
        self.columns: list[Replaceable] = []
        if settings.synonyms != "neighbours":
            self._look_up(read_synonyms(settings.synonyms))

    def prepare(self, model: nn.Module, seed: int) -> None:
        """Take the run's seed, and synonyms from the model's embeddings where no dictionary was given."""
        self.seed = seed
        if not self.columns:
            self._look_up(self._own_neighbours(model))

    def _own_neighbours(self, model: nn.Module) -> Synonyms:
        texts = [text for column in self._texts() for text in column]
        spans = [words for column in self.spans for words in column]
        counts = Counter(t[a:b] for t, words in zip(texts, spans, strict=True) for a, b in words.tolist())
        # Letters only; of "The" and "the" the second.
        found = [w for w in counts if w.isalpha() and len(w) > 1 and (w == w.lower() or w.lower() not in counts)]
        found.sort(key=lambda word: (-counts[word], word))
        # The commonest words, a quarter of the text, are "the" and "of": they have neighbours but no synonyms.
        sums = np.cumsum([counts[word] for word in found])
        words = found[int(np.searchsorted(sums, sums[-1] / 4)) + 1 :] if found else []
        if not words:
            return {}
        ids = self.tokenizer([" " + word for word in words], add_special_tokens=False)["input_ids"]
        # The mean over the pieces of a longer word tells its spelling more than its meaning.
        whole = [(word, pieces[0]) for word, pieces in zip(words, ids, strict=True) if len(pieces) == 1]
        whole = whole[:MOST_NEIGHBOURS]
        matrix = cast("Any", model).get_input_embeddings().weight.detach()
        rows = torch.tensor([piece for _, piece in whole], dtype=torch.long, device=matrix.device)
        return neighbours([word for word, _ in whole], matrix[rows].float().cpu().numpy())

    def _texts(self) -> list[Sequence[str]]:
        pairs = self.examples.pairs
        return [self.examples.texts] if pairs is None else [self.examples.texts, pairs]

    def _look_up(self, synonyms: Synonyms) -> None:
        chosen = part_of(synonyms, self.settings.scale)
        options = {"protect": not self.settings.unprotected, "exact": self.settings.exact}
        keeps: list[list[tuple[int, int]] | None] = [None, None]
        if self.examples.kind == "qa":
            # An answer is copied from the context as it stands.
            keeps[1] = [(answer.start, answer.start + len(answer.text)) for answer in self._answers()]
        self.columns = [
            replaceable(texts, spans, chosen, keep=keep, **options)
            for texts, spans, keep in zip(self._texts(), self.spans, keeps, strict=False)
        ]
        if not any(len(column.word) for column in self.columns):
            raise BadInput(
                f"No word of {self.examples.name or 'the training data'} has a synonym in {self.settings.synonyms}.",
                "Give another file with --synonyms, in the language of the data.",
            )

    def _answers(self) -> list[Answer]:
        labels = cast("Sequence[Sequence[Answer] | None] | None", self.examples.labels)
        return [gold[0] if gold else Answer("", 0) for gold in labels or [None] * len(self.examples)]

    def draw(self, which: Rows, step: int) -> tuple[Examples, list[list[Spans]]]:
        """Return some examples with words replaced, and the words of each of their texts."""
        # Another column, another draw: else equal words of both texts would always change alike.
        drawn = [
            column.replace(which, self.settings.rate, 2 * self.seed + number, step)
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

    def augmented(self, rows: Rows, step: int) -> tuple[Encoded, Rows, Places]:
        """Return xᵃ of some rows of x: its tokens, the row of each among them, and where its words are."""
        example = self.encoded.example_of[rows].astype(np.int64)
        new, spans = self.draw(example, step)
        encoded = self.task.encode(new, self.tokenizer)
        starts = np.searchsorted(encoded.example_of, np.arange(len(rows) + 1))
        # A long example is several rows, in x and in xᵃ: the same piece of it, or its last one.
        piece = rows - np.searchsorted(self.encoded.example_of, example)
        own = np.minimum(starts[:-1] + piece, starts[1:] - 1)
        return encoded, own, word_places(self.task, self.tokenizer, new, spans, encoded)

    def batch(self, rows: Rows, step: int) -> dict[str, Tensor]:
        """Return xᵃ of some rows as a batch."""
        encoded, own, _ = self.augmented(rows, step)
        return self.task.collate(encoded, own, self.pad_id)

    def both(self, rows: Rows, step: int, *, same: bool = False) -> dict[str, Tensor]:
        """Return x and xᵃ of some rows as one batch of twice as many: first all x, then all xᵃ.

        Beside the task's tensors: `word_first` and `word_stop` (2 · rows, words), the tokens of each word, -1 where
        it has none. Word i of row j is word i of row j + rows.

        Args:
            rows: Rows of x.
            step: The training step.
            same: Let xᵃ = x.
        """
        places_x = self.places.pad(self.encoded.example_of[rows].astype(np.int64))
        if same:
            encoded, own, places_a = self.encoded, rows, places_x
        else:
            encoded, own, places = self.augmented(rows, step)
            places_a = places.pad(np.arange(len(rows)))
        longest = max(int(self.encoded.lengths()[rows].max()), int(encoded.lengths()[own].max()))
        length = -(-longest // 8) * 8
        x = self.task.collate(self.encoded, rows, self.pad_id, pad_to=length)
        xa = self.task.collate(encoded, own, self.pad_id, pad_to=length)
        batch = {name: torch.cat([x[name], xa[name]]) for name in x}
        for name, ours, theirs in zip(("word_first", "word_stop"), places_x, places_a, strict=True):
            batch[name] = torch.from_numpy(np.concatenate([ours, theirs]))
        return batch


def word_places(
    task: Task,
    tokenizer: PreTrainedTokenizerBase,
    examples: Examples,
    spans: Sequence[Sequence[Spans]],
    encoded: Encoded,
) -> Places:
    """Find the tokens of each word of encoded examples; see `Places`."""
    options = {"truncation": "longest_first"} if task.kind == "classification" else {}
    encoding = enc.tokenize(
        tokenizer,
        examples.texts,
        examples.pairs,
        max_length=task.max_length,
        return_offsets_mapping=True,
        **options,
    )
    tokens = token_spans(encoding, tokenizer)
    columns = [word_maps(tokens, words, sequence=number) for number, words in enumerate(spans)]
    row = np.repeat(np.arange(len(examples)), np.diff(tokens.starts))
    at = np.flatnonzero(tokens.sequence < 0)
    special = (at - tokens.starts[row[at]]).reshape(len(examples), len(at) // len(examples))
    first_row = np.minimum(np.searchsorted(encoded.example_of, np.arange(len(examples))), len(encoded) - 1)
    single = np.bincount(encoded.example_of, minlength=len(examples)) == 1
    known = single & (encoded.lengths()[first_row] == np.diff(tokens.starts))
    return Places(columns, special, known)


def _words(examples: Examples, exact: bool) -> list[list[Spans]]:
    """Return the words of each text, for one or two columns of texts."""
    if examples.spans is not None:
        return [list(examples.spans)]
    columns = [(examples.texts, examples.language)]
    if examples.pairs is not None:
        columns.append((examples.pairs, examples.pair_language or examples.language))
    return [space_spans(texts) if exact else segment_all(texts, language) for texts, language in columns]


def _moved(gold: object, old: Spans, new: Spans) -> list[Answer] | None:
    """Return the first answer where it stands after the words before it have grown or shrunk."""
    if not gold:
        return cast("list[Answer] | None", gold)
    answer = cast("Sequence[Answer]", gold)[0]
    before = int(np.searchsorted(old[:, 1], answer.start, side="right"))
    shift = int(new[before - 1, 1] - old[before - 1, 1]) if before else 0
    return [Answer(answer.text, answer.start + shift)]
