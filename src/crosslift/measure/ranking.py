"""Transfer direction ranking: in which languages will transfer hurt most, and how good is such a forecast?

A forecast orders n target languages; the gold order is that of the scores after a real transfer. Its accuracy (TDR) is
the share of the n(n−1)/2 pairs of languages that both order alike; a tied pair counts as wrong (Chi, Huang, Mao 2023,
formula 6). Beside IGAP, three similarities of the untuned encoder's sentence vectors serve as forecasts: minus the
Euclidean distance, the dot product and the cosine, between a sentence and its translation, averaged over sentences.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from itertools import combinations
from math import nan
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from crosslift.errors import BadInput, MissingExtra
from crosslift.measure.igap import interval
from crosslift.measure.igap_result import Matrix, text_table

if TYPE_CHECKING:
    from torch import Tensor

SIMILARITIES = ("l2", "dot", "cosine")
CHANCE = 50.0
"""The gap of fair-coin labels, learnt wholly, in a language that gets nothing of them."""


def tdr_accuracy(forecast: Mapping[str, float], gold: Mapping[str, float]) -> float:
    """Return the share of language pairs that a forecast orders as the gold scores do, in percent.

    Args:
        forecast: language -> expected quality, higher is better (for IGAP pass minus the gap).
        gold: language -> score after transfer, higher is better.
    """
    shared = [language for language in gold if language in forecast]
    if len(shared) < 2:
        raise BadInput("A ranking needs two languages or more.")
    right = [(forecast[a] - forecast[b]) * (gold[a] - gold[b]) > 0 for a, b in combinations(shared, 2)]
    return 100 * sum(right) / len(right)


def rank_correlations(forecast: Mapping[str, float], gold: Mapping[str, float]) -> dict[str, float]:
    """Return Spearman's ρ and Kendall's τ-b between a forecast and gold scores, over the languages of both.

    They are not a number where all languages tie.
    """
    shared = [language for language in gold if language in forecast]
    if len(shared) < 2:
        raise BadInput("A ranking needs two languages or more.")
    x, y = ([scores[language] for language in shared] for scores in (forecast, gold))
    if len(set(x)) == 1 or len(set(y)) == 1:
        return {"spearman": nan, "kendall": nan}
    return {"spearman": float(stats.spearmanr(x, y).statistic), "kendall": float(stats.kendalltau(x, y).statistic)}


def similarities(source: Tensor, target: Tensor) -> dict[str, float]:
    """Return how alike translations are, averaged over sentences; higher is more alike.

    Args:
        source: (sentences, width).
        target: (sentences, width); row i translates row i of `source`.
    """
    a, b = source.double(), target.double()
    dot = (a * b).sum(-1)
    return {
        "l2": -float((a - b).norm(dim=-1).mean()),
        "dot": float(dot.mean()),
        "cosine": float((dot / (a.norm(dim=-1) * b.norm(dim=-1)).clamp(min=1e-12)).mean()),
    }


@dataclass(frozen=True)
class Forecast:
    """One language of a ranking.

    Attributes:
        language: Target language.
        gap: Expected IGAP, in points; `nan` if undefined.
        low: Lower end of its 95 % interval, over sentences and seeds.
        high: Upper end.
        first: Best place in the ranking that is compatible with the data (95 %), from 1.
        last: Worst such place.
        similarities: `l2`, `dot`, `cosine` at the layer that was read.
    """

    language: str
    gap: float
    low: float
    high: float
    first: int
    last: int
    similarities: dict[str, float]


@dataclass(frozen=True)
class Ranking:
    """Target languages from the least to the most that is lost.

    Attributes:
        model: What was measured.
        source: Language of the task.
        about: The data, in words.
        rows: One forecast per language, the best first.
        checkpoints: seed -> checkpoints that the gaps were taken from.
        layer: Layer of the similarities, 0 = embeddings.
    """

    model: str
    source: str
    about: str
    rows: tuple[Forecast, ...]
    checkpoints: dict[int, int]
    layer: int

    def forecast(self, by: str = "igap") -> dict[str, float]:
        """Return language -> expected quality, higher is better, by IGAP or one of the similarities."""
        if by == "igap":
            return {row.language: -row.gap for row in self.rows}
        return {row.language: row.similarities[by] for row in self.rows}

    def accuracy(self, gold: Mapping[str, float]) -> dict[str, dict[str, float]]:
        """Return forecast -> TDR accuracy and rank correlations against real scores (higher is better)."""
        kinds = ["igap", *(name for name in SIMILARITIES if self.rows and name in self.rows[0].similarities)]
        return {
            kind: {"tdr": tdr_accuracy(self.forecast(kind), gold), **rank_correlations(self.forecast(kind), gold)}
            for kind in kinds
        }

    def accuracy_table(self, gold: Mapping[str, float]) -> str:
        """Return one line per forecast: how well it orders the languages of real scores."""
        languages = sum(row.language in gold for row in self.rows)
        grid = [[f"order of {languages} languages", "pairs right", "Spearman", "Kendall"]]
        for kind, found in self.accuracy(gold).items():
            grid.append([kind, f"{found['tdr']:.1f} %", f"{found['spearman']:.2f}", f"{found['kendall']:.2f}"])
        return text_table(grid)

    def table(self) -> str:
        """Return one line per language, the best first."""
        grid = [["", "gap", "95 %", "place", "cosine"]]
        for row in self.rows:
            place = f"{row.first}" if row.first == row.last else f"{row.first}–{row.last}"
            cosine = f"{row.similarities['cosine']:.3f}" if "cosine" in row.similarities else "–"
            grid.append([row.language, f"{row.gap:.1f}", f"{row.low:.1f}–{row.high:.1f}", place, cosine])
        used = ", ".join(map(str, self.checkpoints.values()))
        head = [
            f"{self.model} from {self.source}: {self.about}",
            f"gap: points lost in translation once the source is learnt; 0 = nothing, {CHANCE:.0f} = all of it",
        ]
        tail = [self.verdict(), f"checkpoints per seed: {used}; cosine at layer {self.layer}"]
        return "\n".join([*head, text_table(grid), *filter(None, tail)])

    def verdict(self) -> str:
        """Return which languages surely (95 %) lie in the worse and in the better half; empty if none does.

        Of an odd number of languages the middle one lies in neither, and so does a single one.
        """
        middle = (len(self.rows) + 1) / 2
        worse = [row.language for row in self.rows if row.first > middle]
        better = [row.language for row in self.rows if row.last < middle]
        said = [("transfer will hurt most in", worse), ("least in", better)]
        return "; ".join(f"{words} {', '.join(languages)}" for words, languages in said if languages)

    def __str__(self) -> str:
        return self.table()

    def to_dict(self) -> dict[str, Any]:
        """Return everything as plain data."""
        return {
            "model": self.model,
            "source": self.source,
            "about": self.about,
            "layer": self.layer,
            "checkpoints": {str(seed): count for seed, count in self.checkpoints.items()},
            "languages": [vars(row) for row in self.rows],
        }


def forecasts(
    gaps: Mapping[str, float],
    resamples: Mapping[str, NDArray[np.float64]],
    alike: Mapping[str, Mapping[str, float]],
) -> tuple[Forecast, ...]:
    """Order languages by gap, with intervals of gaps and places from paired resamples.

    Args:
        gaps: language -> expected IGAP.
        resamples: language -> (samples,) gaps under resampling, paired over languages.
        alike: language -> similarities.
    """
    order = sorted(gaps, key=lambda language: gaps[language])
    drawn = np.stack([resamples[language] for language in order])  # (languages, samples)
    # Of languages that tie, each may take any of their places.
    best, worst = (stats.rankdata(drawn, method=method, axis=0) for method in ("min", "max"))
    rows = []
    for k, language in enumerate(order):
        low, high = interval(drawn[k])
        first, last = interval(best[k])[0], interval(worst[k])[1]
        rows.append(
            Forecast(language, gaps[language], low, high, round(first), round(last), dict(alike.get(language, {})))
        )
    return tuple(rows)


def heat_map(matrix: Matrix, title: str = "") -> dict[str, Any]:
    """Return a transfer matrix as a Vega-Lite chart: rows are sources, dark is worse."""
    cells = [
        {"source": source, "target": target, "value": None if np.isnan(value) else round(float(value), 2)}
        for source, row in zip(matrix.sources, matrix.values, strict=True)
        for target, value in zip(matrix.targets, row, strict=True)
    ]
    known = matrix.values[~np.isnan(matrix.values)]
    middle = float(known.min() + known.max()) / 2 if len(known) else 0.0
    high_is_dark = matrix.what != "score"
    dark = f"datum.value {'>' if high_is_dark else '<'} {middle}"
    colour = {
        "field": "value",
        "type": "quantitative",
        "title": matrix.what,
        "scale": {"scheme": "blues", "reverse": not high_is_dark},
    }
    number = {
        "text": {"field": "value", "type": "quantitative", "format": ".1f"},
        "color": {"condition": {"test": dark, "value": "white"}, "value": "black"},
    }
    return {
        "$schema": "https://vega.github.io/schema/vega-lite/v5.json",
        "title": title or f"{matrix.what}, points",
        "width": 26 * len(matrix.targets),
        "height": 22 * len(matrix.sources),
        "data": {"values": cells},
        "encoding": {
            "x": {"field": "target", "type": "nominal", "sort": list(matrix.targets)},
            "y": {"field": "source", "type": "nominal", "sort": list(matrix.sources)},
        },
        "layer": [
            {"mark": "rect", "encoding": {"color": colour}},
            {
                "transform": [{"filter": "isValid(datum.value)"}],
                "mark": {"type": "text", "fontSize": 9},
                "encoding": number,
            },
        ],
    }


def require_drawing() -> None:
    """Refuse pictures where what draws them is missing."""
    if find_spec("vl_convert") is None:
        raise MissingExtra("vl-convert-python", "report")


def save_heat_map(chart: Mapping[str, Any], file: Path) -> None:
    """Write a chart as .svg, .png or .json (Vega-Lite)."""
    if file.suffix == ".json":
        file.write_text(json.dumps(chart, ensure_ascii=False), encoding="utf-8")
        return
    require_drawing()
    import vl_convert

    if file.suffix == ".svg":
        file.write_text(vl_convert.vegalite_to_svg(dict(chart)), encoding="utf-8")
    elif file.suffix == ".png":
        file.write_bytes(vl_convert.vegalite_to_png(dict(chart), scale=2))
    else:
        raise BadInput(f"{file}: a heat map is written as .svg, .png or .json.")


def best_layer(layers: int, wanted: int | None) -> int:
    """Return the layer to read: the wanted one, else 7 of 12 and its like in other depths."""
    if wanted is not None and not 0 <= wanted <= layers:
        raise BadInput(f"The encoder has {layers} layers; there is no layer {wanted}.")
    return round(7 / 12 * layers) if wanted is None else wanted


def mean_accuracy(by_source: Sequence[Mapping[str, Mapping[str, float]]]) -> dict[str, float]:
    """Return forecast -> TDR accuracy averaged over source languages."""
    return {kind: float(np.mean([found[kind]["tdr"] for found in by_source])) for kind in by_source[0]}
