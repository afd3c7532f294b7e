"""Plain fine-tuning on source-language labels: the baseline of everything else.

    L(x, y) = CE(f(x), y)

averaged over examples (classification, question answering) or labelled words (tagging).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray
from torch import Tensor, nn

from crosslift.models.forward import forward
from crosslift.models.tokenised import encode_once

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

    from crosslift.data.examples import Examples
    from crosslift.tasks import Task


@dataclass(frozen=True)
class Settings:
    """Plain fine-tuning has nothing of its own to set."""


class Finetune:
    """Cross-entropy on the source language."""

    title = "plain fine-tuning on source-language labels"
    needs = ("labels",)
    replayable = True

    def __init__(self, settings: Settings, task: Task, tokenizer: PreTrainedTokenizerBase, examples: Examples) -> None:
        self.task = task
        self.pad_id = int(tokenizer.pad_token_id)
        self.encoded = encode_once(task, examples, tokenizer)
        self.lengths = self.encoded.lengths()

    def units(self, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the loss units of each row: what its loss is averaged over."""
        return self.task.units(self.encoded, rows)

    def batch(self, rows: NDArray[np.int64], step: int) -> dict[str, Tensor]:
        """Return the padded batch of some rows; nothing is drawn, so the step does not matter."""
        return self.task.collate(self.encoded, rows, self.pad_id)

    def loss(self, model: nn.Module, batch: dict[str, Tensor]) -> dict[str, Tensor]:
        """Return the cross-entropy."""
        return {"ce": self.task.loss(forward(model, batch), batch)}
