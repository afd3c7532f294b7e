"""EAR: embedding push, attention pull, robust targets (Ding et al., COLING 2022).

    L = CE(x) + CE(xᵃ) + α · ℓ_EPT + β · ℓ_APT                                        (5)

x is a source-language example, xᵃ the same with words replaced by synonyms. The push drives the two apart in the
embedding layer, the pull keeps the attention between their words alike, and the classifier learns both.

Kunbo Ding, Weijie Liu, Yuejian Fang, Weiquan Mao, Zhe Zhao, Tao Zhu, Haoyan Liu, Rong Tian, Yiren Chen:
A Simple and Effective Method to Improve Zero-Shot Cross-Lingual Transfer Learning.

Where we depart from paper or released code:

* attention is compared word by word, not token by token: a synonym with more pieces shifts nothing;
* padding is in no term, and attention is taken before its dropout: without dropout below, x = xᵃ gives a pull of
  exactly 0;
* `default` averages over valid cells, of each example and then over examples (so that micro-batches do not
  change the sum; in tagging, where they are weighed by their words, they change it a little); `paper` sums as in the
  equations; `released` averages over all cells of the padded batch, token by token, with the weights of the released
  scripts;
* xᵃ is drawn anew at every step, where the authors stored 3 or 10 copies of each example (`released` and
  `copies` draw from that many fixed ones).
"""

from __future__ import annotations

import contextlib
import math
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from crosslift.errors import BadInput, BrokenRun
from crosslift.models.attention import Disturbance, Listener
from crosslift.models.forward import forward
from crosslift.tasks.augmented import SYNONYM_SETTINGS, Augmented, SynonymSettings, unused

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

    from crosslift.data.examples import Examples
    from crosslift.tasks import Task

Reduction = Literal["mean", "sum"]


def embedding_push(x: Tensor, xa: Tensor, reduction: Reduction = "mean", margin: float | None = None) -> Tensor:
    """ℓ_EPT = −1/|B| Σ_x (M(E_x) − M(E_xᵃ))²                                          (1).

    Args:
        x: (batch, width) mean-pooled embedding output M(E_x).
        xa: (batch, width) that of xᵃ.
        reduction: `sum` over the width, as in (1), or `mean`; always a mean over the batch.
        margin: Distances beyond it are pushed no further; `None`: unbounded, as in the paper.
    """
    squared = (x - xa).square()
    distance = squared.sum(-1) if reduction == "sum" else squared.mean(-1)
    return -(distance if margin is None else distance.clamp(max=margin)).mean()


def attention_pull(x: Tensor, xa: Tensor, present: Tensor, reduction: Reduction = "mean") -> Tensor:
    """ℓ_APT = 1/(|B|·H) Σ_x Σ_i (Aⁱ_x − Aⁱ_xᵃ)²                                        (2).

    Args:
        x: (batch, heads, words, words) attention A_x from word to word.
        xa: The same of xᵃ.
        present: (batch, words) whether the word is there in both; other cells do not count.
        reduction: `sum` over the cells of an example, as in (2), or their `mean`.
    """
    cells = (present[:, :, None] & present[:, None, :]).unsqueeze(1)
    per_example = ((x - xa).square() * cells).sum((1, 2, 3)) / x.shape[1]
    if reduction == "mean":
        per_example = per_example / cells.sum((1, 2, 3)).clamp(min=1)
    return per_example.mean()


def sentence_pull(x: Tensor, xa: Tensor, reduction: Reduction = "mean") -> Tensor:
    """ℓ_SRPT = 1/|B| Σ (Sent(x) − Sent(xᵃ))², the pull that APT is compared with (Section 4.3).

    Args:
        x: (batch, width) mean-pooled hidden states of the chosen layer.
        xa: Those of xᵃ.
        reduction: `sum` or `mean` over the width.
    """
    return -embedding_push(x, xa, reduction)


def mean_pool(hidden: Tensor, mask: Tensor) -> Tensor:
    """M: the mean over real tokens, special ones included: (batch, length, width) -> (batch, width)."""
    weights = mask.unsqueeze(-1).float()
    return (hidden.float() * weights).sum(1) / weights.sum(1).clamp(min=1)


