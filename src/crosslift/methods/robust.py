"""Robust fine-tuning: the family that EAR is compared with, one loss each.

    gaussian   CE(x + δ), δ ~ N(0, σ²) on the word embeddings
    xtune      CE(x) + λ · [KL(sg p ‖ q) + KL(sg q ‖ p)], p from x, q from its noised self  (Zheng et al. 2021)
    adv        CE(x + δ*), δ* = argmax CE(x + δ) in a ball, sought in K steps               (Huang et al. 2021)
    rs-rp      CE(x + δ), δ uniform in a ball                                               (Huang et al. 2021)
    rs-da      CE(xᵃ), words replaced by synonyms                                           (Huang et al. 2021)

Noise is added to the looked-up word embeddings, before positions and layer norm, on real tokens only (special
ones included); each token has its own ball. sg stops the gradient.

Huang, Ahmad, Peng, Chang: Improving Zero-Shot Cross-Lingual Transfer Learning via Robust Training, EMNLP 2021,
gives no radius, step or norm for `adv` and `rs-rp`, and released neither. Ours: the L2 norm, and a radius
relative to the mean norm of the untrained word embeddings, which differs much between encoders.
"""

from __future__ import annotations

import math
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn.functional import kl_div, log_softmax

from crosslift.errors import BadInput
from crosslift.models.attention import Disturbance
from crosslift.models.forward import forward
from crosslift.models.tokenised import encode_once
from crosslift.tasks.augmented import SYNONYM_SETTINGS, Augmented, SynonymSettings, unused

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

    from crosslift.data.examples import Examples
    from crosslift.tasks import Task


def symmetric_kl(
    p: Tensor, q: Tensor, unit: Literal["example", "element"] = "example", there: Tensor | None = None
) -> Tensor:
    """KL(sg p ‖ q) + KL(sg q ‖ p).

    Args:
        p: (..., classes) logits; a class that an item does not have has the lowest number of float32 in both.
        q: (..., classes) logits.
        unit: `example`: summed over classes, averaged over items; `element`: averaged over both, as in the
            released code, where λ = 5 with three classes is 1.67 here.
        there: (...) which items count; default: all of them.
    """
    log_p, log_q = log_softmax(p.float(), -1), log_softmax(q.float(), -1)
    both = kl_div(log_q, log_p.detach(), reduction="none", log_target=True)
    both = (both + kl_div(log_p, log_q.detach(), reduction="none", log_target=True)).sum(-1)
    if unit == "element":
        # The classes of an answer are places, and padding is none.
        both = both / (p.float() > torch.finfo(torch.float32).min).sum(-1).clamp(min=1)
    items = both.new_ones(both.shape) if there is None else there.to(both.dtype)
    mean: Tensor = (both * items).sum() / items.sum().clamp(min=1)
    return mean


def uniform_in_ball(mask: Tensor, width: int, radius: float) -> Tensor:
    """Draw one point of a ball for every real token: (batch, length, width); zeros at padding.

    Args:
        mask: (batch, length) 1 = a real token.
        width: Dimensions of the ball.
        radius: Its radius in L2.
    """
    direction = torch.randn(*mask.shape, width, device=mask.device)
    direction = direction / direction.norm(dim=-1, keepdim=True)
    # Volume grows with the width-th power of the radius.
    length = torch.rand(*mask.shape, 1, device=mask.device) ** (1 / width)
    points: Tensor = direction * length * radius * mask.unsqueeze(-1)
    return points


def ascend(delta: Tensor, gradient: Tensor, step: float, radius: float) -> Tensor:
    """Take one normalised step uphill for every token and come back into the ball.

    Args:
        delta: (batch, length, width) where we are.
        gradient: (batch, length, width) of the loss there.
        step: Length of the step.
        radius: Radius of the ball in L2.
    """
    moved = delta + step * gradient / gradient.norm(dim=-1, keepdim=True).clamp(min=1e-12)
    inside: Tensor = moved * (radius / moved.norm(dim=-1, keepdim=True).clamp(min=1e-12)).clamp(max=1)
    return inside


RADII = {"adv": 0.01, "rs-rp": 0.05}
"""Radius by variant: the best of 0.01, 0.05, 0.1, 0.5 and 1 on source-language dev data (see the docs)."""

READ_BY = {
    "sigma": ("gaussian", "xtune"),
    "weight": ("xtune",),
    "kl_unit": ("xtune",),
    "noise_from": ("xtune",),
    "radius": ("adv", "rs-rp"),
    "ascent_steps": ("adv",),
    "ascent_size": ("adv",),
}
"""Setting -> the variants that read it; those of synonyms aside."""


