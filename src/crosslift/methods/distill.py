"""Distillation without labels (Guo et al., FreeTransfer-X, 2022).

    L = KL(P_T ‖ P_S) = Σ_c P_T(c | x) · (log P_T(c | x) − log P_S(c | x))

P_T is what a frozen teacher says about an unlabelled text x, P_S what the student says. Two steps carry a task over: a
source-language model teaches a multilingual bridge on source-language text, then the bridge teaches a small student on
target-language text. No label is read in either.

Yinpeng Guo, Liangyou Li, Xin Jiang, Qun Liu: FreeTransfer-X: Safe and Label-Free Cross-Lingual Transfer from
Off-the-Shelf Models. Findings of NAACL 2022.

* Classification: summed over classes, averaged over texts ("batchmean").
* Tagging: at the first sub-word of every word on both sides, averaged over words (`per = word`); `sentence` sums over
  words and averages over texts, as the released code does, so that long texts weigh more. Words that share a sub-word
  with the one before, on either side, are left out.
* Question answering: start and end over "no answer" and the words of the context; the student's distribution is over
  all its tokens, so that it learns not to start inside a word. What lies outside a row of a long context counts as
  "no answer" there.
* With temperature τ both distributions are softened and the loss is multiplied by τ², which keeps the size of its
  gradient (Hinton et al. 2015). The paper has τ = 1.

Departures: probabilities come from log-softmax (the released code takes the log of a softmax and skips batches in which
it is infinite), and the teacher is asked once per text, not once per epoch.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn.functional import log_softmax

from crosslift.data.words import ranges, row_starts
from crosslift.errors import BadInput
from crosslift.models.forward import forward
from crosslift.models.teachers import context_spans, context_words, own_token
from crosslift.models.tokenised import encode_once
from crosslift.tasks.encoded import Ragged

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

    from crosslift.data.examples import Examples
    from crosslift.models.frozen import FrozenRows
    from crosslift.tasks import Task

Ints = NDArray[np.int64]


@dataclass(frozen=True)
class Settings:
    """How a student is compared with its teacher."""

    temperature: float = field(
        default=1.0, metadata={"help": "Softens both distributions; the loss is multiplied by its square."}
    )
    per: Literal["word", "sentence"] = field(
        default="word", metadata={"help": "Tagging: average over words, or sum over words and average over sentences."}
    )

    def __post_init__(self) -> None:
        if self.temperature <= 0:
            raise BadInput(f"--temperature must be above 0, not {self.temperature:g}.")


def divergence(teacher: Tensor, logits: Tensor, temperature: float = 1.0) -> Tensor:
    """KL(P_T ‖ P_S) · τ² of each distribution, both softened by τ.

    Args:
        teacher: (..., classes) log-probabilities.
        logits: (..., classes) of the student.
        temperature: τ.

    Returns:
        (...) in nats, never below 0 but for rounding.
    """
    said = log_softmax(teacher.float() / temperature, dim=-1)
    learnt = log_softmax(logits.float() / temperature, dim=-1)
    return (said.exp() * (said - learnt)).sum(-1) * temperature**2


def span_divergence(teacher: Tensor, logits: Tensor, mask: Tensor, temperature: float = 1.0) -> Tensor:
    """KL(P_T ‖ P_S) · τ² over the tokens of a row, where the teacher's mass lies on a few of them.

    Args:
        teacher: (batch, length) probabilities, already softened; 0 wherever no word begins (or ends).
        logits: (batch, length) of the student.
        mask: (batch, length), 1 = a real token.
        temperature: τ.
    """
    learnt = log_softmax(logits.float().masked_fill(mask == 0, -1e9) / temperature, dim=-1)
    said = torch.xlogy(teacher, teacher) - teacher * learnt
    return said.sum(-1) * temperature**2


def word_divergence(
    teacher: Tensor, logits: Tensor, first: Tensor, temperature: float = 1.0, per: Literal["word", "sentence"] = "word"
) -> Tensor:
    """The loss of tagging: KL at the first token of each word.

    Args:
        teacher: (batch, words, tags) log-probabilities.
        logits: (batch, length, tags) of the student.
        first: (batch, words) first token of each word; -1 = no word.
        temperature: τ.
        per: Mean over words, or sum over words and mean over the batch.
    """
    present = first >= 0
    index = first.clamp(min=0).unsqueeze(-1).expand(-1, -1, logits.shape[-1])
    each = divergence(teacher, logits.gather(1, index), temperature) * present
    return each.sum() / (present.sum().clamp(min=1) if per == "word" else len(first))


class Distill:
    """KL to a teacher whose outputs are there already.

    Args:
        settings: Temperature, reduction.
        task: Of the student; its labels are those of the teacher, in any order.
        tokenizer: The student's.
        examples: What the student reads; labels are not looked at.
        said: What the teacher says about them (or, of a translation, about its original).
        text_of: (examples,) which text of `said` belongs to each example; default: the same one.
        order: (labels,) column of the teacher for each label of the task; default: the same order.
    """

    title: ClassVar[str] = "distillation from a teacher's outputs, without labels"
    needs: ClassVar[tuple[str, ...]] = ("teacher", "text")
    replayable: ClassVar[bool] = True

    def __init__(
        self,
        settings: Settings,
        task: Task,
        tokenizer: PreTrainedTokenizerBase,
        examples: Examples,
        said: FrozenRows,
        text_of: Ints | None = None,
        order: Ints | None = None,
    ) -> None:
        self.settings, self.task, self.said, self.order = settings, task, said, order
        self.pad_id = int(tokenizer.pad_token_id)
        examples = examples.unlabelled()
        self.encoded = encode_once(task, examples, tokenizer)
        self.lengths = self.encoded.lengths()
        texts = np.arange(len(examples)) if text_of is None else text_of
        self.text: Ints = texts[self.encoded.example_of]
        if task.kind == "tagging":
            self._find_words()
        elif task.kind == "qa":
            self._words = context_words(self.encoded, context_spans(examples))

    def _find_words(self) -> None:
        """Keep the words that both sides can tell apart: where they begin, and the teacher's row."""
        first, word = self.encoded.maps["first"], self.encoded.maps["word"]
        row = np.repeat(np.arange(len(first)), first.lengths())
        said = self.said.starts[self.text[row]] + word.values
        kept = own_token(first)
        kept &= np.isfinite(self.said.values[said, 0])
        starts = row_starts(np.bincount(row[kept], minlength=len(first)))
        self.first = Ragged(first.values[kept].astype(np.int64), starts)
        self.rows_said = Ragged(said[kept], starts)

    def units(self, rows: Ints) -> Ints:
        """Return what the loss is averaged over: rows, or for tagging by word the words of each row."""
        if self.task.kind == "tagging" and self.settings.per == "word":
            return self.first.lengths()[rows]
        return np.ones(len(rows), dtype=np.int64)

    def batch(self, rows: Ints, step: int) -> dict[str, Tensor]:
        """Return the padded batch of some rows with the teacher's outputs; nothing is drawn."""
        batch = self.task.collate(self.encoded, rows, self.pad_id)
        if self.task.kind == "classification":
            batch["teacher"] = self._columns(self.said.stack(self.text[rows]))
        elif self.task.kind == "tagging":
            most = -(-max(1, int(self.first.lengths()[rows].max())) // 8) * 8  # few shapes
            batch["first"] = torch.from_numpy(self.first.pad(rows, most, -1))
            wanted = self.rows_said.pad(rows, most, 0)
            batch["teacher"] = self._columns(np.asarray(self.said.values[wanted.ravel()])).view(*wanted.shape, -1)
        else:
            batch |= self._spans(rows, batch["input_ids"].shape[1])
        return batch

    def _columns(self, values: NDArray[np.floating]) -> Tensor:
        return torch.from_numpy(np.array(values if self.order is None else values[:, self.order], dtype=np.float32))

    def _spans(self, rows: Ints, length: int) -> dict[str, Tensor]:
        """Put the teacher's distribution over words on the student's tokens."""
        texts = self.text[rows]
        counts = self.said.counts[texts]
        at = row_starts(counts)
        logs = self.said.flat(texts).astype(np.float64) / self.settings.temperature
        weights = np.exp(logs - np.repeat(np.maximum.reduceat(logs, at[:-1]), counts, axis=0))
        weights /= np.repeat(np.add.reduceat(weights, at[:-1]), counts, axis=0)
        row = np.repeat(np.arange(len(rows)), counts - 1)
        words = ranges(self._words.starts[rows], counts - 1)
        first, stop = self._words.first[words], self._words.stop[words]
        inside = first >= 0
        of_words = np.delete(weights, at[:-1], axis=0)[inside]
        found = {}
        for column, (side, place) in enumerate((("start", first), ("end", stop - 1))):
            target = np.zeros((len(rows), length))
            np.add.at(target, (row[inside], place[inside]), of_words[:, column])
            target[:, 0] += np.maximum(0, 1 - target.sum(axis=1))
            found[f"teacher_{side}"] = torch.from_numpy(target.astype(np.float32))
        return found

    def loss(self, model: nn.Module, batch: dict[str, Tensor]) -> dict[str, Tensor]:
        """Return the divergence of the student from its teacher."""
        logits, tau = forward(model, batch), self.settings.temperature
        if self.task.kind == "classification":
            return {"kl": divergence(batch["teacher"], logits["logits"], tau).mean()}
        if self.task.kind == "tagging":
            return {"kl": word_divergence(batch["teacher"], logits["logits"], batch["first"], tau, self.settings.per)}
        sides = [
            span_divergence(batch[f"teacher_{side}"], logits[f"{side}_logits"], batch["attention_mask"], tau)
            for side in ("start", "end")
        ]
        return {"kl": ((sides[0] + sides[1]) / 2).mean()}