def word_attention(attention: Tensor, first: Tensor, stop: Tensor) -> Tensor:
    """Attention from word to word: summed over the pieces of a key, averaged over those of a query.

    Args:
        attention: (batch, heads, length, length) from token (row) to token (column).
        first: (batch, words) first token of each word; -1 = no such word.
        stop: (batch, words) one past its last token.

    Returns:
        (batch, heads, words, words); zeros in rows and columns of words that are not there.
    """
    place = torch.arange(attention.shape[-1], device=attention.device)
    inside = (place >= first.unsqueeze(-1)) & (place < stop.unsqueeze(-1))
    with torch.autocast(attention.device.type, enabled=False):
        keys = inside.to(attention.dtype).unsqueeze(1)
        queries = keys / (stop - first).clamp(min=1)[:, None, :, None]
        words: Tensor = queries @ attention @ keys.transpose(2, 3)
    return words


PRESETS = {"default": (1.0, 0.1), "paper": (1.0, 0.1), "released": (0.1, 1.0)}
"""α and β by preset."""

RELEASED_COPIES = 3
"""Fixed copies of each example in the released code: 3 for XNLI (10 for PAWS-X)."""


@dataclass(frozen=True)
class Settings(SynonymSettings):
    """Settings of EAR."""

    preset: Literal["default", "paper", "released"] = field(
        default="default", metadata={"help": "Weights and reductions: ours, the equations', or the released code's."}
    )
    alpha: float | None = field(default=None, metadata={"help": "Weight of the push (default: the preset's)."})
    beta: float | None = field(default=None, metadata={"help": "Weight of the pull (default: the preset's)."})
    push: Literal["ept", "noise", "none"] = field(
        default="ept", metadata={"help": "ept; noise: Gaussian noise in place of synonyms and push (NT); none."}
    )
    pull: Literal["apt", "sentence", "none"] = field(
        default="apt", metadata={"help": "apt: attention; sentence: hidden states (SRPT); none."}
    )
    layer: int = field(default=6, metadata={"help": "Layer of the pull, from 1; at most the last one."})
    margin: float | None = field(default=None, metadata={"help": "Distance up to which the push acts."})
    noise: float = field(default=0.075, metadata={"help": "Standard deviation of the noise, with --push noise."})
    stop_at: float = field(default=1000.0, metadata={"help": "Stop when the weighted push has run away this far."})

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.layer < 1:
            raise BadInput(f"--layer counts from 1; there is no layer {self.layer}.")
        for name in ("alpha", "beta", "noise"):
            value = getattr(self, name)
            if value is not None and not 0 <= value < math.inf:  # nan is no weight either
                raise BadInput(f"--{name} must be a number from 0, not {value:g}.")
        for name in ("margin", "stop_at"):
            value = getattr(self, name)
            if value is not None and not value > 0:
                raise BadInput(f"--{name.replace('_', '-')} must be above 0, not {value:g}.")


