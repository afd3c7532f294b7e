"""Teachers that are black boxes: a Python callable, an HTTP endpoint, a file of answers.

For each text a black box answers with one of

* a list of probabilities in the order of its labels, summing to one;
* `{"label": p, …}`; where labels are missing (the k best only), what is left of 1 is spread evenly over them;
* `{"probabilities": …}` with either of these, or `{"label": "name"}`: a hard label.

For tagging it is given words instead of texts and answers with one such entry per word.
"""

from __future__ import annotations

import json
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import cast

import numpy as np
from numpy.typing import NDArray

from crosslift.data.examples import Examples
from crosslift.data.files import read_lines
from crosslift.errors import BadFile, BadInput, BadLabels, Unfinished, nearest
from crosslift.models.teachers import LOWEST
from crosslift.tasks.encoded import Ragged

Floats = NDArray[np.floating]

_TOLERANCE = 1e-3
_TRIES = 4
_SECONDS = 30.0
_PER_REQUEST = 32


class FunctionTeacher:
    """A Python callable `texts -> probabilities`.

    Args:
        function: Gets a list of texts (pairs: tuples of two; tagging: lists of words) and returns one answer per text;
            an array (texts, labels) will do.
        kind: `classification` or `tagging`.
        labels: In the order of its outputs; needed unless it answers with names.
    """

    identity: str | None = None
    tokenizer = ""

    def __init__(
        self, function: Callable[..., object], kind: str = "classification", labels: Sequence[str] | None = None
    ) -> None:
        self.name = getattr(function, "__qualname__", type(function).__name__)
        self.kind, self.labels = _kind(kind, self.name), _labels(labels, self.name)
        self.function = function

    def __call__(self, examples: Examples) -> Floats | Ragged:
        """Return log-probabilities of examples."""
        answers = self.answers(questions(examples, self.kind))
        if len(answers) != len(examples):
            raise BadInput(f"{self.name} gave {len(answers)} answers to {len(examples)} texts.")
        return read_answers(answers, examples, self.kind, self.labels, self.name)

    def answers(self, asked: list[object]) -> Sequence[object]:
        """Return one answer per text."""
        return cast("Sequence[object]", self.function(asked))


class EndpointTeacher(FunctionTeacher):
    """An HTTP endpoint: gets `{"texts": […]}` by POST and returns a JSON list of answers.

    A request that fails is tried again, with longer and longer pauses; then the run stops, and what was answered so
    far is kept for when it is started again.

    Args:
        address: Where it listens.
        kind: `classification` or `tagging`.
        labels: In the order of its outputs.
        wait: Called with the seconds to pause.
    """

    def __init__(
        self,
        address: str,
        kind: str = "classification",
        labels: Sequence[str] | None = None,
        wait: Callable[[float], None] = time.sleep,
    ) -> None:
        super().__init__(lambda texts: texts, kind, labels)
        self.name = self.address = address
        self.wait = wait

    def answers(self, asked: list[object]) -> Sequence[object]:
        """Return one answer per text."""
        found: list[object] = []
        for begin in range(0, len(asked), _PER_REQUEST):
            found += self._ask(asked[begin : begin + _PER_REQUEST])
        return found

    def _ask(self, texts: list[object]) -> list[object]:
        problem = ""
        for attempt in range(_TRIES):
            if attempt:
                self.wait(2.0**attempt)
            try:
                return self._post(texts)
            except urllib.error.HTTPError as error:
                if 400 <= error.code < 500 and error.code not in (408, 429):
                    raise BadInput(f"{self.address} refuses the request: {error.code} {error.reason}.") from error
                problem = f"answers {error.code} {error.reason}"
            except (OSError, ValueError) as error:
                problem = str(getattr(error, "reason", error)) or type(error).__name__
        raise Unfinished(
            f"{self.address} cannot be asked ({problem}; {_TRIES} tries). What it said so far is kept.",
            "Start the same command again when it is back.",
        )

    def _post(self, texts: list[object]) -> list[object]:
        body = json.dumps({"texts": texts}).encode()
        request = urllib.request.Request(self.address, body, {"Content-Type": "application/json"})
        with urllib.request.urlopen(request, timeout=_SECONDS) as reply:
            content = json.loads(reply.read())
        answers = content.get("predictions") if isinstance(content, dict) else content
        if not isinstance(answers, list) or len(answers) != len(texts):
            raise BadInput(f"{self.address} does not answer with a list of {len(texts)} entries.")
        return answers


class AnswersTeacher(FunctionTeacher):
    """A file of answers: JSON lines with `text` (or `id`) and `probabilities` or `label` (for tagging: `words`).

    Args:
        file: The `.jsonl` file.
        kind: `classification` or `tagging`.
        labels: Default: the names that occur in the file.
    """

    def __init__(self, file: Path, kind: str = "classification", labels: Sequence[str] | None = None) -> None:
        self.file, self.name, self.kind = file, str(file), _kind(kind, str(file))
        self.by_text: dict[str, tuple[object, int]] = {}
        self.by_id: dict[str, tuple[object, int]] = {}
        names: dict[str, None] = {}
        for number, line in enumerate(read_lines(file), 1):
            if not line.strip():
                continue
            row = _row(file, number, line)
            answer = row.get("probabilities", row.get("label", row.get("labels")))
            if answer is None or not ({"text", "words", "id"} & row.keys()):
                raise BadFile(file, number, "needs text (or words, or id), and probabilities or label.")
            names |= dict.fromkeys(_names(answer))
            if "id" in row:
                self.by_id[str(row["id"])] = (answer, number)
            words = cast("list[str] | None", row.get("words"))
            text = row.get("text", " ".join(words) if words else None)
            if text is not None:
                self.by_text[str(text)] = (answer, number)
        self.labels = tuple(labels) if labels is not None else _labels(sorted(names), self.name)

    def __call__(self, examples: Examples) -> Floats | Ragged:
        """Return log-probabilities of examples; every one of them must be in the file."""
        found = []
        for row, (id_, text) in enumerate(zip(examples.ids, examples.texts, strict=True)):
            spaced = " ".join(examples.words(row)) if self.kind == "tagging" else text
            answer = self.by_text.get(text, self.by_text.get(spaced, self.by_id.get(id_)))
            if answer is None:
                raise BadInput(f'{self.file} has no answer for "{text}" (id {id_}).', "It must answer every text.")
            found.append(answer)
        answers, lines = zip(*found, strict=True)
        return read_answers(answers, examples, self.kind, self.labels, self.name, lines)


