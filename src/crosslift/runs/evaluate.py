"""Evaluate a model in every language: predictions on disk first, scores from them.

Each text is tokenised once, batches hold rows of like length up to a token budget, and results are written after
each language, so that a crash costs one language.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, cast

import numpy as np
import torch
from torch import nn

from crosslift.data import catalog, load
from crosslift.data.batches import evaluation_batches
from crosslift.data.draft import UNKNOWN_LANGUAGE
from crosslift.data.examples import Examples, Kind
from crosslift.data.segment import segment_all
from crosslift.data.storage import Json, write_json
from crosslift.errors import BadInput
from crosslift.measure.scores import Score, Scores
from crosslift.models.forward import forward
from crosslift.models.load import load_model, load_tokenizer, locate, model_kind, model_labels
from crosslift.models.tokenised import encode_once
from crosslift.runs.card import write_card
from crosslift.runs.evaluation_data import EvaluationSets, check_kind
from crosslift.runs.folder import RunFolder, find_runs
from crosslift.runs.machine import autocast_for
from crosslift.runs.predictions import make_task, write_predictions
from crosslift.runs.progress import Silent, Watch
from crosslift.tasks import Prediction, Task
from crosslift.tasks.metrics import Metric

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

    from crosslift.tasks import Encoded

MAX_TOKENS = {"cpu": 4096, "cuda": 65536}
"""Padded tokens per batch: what keeps a CPU's caches, and a GPU, busy."""


def predict_examples(
    model: nn.Module,
    tokenizer: PreTrainedTokenizerBase,
    task: Task,
    examples: Examples,
    *,
    max_tokens: int | None = None,
    precision: str = "auto",
    watch: Watch | None = None,
) -> list[Prediction]:
    """Return one prediction per example, in order."""
    encoded = encode_once(task, examples.unlabelled(), tokenizer)
    pad_id = int(tokenizer.pad_token_id)
    kept = run_model(model, task, encoded, pad_id, max_tokens=max_tokens, precision=precision, watch=watch)
    return task.decode(kept, encoded, examples)


def run_model(
    model: nn.Module,
    task: Task,
    encoded: Encoded,
    pad_id: int,
    *,
    max_tokens: int | None = None,
    precision: str = "auto",
    watch: Watch | None = None,
) -> list[dict[str, np.ndarray]]:
    """Return what the task keeps of the model's outputs, one entry per encoded row."""
    device = next(model.parameters()).device
    budget = max_tokens or MAX_TOKENS[device.type]
    kept: list[dict[str, np.ndarray]] = [{} for _ in range(len(encoded.example_of))]
    done = 0
    model.eval()
    with torch.inference_mode(), autocast_for(precision, device):
        for rows in evaluation_batches(encoded.lengths(), budget):
            batch = task.collate(encoded, rows, pad_id)
            outputs = forward(model, {name: tensor.to(device) for name, tensor in batch.items()})
            for row, entry in zip(rows, task.keep(outputs, encoded, rows), strict=True):
                kept[row] = entry
            done += len(rows)
            if watch:
                watch.advance(done)
    return kept


def dev_scorer(
    task: Task, tokenizer: PreTrainedTokenizerBase, dev: Examples
) -> Callable[[nn.Module], dict[str, float]]:
    """Return a function that scores a model on source dev data, tokenised once."""
    encoded = encode_once(task, dev.unlabelled(), tokenizer)

    def score(model: nn.Module) -> dict[str, float]:
        kept = run_model(model, task, encoded, int(tokenizer.pad_token_id))
        metrics = task.metrics(dev, task.decode(kept, encoded, dev))
        return {name: metric.value for name, metric in metrics.items()}

    return score