@dataclass(frozen=True)
class Settings(SynonymSettings):
    """Settings of robust fine-tuning."""

    variant: Literal["gaussian", "xtune", "adv", "rs-rp", "rs-da"] = field(
        default="rs-da", metadata={"help": "gaussian, xtune, adv, rs-rp or rs-da."}
    )
    sigma: float = field(default=0.075, metadata={"help": "gaussian, xtune: standard deviation of the noise."})
    weight: float = field(default=1.0, metadata={"help": "xtune: λ, the weight of the two KL terms."})
    kl_unit: Literal["example", "element"] = field(
        default="example", metadata={"help": "xtune: KL per example, or per class as in the released code."}
    )
    noise_from: Literal["gaussian", "synonyms"] = field(
        default="gaussian", metadata={"help": "xtune: what the noised input is."}
    )
    radius: float | None = field(
        default=None,
        metadata={
            "help": "adv, rs-rp: radius as a share of the mean norm of word embeddings (default: 0.01 and 0.05)."
        },
    )
    ascent_steps: int = field(default=1, metadata={"help": "adv: steps towards the worst case."})
    ascent_size: float = field(default=1.0, metadata={"help": "adv: length of a step, as a share of the radius."})

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("sigma", "weight", "radius", "ascent_size"):
            value = getattr(self, name)
            if value is not None and not 0 <= value < math.inf:  # nan is no size either
                raise BadInput(f"--{name.replace('_', '-')} must be a number from 0, not {value:g}.")
        if self.ascent_steps < 1:
            raise BadInput(f"--ascent-steps must be at least 1, not {self.ascent_steps}.")


