"""Training examples x beside their augmented selves xᵃ: some words replaced by synonyms, drawn anew every step.

Words map one to one between x and xᵃ, whatever the tokenizer makes of them; labels follow the words.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from crosslift.data import augment
from crosslift.data.examples import Examples, Spans
from crosslift.data.words import WordMaps, token_spans, word_maps
from crosslift.errors import BadInput
from crosslift.tasks import encoded as enc
from crosslift.tasks.classification import Classification
from crosslift.tasks.encoded import Encoded

if TYPE_CHECKING:
    from transformers import BatchEncoding, PreTrainedTokenizerBase

    from crosslift.tasks import Task

Rows = NDArray[np.int64]


@dataclass(frozen=True)
class SynonymSettings(augment.SynonymSettings):
    """Where synonyms come from, and how they are drawn during training."""

    copies: int | None = field(
        default=None, metadata={"help": "Draw from so many fixed copies of each example (default: anew every step)."}
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.copies is not None and self.copies < 1:
            raise BadInput(f"--copies must be at least 1, not {self.copies}.")


SYNONYM_SETTINGS = tuple(setting.name for setting in fields(SynonymSettings))


def unused(settings: SynonymSettings, names: Sequence[str]) -> list[str]:
    """Say in a line which settings were given although nothing reads them: those that are not at their default.

    Args:
        settings: Settings of a method.
        names: Those that its loss, as it is chosen, does not read.
    """
    defaults = {setting.name: setting.default for setting in fields(settings)}
    given = [f"--{name.replace('_', '-')}" for name in names if getattr(settings, name) != defaults[name]]
    if not given:
        return []
    return [f"unused    {', '.join(given)}: this loss does not read {'it' if len(given) == 1 else 'them'}"]


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
        """Return the first token of each word and one past its last one: (which, words) each; -1 = none.

        The number of words is rounded up to a multiple of 8, so that batches have few shapes.
        """
        parts = [maps.pad(which) for maps in self.columns]
        special = self.special[which]
        first = np.concatenate([special, *(part[0] for part in parts)], axis=1)
        stop = np.concatenate([special + 1, *(part[1] for part in parts)], axis=1)
        room = ((0, 0), (0, -first.shape[1] % 8))
        first, stop = (np.pad(part, room, constant_values=-1) for part in (first, stop))
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
        self.source = augment.Source(settings, examples)
        encoding = _tokenized(task, tokenizer, examples)
        self.encoded = _encoded(task, tokenizer, examples, encoding)
        self.places = word_places(tokenizer, encoding, self.source.spans, self.encoded)
        self.seed = 0

    def prepare(self, model: nn.Module, seed: int) -> None:
        """Take the run's seed, and synonyms from the model's embeddings where no dictionary was given."""
        self.seed = seed
        if self.settings.synonyms == augment.NEIGHBOURS:
            matrix = cast("Any", model).get_input_embeddings().weight
            self.source.look_among_neighbours(self.tokenizer, matrix.detach().float().cpu().numpy())

    def draw(self, which: Rows, step: int) -> tuple[Examples, list[list[Spans]]]:
        """Return some examples with words replaced, and the words of each of their texts."""
        copies = self.settings.copies
        drawn = step if copies is None else augment.copy_numbers(which, self.seed, step, copies)
        return self.source.draw(which, self.seed, drawn)

    def augmented(self, rows: Rows, step: int) -> tuple[Encoded, Rows, Places]:
        """Return xᵃ of some rows of x: its tokens, the row of each among them, and where its words are."""
        example = self.encoded.example_of[rows].astype(np.int64)
        new, spans = self.draw(example, step)
        encoding = _tokenized(self.task, self.tokenizer, new)
        encoded = _encoded(self.task, self.tokenizer, new, encoding)
        starts = np.searchsorted(encoded.example_of, np.arange(len(rows) + 1))
        # A long example is several rows, in x and in xᵃ: the same piece of it, or its last one.
        piece = rows - np.searchsorted(self.encoded.example_of, example)
        own = np.minimum(starts[:-1] + piece, starts[1:] - 1)
        return encoded, own, word_places(self.tokenizer, encoding, spans, encoded)

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


def _tokenized(task: Task, tokenizer: PreTrainedTokenizerBase, examples: Examples) -> BatchEncoding:
    """Tokenise examples whole, with character offsets; classification cuts what is too long."""
    options = {"truncation": "longest_first"} if task.kind == "classification" else {}
    return enc.tokenize(
        tokenizer,
        examples.texts,
        examples.pairs,
        max_length=task.max_length,
        return_offsets_mapping=True,
        **options,
    )


def _encoded(task: Task, tokenizer: PreTrainedTokenizerBase, examples: Examples, encoding: BatchEncoding) -> Encoded:
    """Return examples as rows; where rows are whole examples, they are not tokenised again."""
    return task.encoded(encoding, examples) if isinstance(task, Classification) else task.encode(examples, tokenizer)


def word_places(
    tokenizer: PreTrainedTokenizerBase, encoding: BatchEncoding, spans: Sequence[Sequence[Spans]], encoded: Encoded
) -> Places:
    """Find the tokens of each word of encoded examples; see `Places`."""
    count = len(encoding["input_ids"])
    tokens = token_spans(encoding, tokenizer)
    columns = [word_maps(tokens, words, sequence=number) for number, words in enumerate(spans)]
    row = np.repeat(np.arange(count), np.diff(tokens.starts))
    at = np.flatnonzero(tokens.sequence < 0)
    special = (at - tokens.starts[row[at]]).reshape(count, len(at) // count)
    first_row = np.minimum(np.searchsorted(encoded.example_of, np.arange(count)), len(encoded) - 1)
    single = np.bincount(encoded.example_of, minlength=count) == 1
    known = single & (encoded.lengths()[first_row] == np.diff(tokens.starts))
    return Places(columns, special, known)
