"""One job of the distillation table: train a model, score it, and keep what each example counts."""

from __future__ import annotations

import argparse
import json
import shutil
import time
from dataclasses import asdict, replace
from functools import cache
from pathlib import Path
from typing import Any

from jobs import BRIDGES, SETS, SHARED, Job

RATES = {"cnn": 1e-3, "transformer": 5e-4, "bilstm": 2e-3, "bridge": 3e-4}
BATCH = {"student": 128, "other": 64}
"""Texts per step. A step of a small student takes a GPU as long with 128 texts as with 64."""


@cache
def prepared(file: Path) -> Any:  # noqa: ANN401  Examples and links
    """Read a file of `prepare.py`, once per process."""
    from prepare import read

    return read(file)


class Place:
    """Where a job finds and leaves things."""

    def __init__(self, arguments: argparse.Namespace) -> None:
        self.scratch, self.out = arguments.scratch, arguments.out
        self.prepared = self.scratch / "prepared"
        self.steps, self.scale, self.encoders = arguments.steps, arguments.scale, arguments.encoders
        self.rates, self.search = {**RATES, **arguments.rates}, arguments.range_test

    def examples(self, name: str, key: str) -> Any:  # noqa: ANN401  Examples
        """Return a set's examples, such as `de-test`."""
        return prepared(self.prepared / name / f"{key}.json")[0]

    def links(self, name: str, key: str) -> Any:  # noqa: ANN401  links between words, by row
        """Return the links between the words of a set and of its translation."""
        return prepared(self.prepared / name / f"{key}.json")[1]

    def labels(self, name: str, data: Any = None) -> list[str]:  # noqa: ANN401  Examples
        """Return the labels of a set: rare ones may be in one half only, or in the data of another language only."""
        found: list[str] = json.loads((self.prepared / name / "labels.json").read_text(encoding="utf-8"))
        return found + ([label for label in data.label_names() if label not in found] if data else [])

    def run(self, job: Job) -> Path:
        """Return where a job's run lies."""
        return Path(self.scratch / "runs" / job.name)

    def model(self, job: Job) -> Path:
        """Return the model that a job delivers."""
        return self.run(job) / "model"

    def encoder(self, name: str) -> str:
        """Return the folder of an encoder, or its name if crosslift has it."""
        return str(Path(self.encoders) / name) if self.encoders and (Path(self.encoders) / name).exists() else name

    def start(self, job: Job, architecture: str, language: str) -> str:
        """Make a new small model with the vocabulary of its language and the seed of its job; or name an encoder."""
        if architecture in BRIDGES:
            return self.encoder(BRIDGES[architecture][0])
        from transformers import PreTrainedTokenizerFast

        from crosslift.models.students import new_student, save_student

        data = SETS[job.set]
        home = self.scratch / "starts" / job.name
        if not home.exists():
            words = self.prepared / "tokenizers" / f"{data.family}-{language}"
            tokenizer = PreTrainedTokenizerFast.from_pretrained(words)
            save_student(new_student(architecture, tokenizer, data.kind, seed=job.seed), tokenizer, home)
        return str(home)


def work(job: Job, arguments: argparse.Namespace) -> dict[str, Any]:
    """Train and score one model; return its row of the JSON."""
    import torch

    from crosslift.runs import agreement

    torch.set_num_threads(1)
    place = Place(arguments)
    if place.steps:
        agreement._FEW = 10**9  # after two steps every student has collapsed
    began = time.monotonic()
    row: dict[str, Any] = asdict(job)
    if job.role == "translate-test":
        row |= translate_test(job, place)
    else:
        shutil.rmtree(place.run(job), ignore_errors=True)  # begun, not finished
        run = TEACH[job.role](job, place)
        facts = run.summary()[0]
        row["dev"] = round(next(iter(facts["dev"][facts["selected"]].values())), 2)
        row |= {k: facts[k] for k in ("steps", "learning_rate") if k in facts} | {
            "training_seconds": round(facts["seconds"], 1)
        }
        row |= scored(job, place, tested(job))
        clear(job, place)
    row["seconds"] = round(time.monotonic() - began, 1)
    if torch.cuda.is_available():
        torch.cuda.empty_cache()  # the other processes need it
    return row


