"""Hand-written inference pairs and questions of the embedded corpus, parallel over languages.

Inference comes in scenes: three premises times three hypotheses. Premise i affirms hypothesis i, leaves the
next one open and denies the one after that, counted in a circle. So every sentence meets every label exactly
once, and a classifier that reads one side only cannot beat chance, in any language.
"""

from __future__ import annotations

import hashlib
import json
import tomllib
from collections.abc import Mapping, Sequence
from functools import cache
from importlib.resources import files
from typing import Literal, NamedTuple

from crosslift.data.examples import Answer, Examples
from crosslift.errors import BadFile, BadInput, nearest

LANGUAGES_NLI = ("ar", "de", "en", "es", "fr", "hi", "ja", "ru", "sw", "tr", "zh")
"""Languages of the inference pairs; those in `TEST_ONLY_NLI` have the test split alone."""

TEST_ONLY_NLI = ("ar", "fr", "hi", "ja", "tr")

LANGUAGES_QA = ("de", "en", "es", "ru", "sw", "zh")
"""Languages of the questions; each has all splits."""

SPLITS_NLI = {"train": range(1, 37), "dev": range(37, 45), "test": range(45, 61)}
"""Scene numbers of each split: nine pairs a scene."""

SPLITS_QA = {"train": range(1, 25), "dev": range(25, 31), "test": range(31, 41)}
"""Paragraph numbers of each split: four questions a paragraph."""

FINGERPRINTS = {
    "nli": "5cb94d0ef68f95d9dc1ef0665d051f95d7f6d116c29a79ff8477900764f850f7",
    "qa": "6e350936ad47d14be4602fc1a79bf4905fb1fe50bc710ebb09dbf00e1cf5203e",
}
"""SHA-256 of all that `load_nli` and `load_qa` return; a test makes them again."""

LABELS = ("entailment", "neutral", "contradiction")
"""Labels of the hypotheses that follow a premise's own number in the circle, by distance 0, 1, 2."""

_SENTENCES = 3
_QUESTIONS = 4


class Scene(NamedTuple):
    """Three premises and the three hypotheses that each of them affirms, leaves open or denies."""

    premises: tuple[str, ...]
    hypotheses: tuple[str, ...]


class Paragraph(NamedTuple):
    """A text, and questions with the answer that stands in it."""

    context: str
    questions: tuple[tuple[str, Answer], ...]


def splits_nli(language: str) -> dict[str, range]:
    """Return the splits that a language of the inference pairs has, as scene numbers."""
    return {"test": SPLITS_NLI["test"]} if language in TEST_ONLY_NLI else SPLITS_NLI


def load_nli(language: str, split: str) -> Examples:
    """Return inference pairs: texts are premises, pairs hypotheses; groups are scenes.

    Scenes are never split, since their pairs share sentences.

    Args:
        language: One of `LANGUAGES_NLI`.
        split: `train` (324 pairs), `dev` (72) or `test` (144).
    """
    _check("demo-nli", language, LANGUAGES_NLI, split, splits_nli(language))
    scenes = _scenes(language)
    rows = [
        (name, premise, hypothesis)
        for name in _names("s", SPLITS_NLI[split])
        for premise in range(_SENTENCES)
        for hypothesis in range(_SENTENCES)
    ]
    ids = [f"{name}.p{premise + 1}.h{hypothesis + 1}" for name, premise, hypothesis in rows]
    return Examples(
        kind="classification",
        language=language,
        ids=ids,
        texts=[scenes[name].premises[premise] for name, premise, _ in rows],
        pairs=[scenes[name].hypotheses[hypothesis] for name, _, hypothesis in rows],
        labels=[LABELS[(hypothesis - premise) % _SENTENCES] for _, premise, hypothesis in rows],
        parallel_ids=ids,
        groups=[name for name, _, _ in rows],
        name=f"demo-nli/{language}/{split}",
    )