class Robust:
    """Training on disturbed inputs."""

    title = "training on disturbed inputs (gaussian, xtune, adv, rs-rp, rs-da)"
    needs = ("labels",)
    replayable = True

    def __init__(self, settings: Settings, task: Task, tokenizer: PreTrainedTokenizerBase, examples: Examples) -> None:
        self.settings, self.task = settings, task
        self.by_synonyms = settings.variant == "rs-da" or (
            settings.variant == "xtune" and settings.noise_from == "synonyms"
        )
        self.pad_id = int(cast("int", tokenizer.pad_token_id))
        self.data = Augmented(settings, task, tokenizer, examples) if self.by_synonyms else None
        self.encoded = self.data.encoded if self.data else encode_once(task, examples, tokenizer)
        self.lengths = self.encoded.lengths() * (2 if settings.variant == "xtune" else 1)
        self.radius = 0.0
        self._disturbance: Disturbance | None = None

    def prepare(self, model: nn.Module, seed: int) -> None:
        """Take the run's seed and what the untrained model's word embeddings say: neighbours, radius."""
        if self.data:
            self.data.prepare(model, seed)
        embedding = _embedding(model)
        share = RADII.get(self.settings.variant, 0.0) if self.settings.radius is None else self.settings.radius
        # Gemma multiplies what it looks up; the noise is added behind that.
        scale = float(getattr(embedding, "embed_scale", 1.0))
        self.radius = share * scale * float(embedding.weight.detach().float().norm(dim=1).mean())

    def notes(self) -> list[str]:
        """Say how many words have synonyms, where they are used, and which settings count for nothing."""
        unread = [name for name, variants in READ_BY.items() if self.settings.variant not in variants]
        if self.data is None:
            unread += SYNONYM_SETTINGS
        elif self.settings.variant == "xtune":
            unread.append("sigma")
        return [*([self.data.source.note()] if self.data else []), *unused(self.settings, unread)]

    def units(self, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the loss units of each row: what its loss is averaged over."""
        return self.task.units(self.encoded, rows)

    def batch(self, rows: NDArray[np.int64], step: int) -> dict[str, Tensor]:
        """Return the batch: xᵃ (rs-da), x twice or x above xᵃ (xtune), else x."""
        if self.data:
            if self.settings.variant == "rs-da":
                return self.data.batch(rows, step)
            return self.data.both(rows, step)
        batch = self.task.collate(self.encoded, rows, self.pad_id)
        if self.settings.variant == "xtune":
            return {name: torch.cat([tensor, tensor]) for name, tensor in batch.items()}
        return batch

    def loss(self, model: nn.Module, batch: dict[str, Tensor]) -> dict[str, Tensor]:
        """Return the loss terms of the variant."""
        variant, mask = self.settings.variant, batch["attention_mask"]
        width = int(_embedding(model).weight.shape[1])
        if variant == "rs-da":
            return {"ce": self.task.loss(forward(model, batch), batch)}
        if variant == "xtune":
            return self._xtune(model, batch, width)
        if variant == "gaussian":
            noise = torch.randn(*mask.shape, width, device=mask.device) * self.settings.sigma * mask.unsqueeze(-1)
        else:
            noise = uniform_in_ball(mask, width, self.radius)
            if variant == "adv":
                noise = self._worst(model, batch, noise)
        with self._disturbed(model, noise):
            return {"ce": self.task.loss(forward(model, batch), batch)}

    def _disturbed(self, model: nn.Module, noise: Tensor) -> AbstractContextManager[None]:
        # One hook for the whole run: a compiled model is traced with it once.
        self._disturbance = self._disturbance or Disturbance(model)
        return self._disturbance(noise)

    def _worst(self, model: nn.Module, batch: dict[str, Tensor], delta: Tensor) -> Tensor:
        """Seek the noise in the ball that hurts most, from a random start."""
        # Without the wrapper for several processes: these gradients are of the noise, not of weights to be shared.
        plain = cast("nn.Module", getattr(model, "module", model))
        for _ in range(self.settings.ascent_steps):
            delta = delta.detach().requires_grad_()
            with self._disturbed(plain, delta):
                loss = self.task.loss(forward(plain, batch), batch)
            (gradient,) = torch.autograd.grad(loss, delta)
            delta = ascend(delta.detach(), gradient, self.settings.ascent_size * self.radius, self.radius)
        return delta

    def _xtune(self, model: nn.Module, batch: dict[str, Tensor], width: int) -> dict[str, Tensor]:
        mask = batch["attention_mask"]
        half = len(mask) // 2
        noise = torch.zeros(*mask.shape, width, device=mask.device)
        if not self.data:
            noise[half:] = torch.randn_like(noise[half:]) * self.settings.sigma * mask[half:].unsqueeze(-1)
        with self._disturbed(model, noise):
            logits = forward(model, batch)
        clean = {name: tensor[:half] for name, tensor in batch.items()}
        ce = self.task.loss({name: tensor[:half] for name, tensor in logits.items()}, clean)
        pair = _paired_by_word if self.data and self.task.kind != "classification" else _paired
        parts = []
        for tensor in logits.values():
            p, q, there = pair(tensor, batch, self.task.kind)
            parts.append(symmetric_kl(p, q, self.settings.kl_unit, there))
        return {"ce": ce, "kl": self.settings.weight * torch.stack(parts).mean()}


def _paired(logits: Tensor, batch: dict[str, Tensor], kind: str) -> tuple[Tensor, Tensor, Tensor | None]:
    """Return the logits of x and of its noised self, (..., classes), and where there is something to predict."""
    p, q = logits.chunk(2)
    if kind == "tagging":
        return p, q, batch["labels"].chunk(2)[0] >= 0
    if kind == "qa":
        padding = batch["attention_mask"].chunk(2)[0] == 0
        lowest = torch.finfo(torch.float32).min
        return p.float().masked_fill(padding, lowest), q.float().masked_fill(padding, lowest), None
    return p, q, None


def _paired_by_word(logits: Tensor, batch: dict[str, Tensor], kind: str) -> tuple[Tensor, Tensor, Tensor]:
    """Do the same for x and xᵃ, whose tokens differ but whose words map one to one.

    Tagging: the logits at the first token of each tagged word. Question answering: a word's start (or end) has the
    probability of all its tokens, so the classes are words. A text that is more than one row has no pairs.
    """
    first, stop = batch["word_first"], batch["word_stop"]
    present = (first >= 0).chunk(2)[0] & (first >= 0).chunk(2)[1]
    if kind == "tagging":
        at = first.clamp(min=0)
        p, q = logits.gather(1, at.unsqueeze(-1).expand(-1, -1, logits.shape[-1])).chunk(2)
        return p, q, present & (batch["labels"].gather(1, at).chunk(2)[0] >= 0)
    lowest = torch.finfo(torch.float32).min
    place = torch.arange(logits.shape[1], device=logits.device)
    inside = (place >= first.unsqueeze(-1)) & (place < stop.unsqueeze(-1))
    words = logits.float().unsqueeze(1).masked_fill(~inside, lowest).logsumexp(-1)
    p, q = (side.masked_fill(~present, lowest) for side in words.chunk(2))
    return p, q, present.any(1)


def _embedding(model: nn.Module) -> Any:  # noqa: ANN401  an embedding module
    return cast("Any", getattr(model, "module", model)).get_input_embeddings()