def clear(job: Job, place: Place) -> None:
    """Keep of a run what others learn from, and nothing else."""
    shutil.rmtree(place.scratch / "starts" / job.name, ignore_errors=True)
    if job.role in ("source", "bridge"):
        for part in ("variants", "state"):
            shutil.rmtree(place.run(job) / part, ignore_errors=True)
    else:
        shutil.rmtree(place.run(job))


def tested(job: Job) -> list[str]:
    """Return the languages that a job is scored in."""
    data = SETS[job.set]
    if job.role == "bridge" or (job.role, job.source) == ("source", SHARED):
        return ["en", *data.targets, *data.bridge_only]
    return [job.language or "en"]


def common(job: Job, place: Place) -> dict[str, Any]:
    """Return the settings of a training, by what learns: a small model of some architecture, or an encoder."""
    learner = job.learner
    student = job.role != "source" and learner not in BRIDGES
    # Without a rate `distill` looks for one.
    rate = {"learning_rate": place.rates.get(learner, place.rates["bridge"])}
    return ({} if place.search and job.role == "student" else rate) | {
        "out": place.run(job),
        "seeds": [job.seed],
        "frozen_layers": BRIDGES[learner][1] if learner in BRIDGES else None,
        "batch_size": BATCH["student" if student else "other"],
        "steps": place.steps or round(place.scale * job.steps),
        "evaluations": 1 if place.steps else 3,
        "max_tokens": 16384,
        "log_every": 100,
    }


def source(job: Job, place: Place) -> Any:  # noqa: ANN401  Run
    """Teach the source model with the labels of one half."""
    import crosslift as xl

    return xl.fit(
        "finetune", model=place.start(job, job.source, "en"), data=place.examples(job.set, "en-annotated"),
        dev=place.examples(job.set, "en-dev"), labels=place.labels(job.set), **common(job, place),
    )  # fmt: skip


def bridge(job: Job, place: Place) -> Any:  # noqa: ANN401  Run
    """Teach the bridge on English text, or on its translations, too."""
    from crosslift.runs.distill import distill

    kind = {"balanced": "into", "human": "unannotated"}.get(job.variant)
    found = {x: place.examples(job.set, f"{x}-{kind}") for x in SETS[job.set].targets} if kind else {}
    translations = {language: spoken(examples) for language, examples in found.items()}
    needed = job.needs
    assert needed is not None
    return distill(
        teacher=place.run(needed), text={"en": place.examples(job.set, "en-unannotated")},
        student=place.encoder(BRIDGES[job.bridge][0]), translations=translations or None, cache=place.scratch / "cache",
        **common(job, place),
    )  # fmt: skip


def spoken(examples: Any) -> Any:  # noqa: ANN401  Examples
    """Leave out texts of which the translator made nothing."""
    return examples.select(row for row, text in enumerate(examples.texts) if text.strip())


def student(job: Job, place: Place) -> Any:  # noqa: ANN401  Run
    """Teach the student on text of its language."""
    from crosslift.runs.distill import distill

    text = place.examples(job.set, f"{job.language}-{'noise' if job.augmented else 'unannotated'}")
    needed = job.needs
    assert needed is not None
    # The range test looks elsewhere for a student that is named than for a model that is there already.
    start = job.student if place.search else place.start(job, job.student, job.language)
    return distill(
        teacher=place.run(needed), text={job.language: text}, student=start,
        cache=place.scratch / "cache", **common(job, place),
    )  # fmt: skip


def gold(job: Job, place: Place) -> Any:  # noqa: ANN401  Run
    """Teach a model of the target language with labels of its own: what labels would be worth."""
    import crosslift as xl

    data = place.examples(job.set, f"{job.language}-annotated")
    return xl.fit(
        "finetune", model=place.start(job, job.student, job.language), source=job.language, data=data,
        labels=place.labels(job.set, data), **common(job, place),
    )  # fmt: skip


def translate_train(job: Job, place: Place) -> Any:  # noqa: ANN401  Run
    """Teach a model of the target language on translations, labelled by the source model on the originals."""
    import crosslift as xl
    from crosslift.translate.project import project

    text, made = place.examples(job.set, "en-unannotated"), place.examples(job.set, f"{job.language}-into")
    said = [prediction["prediction"] for prediction in predictions(job, place, text)]
    kept = [row for row, words in enumerate(made.texts) if words.strip()]
    if text.kind == "tagging":
        links = place.links(job.set, f"{job.language}-into")
        carried = [project(tags, links[row], len(made.spans[row])) for row, tags in enumerate(said)]
        said = [tags for tags, _ in carried]
        kept = [row for row in kept if len(made.spans[row]) and not carried[row][1]]
    data = replace(made, labels=said).select(kept)
    return xl.fit(
        "finetune", model=place.start(job, job.student, job.language), source=job.language, data=data,
        labels=place.labels(job.set, data), **common(job, place),
    )  # fmt: skip


