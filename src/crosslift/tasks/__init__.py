"""The tasks: how examples become model inputs, and the model's outputs predictions and scores."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import TYPE_CHECKING, Protocol

import numpy as np
import torch
from numpy.typing import NDArray

from crosslift.errors import BadInput, BadLabels, nearest
from crosslift.tasks.classification import Classification
from crosslift.tasks.encoded import Encoded, Kept, Prediction, Ragged, Rows
from crosslift.tasks.metrics import Metric
from crosslift.tasks.qa import QuestionAnswering
from crosslift.tasks.tagging import Tagging

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

    from crosslift.data.examples import Examples

__all__ = [
    "TASKS",
    "Classification",
    "Encoded",
    "Kept",
    "Metric",
    "Prediction",
    "QuestionAnswering",
    "Ragged",
    "Tagging",
    "Task",
    "task_for",
]


class Task(Protocol):
    """What every task can do. A row is one model input; a long text may give several."""

    @property
    def kind(self) -> str:
        """`classification`, `tagging` or `qa`."""

    @property
    def labels(self) -> tuple[str, ...]:
        """Classes or tags, in the order of the model's outputs; empty for question answering."""

    @property
    def max_length(self) -> int:
        """Most tokens of a row."""

    def encode(self, examples: Examples, tokenizer: PreTrainedTokenizerBase) -> Encoded:
        """Tokenise a set, once."""

    def collate(self, encoded: Encoded, rows: Rows, pad_id: int, pad_to: int = 8) -> dict[str, torch.Tensor]:
        """Make one batch: `input_ids`, `attention_mask`, `token_type_ids` where there are, and targets."""

    def units(self, encoded: Encoded, rows: Rows) -> NDArray[np.int64]:
        """Return how many units the loss averages over, for each row."""

    def loss(self, logits: Mapping[str, torch.Tensor], batch: Mapping[str, torch.Tensor]) -> torch.Tensor:
        """Return the loss of a batch, averaged over its units."""

    def keep(self, outputs: Mapping[str, torch.Tensor], encoded: Encoded, rows: Rows) -> list[Kept]:
        """Return what `decode` needs of the outputs for some rows, row by row, on the host."""

    def decode(self, kept: Sequence[Kept], encoded: Encoded, examples: Examples) -> list[Prediction]:
        """Return one prediction per example, in order; `kept` holds all rows of `encoded`, in order."""

    def metrics(self, examples: Examples, predictions: Sequence[Prediction]) -> dict[str, Metric]:
        """Return the scores by name; the first one is the main score. Unknown gold labels are an error."""


TASKS: dict[str, type[Classification] | type[Tagging] | type[QuestionAnswering]] = {
    "classification": Classification,
    "tagging": Tagging,
    "qa": QuestionAnswering,
}


def task_for(examples: Examples, labels: Sequence[str] | None = None, **options: object) -> Task:
    """Return the task that examples of this kind belong to.

    Args:
        examples: A set; only its kind and, if `labels` is not given, its labels are read.
        labels: Classes or tags in the order of the model's outputs. Default: those that occur, sorted by
            name; for tagging O comes first.
        options: Settings of the task, such as `max_length`.
    """
    if examples.kind not in TASKS:
        raise BadInput(
            f"{examples.name or 'examples'}: {examples.kind} examples have no task.",
            f"Tasks: {', '.join(TASKS)}.",
        )
    task = TASKS[examples.kind]
    known = [field.name for field in fields(task) if field.name != "labels"]
    for name in options:
        if name not in known:
            raise BadInput(
                f'{examples.kind} has no setting "{name}".{nearest(name, known)}',
                f"Settings: {', '.join(known)}.",
            )
    if task is QuestionAnswering:
        return QuestionAnswering(**options)  # type: ignore[arg-type]
    names = tuple(labels) if labels is not None else examples.label_names()
    if not names:
        raise BadInput(
            f"{examples.name or 'examples'} has no labels to take the label list from.",
            "Give the labels in the order of the model's outputs.",
        )
    if len(set(names)) < max(2, len(names)):
        raise BadLabels(
            f"{examples.name or 'examples'}: a task needs two labels or more, each once, not {', '.join(names)}."
        )
    if labels is None and task is Tagging:
        names = tuple(sorted(names, key=lambda name: (name != "O", name)))
    return task(labels=names, **options)  # type: ignore[call-arg, arg-type]
