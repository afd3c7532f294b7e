"""Figures as the papers draw them, as SVG that stands by itself; everything drawn comes from a record."""

from __future__ import annotations

from crosslift.data.storage import Json
from crosslift.reproduce.charts.curves import dots, lines, scatter
from crosslift.reproduce.charts.heat import heat
from crosslift.reproduce.charts.histogram import histogram
from crosslift.reproduce.charts.words import words
from crosslift.reproduce.entries import Entry

CHARTS = {"lines": lines, "dots": dots, "heat": heat, "scatter": scatter, "histogram": histogram, "words": words}
"""How a paper draws something -> who draws it; each returns `None` where the record has nothing to draw."""


def chart(entry: Entry, record: Json) -> str | None:
    """Return the figure of a record; `None` for a table, and where nothing was measured."""
    return CHARTS[entry.chart](entry, record) if entry.chart else None
