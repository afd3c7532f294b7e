"""Does a student say what its teacher says? The label-free score that selects it, and signs that it has collapsed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, cast

import numpy as np
from numpy.typing import NDArray
from torch import nn

from crosslift.data.examples import Answer, Examples, Label
from crosslift.errors import CrossliftError
from crosslift.models.teachers import context_spans, log_softmax
from crosslift.models.tokenised import encode_once
from crosslift.runs.evaluate import run_model
from crosslift.tasks.qa import best_pairs

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

    from crosslift.models.frozen import FrozenRows
    from crosslift.tasks import Kept, Prediction, Task

_LONGEST_ANSWER = 30  # words
_SURE = 0.02  # nats: an entropy below this is near zero
_FEW = 20  # texts: fewer say nothing about a collapse
_NEARLY_ALL = 0.95  # a teacher that says one thing so often may be learnt by saying it always


def with_teacher_labels(examples: Examples, said: FrozenRows, labels: Sequence[str]) -> Examples:
    """Return examples whose labels are what the teacher finds most likely.

    Args:
        examples: Unlabelled texts.
        said: What the teacher says about them, in order.
        labels: The teacher's labels in the order of its columns.
    """
    found: list[Label]
    if examples.kind == "classification":
        best = said.stack(np.arange(len(examples))).argmax(axis=1)
        found = [labels[i] for i in best.tolist()]
    elif examples.kind == "tagging":
        found = [_tags(said[i], labels) for i in range(len(examples))]
    else:
        contexts, spans = cast("Sequence[str]", examples.pairs), context_spans(examples)
        found = [_answer(said[i], contexts[i], spans[i]) for i in range(len(examples))]
    return replace(examples, labels=found)


def _tags(said: NDArray[np.floating], labels: Sequence[str]) -> list[str]:
    unknown = np.isnan(said[:, 0]) if len(said) else np.zeros(0, dtype=bool)
    best = np.nan_to_num(said, nan=-np.inf).argmax(axis=1) if len(said) else np.zeros(0, dtype=int)
    return ["O" if blank else labels[i] for i, blank in zip(best.tolist(), unknown.tolist(), strict=True)]


def _answer(said: NDArray[np.floating], context: str, spans: NDArray[np.int32]) -> list[Answer]:
    """Return the likeliest answer as the only one, or none at all if that is likelier."""
    if len(said) < 2:
        return []
    start, end = np.array(said[1:, :1].T), np.array(said[1:, 1:].T)
    _, first, last, score = best_pairs(start, end, _LONGEST_ANSWER, 1)
    if said[0].sum() > score[0]:
        return []
    begin, stop = int(spans[first[0], 0]), int(spans[last[0], 1])
    return [Answer(context[begin:stop], begin)]


class Agreement:
    """Scores a student against its teacher's most likely labels on held-out text.

    Args:
        task: Of the student.
        tokenizer: The student's.
        examples: Held-out texts with the teacher's labels.
        evaluations: How often it will be asked; in the second half a collapse is an error.
    """

    def __init__(
        self, task: Task, tokenizer: PreTrainedTokenizerBase, examples: Examples, evaluations: int = 1
    ) -> None:
        self.task, self.examples, self.evaluations = task, examples, evaluations
        self.pad_id = int(tokenizer.pad_token_id)
        self.encoded = encode_once(task, examples.unlabelled(), tokenizer)
        self.asked = 0

    def __call__(self, model: nn.Module) -> dict[str, float]:
        """Return `agreement` (%) first, then the task's other scores against the teacher."""
        kept = run_model(model, self.task, self.encoded, self.pad_id)
        predictions = self.task.decode(kept, self.encoded, self.examples)
        main, *others = self.task.metrics(self.examples, predictions).values()
        scores = {"agreement": main.value, **{metric.name: metric.value for metric in others}}
        self.asked += 1
        if 2 * self.asked > self.evaluations:
            refuse_collapse(self.task, self.examples, predictions, kept, scores["agreement"])
        return scores


def refuse_collapse(
    task: Task, examples: Examples, predictions: Sequence[Prediction], kept: Sequence[Kept], agreement: float
) -> None:
    """Stop when a student says one thing about every text though its teacher does not, or is sure and wrong."""
    if task.kind == "qa" or len(examples) < _FEW:
        return
    said = Counter(_flat(cast("Sequence[Label]", examples.labels)))
    learnt = Counter(_flat(cast("Sequence[Label]", [p["prediction"] for p in predictions])))
    most = said.most_common(1)[0]
    if len(learnt) == 1 and most[1] < _NEARLY_ALL * said.total():
        only = next(iter(learnt))
        raise CrossliftError(
            f'The student has collapsed: it says "{only}" about all {len(examples):,} held-out texts, where its '
            f'teacher uses {len(said)} labels ("{most[0]}" {most[1] / said.total():.0%}).',
            "Lower --learning-rate or raise --warmup; train for more --epochs; give more text; look at range-test.svg.",
        )
    logs = log_softmax(np.concatenate([np.atleast_2d(row["logits"]) for row in kept]))
    entropy = float(-(np.exp(logs) * logs).sum(axis=1).mean())
    if entropy < _SURE and agreement < 50:
        raise CrossliftError(
            f"The student has collapsed: it is certain of every answer (entropy {entropy:.3f}) yet agrees with its "
            f"teacher on {agreement:.0f}% only.",
            "Lower --learning-rate, or soften the teacher with --temperature 2; look at range-test.svg.",
        )


def refuse_dull_teacher(name: str, examples: Examples) -> None:
    """Stop before training when a teacher gives every text the same label: there is nothing to learn."""
    said = set(_flat(cast("Sequence[Label]", examples.labels)))
    if examples.kind != "qa" and len(said) == 1 and len(examples) >= _FEW:
        raise CrossliftError(
            f'The teacher {name} says "{next(iter(said))}" about all {len(examples):,} texts: nothing to learn.',
            "Is the text of its task, and in a language it knows?",
        )


def _flat(labels: Iterable[Label]) -> list[str]:
    return [str(tag) for label in labels for tag in ([label] if isinstance(label, str) else label or [])]
