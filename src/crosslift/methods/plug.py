"""PlugIn-X: train a connector between a multilingual bottom and a monolingual top (Chi et al. 2023).

    hmlm    −Σ_{i ∈ M} log p(x_i | x̃, i; ω_c) / |M|        heterogeneous masked LM: x̃ in multilingual pieces, the
                                                            hidden x_i in monolingual ones (`data/hmlm.py`)
    align   Σ_w ‖c_w − m_w‖² / Σ_w ‖m_w − m̄‖²              c_w a word's vector out of the connector, m_w the
                                                            monolingual model's at the plug layer, on the same text
                                                            masked alike; also for the first token of a row
    pairs   the same with c of a translation and m of the English text, for the mean and the first vector

ω_c are the connector's weights, the only ones that move. `align` is ours: the paper ends by saying that closer
representations transfer better, so it asks for them outright; 1 is what the mean vector would give. `pairs` needs
sentence pairs and is no longer the paper's setting, in which training sees English text alone.

The frozen bottom runs without a graph; only masked positions are projected to the vocabulary.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.utils.checkpoint import checkpoint

from crosslift.data.row_plan import Packing
from crosslift.errors import BadInput
from crosslift.models.anatomy import depth_of, layers_of, masked_lm_scores, part
from crosslift.models.reassembled import Connector

if TYPE_CHECKING:
    from transformers import PreTrainedModel

Batch = dict[str, Tensor]


@dataclass(frozen=True)
class Settings:
    """Where the models are cut, and what the connector learns from."""

    encoder_layers: int | None = field(
        default=None, metadata={"help": "Frozen multilingual layers; none: half of them. 0 = its embeddings alone."}
    )
    connector_layers: int | None = field(
        default=None, metadata={"help": "Layers of the connector; none: as many as the multilingual model has left."}
    )
    plug_layer: int | None = field(
        default=None, metadata={"help": "Monolingual layer that the connector stands for; none: half. 0 = embeddings."}
    )
    dropout: float = field(default=0.1, metadata={"help": "Dropout in the connector."})
    hmlm: float = field(default=1.0, metadata={"help": "Weight of the heterogeneous masked LM."})
    align: float = field(default=0.0, metadata={"help": "Weight of the distance between word vectors."})
    pairs: float = field(default=1.0, metadata={"help": "Weight of the distance between translations (with --bitext)."})
    mask_rate: float = field(default=0.15, metadata={"help": "Share of the monolingual pieces that are masked."})
    length: int = field(default=512, metadata={"help": "Tokens per row, special ones included."})
    packing: Packing = field(
        default="documents", metadata={"help": "Rows run over the whole corpus, stay within documents, or are lines."}
    )
    lines: float = field(default=0.0, metadata={"help": "Share of the steps whose rows are single lines."})

    def __post_init__(self) -> None:
        for name in ("hmlm", "align", "pairs"):
            if not 0 <= getattr(self, name) < math.inf:
                raise BadInput(f"--{name} is a weight: 0 or more, not {getattr(self, name):g}.")
        if not (self.hmlm > 0 or self.align > 0):
            raise BadInput("There is nothing to learn: --hmlm and --align are both 0.", "Set one of them above 0.")
        if not 0 <= self.dropout < 1:
            raise BadInput(f"--dropout is a share: 0 ≤ dropout < 1, not {self.dropout:g}.")
        if not 0 < self.mask_rate < 1:
            raise BadInput(
                f"--mask-rate is a share: 0 < rate < 1, not {self.mask_rate:g}.",
                "With --hmlm 0, nothing is masked whatever the rate.",
            )
        if not 0 <= self.lines <= 1:
            raise BadInput(f"--lines is a share: 0 ≤ lines ≤ 1, not {self.lines:g}.")
        if self.length < 8:
            raise BadInput(f"--length must be at least 8, not {self.length}.")

    @property
    def rate(self) -> float:
        """What is masked: nothing, where only vectors are compared."""
        return self.mask_rate if self.hmlm else 0.0


PRESETS: dict[str, dict[str, object]] = {
    "paper": {
        "length": 512,
        "packing": "documents",
        "mask_rate": 0.15,
        "dropout": 0.1,
        "batch_size": 256,
        "steps": 30_000,
        "warmup": 0.1,
        "schedule": "linear",
        "learning_rate": 2e-4,
        "weight_decay": 0.01,
        "beta2": 0.98,
        "epsilon": 1e-6,
        "clip": 2.0,
    },
    "small": {
        "length": 128,
        "packing": "corpus",
        "lines": 0.5,
        "mask_rate": 0.15,
        "dropout": 0.0,
        "batch_size": 512,
        "steps": 3_000,
        "warmup": 0.05,
        "schedule": "cosine",
        "learning_rate": 1e-3,
        "weight_decay": 0.01,
        "beta2": 0.98,
        "clip": 1.0,
    },
}
"""`paper`: Table 5 of the paper, for models of base size. `small`: for models of the minis' size."""


