"""Charts of what `crosslift measure` found: IGAP by language, and the alignment of word vectors."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from crosslift.errors import BadInput
from crosslift.report.charts import Dots, Line, dot_chart, line_chart
from crosslift.report.languages import language_name


@dataclass(frozen=True)
class Measured:
    """One chart with its legend and a sentence on how to read it."""

    title: str
    text: str
    chart: str
    legend: list[str]


def measured_charts(system: str, files: Mapping[str, Any]) -> list[Measured]:
    """Return the charts of what was measured for a system: file name -> what `--json` wrote."""
    shown = []
    for name, content in files.items():
        try:
            shown += _igap(content) if "igap" in content else _alignment(content)
        except (KeyError, TypeError, ValueError, AttributeError, IndexError):
            raise BadInput(
                f"{name}.json of {system} does not hold what crosslift measure writes.", "Write it again with --json."
            ) from None
    return shown


def _igap(content: Mapping[str, Any]) -> list[Measured]:
    systems: dict[str, list[dict[str, Any]]] = content["igap"]
    shown = []
    for place in range(max(len(bands) for bands in systems.values())):
        bands = {name: found[place]["targets"] for name, found in systems.items() if place < len(found)}
        targets = list(dict.fromkeys(target for found in bands.values() for target in found))
        series = []
        for name, found in bands.items():
            scores = [found.get(target) or {} for target in targets]
            means, spreads = [one.get("expected") for one in scores], [one.get("sd") for one in scores]
            lows = [m - s if m is not None and s is not None else None for m, s in zip(means, spreads, strict=True)]
            highs = [m + s if m is not None and s is not None else None for m, s in zip(means, spreads, strict=True)]
            series.append(Dots(name, means, lows, highs))
        first = next(score for found in bands.values() for score in found.values())
        at = f"training error {first['error']:g} to {first['error'] + first['epsilon']:g}"
        chart = dot_chart(
            f"IGAP by language, {at}", [language_name(t) for t in targets], series, "IGAP, points (less is better)"
        )
        text = "Error that a language adds at an equal training error; whiskers are ± 1 sd over seeds."
        shown.append(Measured(f"Interlingual transfer gap, {at}", text, chart, list(bands)))
    return shown


def _alignment(content: Mapping[str, Any]) -> list[Measured]:
    shown = []
    language = language_name(str(content["language"]))
    for name, found in content["encoders"].items():
        separation = found["cosine"]
        edges = [float(edge) for edge in separation["edges"]]
        middles = [(a + b) / 2 for a, b in pairwise(edges)]
        kinds = {"translations of each other": "related_share", "unrelated words": "unrelated_share"}
        lines = [
            Line(kind, list(zip(middles, map(float, separation[key]), strict=True)), number)
            for number, (kind, key) in enumerate(kinds.items())
        ]
        title = f"Word vectors of {name}, {language}"
        text = (
            f"The further apart the two curves, the better aligned: {float(separation['auc']):.1f} % of pairs are told "
            f"apart, {float(separation['overlap']):.1f} % overlap."
        )
        chart = line_chart(title, lines, "cosine similarity", "share of word pairs")
        shown.append(Measured(title, text, chart, list(kinds)))
    return shown
