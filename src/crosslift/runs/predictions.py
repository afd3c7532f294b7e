"""Predictions on disk: the source of truth for every score.

The first line says the kind of task with its settings and the language; then one line per example: id, gold,
prediction, and what the task adds (probabilities, n-best). Scores can be rebuilt from the file alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, cast

from crosslift.data.examples import Answer, Examples, Kind, Label
from crosslift.data.storage import read_jsonl, write_jsonl
from crosslift.tasks import TASKS, Prediction, Task
from crosslift.tasks.metrics import Metric


def write_predictions(file: Path, task: Task, examples: Examples, predictions: Sequence[Prediction]) -> None:
    """Write one line per example: id, gold, prediction, and what the task adds."""
    gold = examples.labels or [None] * len(examples)
    rows = [{**p, "gold": _plain(label)} for label, p in zip(gold, predictions, strict=True)]
    header = {
        "kind": examples.kind,
        "task": asdict(task),  # type: ignore[call-overload]
        "language": examples.language,
        "pair_language": examples.pair_language,
    }
    write_jsonl(file, [header, *rows])


def read_predictions(file: Path) -> tuple[Examples, list[Prediction]]:
    """Read a predictions file back: examples with gold labels and no text, and the predictions."""
    header, *rows = read_jsonl(file)
    kind = cast("Kind", header["kind"])
    labels = [_unplain(row.pop("gold"), kind) for row in rows]
    blank = [""] * len(rows)
    examples = Examples(
        kind=kind,
        language=str(header["language"]),
        pair_language=cast("str | None", header["pair_language"]),
        ids=[str(row["id"]) for row in rows],
        texts=blank,
        pairs=blank if kind == "qa" else None,
        labels=labels,
        name=file.name,
    )
    return examples, rows


def rescore(file: Path) -> dict[str, Metric]:
    """Rebuild the metrics of a predictions file: no model and no data set needed."""
    examples, predictions = read_predictions(file)
    options = dict(cast("dict[str, Any]", read_jsonl(file)[0]["task"]))
    # Sorted, so that the statistics of two models line up whatever the order of their outputs.
    labels = sorted(options.pop("labels", ()))
    return make_task(examples.kind, labels, **options).metrics(examples, predictions)


def make_task(kind: str, labels: Sequence[str], **options: object) -> Task:
    """Return a task of a kind; question answering has no labels."""
    named = {} if kind == "qa" else {"labels": tuple(labels)}
    return cast("Task", cast("Any", TASKS[kind])(**named, **options))


def _plain(label: Label) -> object:
    if isinstance(label, str) or label is None:
        return label
    return [list(part) if isinstance(part, Answer) else part for part in label]


def _unplain(gold: object, kind: str) -> Label:
    if kind == "qa" and isinstance(gold, list):
        return [Answer(str(text), int(start)) for text, start in gold]
    return cast("Label", gold)
