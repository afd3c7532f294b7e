"""Pretraining an encoder on text, sentence pairs and the vectors of teachers.

A step minimises a weighted sum of four terms, each a mean over its units:

    masked     −log p(x_i | x with 20% of its pieces hidden)           windows of text (Devlin et al. 2019), of
                                                                       pairs (translation LM, Conneau & Lample
                                                                       2019), and of code-switched sentences
    contrast   −log exp(cos(a_i, b_i)/τ) / Σ_j exp(cos(a_i, b_j)/τ)    both directions, over the pairs (a, b) of a
                                                                       step, which all have the same language; for
                                                                       the vector at `<s>` and the mean vector
    sentences  1 − cos(W v, t)                                         v of either side, t a teacher's vector of the
                                                                       text that both sides say (Reimers & Gurevych
                                                                       2020); W is thrown away
    words      1 − cos(U w, u)                                         w of a linked word on either side, u the
                                                                       teacher's vector of the English word in its
                                                                       sentence; U is thrown away

Two sides of a pair with the same anchor text as another pair of the step are no negatives for each other.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn
from torch.nn.functional import cosine_similarity, cross_entropy, normalize, pad

from crosslift.data.pair_rows import PairRows
from crosslift.data.streams import Masked, Streams, framed, mask_tokens, positions, step_generator
from crosslift.errors import BadInput

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

    from crosslift.models.sentence_teacher import TeacherVectors

Batch = dict[str, Tensor]


@dataclass(frozen=True)
class Objectives:
    """What is learnt, by weight; 0 switches a term off."""

    masked: float = field(default=1.0, metadata={"help": "Weight of the masked LM."})
    contrast: float = field(default=0.5, metadata={"help": "Weight of the contrast between pairs."})
    sentences: float = field(default=2.0, metadata={"help": "Weight of the teachers' sentence vectors."})
    words: float = field(default=1.0, metadata={"help": "Weight of the teacher's word vectors."})
    temperature: float = field(default=0.05, metadata={"help": "Temperature of the contrast."})
    mask_rate: float = field(default=0.2, metadata={"help": "Share of the pieces that are hidden."})
    shifted: float = field(default=0.15, metadata={"help": "Share of rows that begin at a random position."})


@dataclass(frozen=True)
class Sampling:
    """How much of what a step draws."""

    window: int = field(default=256, metadata={"help": "Tokens per row of the masked LM."})
    window_tokens: int = field(default=65_536, metadata={"help": "Masked-LM tokens per step."})
    pair_tokens: int = field(default=32_768, metadata={"help": "Padded tokens per step and side of the pairs."})
    pair_lengths: tuple[int, ...] = field(
        default=(16, 32, 64), metadata={"help": "Length classes of pairs; a step draws from one."}
    )
    smoothing: float = field(
        default=0.5, metadata={"help": "Languages are drawn by size to this power: 1 as found, 0 all alike."}
    )
    translation_windows: float = field(default=0.35, metadata={"help": "Share of windows cut from pairs."})
    switched_windows: float = field(default=0.15, metadata={"help": "Share of windows cut from code-switched text."})
    switched_pairs: float = field(default=0.2, metadata={"help": "Share of pair steps with code-switched pairs."})
    lexicon_pairs: float = field(default=0.05, metadata={"help": "Share of pair steps with lexicon entries."})
    same_pairs: float = field(
        default=0.15, metadata={"help": "Share of pair steps with a text and its own lower-case form."}
    )
    same_lines: int = field(default=40_000, metadata={"help": "Lines per language that are seen that way, at most."})
    same_english: int = field(default=200_000, metadata={"help": "The same for English."})
    phrase_pairs: float = field(
        default=0.2, metadata={"help": "Share of pair steps with words and phrases that a teacher knows, if any."}
    )
    plain: float = field(default=0.4, metadata={"help": "Share of pairs seen also in lower case without punctuation."})


class Pretrainer(nn.Module):
    """An encoder with its masked-LM head, and the linear heads that read teachers' vectors off it.

    Args:
        model: A Hugging Face masked-LM model.
        objectives: Weights of the terms.
        teacher_widths: Width of each teacher's sentence vectors.
        word_width: Width of the teacher's word vectors; 0 = none.
    """

    def __init__(
        self, model: PreTrainedModel, objectives: Objectives, teacher_widths: Sequence[int] = (), word_width: int = 0
    ) -> None:
        super().__init__()
        self.model = model
        self.objectives = objectives
        width = model.config.hidden_size
        # One head for the vector at <s>, one for the mean: fine-tuning reads the first, retrieval the second.
        self.first_heads = nn.ModuleList(nn.Linear(width, w) for w in teacher_widths)
        self.mean_heads = nn.ModuleList(nn.Linear(width, w) for w in teacher_widths)
        self.word_head = nn.Linear(width, word_width) if word_width else None
        self.lm_head = lm_head(model)

    def forward(self, batch: Batch) -> dict[str, Tensor]:
        """Return the weighted loss terms of a batch (see `PretrainWork.batches` for its keys)."""
        weights = self.objectives
        terms: dict[str, Tensor] = {}
        if "masked_ids" in batch:
            hidden = self.states(batch["masked_ids"], None, batch.get("masked_positions"))
            logits = self.lm_head(at_places(hidden, batch["places"]))
            terms["masked"] = weights.masked * masked_loss(logits, batch["targets"])
        if "pair_ids" in batch:
            hidden = self.states(batch["pair_ids"], batch["pair_mask"], batch.get("pair_positions"))
            first, mean = sentence_vectors(hidden, batch["pair_mask"])
            if weights.contrast:
                sides = [v.chunk(2) for v in (first, mean)]
                apart = [contrast(a, b, batch["anchors"], weights.temperature) for a, b in sides]
                terms["contrast"] = weights.contrast * torch.stack(apart).mean()
            if len(self.first_heads) and weights.sentences:
                parts = []
                for number, (on_first, on_mean) in enumerate(zip(self.first_heads, self.mean_heads, strict=True)):
                    target = batch[f"teacher_{number}"].repeat(2, 1)
                    parts += [taught(on_first(first), target), taught(on_mean(mean), target)]
                terms["sentences"] = weights.sentences * torch.stack(parts).mean()
            if self.word_head is not None and weights.words:
                read = self.word_head(word_vectors(hidden, batch["word_spans"]))
                target = batch["word_targets"].repeat(2, 1, 1)
                terms["words"] = weights.words * taught(read.flatten(0, 1), target.flatten(0, 1))
        return terms

    def states(self, ids: Tensor, mask: Tensor | None, places: Tensor | None) -> Tensor:
        """Return (rows, length, width) last hidden states."""
        extra = {} if places is None else {"position_ids": places}
        hidden: Tensor = self.model.base_model(input_ids=ids, attention_mask=mask, **extra).last_hidden_state
        return hidden


def lm_head(model: PreTrainedModel) -> nn.Module:
    """Return the part of a masked-LM model that turns hidden states into piece scores."""
    for name in ("lm_head", "cls", "predictions", "generator_lm_head"):
        head = getattr(model, name, None)
        if isinstance(head, nn.Module):
            return head
    raise BadInput(
        f"{type(model).__name__} has no masked-LM head that can be trained further.",
        "Use an encoder of the RoBERTa, XLM-R or BERT family.",
    )


def at_places(hidden: Tensor, places: Tensor) -> Tensor:
    """Pick states: (rows, length, width) at (rows, hidden) -> (rows * hidden, width)."""
    index = places.unsqueeze(-1).expand(-1, -1, hidden.shape[-1])
    return hidden.gather(1, index).flatten(0, 1)


def masked_loss(logits: Tensor, targets: Tensor) -> Tensor:
    """Return the mean cross-entropy over hidden pieces; targets of -100 do not count.

    Args:
        logits: (hidden, vocabulary).
        targets: Any shape with as many entries as logits has rows.
    """
    flat = targets.flatten()
    summed = cross_entropy(logits.float(), flat, ignore_index=-100, reduction="sum")
    return summed / (flat != -100).sum().clamp(min=1)


def sentence_vectors(hidden: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
    """Return the vector at the first token and the mean over real tokens, each (rows, width) in float32."""
    weights = mask.unsqueeze(-1).float()
    mean = (hidden.float() * weights).sum(1) / weights.sum(1).clamp(min=1)
    return hidden[:, 0].float(), mean


def contrast(left: Tensor, right: Tensor, anchors: Tensor, temperature: float) -> Tensor:
    """Return InfoNCE of both directions, a mean over pairs.

    Args:
        left: (pairs, width) vectors of one side.
        right: (pairs, width) vectors of the other.
        anchors: (pairs,) pairs with equal numbers say the same and are no negatives for each other.
        temperature: Divides the cosines.
    """
    with torch.autocast(left.device.type, enabled=False):
        scores = normalize(left.float(), dim=-1) @ normalize(right.float(), dim=-1).T / temperature
        own = torch.arange(len(scores), device=scores.device)
        twin = (anchors[:, None] == anchors[None, :]) & (own[:, None] != own[None, :])
        scores = scores.masked_fill(twin, float("-inf"))
        return (cross_entropy(scores, own) + cross_entropy(scores.T, own)) / 2


def taught(read: Tensor, target: Tensor) -> Tensor:
    """Return the mean of 1 − cos over rows; a row whose target is all zeros (unknown to the teacher) is left out.

    Args:
        read: (rows, width) what a head reads off the student.
        target: (rows, width) the teacher's vectors.
    """
    target = target.float()
    known = target.abs().sum(-1) > 0
    apart = 1 - cosine_similarity(read.float(), target, dim=-1)
    return (apart * known).sum() / known.sum().clamp(min=1)


def word_vectors(hidden: Tensor, spans: Tensor) -> Tensor:
    """Return the mean state of each word: (rows, length, width), (rows, words, 2) -> (rows, words, width).

    Args:
        hidden: Hidden states.
        spans: First and stop token of each word; stop ≤ first means no word and gives zeros.
    """
    first, stop = spans.clamp(min=0, max=hidden.shape[1]).unbind(-1)
    sums = pad(hidden.float().cumsum(1), (0, 0, 1, 0))  # (rows, length + 1, width): sums before each token
    index = torch.stack([first, stop], dim=1).unsqueeze(-1).expand(-1, -1, -1, hidden.shape[-1])
    before, until = (sums.gather(1, index[:, i]) for i in (0, 1))
    size = (stop - first).unsqueeze(-1)
    return torch.where(size > 0, (until - before) / size.clamp(min=1), 0.0)


class PretrainWork:
    """The batches of a run as a function of (seed, step): the `Work` that the training loop asks for.

    Args:
        streams: Windows of text, or `None` for pairs alone.
        pairs: Sentence pairs, or `None`.
        teachers: Vectors of the anchor texts; word vectors come from the first that has them.
        tokenizer: Gives special ids.
        steps: Optimiser steps in all.
        sampling: Sizes of a step.
        objectives: Mask rate and the like.
        max_positions: Positions of the encoder, or 0 if its family counts them otherwise.
        seed: Draws everything.
    """

    def __init__(
        self,
        streams: Streams | None,
        pairs: PairRows | None,
        teachers: Sequence[TeacherVectors],
        tokenizer: PreTrainedTokenizerBase,
        *,
        steps: int,
        sampling: Sampling,
        objectives: Objectives,
        max_positions: int,
        seed: int,
    ) -> None:
        self.streams, self.pairs, self.teachers = streams, pairs, list(teachers)
        self.steps, self.sampling, self.objectives, self.seed = steps, sampling, objectives, seed
        self.max_positions = max_positions
        self.pad_id, self.mask_id = int(tokenizer.pad_token_id), int(tokenizer.mask_token_id)
        self.first, self.last = int(tokenizer.cls_token_id), int(tokenizer.sep_token_id)
        self.special = sorted(set(tokenizer.all_special_ids))
        self.vocabulary = len(tokenizer)
        device = streams.ids.device if streams is not None else pairs.anchors.device if pairs else torch.device("cpu")
        self.device = device

    def batches(self, step: int, rank: int, world: int) -> Iterator[tuple[Batch, float]]:
        """Return the one batch of this process at a step; each process draws its own part."""
        generator = step_generator(self.seed, step, rank, self.device)
        batch: Batch = {}
        if self.streams is not None and self.objectives.masked:
            batch |= self._windows(self.streams, generator, world)
        if self.pairs is not None:
            batch |= self._pairs(self.pairs, step, generator, world)
        yield batch, 1 / world

    def loss(self, model: nn.Module, batch: Batch) -> dict[str, Tensor]:
        """Return the weighted terms."""
        terms: dict[str, Tensor] = model(batch)
        return terms

    def _windows(self, streams: Streams, generator: torch.Generator, world: int) -> Batch:
        length = self.sampling.window
        rows = max(1, self.sampling.window_tokens // length // world)
        ids = framed(streams.draw(rows, length - 2, generator), self.first, self.last)
        hidden = self.mask(ids, generator)
        batch = {"masked_ids": hidden.input_ids, "places": hidden.places, "targets": hidden.targets}
        if self.max_positions:
            batch["masked_positions"] = self._positions(torch.ones_like(ids), generator)
        return batch

    def mask(self, ids: Tensor, generator: torch.Generator) -> Masked:
        """Hide pieces of (rows, length) ids."""
        rate = self.objectives.mask_rate
        return mask_tokens(ids, rate, self.mask_id, self.special, self.vocabulary, generator)

    def _positions(self, mask: Tensor, generator: torch.Generator) -> Tensor:
        return positions(mask, self.pad_id, self.max_positions, self.objectives.shifted, generator)

    def _pairs(self, pairs: PairRows, step: int, generator: torch.Generator, world: int) -> Batch:
        length, rows = pairs.draw(self.seed, step, self.sampling.pair_tokens // world, generator)
        sides = [side.pad(rows, length, self.pad_id) for side in (pairs.left, pairs.right)]
        mask = torch.cat([mask for _, mask in sides])
        anchors = pairs.anchors[rows]
        batch = {"pair_ids": torch.cat([ids for ids, _ in sides]), "pair_mask": mask, "anchors": anchors}
        if self.max_positions:
            batch["pair_positions"] = self._positions(mask, generator)
        for number, teacher in enumerate(self.teachers):
            batch[f"teacher_{number}"] = teacher.sentences[anchors]
        words = next((teacher.words for teacher in self.teachers if len(teacher.words)), None)
        if words is not None:
            spans = pairs.spans[rows].long()
            whole = ((spans[..., 1] <= length) & (spans[..., 3] <= length)).unsqueeze(-1)
            known = (pairs.words[rows] >= 0).unsqueeze(-1) & whole
            batch["word_spans"] = torch.cat([spans[..., :2], spans[..., 2:]])
            batch["word_targets"] = torch.where(known, words[pairs.words[rows].clamp(min=0).long()], 0.0)
        return batch