def questions(examples: Examples, kind: str) -> list[object]:
    """Return what a black box is asked: texts, pairs of texts, or lists of words."""
    if kind == "tagging":
        return [examples.words(row) for row in range(len(examples))]
    if examples.pairs is not None:
        return list(zip(examples.texts, examples.pairs, strict=True))
    return list(examples.texts)


def read_answers(
    answers: Sequence[object],
    examples: Examples,
    kind: str,
    labels: Sequence[str],
    where: str,
    lines: Sequence[int] | None = None,
) -> Floats | Ragged:
    """Turn answers into log-probabilities, or say which one is no distribution.

    Args:
        answers: One per example; for tagging each is a list with one entry per word.
        examples: What was asked.
        kind: `classification` or `tagging`.
        labels: The columns.
        where: The black box, for messages.
        lines: Line of each answer in its file.
    """
    places = [
        f"{where}, line {lines[i]}" if lines else f'{where}, text "{examples.ids[i]}"' for i in range(len(answers))
    ]
    if kind == "classification":
        return np.stack([distribution(answer, labels, place) for answer, place in zip(answers, places, strict=True)])
    rows = []
    for row, (answer, place) in enumerate(zip(answers, places, strict=True)):
        words, inner = len(examples.words(row)), answer
        if isinstance(answer, Mapping):
            inner = answer.get("probabilities", answer.get("labels"))
        per_word = [{"label": entry} if isinstance(entry, str) else entry for entry in cast("Sequence[object]", inner)]
        if len(per_word) != words:
            raise BadInput(f"{place}: {len(per_word)} entries for {words} words.")
        rows.append(np.stack([distribution(entry, labels, place) for entry in per_word]))
    return Ragged(np.concatenate(rows), np.cumsum([0, *map(len, rows)]))


def distribution(answer: object, labels: Sequence[str], where: str) -> Floats:
    """Return one answer as log-probabilities: (labels,)."""
    if isinstance(answer, Mapping) and "probabilities" in answer:
        answer = answer["probabilities"]
    elif (
        isinstance(answer, Mapping) and set(answer) <= {"label", "text", "id"} and isinstance(answer.get("label"), str)
    ):
        answer = {answer["label"]: 1.0}
    elif isinstance(answer, str):
        answer = {answer: 1.0}
    if isinstance(answer, Mapping):
        values = _from_names(cast("Mapping[str, float]", answer), labels, where)
    else:
        values = np.asarray(answer, dtype=np.float64).ravel()
        if len(values) != len(labels):
            raise BadLabels(
                f"{where}: {len(values)} probabilities for {len(labels)} labels.", f"Labels: {', '.join(labels)}."
            )
    if not np.isfinite(values).all() or (values < 0).any() or abs(values.sum() - 1) > _TOLERANCE:
        raise BadInput(
            f"{where}: the probabilities sum to {values.sum():.4g}, not to 1.",
            "Give probabilities, not scores: apply a softmax first.",
        )
    values = values / values.sum()
    logs: Floats = np.log(np.maximum(values, np.exp(LOWEST))).astype(np.float32)
    return logs


def _from_names(answer: Mapping[str, float], labels: Sequence[str], where: str) -> NDArray[np.float64]:
    """Return (labels,) probabilities; what the named ones leave of 1 is spread over the others."""
    values = np.full(len(labels), np.nan)
    place = {label: i for i, label in enumerate(labels)}
    for name, value in answer.items():
        if name not in place:
            raise BadLabels(f'{where}: unknown label "{name}".{nearest(name, labels)}', f"Labels: {', '.join(labels)}.")
        values[place[name]] = float(value)
    unnamed = np.isnan(values)
    if unnamed.any():
        values[unnamed] = max(0.0, 1 - float(values[~unnamed].sum())) / int(unnamed.sum())
    return values


def _kind(kind: str, name: str) -> str:
    if kind not in ("classification", "tagging"):
        raise BadInput(f"{name}: a black box can teach classification and tagging, not {kind}.", "Name a model folder.")
    return kind


def _labels(labels: Sequence[str] | None, name: str) -> tuple[str, ...]:
    if not labels or len(set(labels)) < max(2, len(labels)):
        raise BadInput(
            f"What are the labels of {name}?", "Name them in the order of its outputs: --teacher-labels a,b,c"
        )
    return tuple(labels)


def _row(file: Path, number: int, line: str) -> dict[str, object]:
    try:
        row = json.loads(line)
    except ValueError as error:
        raise BadFile(file, number, f"is not JSON ({error}).") from None
    if not isinstance(row, dict):
        raise BadFile(file, number, "is not a JSON object.")
    return row


def _names(answer: object) -> list[str]:
    """Return the label names in an answer of a file."""
    if isinstance(answer, str):
        return [answer]
    if isinstance(answer, Mapping):
        return [str(name) for name in answer]
    if isinstance(answer, list):
        return [name for entry in answer if not isinstance(entry, (int, float)) for name in _names(entry)]
    return []
