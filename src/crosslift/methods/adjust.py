"""Cross-lingual adjustment with a small parallel corpus (Cao et al., ICLR 2020; Efimov et al., ECIR 2023).

    L = Σ_(s,t) ‖f(s) − f(t)‖² + Σ_s ‖f(s) − f⁰(s)‖²                                     (1)

s and t are words that translate each other, f(·) is the mean of a word's piece vectors in the last layer, f⁰ the
encoder before it is moved. The pull draws translations together; the anchor keeps the source language where it was,
so that a head learnt there still fits. In continual learning a batch of pairs joins every step of fine-tuning:

    L = L_task + α · pull + β · anchor                                                  (2)

Steven Cao, Nikita Kitaev, Dan Klein: Multilingual Alignment of Contextual Word Representations.
Pavel Efimov, Leonid Boytsov, Elena Arslanova, Pavel Braslavski: The Impact of Cross-Lingual Adjustment of Contextual
Word Representations on Zero-Shot Transfer.

Where we depart from paper or released code:

* pull and anchor are means over word pairs, or words, and over the width (the released code's scale); a step's value
  does not depend on how it is cut into micro-batches, where the released one adds eight means of four sentences each;
* f⁰ comes from a cache, computed once without gradients, in half precision;
* the anchor covers every source word and both sentence marks, as in the released code;
* `cao`: the target word is pulled to f⁰(s), which does not move, and a word is its last piece.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from crosslift.data.batches import evaluation_batches
from crosslift.data.words import pool_words, ranges, row_starts
from crosslift.errors import BadInput
from crosslift.tasks.encoded import Ragged

if TYPE_CHECKING:
    from transformers import PreTrainedModel

    from crosslift.align.encoded_pairs import EncodedPairs, Side

Pooling = Literal["mean", "first", "last"]


def distance(one: Tensor, other: Tensor, there: Tensor) -> Tensor:
    """Mean over words and width of (one − other)²: the pull of (1), and its anchor.

    Args:
        one: (..., width).
        other: (..., width).
        there: (...) whether there is such a word.
    """
    apart = (one.float() - other.float()).square().mean(-1) * there
    # Without words there is nothing to be near to; a mean would be NaN.
    return apart.sum() / there.sum().clamp(min=1)


def hidden_states(model: nn.Module, batch: dict[str, Tensor], layer: int | None = None) -> Tensor:
    """Run an encoder, or a task model's encoder, and return one layer's vectors: (rows, length, width).

    Args:
        model: A Hugging Face model, plain or wrapped for several processes. A task model's encoder is called without
            the wrapper: the gradients of both passes are shared when the task's own pass is.
        batch: `input_ids` and `attention_mask` (rows, length), 1 = a real token.
        layer: Counted from 1; `None`: the last one, after any norm behind it.
    """
    plain: Any = getattr(model, "module", model)
    encoder: Any = model if plain.base_model is plain else plain.base_model
    inputs = {name: batch[name] for name in ("input_ids", "attention_mask")}
    if layer is None:
        last: Tensor = encoder(**inputs).last_hidden_state
        return last
    states = encoder(**inputs, output_hidden_states=True).hidden_states
    if not 1 <= layer < len(states):
        raise BadInput(f"--layer {layer}: this model has {len(states) - 1} layers, counted from 1.")
    chosen: Tensor = states[layer]
    return chosen


@dataclass(frozen=True)
class Settings:
    """What is pulled where."""

    preset: Literal["paper", "cao"] = field(
        default="paper", metadata={"help": "paper: both sides move; cao: targets are pulled to frozen last pieces."}
    )
    pooling: Literal["mean", "first", "last", "subwords"] | None = field(
        default=None, metadata={"help": "A word is the mean of its pieces, its first, its last; or pieces are linked."}
    )
    pull_to: Literal["moving", "frozen"] | None = field(
        default=None, metadata={"help": "Source vector that a target word is pulled to: today's, or the original."}
    )
    linked: Literal["all", "words", "specials", "cls"] = field(
        default="all", metadata={"help": "Links that count: words and sentence marks, or either, or [CLS] alone."}
    )
    layer: int | None = field(default=None, metadata={"help": "Layer whose vectors are pulled (default: the last)."})
    pull_weight: float = field(default=1.0, metadata={"help": "Weight of the pull."})
    anchor_weight: float = field(default=1.0, metadata={"help": "Weight of the anchor."})

    def __post_init__(self) -> None:
        if self.layer is not None and self.layer < 1:
            raise BadInput(f"--layer counts from 1; there is no layer {self.layer}.")
        for name in ("pull_weight", "anchor_weight"):
            if not 0 <= getattr(self, name) < math.inf:
                raise BadInput(f"--{name.replace('_', '-')} is a number from 0, not {getattr(self, name):g}.")

    @property
    def word(self) -> Pooling:
        """How the pieces of a word become one vector; with linked pieces there is only one."""
        chosen = self.pooling or ("last" if self.preset == "cao" else "mean")
        return "mean" if chosen == "subwords" else chosen

    @property
    def frozen(self) -> bool:
        """Whether targets are pulled to the original source vectors."""
        return (self.pull_to or ("frozen" if self.preset == "cao" else "moving")) == "frozen"


class Anchors(Protocol):
    """f⁰ of the source words of every pair, as `models.frozen.FrozenRows` holds them."""

    def flat(self, index: NDArray[np.int64]) -> NDArray[np.floating]:
        """Return the word vectors of some pairs, one after another: (words, width)."""


class Adjust:
    """Batches of aligned pairs, and the two terms of (1).

    Args:
        settings: What is pulled where.
        pairs: Tokenised pairs with their links.
        anchors: f⁰ of every source word of every pair, marks included.
        pad_id: The tokenizer's padding.
    """

    title: ClassVar[str] = "pulling translated words together (cross-lingual adjustment)"
    needs: ClassVar[tuple[str, ...]] = ("bitext",)
    replayable: ClassVar[bool] = True

    def __init__(self, settings: Settings, pairs: EncodedPairs, anchors: Anchors, pad_id: int) -> None:
        self.settings, self.pairs, self.anchors, self.pad_id = settings, pairs, anchors, pad_id
        self.lengths = pairs.lengths()
        maps = pairs.source.words
        self.words = np.add.reduceat((maps.first >= 0).astype(np.int64), maps.starts[:-1])
        """(pairs,) source words that have tokens, over which the anchor is a mean."""

    def units(self, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the links of each pair, over which the pull is a mean."""
        return np.diff(self.pairs.links.starts)[rows]

    def batch(self, rows: NDArray[np.int64], step: int) -> dict[str, Tensor]:
        """Return the padded batch of some pairs; nothing is drawn, so the step does not matter.

        Everything is as wide as the longest sentence, so that batches have few shapes.

        Args:
            rows: Which pairs.
            step: Of the run.

        Returns:
            `input_ids` and `attention_mask` (2 · pairs, length), source sentences above their translations;
            `word_first` and `word_stop` (2 · pairs, length); `link_source` and `link_target` (pairs, length) the words
            of each link, -1 = no link; `anchor` (pairs, length, width) of the source words.
        """
        source, target, links = self.pairs.source, self.pairs.target, self.pairs.links.select(rows)
        most = max(1, int(np.diff(links.starts).max()))
        batch = paired_rows(source, target, rows, self.pad_id, words=most)
        width = batch["word_first"].shape[1]
        for name, words in (("link_source", links.source), ("link_target", links.target)):
            batch[name] = Ragged(words.astype(np.int64), links.starts).pad(np.arange(len(rows)), width, -1)
        counts = np.diff(source.words.starts)[rows]
        vectors = Ragged(self.anchors.flat(rows), row_starts(counts))
        tensors = {name: torch.from_numpy(np.ascontiguousarray(values)) for name, values in batch.items()}
        return {**tensors, "anchor": torch.from_numpy(vectors.pad(np.arange(len(rows)), width, 0))}

    def loss(self, model: nn.Module, batch: dict[str, Tensor]) -> dict[str, Tensor]:
        """Return the weighted pull and anchor, each a mean over the batch."""
        return self.terms(hidden_states(model, batch, self.settings.layer), batch)

    def terms(self, hidden: Tensor, batch: dict[str, Tensor]) -> dict[str, Tensor]:
        """Return the weighted pull and anchor of (1).

        Args:
            hidden: (2 · pairs, length, width) of the chosen layer.
            batch: What `batch` returned.
        """
        settings, first = self.settings, batch["word_first"]
        linked = batch["link_source"] >= 0
        with torch.autocast(hidden.device.type, enabled=False):
            pooled = pool_words(hidden.float(), first, batch["word_stop"], settings.word)
            source, target = pooled.chunk(2)
            anchor = batch["anchor"].float()
            pulled_to = _words(anchor if settings.frozen else source, batch["link_source"])
            # Words that the tokenizer swallowed have no vector: neither f nor f⁰ knows them.
            known = first.chunk(2)[0] >= 0
            pull = distance(pulled_to, _words(target, batch["link_target"]), linked)
            return {
                "pull": settings.pull_weight * pull,
                "anchor": settings.anchor_weight * distance(source, anchor, known),
            }


