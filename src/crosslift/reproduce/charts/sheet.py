"""What all figures share: a sheet with a title, a legend and panels, and the rows that fill a panel."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import Literal

from crosslift.data.storage import Json
from crosslift.report.charts import legend_mark
from crosslift.reproduce.comparison import Compared, rows_of
from crosslift.reproduce.entries import Entry

COLOURS = ("#b8540b", "#0b6fb3", "#16795b", "#a03a78", "#6b5bb5", "#8a6d00", "#3f6770", "#7a4632")
"""As `.s0` … `.s7`; the first two are the red and blue of two languages."""
STYLE = (
    "text{font:11px sans-serif;fill:#444}.title{font-size:14px;font-weight:600;fill:#222}"
    ".head{font-size:12px;font-weight:600;fill:#222}.grid{stroke:#ddd}.zero{stroke:#888}.link{stroke:#aaa}"
    ".curve{fill:none;stroke-width:1.8}.area{fill-opacity:.35;stroke-width:1.2}"
    + "".join(
        f".s{i}{{fill:{c}}}.curve.s{i},.whisker.s{i}{{stroke:{c};fill:none}}.area.s{i}{{stroke:{c}}}"
        for i, c in enumerate(COLOURS)
    )
)
GAP = 24
"""Between panels, in pixels; so are all sizes here."""
LETTER = 6.4
"""About the width of a letter."""


@dataclass(frozen=True)
class Panel:
    """One part of a figure.

    Attributes:
        name: What stands above it.
        body: SVG, drawn from (0, 0) to (width, height).
        width: In pixels.
        height: In pixels.
    """

    name: str
    body: str
    width: float
    height: float


def sheet(title: str, panels: Sequence[Panel], *, across: int = 2, said: str = "", legend: Sequence[str] = ()) -> str:
    """Lay panels out as one SVG file, white behind, so that it is readable on any page.

    Args:
        title: Of the whole figure.
        panels: From left to right, then from top to bottom.
        across: Panels in a row.
        said: A line below the title.
        legend: Names of series, in the order of their colours.
    """
    rows = [panels[start : start + across] for start in range(0, len(panels), across)]
    width = max(sum(panel.width + GAP for panel in row) - GAP for row in rows)
    width = max(width, len(title) * 7.6, len(said) * LETTER)
    parts, y = [text(0, 14, title, "title")], 22.0
    if said:
        parts.append(text(0, y + 10, said))
        y += 18
    drawn, y = _legend(legend, width, y)
    parts.append(drawn)
    for row in rows:
        named = any(panel.name for panel in row)
        x, below = 0.0, y + (20 if named else 4)
        for panel in row:
            parts.append(text(x, y + 14, panel.name, "head") if panel.name else "")
            parts.append(f'<g transform="translate({x:.1f} {below:.1f})">{panel.body}</g>')
            x += panel.width + GAP
        y = below + max(panel.height for panel in row) + 8
    box = f"{width + 2 * GAP:.0f} {y + 2 * GAP:.0f}"
    wide, tall = box.split()
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" role="img" viewBox="0 0 {box}" width="{wide}" height="{tall}">'
        f"<title>{escape(title)}</title><style>{STYLE}</style>"
        f'<rect width="{wide}" height="{tall}" rx="6" fill="#fff"/>'
        f'<g transform="translate({GAP} {GAP})">{"".join(parts)}</g></svg>\n'
    )


def embedded(name: str, svg: str) -> Panel:
    """Return a chart of the report page as a panel."""
    found = re.search(r'viewBox="0 0 (\d+) (\d+)"', svg)
    assert found is not None, "a chart of the report page has a viewBox"
    width, height = int(found[1]), int(found[2])
    return Panel(name, svg.replace("<svg ", f'<svg width="{width}" height="{height}" ', 1), width, height)


def text(
    x: float, y: float, said: str, kind: str = "label", anchor: Literal["start", "middle", "end"] = "start", **more: str
) -> str:
    """Draw a line of text; what comes from data is escaped here."""
    other = "".join(f' {name}="{value}"' for name, value in more.items())
    return f'<text class="{kind}" x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"{other}>{escape(said)}</text>'


def _legend(names: Sequence[str], width: float, y: float) -> tuple[str, float]:
    """Draw marks and names, in as many lines as it takes; return also where the next thing may begin."""
    if not names:
        return "", y
    parts, x = [], 0.0
    for number, name in enumerate(names):
        wide = 22 + LETTER * len(name) + 14
        if x and x + wide > width:
            x, y = 0.0, y + 18
        parts.append(f'<g transform="translate({x:.1f} {y:.1f})">{legend_mark(number)}</g>')
        parts.append(text(x + 20, y + 12, name))
        x += wide
    return "".join(parts), y + 22


def filled_rows(record: Json) -> list[Compared]:
    """Return the rows of a record that have a value of ours."""
    return [row for row in rows_of(record) if any(value is not None for value in row.ours)]


def by_panel(entry: Entry, rows: Sequence[Compared]) -> Mapping[str, list[tuple[str, Compared]]]:
    """Return panel -> (name within it, row); one panel without a name where the entry has none."""
    found = {
        panel: [(row.name.removesuffix(f" {panel}"), row) for row in rows if row.name.endswith(f" {panel}")]
        for panel in entry.panels
    } or {"": [(row.name, row) for row in rows]}
    return {panel: some for panel, some in found.items() if some}


def series_of(panels: Mapping[str, Sequence[tuple[str, object]]]) -> list[str]:
    """Return the names in all panels, each once: a name has one colour in the whole figure."""
    return list(dict.fromkeys(name for some in panels.values() for name, _ in some))


def panel_name(entry: Entry, key: str) -> str:
    """Return how a panel is called that a record knows as `row / column`: one column goes without saying."""
    return key.removesuffix(f" / {entry.columns[0].name}") if len(entry.columns) == 1 else key