@dataclass(frozen=True)
class PlugPoints:
    """Where two models are cut, in layers.

    Attributes:
        encoder: Frozen multilingual layers.
        connector: Layers of the connector.
        plug: Monolingual layers that are dropped.
    """

    encoder: int
    connector: int
    plug: int

    @staticmethod
    def of(settings: Settings, multi: PreTrainedModel, mono: PreTrainedModel) -> PlugPoints:
        """Fill in what the settings leave open, and check that the layers are there."""
        here, there = depth_of(multi), depth_of(mono)
        k = here // 2 if settings.encoder_layers is None else settings.encoder_layers
        c = here - k if settings.connector_layers is None else settings.connector_layers
        p = there // 2 if settings.plug_layer is None else settings.plug_layer
        if not 0 <= k <= here:
            raise BadInput(f"--encoder-layers is between 0 and {here}, the multilingual model's layers, not {k}.")
        if not 0 <= p <= there:
            raise BadInput(f"--plug-layer is between 0 and {there}, the monolingual model's layers, not {p}.")
        if c < 0:
            raise BadInput(f"--connector-layers cannot be {c}.")
        return PlugPoints(k, c, p)


class Adaptation(nn.Module):
    """A connector with the frozen models on both sides; only the connector's weights are this module's own.

    Args:
        multi: The multilingual encoder.
        mono: The monolingual masked-LM model.
        points: Where they are cut.
        settings: Weights of the terms, dropout.
        frozen: Number format of the frozen models; bf16 where the run is in bf16.
    """

    def __init__(
        self,
        multi: PreTrainedModel,
        mono: PreTrainedModel,
        points: PlugPoints,
        settings: Settings,
        frozen: torch.dtype = torch.float32,
    ) -> None:
        super().__init__()
        self.settings, self.points, self.dtype = settings, points, frozen
        # The connector keeps full precision: its copies are made before the models are rounded.
        self.connector = Connector(multi, points.encoder, points.connector, mono.config.hidden_size, settings.dropout)
        for model in (multi, mono):
            model.eval().requires_grad_(False)
            # Not the buffers: rotary frequencies rounded to bf16 would turn far positions by the wrong angle.
            for parameter in model.parameters():
                parameter.data = parameter.data.to(frozen)
        self.connector.requires_grad_(True)
        # In a tuple, so that torch does not take the frozen models for parts of this module.
        self._frozen: tuple[Any, ...] = (
            part(multi, 0, points.encoder, embeddings=True, norm=False),
            part(mono, points.plug, depth_of(mono), embeddings=False, norm=True),
            part(mono, 0, points.plug, embeddings=True, norm=False),
            mono,
        )
        for module in self._frozen:
            module.eval()

    def compile_parts(self) -> None:
        """Compile layer by layer, and the loss: equal layers share one graph, so that it takes seconds."""
        # One fast graph for each of a few shapes beats one slow graph for all.
        torch._dynamo.config.automatic_dynamic_shapes = False
        torch._dynamo.config.cache_size_limit = 64
        torch.set_float32_matmul_precision("high")
        how = {"dynamic": False, "options": compiler_options()}
        for frozen in self._frozen[:3]:
            for layer in layers_of(frozen.body):
                layer.compile(**how)
        for layer in self.connector.layers:
            layer.compile(**how)
        self.lm_loss = torch.compile(self.lm_loss, **how)  # type: ignore[call-overload, method-assign]

    def gradient_checkpointing_enable(self) -> None:
        """Keep of each of the connector's layers its input alone, and compute the rest again when going back."""
        # Layer by layer: the library's own switch looks for word embeddings, which a connector has none of.
        for layer in self.connector.layers:
            layer.gradient_checkpointing = True  # type: ignore[assignment]
            layer._gradient_checkpointing_func = partial(checkpoint, use_reentrant=False)  # type: ignore[assignment]

    def move(self, device: torch.device) -> None:
        """Bring the frozen models to a device; the loop moves only the connector."""
        for module in self._frozen:
            module.to(device)

    def forward(self, batch: Batch) -> dict[str, Tensor]:
        """Return the weighted loss terms of a batch.

        Keys: the fields of `Rows`, and `real_words`, 1 for each of its `count` words and 0 for places that are free.
        The shapes of a batch decide what is computed, never its values, so that a GPU may record it.
        """
        settings = self.settings
        terms: dict[str, Tensor] = {}
        states = self.states(batch["ids"], batch.get("mask"))
        if settings.hmlm:
            top = self.top(states, batch.get("mask"))
            terms["hmlm"] = settings.hmlm * self.lm_loss(top, batch["places"], batch["labels"])
        if settings.align and "words" in batch:
            target = self.target(batch["mono_ids"], batch["mono_mask"])
            real = batch["real_words"]
            ours, theirs = (
                pooled(side, words, len(real))
                for side, words in ((states, batch["words"]), (target, batch["mono_words"]))
            )
            terms["align"] = settings.align * relative_distance(ours, theirs, real)
        if "pair_ids" in batch and settings.pairs:
            sides = (
                sentence(self.states(batch["pair_ids"], batch["pair_mask"]), batch["pair_mask"]),
                sentence(self.target(batch["english_ids"], batch["english_mask"]), batch["english_mask"]),
            )
            apart = [relative_distance(ours, theirs) for ours, theirs in zip(*sides, strict=True)]
            terms["pairs"] = settings.pairs * torch.stack(apart).mean()
        return terms

    def states(self, ids: Tensor, mask: Tensor | None) -> Tensor:
        """Return what the connector makes of multilingual ids: (rows, length, width)."""
        with torch.no_grad(), self._plainly(ids):
            below = self._frozen[0](ids, mask)
        states: Tensor = self.connector(below.to(next(self.connector.parameters()).dtype), mask)
        return states

    def top(self, states: Tensor, mask: Tensor | None) -> Tensor:
        """Return the monolingual model's last states on top of the connector's: (rows, length, width)."""
        with self._plainly(states):
            top: Tensor = self._frozen[1](states.to(self.dtype), mask)
        return top

    def scores(self, top: Tensor, places: Tensor) -> Tensor:
        """Return the monolingual piece scores at some places of the flattened rows: (places, vocabulary)."""
        with self._plainly(top):
            return masked_lm_scores(self._frozen[3], top.flatten(0, 1)[places])

    def lm_loss(self, top: Tensor, places: Tensor, labels: Tensor) -> Tensor:
        """Return the mean cross-entropy of the labels at some places."""
        return hidden_loss(self.scores(top, places), labels)

    def target(self, ids: Tensor, mask: Tensor | None) -> Tensor:
        """Return the monolingual model's states at the plug layer: (rows, length, width), without a graph."""
        with torch.no_grad(), self._plainly(ids):
            states: Tensor = self._frozen[2](ids, mask)
        return states

    def _plainly(self, like: Tensor) -> torch.autocast:
        """Frozen weights have their number format already: nothing is left to convert."""
        return torch.autocast(like.device.type, enabled=False)


