"""Examples of errors: what was read, what should have come out, what came out, with the source sentence beside."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

from crosslift.data import Examples, catalog, load
from crosslift.errors import CrossliftError
from crosslift.report.content import Evaluation, System
from crosslift.runs.folder import RunFolder
from crosslift.runs.predictions import read_predictions, rescore

AROUND = 120
"""Characters of a context that are shown on either side of an answer."""


@dataclass(frozen=True)
class Mistake:
    """One example that came out wrong.

    Attributes:
        id: Its id in the data.
        text: What the model read.
        pair: The second text, or the part of a context around the answer.
        source_text: The same sentence in the source language, where the data is parallel.
        gold: What should have come out.
        predicted: What came out.
        sure: The model's probability of it, 0 to 1, where the task gives one.
        in_source: Whether the same example came out right in the source language; `None` if that is not known.
    """

    id: str
    text: str
    pair: str
    source_text: str
    gold: str
    predicted: str
    sure: float | None
    in_source: bool | None


def mistakes(evaluation: Evaluation, system: System, most: int = 3) -> tuple[dict[str, list[Mistake]], str]:
    """Return language -> up to `most` errors of a system's first seed, and a note where texts are not at hand.

    Errors on sentences that come out right in the source language are shown first (what is lost on the way), then
    those the model is surest of.
    """
    folder = system.folders[0]
    entries = cast("dict[str, dict[str, Any]]", folder.results().get(evaluation.name, {}))
    found: dict[str, list[Mistake]] = {}
    try:
        source = _source(evaluation, folder, entries)
        for language in evaluation.targets:
            if language in entries:
                shown = _of_language(evaluation, folder, entries[language], language, source, most)
                if shown:
                    found[language] = shown
    except (CrossliftError, OSError) as error:
        said = error.seen if isinstance(error, CrossliftError) else str(error)
        return {}, f"The texts are not at hand, so no examples are shown: {said}"
    return found, ""


@dataclass(frozen=True)
class _Source:
    """The source language by parallel id: texts, and which came out right."""

    texts: Mapping[str, str]
    right: Mapping[str, bool]


def _source(evaluation: Evaluation, folder: RunFolder, entries: Mapping[str, Mapping[str, Any]]) -> _Source:
    if evaluation.source is None or evaluation.source not in entries:
        return _Source({}, {})
    entry = entries[evaluation.source]
    examples = _texts(evaluation, entry, evaluation.source)
    if examples.parallel_ids is None:
        return _Source({}, {})
    by_id = dict(zip(examples.ids, examples.parallel_ids, strict=True))
    texts = dict(zip(examples.parallel_ids, examples.texts, strict=True))
    ids = read_predictions(folder.path / str(entry["predictions"]))[0].ids
    wrong = _wrong(folder, entry)
    return _Source(texts, {by_id[id_]: not bad for id_, bad in zip(ids, wrong, strict=True) if id_ in by_id})


def _texts(evaluation: Evaluation, entry: Mapping[str, Any], language: str) -> Examples:
    """Load the evaluated data again, for its texts."""
    name, _, split = evaluation.name.partition("@")[0].partition("+")[0].partition("/")
    data = str(entry.get("data") or name)
    options: dict[str, Any] = {} if catalog.is_known(data) else {"skip_unknown": True}
    return load(data.replace("{lang}", language), language=language, split=entry.get("split") or split, **options)


def _wrong(folder: RunFolder, entry: Mapping[str, Any]) -> list[bool]:
    """Return for each example whether it came out wrong, by the main score: below full marks."""
    metric = next(iter(rescore(folder.path / str(entry["predictions"])).values()))
    if metric.is_mean:
        return [bool(value < 100 - 1e-9) for value in metric.combine(metric.stats)]
    gold, predictions = read_predictions(folder.path / str(entry["predictions"]))
    return [list(p["prediction"]) != list(g or ()) for p, g in zip(predictions, gold.labels or (), strict=True)]  # type: ignore[call-overload]


def _of_language(
    evaluation: Evaluation,
    folder: RunFolder,
    entry: Mapping[str, Any],
    language: str,
    source: _Source,
    most: int,
) -> list[Mistake]:
    examples = _texts(evaluation, entry, language)
    rows = {id_: row for row, id_ in enumerate(examples.ids)}
    gold, predictions = read_predictions(folder.path / str(entry["predictions"]))
    found = []
    for id_, bad, label, said in zip(gold.ids, _wrong(folder, entry), gold.labels or (), predictions, strict=True):
        if not bad or id_ not in rows:
            continue
        parallel = examples.parallel_ids[rows[id_]] if examples.parallel_ids is not None else ""
        one = _mistake(examples, rows[id_], label, said)
        found.append(replace(one, source_text=source.texts.get(parallel, ""), in_source=source.right.get(parallel)))
    found.sort(key=lambda one: (one.in_source is not True, -(one.sure or 0), one.id))
    return found[:most]


def _mistake(examples: Examples, row: int, label: object, said: Mapping[str, Any]) -> Mistake:
    predicted, sure = said["prediction"], None
    pair = examples.pairs[row] if examples.pairs is not None else ""
    if examples.kind == "tagging":
        words, tags = examples.words(row), cast("Sequence[str]", label)
        differing = [(w, g, p) for w, g, p in zip(words, tags, predicted, strict=False) if g != p]
        wanted = ", ".join(f"{word}: {tag}" for word, tag, _ in differing)
        got = ", ".join(f"{word}: {tag}" for word, _, tag in differing)
    elif examples.kind == "qa":
        answers = cast("Sequence[tuple[str, int]]", label)
        wanted, got = (
            " / ".join(dict.fromkeys(text for text, _ in answers)) or "(no answer)",
            predicted or "(no answer)",
        )
        start = answers[0][1] if answers else 0
        pair = _around(pair, start, start + len(answers[0][0]) if answers else 0)
    else:
        wanted, got = str(label), str(predicted)
        sure = cast("dict[str, float]", said.get("probabilities") or {}).get(got)
    return Mistake(examples.ids[row], examples.texts[row], pair, "", wanted, got, sure, None)


def _around(text: str, start: int, end: int) -> str:
    left, right = max(0, start - AROUND), min(len(text), end + AROUND)
    return ("… " if left else "") + text[left:right] + (" …" if right < len(text) else "")