def _words(vectors: Tensor, which: Tensor) -> Tensor:
    """Return some words of each row: (rows, words, width), (rows, some) -> (rows, some, width); any word for -1."""
    return vectors.gather(1, which.clamp(min=0).unsqueeze(-1).expand(-1, -1, vectors.shape[-1]))


def paired_rows(
    source: Side, target: Side, rows: NDArray[np.int64], pad_id: int, words: int = 1
) -> dict[str, NDArray[np.int64]]:
    """Return both sides of some pairs as one padded batch, with room for so many words; see `Adjust.batch`."""
    sides = (source, target)
    lengths = [side.ids.lengths()[rows] for side in sides]
    longest = -(-int(max(part.max() for part in lengths)) // 8) * 8
    ids = np.concatenate([side.ids.pad(rows, longest, pad_id) for side in sides])
    maps = [side.words.pad(rows) for side in sides]
    most = max(words, *(first.shape[1] for first, _ in maps))
    width = max(longest, -(-most // 8) * 8)
    first, stop = (
        np.concatenate([np.pad(part[k], ((0, 0), (0, width - part[k].shape[1])), constant_values=-1) for part in maps])
        for k in (0, 1)
    )
    mask = np.arange(longest) < np.concatenate(lengths)[:, None]
    named = {"input_ids": ids, "attention_mask": mask, "word_first": first, "word_stop": stop}
    return {name: values.astype(np.int64) for name, values in named.items()}


@torch.no_grad()
def word_vectors(
    encoder: PreTrainedModel,
    side: Side,
    rows: NDArray[np.int64],
    pad_id: int,
    *,
    layer: int | None = None,
    how: Pooling = "mean",
    max_tokens: int = 16384,
) -> Ragged:
    """Return the vectors of all words of some sentences, marks included: rows of (words, width), float32.

    Args:
        encoder: The encoder; it is put into evaluation mode.
        side: The sentences.
        rows: Which of them.
        pad_id: The tokenizer's padding.
        layer: Counted from 1; `None`: the last one.
        how: How the pieces of a word become one vector.
        max_tokens: Padded tokens per batch.
    """
    encoder.eval()
    device = next(encoder.parameters()).device
    starts = row_starts(np.diff(side.words.starts)[rows])
    found: NDArray[np.float32] | None = None
    for part in evaluation_batches(side.ids.lengths()[rows], max_tokens):
        chosen = rows[part]
        lengths = side.ids.lengths()[chosen]
        longest = -(-int(lengths.max()) // 8) * 8
        first, stop = (torch.from_numpy(values).to(device) for values in side.words.pad(chosen))
        batch = {
            "input_ids": torch.from_numpy(side.ids.pad(chosen, longest, pad_id).astype(np.int64)).to(device),
            "attention_mask": torch.from_numpy((np.arange(longest) < lengths[:, None]).astype(np.int64)).to(device),
        }
        hidden = hidden_states(encoder, batch, layer)
        with torch.autocast(device.type, enabled=False):
            vectors = pool_words(hidden.float(), first, stop, how).cpu().numpy()
        counts = np.diff(starts)[part]
        if found is None:
            found = np.zeros((int(starts[-1]), vectors.shape[-1]), dtype=np.float32)
        found[ranges(starts[part], counts)] = vectors[np.arange(vectors.shape[1]) < counts[:, None]]
    assert found is not None
    return Ragged(found, starts)
