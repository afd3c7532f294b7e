"""Cells from run folders: one value per seed, and what paired tests need."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from statistics import fmean, stdev
from typing import Any, cast

from crosslift.data.storage import Json, read_json
from crosslift.errors import BadInput
from crosslift.measure.ranking import tdr_accuracy
from crosslift.reproduce.entries import Entry
from crosslift.reproduce.perform import Performed, results_name
from crosslift.reproduce.plan import Plan, Source
from crosslift.runs.predictions import read_predictions

NOT_YET = "not run yet"
ANSWERING = ("qa", "mlqa", "tydi", "squad-dev")
"""Tasks of question answering: no class is the most frequent one, but a guess scores, too."""
GUESS = 15.3
"""Answer F1 in English of a guess: the sentence of the paragraph that shares most words with the question (XQuAD,
`guesses` in benchmarks/results/adjust-transfer.json)."""


@dataclass
class Cell:
    """What we found for one row and column.

    Attributes:
        values: Seed -> mean over the column's languages.
        missing: Why it is empty, or why some of its languages are left out.
        files: (language, seed) -> predictions, where there are any.
        english: Mean English score of the run, where it was scored in English.
        english_low: Lower end of its 95% interval, mean over seeds.
        majority: Score of always saying the most frequent class in English.
        languages: Languages that the mean is over.
    """

    values: dict[int, float] = field(default_factory=dict)
    missing: str = ""
    files: dict[tuple[str, int], Path] = field(default_factory=dict)
    english: float | None = None
    english_low: float | None = None
    majority: float | None = None
    languages: tuple[str, ...] = ()

    @property
    def mean(self) -> float | None:
        """Mean over seeds."""
        return fmean(self.values.values()) if self.values else None

    @property
    def sd(self) -> float | None:
        """Standard deviation over seeds; `None` for fewer than two."""
        return stdev(self.values.values()) if len(self.values) > 1 else None

    @property
    def learnt(self) -> bool | None:
        """Whether the task was learnt at all: the interval of English is above the most frequent class."""
        if self.english_low is None or self.majority is None:
            return None
        return self.english_low > self.majority


def collect(entry: Entry, plan: Plan, done: Performed) -> dict[tuple[str, str], Cell]:
    """Return (row, column) -> cell of one entry."""
    found = {}
    for row in entry.rows:
        for column in entry.columns:
            key = (entry.id, row.name, column.name)
            if key in plan.absent:
                found[row.name, column.name] = Cell(missing=plan.absent[key])
            else:
                cell = _cell(plan.cells[key], plan, done)
                cell.missing = cell.missing or plan.partly.get(key, "")
                found[row.name, column.name] = cell
    return found


def _cell(sources: Sequence[Source], plan: Plan, done: Performed) -> Cell:
    cell = Cell()
    by_seed: dict[int, dict[str, float]] = {}
    english: list[float] = []
    lows: list[float] = []
    undefined: dict[str, list[int]] = {}
    for source in sources:
        wrong = done.failed.get(source.step) or done.failed.get(source.against)
        if wrong:
            cell.missing = f"failed: {wrong}"
            continue
        if done.left & {source.step, source.against}:
            cell.missing = NOT_YET
            continue
        results = read_json(done.folders[source.step] / "results.json")
        if source.against:
            value: float | None = _ranked(source, results, read_json(done.folders[source.against] / "results.json"))
        else:
            step = plan.steps[source.step]
            name = source.results
            if name in step.evaluations:
                name = results_name(step.evaluations[name], str(step.config.get("source") or "en"))
            value = _score(results, name, source.language, source.metric)
            entry = cast("dict[str, dict[str, Json]]", results).get(name, {})
            if "predictions" in entry.get(source.language, {}):
                folder = done.folders[source.step]
                cell.files[source.language, source.seed] = folder / str(entry[source.language]["predictions"])
            if source.english and "en" in entry:
                english.append(cast("float", _score(results, name, "en", source.metric)))
                lows.append(cast("float", _score(results, name, "en", source.metric, "low")))
                cell.majority = _majority(done.folders[source.step] / str(entry["en"]["predictions"]))
        if value is None:
            undefined.setdefault(source.language, []).append(source.seed)
        else:
            by_seed.setdefault(source.seed, {})[source.language] = value
    for language, seeds in list(undefined.items())[:1]:
        lacking = f"seed{'s' if len(seeds) > 1 else ''} {', '.join(map(str, seeds))}"
        cell.missing = f"{language}: not defined with {lacking}"
    languages = {source.language for source in sources}
    complete = {seed: values for seed, values in by_seed.items() if set(values) == languages}
    kept = complete or by_seed
    if kept and not complete:  # no seed has all languages: those that every seed has
        shared = set.intersection(*(set(values) for values in kept.values()))
        kept = {seed: {x: v for x, v in values.items() if x in shared} for seed, values in kept.items() if shared}
    cell.values = {seed: fmean(values.values()) for seed, values in sorted(kept.items())}
    cell.languages = tuple(next(iter(kept.values()))) if kept else ()
    if cell.values and cell.missing == NOT_YET:
        cell.missing = f"without some of its seeds or languages: {NOT_YET}"
    if english:
        cell.english, cell.english_low = fmean(english), fmean(lows)
    return cell


def _score(results: Json, name: str, language: str, metric: str, part: str = "value") -> float | None:
    found = cast("dict[str, dict[str, dict[str, Any]]]", results).get(name, {}).get(language)
    if found is None:
        return None
    scores = cast("dict[str, dict[str, float]]", found["scores"])
    chosen = scores.get(metric) if metric else next(iter(scores.values()), None)
    return None if chosen is None else chosen.get(part, chosen["value"])


def _ranked(source: Source, forecast: Json, gold: Json) -> float | None:
    """Return the share of language pairs that a measurement orders as the scores after transfer do."""
    sign = -1 if source.metric == "igap" else 1  # a larger gap is a worse forecast
    found: Mapping[str, Any] = cast("dict[str, Any]", forecast.get(source.results, {}))
    expected = {x: _score(forecast, source.results, x, source.metric) for x in found}
    reached = {x: _score(gold, "igap", x, source.gold) for x in cast("dict[str, Any]", gold.get("igap", {}))}
    start = source.language
    left = {x: sign * v for x, v in expected.items() if v is not None and x != start}
    right = {x: v for x, v in reached.items() if v is not None and x != start}
    try:
        return tdr_accuracy(left, right)
    except BadInput:
        return None


@cache
def _majority(file: Path) -> float:
    """Return what the most frequent class would score, or a guess in answering; saying nothing scores 0 in tagging."""
    examples, _ = read_predictions(file)
    if examples.kind != "classification":
        return GUESS if examples.kind == "qa" else 0.0
    counts = Counter(str(label) for label in examples.labels or ())
    return 100 * max(counts.values(), default=0) / max(1, sum(counts.values()))
