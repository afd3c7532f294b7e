"""Histograms: how distances are spread, as areas that lie over each other."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any, cast

from crosslift.data.storage import Json
from crosslift.report.charts import ticks
from crosslift.reproduce.charts.sheet import Panel, panel_name, sheet, text
from crosslift.reproduce.entries import Entry

KINDS = ("related", "unrelated")
WIDTH, HEIGHT = 220, 120
Area = tuple[int, Sequence[float], Sequence[float]]
"""Number of the series, edges of the bins, share of each."""


def histogram(entry: Entry, record: Json) -> str | None:
    """Draw related beside unrelated pairs, a panel per row and column; or the rows beside each other, by column."""
    found = cast("dict[str, dict[str, Any]]", record.get("histograms") or {})
    if not found:
        return None
    if all("share" not in one for one in found.values()):
        drawn = [column.name for column in entry.columns if any(key.endswith(f" / {column.name}") for key in found)]
        rows = [row.name for row in entry.rows if any(f"{row.name} / {name}" in found for name in drawn)]
        panels = [_pairs(entry, f"{row} / {name}", found) for row in rows for name in drawn]
        across = len(drawn) if len(drawn) > 1 else 3
        return sheet(entry.title, panels, across=across, said="L2 distances of word pairs", legend=KINDS)
    names = [row.name for row in entry.rows if any(key.startswith(f"{row.name} / ") for key in found)]
    panels = []
    for column in entry.columns:
        keys = {i: f"{name} / {column.name}" for i, name in enumerate(names)}
        areas = [(i, found[key]["edges"], found[key]["share"]) for i, key in keys.items() if key in found]
        panels += [_panel(column.name, areas)] if areas else []
    return sheet(entry.title, panels, said="Share of sentences", legend=names)


def _pairs(entry: Entry, key: str, found: Mapping[str, Mapping[str, Any]]) -> Panel:
    """Draw related and unrelated pairs; a panel that is missing leaves its place empty."""
    if key not in found:
        return Panel("", "", WIDTH, HEIGHT + 20)
    areas = [(i, found[key]["edges"], found[key][f"{kind}_share"]) for i, kind in enumerate(KINDS)]
    return _panel(panel_name(entry, key), areas)


def _panel(name: str, areas: Sequence[Area]) -> Panel:
    low, high = min(edges[0] for _, edges, _ in areas), max(edges[-1] for _, edges, _ in areas)
    marks = [tick for tick in ticks(low, high, 4) if low <= tick <= high]
    # Bins may differ in width from one area to the other: heights are shares per unit, so that areas are equal.
    heights = {
        i: [s / (b - a) for s, (a, b) in zip(shares, pairwise(edges), strict=True)] for i, edges, shares in areas
    }
    top = max(max(some) for some in heights.values())

    def x(value: float) -> float:
        return (value - low) / ((high - low) or 1) * WIDTH

    parts = [
        f'<line class="grid" x1="{x(tick):.1f}" y1="0" x2="{x(tick):.1f}" y2="{HEIGHT}"/>'
        + text(x(tick), HEIGHT + 14, f"{tick:g}", "tick", "middle")
        for tick in marks
    ]
    for number, edges, _ in areas:
        steps = [
            (x(edge), HEIGHT * (1 - y / top))
            for y, pair in zip(heights[number], pairwise(edges), strict=True)
            for edge in pair
        ]
        path = [(x(edges[0]), float(HEIGHT)), *steps, (x(edges[-1]), float(HEIGHT))]
        points = " ".join(f"{a:.1f},{b:.1f}" for a, b in path)
        parts.append(f'<polygon class="area s{number}" points="{points}"/>')
    parts.append(f'<line class="zero" x1="0" y1="{HEIGHT}" x2="{WIDTH}" y2="{HEIGHT}"/>')
    return Panel(name, "".join(parts), WIDTH, HEIGHT + 20)
