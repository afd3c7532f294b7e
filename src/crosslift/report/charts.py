"""Charts as SVG inside the page: no script, no font and no colour of their own.

Drawn by hand and not by a plotting library: the page's style sheet colours them, so that they follow light and dark;
their text is ordinary text, shaped by the browser in any script and read out by screen readers; a chart is some
kilobytes. Whatever comes from data is escaped here, once, in `_text`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from typing import Literal

WIDTH = 460
COLOURS = 8
"""Colours that the style sheet has (`.s0` … `.s7`); further series start again, with another mark."""
_MARKS = ("circle", "square", "triangle", "diamond")


@dataclass(frozen=True)
class Dots:
    """One series of a dot chart: a value per row, with an interval where there is one; `None` leaves a row out.

    `series` says which colour and mark it has; default: its place in the chart.
    """

    name: str
    values: Sequence[float | None]
    lows: Sequence[float | None] = ()
    highs: Sequence[float | None] = ()
    series: int | None = None


@dataclass(frozen=True)
class Line:
    """One line of a line chart; `series` says which colour it has, so that seeds of one system look alike."""

    name: str
    points: Sequence[tuple[float, float]]
    series: int = 0


def dot_chart(title: str, rows: Sequence[str], series: Sequence[Dots], unit: str, zero: bool = True) -> str:
    """Draw one row per label with a mark per series, and a whisker where there is an interval.

    Args:
        title: What is shown; screen readers say it first.
        rows: Labels, from top to bottom.
        series: Values by row.
        unit: What the axis counts.
        zero: Keep zero in sight, with a line.
    """
    columns = [column for one in series for column in (one.values, one.lows, one.highs)]
    seen = [value for column in columns for value in column if value is not None and math.isfinite(value)]
    seen += [0.0] if zero or not seen else []
    marks = ticks(min(seen), max(seen))
    left = 20 + 7.6 * min(20, max((len(row) for row in rows), default=0))
    low, high = marks[0], marks[-1]

    def x(value: float) -> float:
        return left + (value - low) / (high - low) * (WIDTH - left - 16)

    step = max(20, 8 * len(series) + 8)
    bottom = 8 + step * len(rows)
    parts = [
        _line(x(tick), 4, x(tick), bottom, "zero" if zero and tick == 0 else "grid")
        + _text(x(tick), bottom + 16, f"{tick:g}", "tick", "middle")
        for tick in marks
    ]
    parts.append(_text(WIDTH - 16, bottom + 32, unit, "unit", "end"))
    for place, label in enumerate(rows):
        middle = 8 + step * (place + 0.5)
        parts.append(_text(left - 8, middle + 4, _shortened(label, 20), "label", "end"))
        for number, one in enumerate(series):
            y = middle + 8 * (number - (len(series) - 1) / 2)
            value, look = one.values[place], number if one.series is None else one.series
            if value is None or not _finite(value):
                continue
            ends = (_at(one.lows, place), _at(one.highs, place))
            said = f"{label}, {one.name}: {value:.1f}"
            if ends[0] is not None and ends[1] is not None:
                parts.append(_line(x(ends[0]), y, x(ends[1]), y, f"whisker s{look % COLOURS}"))
                said += f" ({ends[0]:.1f} to {ends[1]:.1f})"
            parts.append(_mark(x(value), y, look, said))
    return _svg(title, f"{len(rows)} rows; {unit}", parts, bottom + 40)


def line_chart(title: str, lines: Sequence[Line], x_label: str, y_label: str) -> str:
    """Draw lines over a common horizontal axis."""
    points = [point for line in lines for point in line.points if _finite(point[0]) and _finite(point[1])]
    across = ticks(min((p[0] for p in points), default=0), max((p[0] for p in points), default=1))
    up = ticks(min((p[1] for p in points), default=0), max((p[1] for p in points), default=1))
    left, top, bottom = 52, 22, 200

    def place(point: tuple[float, float]) -> tuple[float, float]:
        x = left + (point[0] - across[0]) / (across[-1] - across[0]) * (WIDTH - left - 20)
        return x, bottom - (point[1] - up[0]) / (up[-1] - up[0]) * (bottom - top)

    parts = [
        _line(left, y, WIDTH - 20, y, "grid") + _text(left - 6, y + 4, f"{tick:g}", "tick", "end")
        for tick in up
        for y in [place((across[0], tick))[1]]
    ]
    parts += [_text(place((tick, up[0]))[0], bottom + 16, _short_number(tick), "tick", "middle") for tick in across]
    parts += [_text(left, 12, y_label, "unit", "start"), _text(WIDTH - 20, bottom + 32, x_label, "unit", "end")]
    for line in lines:
        kept = [place(point) for point in thinned(line.points) if _finite(point[0]) and _finite(point[1])]
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in kept)
        tone = line.series % COLOURS
        parts.append(f'<polyline class="curve s{tone}" points="{path}"><title>{escape(line.name)}</title></polyline>')
        if kept:
            parts.append(_mark(*kept[-1], line.series, f"{line.name}: {line.points[-1][1]:.3g} at the end"))
    return _svg(title, f"{y_label} by {x_label}", parts, bottom + 40)


def legend_mark(number: int) -> str:
    """Return the small picture of a series for a legend."""
    mark = _mark(8, 8, number, "")
    return f'<svg class="key" viewBox="0 0 16 16" width="16" height="16" aria-hidden="true">{mark}</svg>'


def ticks(low: float, high: float, about: int = 5) -> list[float]:
    """Return round numbers, evenly spaced, from at or below `low` to at or above `high`: two at least."""
    if high - low <= 1e-9 * max(1.0, abs(low), abs(high)):
        pad = abs(low) * 0.1 if abs(low) > 1e-9 else 1.0
        low, high = low - pad, high + pad
    rough = (high - low) / about
    size = 10.0 ** math.floor(math.log10(rough))
    step = next(size * factor for factor in (1, 2, 5, 10) if size * factor >= rough * 0.999)
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    return [round(place * step, 12) for place in range(first, max(last, first + 1) + 1)]


def thinned(points: Sequence[tuple[float, float]], most: int = 160) -> list[tuple[float, float]]:
    """Return at most some `most` of many points: the first, the last, and every so many between."""
    if len(points) <= most:
        return list(points)
    kept = [points[round(place * (len(points) - 1) / (most - 1))] for place in range(most)]
    return list(dict.fromkeys(kept))


def _svg(title: str, what: str, parts: Sequence[str], height: float) -> str:
    return (
        f'<svg class="chart" role="img" viewBox="0 0 {WIDTH} {height:.0f}" preserveAspectRatio="xMinYMin meet">'
        f"<title>{escape(title)}</title><desc>{escape(what)}</desc>{''.join(parts)}</svg>"
    )


def _text(x: float, y: float, text: str, kind: str, anchor: Literal["start", "middle", "end"]) -> str:
    return f'<text class="{kind}" x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(text)}</text>'


def _line(x1: float, y1: float, x2: float, y2: float, kind: str) -> str:
    return f'<line class="{kind}" x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}"/>'


def _mark(x: float, y: float, number: int, said: str) -> str:
    """Draw a series' mark: colour and shape differ, so that colour alone never tells two apart."""
    shape = _MARKS[(number + number // COLOURS) % len(_MARKS)]
    kind = f'class="mark s{number % COLOURS}"'
    title = f"<title>{escape(said)}</title>" if said else ""
    if shape == "circle":
        return f'<circle {kind} cx="{x:.1f}" cy="{y:.1f}" r="4">{title}</circle>'
    corners = {
        "square": ((-3.6, -3.6), (3.6, -3.6), (3.6, 3.6), (-3.6, 3.6)),
        "triangle": ((0, -4.6), (4.4, 3.4), (-4.4, 3.4)),
        "diamond": ((0, -5), (5, 0), (0, 5), (-5, 0)),
    }[shape]
    path = " ".join(f"{x + dx:.1f},{y + dy:.1f}" for dx, dy in corners)
    return f'<polygon {kind} points="{path}">{title}</polygon>'


def _finite(value: float | None) -> bool:
    return value is not None and math.isfinite(value)


def _at(column: Sequence[float | None], place: int) -> float | None:
    return column[place] if place < len(column) and _finite(column[place]) else None


def _shortened(text: str, most: int) -> str:
    return text if len(text) <= most else text[: most - 1] + "…"


def _short_number(value: float) -> str:
    return f"{value / 1000:g}k" if abs(value) >= 10_000 else f"{value:g}"
