"""Figures as the papers draw them, as SVG that stands by itself."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from typing import Any, cast

from crosslift.data.storage import Json
from crosslift.report.charts import Dots, Line, dot_chart, line_chart
from crosslift.reproduce.entries import Entry
from crosslift.reproduce.records import rows_of

CHARTS = ("lines", "dots", "heat", "scatter", "histogram", "words")
_COLOURS = ("#0b6fb3", "#b8540b", "#16795b", "#a03a78", "#6b5bb5", "#8a6d00", "#3f6770", "#7a4632")
_STYLE = (
    "text{font:11px sans-serif;fill:#555}.grid{stroke:#ddd}.zero{stroke:#888}.curve{fill:none;stroke-width:1.8}"
    + "".join(f".s{i}{{fill:{c}}}.curve.s{i},.whisker.s{i}{{stroke:{c};fill:none}}" for i, c in enumerate(_COLOURS))
)


def chart(entry: Entry, record: Json) -> str | None:
    """Return the figure of a record; `None` where a table says it (tables, heat maps, words)."""
    if entry.chart == "lines":
        return _alone(_lines(entry, record))
    if entry.chart == "dots":
        return _alone(_dots(entry, record))
    if entry.chart == "scatter":
        return _alone(_scatter(record))
    if entry.chart == "histogram":
        return _histograms(cast("dict[str, dict[str, Any]]", record["histograms"]))
    return None


def _lines(entry: Entry, record: Json) -> str | None:
    rows = [row for row in rows_of(record) if any(value is not None for value in row.ours)]
    names = [column.name for column in entry.columns]
    across = [_value(name) for name in names]
    lines = []
    if all(x is not None for x in across):
        for number, row in enumerate(rows):
            points = [(x, y) for x, y in zip(across, row.ours, strict=True) if x is not None and y is not None]
            lines.append(Line(row.name, points, number))
    elif all(_value(row.name) is not None for row in rows):
        for number, name in enumerate(names):
            points = [(cast("float", _value(row.name)), y) for row in rows if (y := row.ours[number]) is not None]
            lines.append(Line(name, sorted(points), number))
    return line_chart(entry.title, lines, "", entry.metric) if any(line.points for line in lines) else None


def _dots(entry: Entry, record: Json) -> str | None:
    rows = [row for row in rows_of(record) if any(value is not None for value in row.ours)]
    if not rows:
        return None
    return dot_chart(entry.title, record["columns"], [Dots(r.name, r.ours) for r in rows], entry.metric)  # type: ignore[arg-type]


def _scatter(record: Json) -> str | None:
    """Draw accuracy over L2 distance: a point per language and step, the points of a step in one colour."""
    found = {row.name: row.ours for row in rows_of(record)}
    groups: Mapping[str, list[tuple[float, float]]] = {}
    points = []
    for name, scores in found.items():
        other = found.get(name.replace("Accuracy", "L2"))
        if name.startswith("Accuracy") and other:
            points.append((name, [(x, y) for x, y in zip(other, scores, strict=True) if None not in (x, y)]))
    groups = cast("dict[str, list[tuple[float, float]]]", dict(points))
    lines = [
        Line(f"{name} {place}", [point], number)
        for number, (name, some) in enumerate(groups.items())
        for place, point in enumerate(some)
    ]
    return line_chart("Accuracy by distance", lines, "L2 distance", "accuracy") if lines else None


def _histograms(found: Mapping[str, Mapping[str, Any]]) -> str | None:
    """Draw one panel per model: shares of related and unrelated pairs by distance, one below the other."""
    panels = []
    for name, one in found.items():
        edges = one["edges"]
        middles = [(a + b) / 2 for a, b in pairwise(edges)]
        lines = [
            Line(kind, list(zip(middles, one[f"{kind}_share"], strict=True)), number)
            for number, kind in enumerate(("related", "unrelated"))
        ]
        panels.append(line_chart(name, lines, "L2 distance", name))
    if not panels:
        return None
    height = 240
    body = "".join(
        panel.replace(
            "<svg ", f'<svg x="{(place % 2) * 470}" y="{(place // 2) * height}" width="460" height="{height}" '
        )
        for place, panel in enumerate(panels)
    )
    tall = height * ((len(panels) + 1) // 2)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 940 {tall}" width="940" height="{tall}">'
        f"<style>{_STYLE}</style>{body}</svg>\n"
    )


def _alone(svg: str | None) -> str | None:
    """Give a chart of the report page what it needs to stand in a file of its own."""
    if svg is None:
        return None
    opened = svg.replace("<svg ", '<svg xmlns="http://www.w3.org/2000/svg" width="460" ', 1)
    head, sign, rest = opened.partition(">")
    return f"{head}{sign}<style>{_STYLE}</style>{rest}\n"


def _value(name: str) -> float | None:
    try:
        return float(name.replace("%", "").strip())
    except ValueError:
        return None