class Ear:
    """Embedding push, attention pull, robust targets."""

    title = "embedding push and attention pull on synonyms (EAR)"
    needs = ("labels",)
    replayable = True

    def __init__(self, settings: Settings, task: Task, tokenizer: PreTrainedTokenizerBase, examples: Examples) -> None:
        if settings.preset == "released":
            settings = replace(settings, exact=True, unprotected=True, copies=settings.copies or RELEASED_COPIES)
        self.settings, self.task = settings, task
        alpha, beta = PRESETS[settings.preset]
        self.alpha = alpha if settings.alpha is None else settings.alpha
        self.beta = beta if settings.beta is None else settings.beta
        self.reduction: Reduction = "sum" if settings.preset == "paper" else "mean"
        self.data = Augmented(settings, task, tokenizer, examples)
        # A row is read twice, as x and as xᵃ, in one forward pass.
        self.lengths = 2 * self.data.encoded.lengths()
        self._listener: Listener | None = None
        self._disturbance: Disturbance | None = None

    def prepare(self, model: nn.Module, seed: int) -> None:
        """Take the run's seed and, without a dictionary, the model's own neighbours."""
        self.data.seed = seed
        if self.settings.push != "noise":
            self.data.prepare(model, seed)

    def notes(self) -> list[str]:
        """Say how many words have synonyms, and which settings count for nothing."""
        noise, pulled = self.settings.push == "noise", self.settings.pull != "none"
        unread = SYNONYM_SETTINGS if noise else ("noise",)
        unread += () if self.settings.push == "ept" else ("alpha", "margin", "stop_at")
        unread += () if pulled else ("beta", "layer")
        return [*([] if noise else [self.data.source.note()]), *unused(self.settings, unread)]

    def units(self, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the loss units of each row: what its loss is averaged over."""
        return self.task.units(self.data.encoded, rows)

    def batch(self, rows: NDArray[np.int64], step: int) -> dict[str, Tensor]:
        """Return x and xᵃ of some rows, one below the other; xᵃ is drawn from seed, step and row."""
        return self.data.both(rows, step, same=self.settings.push == "noise")

    def loss(self, model: nn.Module, batch: dict[str, Tensor]) -> dict[str, Tensor]:
        """Return CE(x), CE(xᵃ), α · ℓ_EPT and β · ℓ_APT."""
        settings, mask = self.settings, batch["attention_mask"]
        if self._listener is None:
            self._listener = Listener(model, settings.layer, attention=settings.pull == "apt")
        taken = self._listener
        noise: contextlib.AbstractContextManager[None] = contextlib.nullcontext()
        if settings.push == "noise":
            self._disturbance = self._disturbance or Disturbance(model)
            noise = self._disturbance(_noise(model, mask, settings.noise))
        with taken, noise:
            logits = forward(model, batch)
        (logits_x, logits_a), (x, xa) = _halves(logits), _halves(batch)
        terms = {"ce": self.task.loss(logits_x, x), "ce_augmented": self.task.loss(logits_a, xa)}
        if settings.push == "ept":
            pooled_x, pooled_a = mean_pool(taken.embeddings, mask).chunk(2)
            terms["ept"] = self.alpha * embedding_push(pooled_x, pooled_a, self.reduction, settings.margin)
        if settings.pull == "apt":
            terms["apt"] = self.beta * self._attention_pull(taken.attention(mask), batch)
        elif settings.pull == "sentence":
            sentence_x, sentence_a = mean_pool(taken.hidden, mask).chunk(2)
            terms["srpt"] = self.beta * sentence_pull(sentence_x, sentence_a, self.reduction)
        taken.forget()
        return terms

    def _attention_pull(self, attention: Tensor, batch: dict[str, Tensor]) -> Tensor:
        if self.settings.preset == "released":
            x, xa = attention.chunk(2)
            return (x - xa).square().mean()
        first, stop = batch["word_first"], batch["word_stop"]
        present_x, present_a = (first >= 0).chunk(2)
        x, xa = word_attention(attention, first, stop).chunk(2)
        return attention_pull(x, xa, present_x & present_a, self.reduction)

    def check(self, means: dict[str, float]) -> None:
        """Stop a push that has run away."""
        push = means.get("ept", 0.0)
        if not math.isfinite(push) or push < -self.settings.stop_at:
            raise BrokenRun(
                f"The embedding push has run away: α · EPT is {push:g}.",
                "Bound it with --margin, or lower --alpha or --learning-rate; the last checkpoint is kept.",
            )


def _halves(tensors: dict[str, Tensor]) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """Cut every tensor of a batch into x and xᵃ."""
    cut = {name: tensor.chunk(2) for name, tensor in tensors.items()}
    return {name: parts[0] for name, parts in cut.items()}, {name: parts[1] for name, parts in cut.items()}


def _noise(model: nn.Module, mask: Tensor, deviation: float) -> Tensor:
    """Return noise for the word embeddings of xᵃ: real tokens of the second half of the batch."""
    embedding = getattr(model, "module", model).get_input_embeddings().weight  # type: ignore[operator]
    noise = torch.randn(*mask.shape, embedding.shape[1], device=mask.device) * deviation
    noise[: len(mask) // 2] = 0
    return noise * mask.unsqueeze(-1)