def load_qa(language: str, split: str) -> Examples:
    """Return questions (texts) on paragraphs (pairs), one gold answer each; groups are paragraphs.

    Args:
        language: One of `LANGUAGES_QA`.
        split: `train` (96 questions), `dev` (24) or `test` (40).
    """
    _check("demo-qa", language, LANGUAGES_QA, split, SPLITS_QA)
    paragraphs = _paragraphs(language)
    rows = [(name, number) for name in _names("p", SPLITS_QA[split]) for number in range(_QUESTIONS)]
    ids = [f"{name}.q{number + 1}" for name, number in rows]
    return Examples(
        kind="qa",
        language=language,
        ids=ids,
        texts=[paragraphs[name].questions[number][0] for name, number in rows],
        pairs=[paragraphs[name].context for name, _ in rows],
        labels=[[paragraphs[name].questions[number][1]] for name, number in rows],
        parallel_ids=ids,
        groups=[name for name, _ in rows],
        name=f"demo-qa/{language}/{split}",
    )


def fingerprint(corpus: Literal["nli", "qa"]) -> str:
    """Return the SHA-256 of every row of a corpus, over all languages and splits."""
    if corpus == "nli":
        parts = [load_nli(language, split) for language in LANGUAGES_NLI for split in splits_nli(language)]
    else:
        parts = [load_qa(language, split) for language in LANGUAGES_QA for split in SPLITS_QA]
    digest = hashlib.sha256()
    for part in parts:
        for row in zip(part.ids, part.texts, part.pairs or (), part.labels or (), strict=True):
            digest.update(f"{part.name}\t{json.dumps(row)}\n".encode())
    return digest.hexdigest()


def _check(name: str, language: str, languages: Sequence[str], split: str, splits: Mapping[str, range]) -> None:
    if language not in languages:
        raise BadInput(f'{name} has no language "{language}".', f"It has {', '.join(languages)}.")
    if split not in splits:
        raise BadInput(
            f'{name} has no split "{split}" in "{language}".{nearest(split, splits)}',
            f"It has {', '.join(splits)}.",
        )


def _names(letter: str, numbers: Sequence[int]) -> list[str]:
    return [f"{letter}{number:02d}" for number in numbers]


@cache
def _scenes(language: str) -> dict[str, Scene]:
    path = f"corpus/nli.{language}.toml"
    numbers = [number for scenes in splits_nli(language).values() for number in scenes]
    return {name: _scene(path, name, table) for name, table in _read(path, _names("s", numbers)).items()}


@cache
def _paragraphs(language: str) -> dict[str, Paragraph]:
    path = f"corpus/qa.{language}.toml"
    numbers = [number for paragraphs in SPLITS_QA.values() for number in paragraphs]
    return {name: _paragraph(path, name, table) for name, table in _read(path, _names("p", numbers)).items()}


def _read(path: str, names: Sequence[str]) -> dict[str, dict[str, object]]:
    """Read a language file and check that it holds these tables, so that ids are parallel by construction."""
    tables: dict[str, dict[str, object]]
    tables = tomllib.loads(files("crosslift.demo").joinpath(path).read_text(encoding="utf-8"))
    if list(tables) != list(names):
        odd = sorted(set(tables) ^ set(names)) or "their order"
        raise BadFile(path, None, f"must hold {names[0]} to {names[-1]}; what differs: {odd}.")
    return tables


def _scene(path: str, name: str, table: Mapping[str, object]) -> Scene:
    scene = Scene(_sentences(table.get("premises")), _sentences(table.get("hypotheses")))
    if any(len(sentences) != _SENTENCES for sentences in scene):
        raise BadFile(path, None, f"[{name}] needs {_SENTENCES} premises and {_SENTENCES} hypotheses.")
    return scene


def _paragraph(path: str, name: str, table: Mapping[str, object]) -> Paragraph:
    context, rows = table.get("context"), table.get("questions")
    pairs = [_sentences(row) for row in rows] if isinstance(rows, list) else []
    if not isinstance(context, str) or [len(pair) for pair in pairs] != [2] * _QUESTIONS:
        raise BadFile(path, None, f"[{name}] needs a context and {_QUESTIONS} questions with their answers.")
    for _, answer in pairs:
        if context.count(answer) != 1:
            raise BadFile(path, None, f'[{name}] the answer "{answer}" must occur in the context exactly once.')
    return Paragraph(context, tuple((question, Answer(answer, context.index(answer))) for question, answer in pairs))


def _sentences(value: object) -> tuple[str, ...]:
    """Return a list of non-empty strings as a tuple; anything else is empty."""
    if not isinstance(value, list) or not all(isinstance(text, str) and text for text in value):
        return ()
    return tuple(value)