def evaluate(
    model: object,
    data: str | Path | Mapping[str, Examples] | None = None,
    languages: Sequence[str] | None = None,
    *,
    split: str = "test",
    out: str | Path | None = None,
    variant: str | None = None,
    mix: str | None = None,
    only_missing: bool = False,
    keep_unknown: bool = False,
    limit: int | None = None,
    max_tokens: int | None = None,
    precision: str = "auto",
    reading: Mapping[str, object] | None = None,
    predictor: Callable[..., list[Prediction]] | None = None,
    method: str | None = None,
    watch: Watch | None = None,
) -> Scores:
    """Score a run or a model by language; predictions and results are written as they come.

    All data is loaded and its labels are checked before the model runs.

    Args:
        model: A run (`fit` returned it), its folder, or any task model by name.
        data: Catalog name, file (`{lang}` stands for the language), or language -> examples; default: the data the
            run was trained on.
        languages: Default: all that the data has.
        split: Which part of the data.
        out: Where results go; default: the run folder.
        variant: `best`, `last` or `average` in place of the delivered weights of a run.
        mix: Put a part of each example into the source language, for parallel data: `sentences` (one of the two
            sentences, a fixed coin says which), `question` or `context`.
        only_missing: Keep scores that are there already for the same data and `limit`.
        keep_unknown: Count gold labels that the model does not know as errors, instead of stopping.
        limit: Use at most so many examples per language.
        max_tokens: Padded tokens per batch.
        precision: `auto`, `fp32` or `bf16`.
        reading: Further arguments of `crosslift.load`, such as `columns` and `labels`.
        predictor: What predicts in place of `predict_examples`, with the same arguments (translate-test).
        method: What results call the system; default: the run's own method.
        watch: Who is told about progress.
    """
    watch = watch or Silent()
    systems = _systems(model, variant)
    if method is not None:
        systems = [system._replace(config={**system.config, "method": method}) for system in systems]
    tasks = [_task(system) for system in systems]
    source = str(systems[0].config.get("source", "")) or None
    sets = EvaluationSets(
        _trained_on(systems[0]) if data is None else data, split, limit, reading or {}, mix, source or "en"
    )
    name = sets.name if variant is None else f"{sets.name}@{variant}"
    wanted = list(languages or sets.languages())
    folders = [_results_folder(system, out, len(systems) > 1) for system in systems]
    results = [folder.results() for folder in folders]
    scored = [cast("dict[str, Json]", found.setdefault(name, {})) for found in results]

    def kept(done: dict[str, Json], language: str) -> bool:
        found = done.get(language, {})
        return only_missing and language in done and found.get("limit") == limit and sets.same(found.get("data"))

    missing = [language for language in wanted if not all(kept(done, language) for done in scored)]
    examples = {language: sets.load(language, tasks[0], keep_unknown) for language in missing}
    config = systems[0].config
    title = str(config["method"])
    scores = Scores(f"{title} ({variant})" if variant else title, name, source)
    for system, task, folder, found, done in zip(systems, tasks, folders, results, scored, strict=True):
        opened: tuple[nn.Module, PreTrainedTokenizerBase] | None = None
        for language in wanted:
            if not kept(done, language):
                opened = opened or _open(system, task)
                began = time.monotonic()
                watch.start(f"{name} {language}", len(examples[language]))
                predictions = (predictor or predict_examples)(
                    *opened, task, examples[language], max_tokens=max_tokens, precision=precision, watch=watch
                )
                file = folder.predictions / f"{name.replace('/', '.')}.{language}.jsonl"
                write_predictions(file, task, examples[language], predictions)
                entry = _entry(task.metrics(examples[language], predictions), examples[language])
                entry |= {"limit": limit, "seconds": round(time.monotonic() - began, 2)}
                entry |= {"data": None if isinstance(sets.data, Mapping) else str(sets.data), "split": split}
                entry["predictions"] = str(file.relative_to(folder.path))
                done[language] = entry
                write_json(folder.results_file, found)
                main = next(iter(cast("dict[str, Json]", entry["scores"]).values()))
                watch.finish(f"{main['value']:.1f}")
            for score in cast("dict[str, Json]", done[language]["scores"]).values():
                scores.add(language, int(str(system.config["seed"])), Score(**score))  # type: ignore[arg-type]
        if folder.done:
            write_card(folder)
    return scores


