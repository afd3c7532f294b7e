"""Teachers: whatever says how likely each label is. Only what they say is used, never a label.

A teacher is a Hugging Face folder, a run of ours, an ONNX file, or a black box (`black_box`): a Python callable, an
HTTP endpoint, a file of answers. Each turns examples into log-probabilities (natural):

| kind | rows of a text | columns |
| --- | --- | --- |
| classification | 1 | one per class |
| tagging | one per word; NaN where the teacher cannot tell the word apart | one per tag |
| qa | "no answer", then one per word of the context | start, end |

A word's distribution is read at its first sub-word, the end of an answer at the last one.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, cast

import numpy as np
import torch
from numpy.typing import NDArray

from crosslift.data.batches import evaluation_batches
from crosslift.data.examples import Examples, Spans
from crosslift.data.segment import segment_all
from crosslift.data.storage import read_json
from crosslift.data.words import TokenSpans, WordMaps, ranges, row_starts, word_maps
from crosslift.errors import BadInput, BadLabels, MissingExtra
from crosslift.models.forward import forward
from crosslift.models.frozen import FrozenCache, FrozenRows, text_keys, tokenizer_fingerprint, weights_fingerprint
from crosslift.models.load import load_model, load_tokenizer, locate, model_kind, model_labels
from crosslift.models.tokenised import encode_once
from crosslift.tasks import TASKS, Encoded, Kept, Ragged, Task

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

Floats = NDArray[np.floating]
LOWEST = -30.0
"""The log-probability of what a teacher calls impossible; finite, so that no product is 0 × ∞."""

_TOKENS = {"cpu": 4096, "cuda": 65536}


class Teacher(Protocol):
    """What says how likely each label is."""

    name: str
    kind: str
    labels: tuple[str, ...]
    """In the order of its columns; empty for question answering."""
    identity: str | None
    """Fingerprint of what it computes; `None` where that cannot be told: its answers then stay with the run."""
    tokenizer: str
    """Fingerprint of its tokenizer, or empty."""

    def __call__(self, examples: Examples) -> Floats | Ragged:
        """Return log-probabilities: (examples, classes), or ragged rows (see the module)."""


def open_teacher(
    teacher: str | Path | Callable[..., object], kind: str | None = None, labels: Sequence[str] | None = None
) -> Teacher:
    """Open a teacher by what it is.

    Args:
        teacher: A Hugging Face folder or name, a run folder, an `.onnx` file beside its tokenizer, a callable
            `texts -> probabilities`, the address of an HTTP endpoint, or a `.jsonl` file of answers.
        kind: The task of a black box: `classification` (the default) or `tagging`.
        labels: The labels of a black box in the order of its outputs; of a model: those it must have.
    """
    from crosslift.models import black_box

    name = str(teacher)
    if callable(teacher):
        return black_box.FunctionTeacher(teacher, kind or "classification", labels)
    if name.startswith(("http://", "https://")):
        return black_box.EndpointTeacher(name, kind or "classification", labels)
    if name.endswith((".jsonl", ".jsonl.gz", ".jsonl.xz")):
        return black_box.AnswersTeacher(Path(name), kind or "classification", labels)
    opened: ModelTeacher = OnnxTeacher(Path(name)) if name.endswith(".onnx") else ModelTeacher(name)
    if kind is not None and opened.kind != kind:
        raise BadInput(f"{name} does {opened.kind}, not {kind}.")
    if labels is not None:
        same_labels(opened.labels, labels, name, "the labels asked for")
    return opened


def same_labels(theirs: Sequence[str], ours: Sequence[str], them: str, us: str) -> None:
    """Refuse two label lists that differ by more than their order; the message shows both."""
    if set(theirs) == set(ours) and len(theirs) == len(ours):
        return
    only = [f'"{label}"' for label in [*sorted(set(theirs) ^ set(ours))][:5]]
    raise BadLabels(
        f"{them} and {us} do not have the same labels: {', '.join(only) or 'some occur twice'}.",
        f"{them}: {', '.join(theirs)}\n  {us}: {', '.join(ours)}",
    )


def teacher_outputs(
    teacher: Teacher, examples: Examples, cache: FrozenCache, progress: Callable[[int], None] | None = None
) -> FrozenRows:
    """Return what a teacher says about examples, computed once and kept in the cache."""
    spans = examples.spans if teacher.kind == "tagging" else None
    # How a context is cut into words depends on its language.
    language = [examples.pair_language or examples.language] * len(examples) if teacher.kind == "qa" else None
    return cache.rows(
        text_keys(examples.texts, examples.pairs, spans, language),
        lambda places: teacher(examples.select(places.tolist())),
        kind=f"teacher-{teacher.kind}",
        model=teacher.identity or teacher.name,
        tokenizer=teacher.tokenizer,
        width=2 if teacher.kind == "qa" else len(teacher.labels),
        chunk=1024 if teacher.identity else 128,
        progress=progress,
    )


class ModelTeacher:
    """A task model in Hugging Face format: a folder, a name, or what a run delivered.

    Args:
        name: Folder, run folder or hub id.
    """

    def __init__(self, name: str | Path) -> None:
        self.name = str(name)
        self.where = _delivered(Path(name))
        kind = model_kind(self.where)
        if kind is None:
            raise BadInput(f"{name} is an encoder without a task head; it has nothing to teach.", "Name a task model.")
        self.kind, self.labels = kind, model_labels(self.where) if kind != "qa" else ()
        self._tokenizer: PreTrainedTokenizerBase = load_tokenizer(self.where)
        self.task = make_task(kind, self.labels, _lengths(Path(name), kind, self._tokenizer.model_max_length))
        self.device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        self._open()
        self.tokenizer = f"{tokenizer_fingerprint(self._tokenizer)} {self.task.max_length}"

    def _open(self) -> None:
        self._model = load_model(self.where, self.task).eval()
        self.identity: str | None = weights_fingerprint(self._model)
        self._model.to(self.device)

    def run(self, batch: dict[str, torch.Tensor]) -> Mapping[str, torch.Tensor]:
        """Return the logits of one batch by name."""
        with torch.inference_mode():
            return forward(self._model, {name: tensor.to(self.device) for name, tensor in batch.items()})

    def __call__(self, examples: Examples) -> Floats | Ragged:
        """Return log-probabilities of examples."""
        examples = examples.unlabelled()
        encoded = encode_once(self.task, examples, self._tokenizer)
        kept: list[Kept] = [{} for _ in range(len(encoded))]
        for rows in evaluation_batches(encoded.lengths(), _TOKENS[self.device.type]):
            outputs = self.run(self.task.collate(encoded, rows, int(self._tokenizer.pad_token_id)))
            for row, entry in zip(rows.tolist(), self.task.keep(outputs, encoded, rows), strict=True):
                kept[row] = entry
        if self.kind == "classification":
            return log_softmax(np.stack([row["logits"] for row in kept]))
        if self.kind == "tagging":
            return _by_word(kept, encoded, cast("Sequence[Spans]", examples.spans), len(self.labels))
        return _by_context_word(kept, encoded, context_spans(examples))


class OnnxTeacher(ModelTeacher):
    """An ONNX file with inputs `input_ids` and `attention_mask`; tokenizer and config.json lie beside it.

    Args:
        file: The `.onnx` file; `crosslift.models.export` writes such folders.
    """

    def __init__(self, file: Path) -> None:
        if not file.is_file():
            raise BadInput(f"There is no file {file}.")
        self.file = file
        super().__init__(file.parent)
        self.name = str(file)

    def _open(self) -> None:
        try:
            from onnxruntime import InferenceSession
        except ImportError:
            raise MissingExtra("onnxruntime", "onnx") from None
        self._session = InferenceSession(str(self.file), providers=["CPUExecutionProvider"])
        self._wanted = [value.name for value in self._session.get_inputs()]
        self._names = [value.name for value in self._session.get_outputs()]
        self.device = torch.device("cpu")
        self.identity = hashlib.blake2b(self.file.read_bytes(), digest_size=16).hexdigest()

    def run(self, batch: dict[str, torch.Tensor]) -> Mapping[str, torch.Tensor]:
        """Return the logits of one batch by name."""
        given = {name: batch[name].numpy() for name in self._wanted if name in batch}
        if "token_type_ids" in self._wanted and "token_type_ids" not in given:
            given["token_type_ids"] = np.zeros_like(given["input_ids"])
        outputs = self._session.run(None, given)
        return {name: torch.from_numpy(value) for name, value in zip(self._names, outputs, strict=True)}


def log_softmax(logits: Floats) -> Floats:
    """Return log-probabilities over the last axis, none below `LOWEST`."""
    shifted = logits.astype(np.float64) - logits.max(axis=-1, keepdims=True)
    logs = shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True))
    floored: Floats = np.maximum(logs, LOWEST).astype(np.float32)
    return floored


def context_spans(examples: Examples) -> list[Spans]:
    """Return the words of each context of a question-answering set."""
    return segment_all(list(examples.pairs or ()), examples.pair_language or examples.language)


def context_words(encoded: Encoded, spans: Sequence[Spans]) -> WordMaps:
    """Return the tokens of each word of the context, for every row of an encoded question-answering set.

    A word that is cut at the edge of a row is not in that row; a neighbouring row holds it whole.
    """
    offsets, answerable = encoded.maps["offsets"], encoded.maps["answerable"]
    sequence = np.where(answerable.values, 1, -1).astype(np.int8)
    mark = np.zeros(len(sequence), dtype=bool)
    tokens = TokenSpans(offsets.values[:, 0], offsets.values[:, 1], sequence, mark, offsets.starts)
    maps = word_maps(tokens, spans, sequence=1, example_of=encoded.example_of)
    example_of = encoded.example_of
    places = np.flatnonzero(answerable.values)
    first, stop = (np.searchsorted(places, edge) for edge in (offsets.starts[:-1], offsets.starts[1:]))
    left, right = np.zeros(len(example_of)), np.full(len(example_of), np.inf)
    filled = first < stop
    goes_on = np.append(example_of[1:] == example_of[:-1], False)  # in the next row
    cut_left, cut_right = filled & np.append(False, goes_on[:-1]), filled & goes_on
    left[cut_left] = tokens.begin[places[first[cut_left]]]
    right[cut_right] = tokens.end[places[stop[cut_right] - 1]]
    row = np.repeat(np.arange(len(example_of)), np.diff(maps.starts))
    flat = np.concatenate([np.zeros((0, 2), dtype=np.int32), *(spans[i] for i in example_of.tolist())])
    cut = (flat[:, 0] < left[row]) | (flat[:, 1] > right[row])
    return WordMaps(np.where(cut, -1, maps.first), np.where(cut, -1, maps.stop), maps.starts)


def own_token(first: Ragged) -> NDArray[np.bool_]:
    """Return which words do not share their first token with the word before them: (words,)."""
    own = np.ones(len(first.values), dtype=bool)
    own[1:] = first.values[1:] != first.values[:-1]
    begins = first.starts[:-1]
    own[begins[begins < len(own)]] = True
    return own


def _by_word(kept: Sequence[Kept], encoded: Encoded, spans: Sequence[Spans], tags: int) -> Ragged:
    starts = row_starts([len(words) for words in spans])
    first, word = encoded.maps["first"], encoded.maps["word"]
    said = np.full((int(starts[-1]), tags), np.nan, dtype=np.float32)
    place = np.repeat(starts[encoded.example_of], first.lengths()) + word.values
    own = own_token(first)
    logits = np.concatenate([np.zeros((0, tags), dtype=np.float32), *(row["logits"] for row in kept)])
    said[place[own]] = log_softmax(logits[own])
    return Ragged(said, starts)


def _by_context_word(kept: Sequence[Kept], encoded: Encoded, spans: Sequence[Spans]) -> Ragged:
    """Start and end over "no answer" and the words; of several rows of one context the highest logit counts."""
    counts = np.array([len(words) + 1 for words in spans])
    starts = row_starts(counts)
    maps = context_words(encoded, spans)
    tokens = row_starts(encoded.lengths())[:-1]
    sides = []
    for side, at in (("start", maps.first), ("end", maps.stop - 1)):
        flat = np.concatenate([row[side] for row in kept])
        logits = np.full(int(starts[-1]), -np.inf, dtype=np.float64)
        none = np.full(len(spans), np.inf)
        np.minimum.at(none, encoded.example_of, flat[tokens])
        words = np.diff(maps.starts)
        place = ranges(starts[encoded.example_of] + 1, words)
        inside = maps.first >= 0
        np.maximum.at(logits, place[inside], flat[(np.repeat(tokens, words) + at)[inside]])
        logits[starts[:-1]] = none
        highest = np.maximum.reduceat(logits, starts[:-1])
        shifted = logits - np.repeat(highest, counts)
        total = np.log(np.add.reduceat(np.exp(shifted), starts[:-1]))
        sides.append(np.maximum(shifted - np.repeat(total, counts), LOWEST))
    return Ragged(np.stack(sides, axis=1).astype(np.float32), starts)


def _delivered(path: Path) -> str:
    """Return the model behind a name; of a group of runs the first seed's."""
    seeds = [run for run in path.glob("seed-*/model") if run.parent.name[5:].isdigit()] if path.is_dir() else []
    return locate(min(seeds, key=lambda run: int(run.parent.name[5:])) if seeds else path)


def _lengths(path: Path, kind: str, most: int) -> dict[str, object]:
    """Return the lengths a run was trained with; of a plain folder the task's own, shortened to the model's."""
    for folder in (path, *sorted(path.glob("seed-*"))) if path.is_dir() else ():
        config = read_json(folder / "config.json") if (folder / "config.json").exists() else {}
        if isinstance(config.get("task"), dict):
            return {k: v for k, v in cast("dict[str, object]", config["task"]).items() if k != "labels"}
    default = int(cast("Any", TASKS[kind]).max_length)
    longest = min(default, most)
    return {"max_length": longest, **({"stride": min(128, longest // 3)} if kind == "qa" else {})}


def make_task(kind: str, labels: Sequence[str], options: Mapping[str, object]) -> Task:
    """Return a task of a kind; question answering has no labels."""
    named = {} if kind == "qa" else {"labels": tuple(labels)}
    return cast("Task", cast("Any", TASKS[kind])(**named, **options))
