"""Heat maps: a coloured cell per row and column with its value inside, the paper's beside ours where it has some."""

from __future__ import annotations

from collections.abc import Sequence

from crosslift.data.storage import Json
from crosslift.reproduce.charts.sheet import LETTER, Panel, by_panel, sheet, text
from crosslift.reproduce.comparison import Compared, rows_of
from crosslift.reproduce.entries import Entry, Number

Rgb = tuple[int, int, int]
LOW: Rgb = (255, 255, 255)
HIGH: Rgb = (11, 111, 179)
BELOW: Rgb = (184, 84, 11)
"""Colour of values below zero; zero is white then."""
EMPTY = "#f0f0f0"
TALL = 24


def heat(entry: Entry, record: Json) -> str | None:
    """Draw a panel per part of the figure; one scale of colours each, diverging from zero where values are negative."""
    columns = [column.name for column in entry.columns]
    panels = []
    for name, rows in by_panel(entry, rows_of(record)).items():
        kept = [(label, row) for label, row in rows if row.baseline] if entry.drops else rows
        labels = [label for label, _ in kept]
        ours = [_shown(entry, row, row.ours, row.difference) for _, row in kept]
        paper = [_shown(entry, row, row.paper, row.paper_difference) for _, row in kept]
        if not _there(ours):
            continue
        if _there(paper):
            panels.append(heat_panel(_named(name, "paper"), labels, columns, paper))
        panels.append(heat_panel(_named(name, "ours") if _there(paper) else name, labels, columns, ours))
    # Large maps one below the other, so that a cell's number stays readable on a page.
    across = 1 if panels and panels[0].width > 460 else 3
    what = f"{entry.metric}{', what is lost of it' if entry.drops else ''}; {entry.axis}"
    return sheet(entry.title, panels, across=across, said=what) if panels else None


def _shown(entry: Entry, row: Compared, scores: Sequence[Number], differences: Sequence[Number]) -> list[Number]:
    if entry.drops and row.baseline:
        return [None if value is None else 0.0 - value for value in differences]  # no minus before 0
    return list(scores)


def _there(values: Sequence[Sequence[Number]]) -> list[float]:
    return [value for row in values for value in row if value is not None]


def _named(panel: str, whose: str) -> str:
    return f"{panel}, {whose}" if panel else whose


def heat_panel(name: str, rows: Sequence[str], columns: Sequence[str], values: Sequence[Sequence[Number]]) -> Panel:
    """Return one map: a coloured cell with its value for every row and column; scales from zero to both sides."""
    seen = _there(values)
    low, high = min(seen), max(seen)
    left = 8 + LETTER * max(map(len, rows))
    wide = max(38.0, 8 + LETTER * max(map(len, columns)))
    parts = [text(left + wide * (i + 0.5), 12, column, anchor="middle") for i, column in enumerate(columns)]
    for place, (label, some) in enumerate(zip(rows, values, strict=True)):
        y = 18 + TALL * place
        parts.append(text(left - 6, y + 16, label, anchor="end"))
        for i, value in enumerate(some):
            parts.append(_cell(left + wide * i, y, wide, value, low, high, f"{label}, {columns[i]}"))
    return Panel(name, "".join(parts), left + wide * len(columns), 18 + TALL * len(rows))


def _cell(x: float, y: float, wide: float, value: Number, low: float, high: float, what: str) -> str:
    box = f'<rect class="cell" x="{x:.1f}" y="{y:.1f}" width="{wide - 1:.1f}" height="{TALL - 1}"'
    if value is None:
        return f'{box} fill="{EMPTY}"/>'
    red, green, blue = colour(value, low, high)
    # The weights are those of how bright a colour looks; at 115 black and white stand out alike.
    ink = "#222" if 0.299 * red + 0.587 * green + 0.114 * blue > 115 else "#fff"
    number = text(x + wide / 2, y + 16, f"{value:.1f}", "value", "middle", style=f"fill:{ink}")
    return f'{box} fill="#{red:02x}{green:02x}{blue:02x}"/>{number}'


def colour(value: float, low: float, high: float) -> Rgb:
    """Return a cell's colour: from white at `low` to blue at `high`, or, below zero, from white at 0 to orange."""
    if low < 0:
        share = abs(value) / max(-low, high)
        end = BELOW if value < 0 else HIGH
    else:
        share, end = (value - low) / (high - low) if high > low else 0.5, HIGH
    red, green, blue = (round(a + (b - a) * share) for a, b in zip(LOW, end, strict=True))
    return red, green, blue
