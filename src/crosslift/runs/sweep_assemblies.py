"""Assemblies as runs: models that are put together or made, and baselines by translation, done once and kept.

Each function fills one run folder, so that a sweep can score it like any other.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from crosslift.data import load
from crosslift.data.halves import halves
from crosslift.data.storage import Json, write_json
from crosslift.errors import BadInput, nearest
from crosslift.models.load import locate, model_labels
from crosslift.runs.folder import RunFolder
from crosslift.runs.progress import Silent, Watch

SETTINGS = ()
"""These functions take named arguments alone."""
PLUGGED = ("connector", "emb-map", "emb-learn")


def plugged(
    *,
    task_model: str,
    multi: str,
    mono: str,
    out: str | Path,
    how: str = "connector",
    connector: str | None = None,
    embeddings: str | None = None,
    seed: int = 1,
    watch: Watch | None = None,
) -> None:
    """Put a task model onto a connector, or a multilingual vocabulary under it; the folder is scored like any run.

    Args:
        task_model: Run of the monolingual task model.
        multi: Multilingual encoder.
        mono: Public model that the task model was tuned from.
        out: Run folder.
        how: `connector`, `emb-map`, or `emb-learn` with a run of `emb-learn` in `embeddings`.
        connector: Run of `fit plug`.
        embeddings: Run of `emb-learn`.
        seed: Only says to which seed of a table it belongs.
        watch: Who is told about progress.
    """
    from crosslift.runs.plug_baselines import emb_map, plug_embeddings
    from crosslift.runs.plugged import plug

    if how not in PLUGGED:
        raise BadInput(f'A task model is not plugged by "{how}".{nearest(how, PLUGGED)}')
    task = RunFolder(task_model).config
    config: Json = {**task, "method": "plugged", "how": how, "task_model": task_model, "connector": connector}
    folder = RunFolder.start(out, {**config, "seed": seed, "embeddings": embeddings})
    if how == "connector":
        plug(task_model, str(connector), folder.model, multi=multi)
    elif how == "emb-map":
        emb_map(task_model, multi, mono, folder.model)
    else:
        plug_embeddings(task_model, Path(str(embeddings)) / "embeddings.safetensors", multi, folder.model)
    summary = RunFolder(task_model).summary
    folder.finish({name: summary[name] for name in ("selected", "selected_on") if name in summary})


def new_model(
    *,
    architecture: str,
    data: str,
    out: str | Path,
    seed: int = 1,
    language: str = "en",
    half: str | None = None,
    pieces: int = 10_000,
    watch: Watch | None = None,
) -> None:
    """Make a small untrained model (`transformer`, `bilstm`, `cnn`) with a vocabulary of its own, for `fit`.

    Args:
        architecture: Which one.
        data: Set whose training text gives the vocabulary.
        out: Run folder.
        seed: Fixes the weights.
        language: Of the text.
        half: `annotated` or `unannotated`: only that half of the set.
        pieces: Size of the vocabulary.
        watch: Who is told about progress.
    """
    from crosslift.models.students import new_student, save_student, student_tokenizer

    config: Json = {"architecture": architecture, "data": data, "language": language, "half": half, "pieces": pieces}
    folder = RunFolder.start(out, {"method": "new-model", **config, "seed": seed})
    found = load(data, language=language, split="train")
    text = halved(found, half) if half else found
    tokenizer = student_tokenizer({language: [*text.texts, *(text.pairs or ())]}, pieces)
    save_student(new_student(architecture, tokenizer, text.kind, seed=seed), tokenizer, folder.model)
    write_json(folder.path / "finished.json", {"pieces": len(tokenizer)})


def learn_embeddings(
    *,
    mono: str,
    multi: str,
    text: Mapping[str, str],
    out: str | Path,
    seed: int = 1,
    steps: int = 3000,
    batch_size: int = 512,
    watch: Watch | None = None,
) -> None:
    """Train new word embeddings under a frozen monolingual model (see `runs.plug_baselines.emb_learn`)."""
    from crosslift.runs.plug_baselines import emb_learn

    files = {language: [file] for language, file in text.items()}
    emb_learn(mono, multi, files, out, seed=seed, watch=watch, steps=steps, batch_size=batch_size)


def score_translated(
    *,
    model: str,
    data: str,
    languages: Sequence[str],
    translator: str,
    out: str | Path,
    seed: int = 1,
    limit: int | None = None,
    keep_unknown: bool = True,
    watch: Watch | None = None,
) -> None:
    """Score a source-language model on translations of the test data."""
    from crosslift.runs.translate_baselines import translate_test

    folder = RunFolder(out)
    options: dict[str, Any] = {"limit": limit, "keep_unknown": keep_unknown, "watch": watch}
    translate_test(model, data, list(languages), translator=translator, out=out, **options)
    folder.finish({"translator": translator})


def train_translated(
    *,
    teacher: str,
    model: str,
    data: str,
    target: str,
    translator: str,
    out: str | Path,
    seed: int = 1,
    half: str | None = None,
    limit: int | None = None,
    epochs: float = 30.0,
    steps: int | None = None,
    learning_rate: float = 1e-3,
    batch_size: int = 64,
    watch: Watch | None = None,
) -> None:
    """Train a target-language model on translated text with the source model's predictions as labels."""
    from crosslift.runs.fit import fit
    from crosslift.runs.translate_baselines import pseudo_label, translate_train

    text = load(data, language="en", split="train")
    text = halved(text, half) if half else text
    text = text.take(limit) if limit else text
    how: dict[str, Any] = {"seeds": [seed], "learning_rate": learning_rate, "batch_size": batch_size, "watch": watch}
    how |= {"steps": steps} if steps else {"epochs": epochs}
    if target == text.language:
        labels = model_labels(locate(teacher))
        fit("finetune", model=model, data=pseudo_label(teacher, text, watch or Silent()), labels=labels, out=out, **how)
    else:
        translate_train(teacher, text, target=target, translator=translator, model=model, out=out, **how)


def halved(examples: Any, half: str) -> Any:  # noqa: ANN401  examples in and out
    """Return the `annotated` or the `unannotated` half of a set (see `data.halves`)."""
    names = ("annotated", "unannotated")
    if half not in names:
        raise BadInput(f'half is annotated or unannotated, not "{half}".{nearest(half, names)}')
    # A seed of its own: dev and held-out parts are cut by the same hash with other seeds.
    return dict(zip(names, halves(examples, seed=15), strict=True))[half]