TEACH = {"source": source, "bridge": bridge, "student": student, "gold": gold, "translate-train": translate_train}


def opened(folder: Path, kind: str) -> tuple[Any, Any, Any]:
    """Return model, tokenizer and task of a run."""
    import torch

    from crosslift.models.load import load_model, load_tokenizer, model_labels
    from crosslift.runs.predictions import make_task

    settings = json.loads((folder / "config.json").read_text(encoding="utf-8"))["task"]
    options = {key: value for key, value in settings.items() if key != "labels"}
    where = str(folder / "model")
    task = make_task(kind, model_labels(where), **options)
    return load_model(where, task).to("cuda" if torch.cuda.is_available() else "cpu"), load_tokenizer(where), task


def predictions(job: Job, place: Place, texts: Any) -> list[Any]:  # noqa: ANN401  Examples
    """Return what the source model says about English text."""
    from crosslift.runs.evaluate import predict_examples

    needed = job.needs
    assert needed is not None
    model, tokenizer, task = opened(place.run(needed), SETS[job.set].kind)
    return predict_examples(model, tokenizer, task, texts)


def translate_test(job: Job, place: Place) -> dict[str, Any]:
    """Score the source model on the test set's translation into English."""
    from crosslift.translate.project import project

    test, made = (place.examples(job.set, f"{job.language}-{what}") for what in ("test", "back"))
    # A text of which the translator made nothing is predicted as it is.
    made = replace(made, texts=[new if new.strip() else old for new, old in zip(made.texts, test.texts, strict=True)])
    said = predictions(job, place, made)
    if test.kind == "tagging":
        links = place.links(job.set, f"{job.language}-back")
        for row, prediction in enumerate(said):
            back = [(j, i) for i, j in links[row]]
            prediction["prediction"] = project(prediction["prediction"], back, len(test.spans[row]))[0]
    needed = job.needs
    assert needed is not None
    _, _, task = opened(place.run(needed), test.kind)
    return kept(job, place, {job.language: task.metrics(test, said)})


def scored(job: Job, place: Place, languages: list[str]) -> dict[str, Any]:
    """Score a model in every language."""
    from crosslift.runs.evaluate import predict_examples

    model, tokenizer, task = opened(place.run(job), SETS[job.set].kind)
    found = {}
    for language in languages:
        texts = place.examples(job.set, f"{language}-test")
        found[language] = task.metrics(texts, predict_examples(model, tokenizer, task, texts))
    return kept(job, place, found)


def kept(job: Job, place: Place, found: dict[str, Any]) -> dict[str, Any]:
    """Write down what each example counts; return what the row says of the scores."""
    import numpy as np

    mains = {language: next(iter(metrics.values())) for language, metrics in found.items()}
    home = statistics(place.out)
    home.mkdir(parents=True, exist_ok=True)
    arrays = {language: main.stats.astype(np.float32) for language, main in mains.items()}
    np.savez_compressed(home / f"{job.name}.npz", **arrays)
    ids = home / f"{job.set}.ids.npz"
    if job.role == "bridge" and not ids.exists():  # the same for all systems
        draft = home / f"{job.name}.ids.npz"
        tests = {language: place.examples(job.set, f"{language}-test") for language in mains}
        np.savez_compressed(draft, **{x: np.array(test.parallel_ids or test.ids) for x, test in tests.items()})
        draft.replace(ids)
    return {
        "metric": next(iter(mains.values())).name,
        "scores": {language: round(main.value, 2) for language, main in mains.items()},
        "statistics": f"{job.name}.npz",
    }


def statistics(out: Path) -> Path:
    """Return the folder of per-example statistics beside the JSON."""
    return out.with_suffix("")


def attempt(job: Job, arguments: argparse.Namespace) -> dict[str, Any]:
    """Run one job; what goes wrong is said in its row and stops no other job."""
    try:
        return work(job, arguments)
    except Exception as error:
        return asdict(job) | {"error": f"{type(error).__name__}: {error}"}