def compiler_options() -> dict[str, bool] | None:
    """Return options with which a step is faster; `None` for the compiler's own.

    It would make one kernel of a norm's two gradients, of its input and of its weights; two are faster: on an H200 8%
    of a step at base shape (`benchmarks/plug.py`, `norms`). Versions of torch before that kernel lack the option.
    """
    from torch._inductor import config

    return {"triton.mix_order_reduction": False} if hasattr(config.triton, "mix_order_reduction") else None


def hidden_loss(scores: Tensor, labels: Tensor) -> Tensor:
    """Return the mean cross-entropy of (hidden, vocabulary) scores; labels of −100 do not count."""
    summed = cross_entropy(scores.float(), labels, ignore_index=-100, reduction="sum")
    return summed / (labels != -100).sum().clamp(min=1)


def pooled(states: Tensor, words: Tensor, count: int) -> Tensor:
    """Return the mean vector of each word: (count, width), float32; of a number that no token has, zero.

    Args:
        states: (rows, length, width).
        words: (rows, length) number of each token's word, from 1; 0 = none.
        count: How many words there are, or may be.
    """
    flat = states.float().flatten(0, 1)
    number = words.flatten()
    sums = flat.new_zeros(count + 1, flat.shape[1]).index_add(0, number, flat)
    # `bincount` would wait for the device, to see how large the numbers are.
    sizes = flat.new_zeros(count + 1).index_add(0, number, flat.new_ones(len(number))).clamp(min=1)
    return sums[1:] / sizes[1:, None]


def sentence(states: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
    """Return the vector of the first token and the mean over the others, each (rows, width), float32."""
    weights = mask.clone().float()
    weights[:, 0] = 0
    mean = (states.float() * weights.unsqueeze(-1)).sum(1) / weights.sum(1, keepdim=True).clamp(min=1)
    return states[:, 0].float(), mean


def relative_distance(ours: Tensor, theirs: Tensor, real: Tensor | None = None) -> Tensor:
    """Return Σ ‖a − b‖² / Σ ‖b − b̄‖² over (n, width) vectors: 0 = equal, 1 = no better than their mean.

    Where `real` (n,) is 0, both vectors must be zero; they do not count.
    """
    if real is None:
        spread = (theirs - theirs.mean(0)).square().sum()
    else:
        mean = theirs.sum(0) / real.sum().clamp(min=1)
        spread = ((theirs - mean) * real[:, None]).square().sum()
    return (ours - theirs).square().sum() / spread.clamp(min=1e-6)