def predict(
    model: object,
    data: str | Path | Examples | Sequence[str] | Sequence[tuple[str, str]],
    *,
    language: str | None = None,
    split: str = "test",
    reading: Mapping[str, object] | None = None,
    watch: Watch | None = None,
) -> list[Prediction]:
    """Return predictions for examples, a file, a catalog name, or plain texts.

    Texts may be strings, or for two-text tasks pairs of strings; of a run with several seeds the first predicts.

    Args:
        model: A run, its folder, or any task model by name.
        data: What to predict; labels are not read.
        language: Language of the data.
        split: Part of a data set that has a name.
        reading: Further arguments of `crosslift.load`.
        watch: Who is told about progress.
    """
    system = _systems(model)[0]
    task = _task(system)
    if isinstance(data, Examples):
        examples = data
    elif isinstance(data, (str, Path)):
        options = {"kind": task.kind, "unlabelled": True, **(reading or {})}
        examples = load(data, language=language, split=split, **options)  # type: ignore[arg-type]
    else:
        examples = _from_texts(data, task.kind, language or UNKNOWN_LANGUAGE)
    check_kind(examples, task)
    return predict_examples(*_open(system, task), task, examples, watch=watch)


class _System(NamedTuple):
    """One model to run: its folder or hub id, the settings of its run, and the run if it is one of ours."""

    where: str
    config: Json
    run: RunFolder | None


def _systems(model: object, variant: str | None = None) -> list[_System]:
    """Return the models behind a run (one per seed) or a name."""
    folders = getattr(model, "folders", None) or find_runs(str(model))
    if not folders:
        if variant is not None:
            raise BadInput(f"{model} is not a run of crosslift, so it has no variants.")
        return [_System(locate(str(model)), {"method": "given", "model": str(model), "seed": 0}, None)]
    systems = []
    for folder in folders:
        if not folder.done:
            raise BadInput(f"{folder.path} is not finished.", "Start its command again to finish it.")
        delivered = variant is None or folder.summary["selected"] == variant
        where = folder.model if delivered else folder.variants / str(variant)
        if not where.exists():
            there = [str(folder.summary["selected"]), *(path.name for path in folder.variants.glob("*"))]
            raise BadInput(f'{folder.path} has no variant "{variant}".', f"Variants: {', '.join(sorted(there))}.")
        systems.append(_System(str(where), folder.config, folder))
    return systems


def _results_folder(system: _System, out: str | Path | None, several: bool) -> RunFolder:
    if out is None and system.run is not None:
        return system.run
    path = Path(out) if out else Path("runs") / "evaluations" / Path(str(system.config["model"])).name
    return RunFolder.start(path / f"seed-{system.config['seed']}" if several else path, system.config)


def _trained_on(system: _System) -> str:
    name = str(system.config.get("data", "")).split("/")[0]
    if not catalog.is_known(name):
        raise BadInput(f"Which data? {system.where} was not trained on a set of the catalog.", "Name it with --data.")
    return name


def _task(system: _System) -> Task:
    """Return the task of a saved model: labels from its configuration, the rest as its run had it."""
    kind = model_kind(system.where)
    if kind is None:
        raise BadInput(
            f"{system.where} is an encoder without a task head.", "Fine-tune it first: crosslift fit finetune."
        )
    options = cast("Json", system.config.get("task") or {})
    return make_task(kind, model_labels(system.where), **{k: v for k, v in options.items() if k != "labels"})


def _open(system: _System, task: Task) -> tuple[nn.Module, PreTrainedTokenizerBase]:
    device = "cuda" if torch.cuda.is_available() else "cpu"
    return load_model(system.where, task).to(device), load_tokenizer(system.where)


def _entry(metrics: Mapping[str, Metric], examples: Examples) -> Json:
    scores = {name: asdict(Score.of(metric)) for name, metric in metrics.items()}
    return {"scores": scores, "examples": len(examples), "skipped": dict(examples.skipped)}


def _from_texts(texts: Sequence[str] | Sequence[tuple[str, str]], kind: str, language: str) -> Examples:
    rows = [(text,) if isinstance(text, str) else tuple(text) for text in texts]
    if len({len(row) for row in rows}) > 1:
        raise BadInput("Give single texts or pairs of texts, not both.")
    firsts = [row[0] for row in rows]
    return Examples(
        kind=cast("Kind", kind),
        language=language,
        ids=[str(i) for i in range(len(rows))],
        texts=firsts,
        pairs=[row[1] for row in rows] if rows and len(rows[0]) > 1 else None,
        spans=segment_all(firsts, language) if kind == "tagging" else None,
        name="texts",
    )
