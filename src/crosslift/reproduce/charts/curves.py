"""Lines, dots and scattered points: the charts of the report page, in panels and with a legend."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from crosslift.data.storage import Json
from crosslift.report.charts import Dots, Line, dot_chart, line_chart
from crosslift.reproduce.charts.sheet import by_panel, embedded, filled_rows, series_of, sheet
from crosslift.reproduce.comparison import Compared
from crosslift.reproduce.entries import Entry

Series = list[tuple[str, list[tuple[float, float]]]]
"""Names with the points of each."""


def lines(entry: Entry, record: Json) -> str | None:
    """Draw a line per row over columns that are numbers, or a line per column over rows that are."""
    panels = {panel: _series(entry, rows) for panel, rows in by_panel(entry, filled_rows(record)).items()}
    panels = {panel: some for panel, some in panels.items() if some}
    if not panels:
        return None
    names = series_of(panels)
    drawn = [
        embedded(
            panel,
            line_chart(
                panel or entry.title,
                [Line(name, points, names.index(name)) for name, points in some],
                entry.axis,
                entry.metric,
            ),
        )
        for panel, some in panels.items()
    ]
    return sheet(entry.title, drawn, legend=names)


def _series(entry: Entry, rows: Sequence[tuple[str, Compared]]) -> Series:
    names = [column.name for column in entry.columns]
    across, down = [_value(name) for name in names], [_value(name) for name, _ in rows]
    if None not in across:
        found = [(name, list(zip(across, row.ours, strict=True))) for name, row in rows]
    elif None not in down:
        found = [
            (name, [(x, row.ours[i]) for x, (_, row) in zip(down, rows, strict=True)]) for i, name in enumerate(names)
        ]
    else:
        return []
    kept = [(name, sorted((x, y) for x, y in points if x is not None and y is not None)) for name, points in found]
    return [(name, points) for name, points in kept if points]


def dots(entry: Entry, record: Json) -> str | None:
    """Draw a row per column of the entry, with a mark per row of it."""
    panels = by_panel(entry, filled_rows(record))
    names = series_of(panels)
    drawn = []
    for panel, rows in panels.items():
        kept = [i for i, _ in enumerate(entry.columns) if any(row.ours[i] is not None for _, row in rows)]
        marks = [Dots(name, [row.ours[i] for i in kept], series=names.index(name)) for name, row in rows]
        labels = [entry.columns[i].name for i in kept]
        drawn.append(embedded(panel, dot_chart(panel or entry.title, labels, marks, entry.metric)))
    return sheet(entry.title, drawn, legend=names) if drawn else None


def scatter(entry: Entry, record: Json) -> str | None:
    """Draw a panel per measure of nearness: accuracy over it, a point per language and step, a colour per language."""
    rows = {row.name: row.ours for row in filled_rows(record)}
    languages = [column.name for column in entry.columns]
    panels: Mapping[str, Series] = {}
    for measure, named in (("L2", "L2 distance"), ("Cosine", "cosine")):
        points: dict[str, list[tuple[float, float]]] = {}
        for name, scores in rows.items():
            near = rows.get(name.replace("Accuracy", measure))
            if not name.startswith("Accuracy") or near is None:
                continue
            for language, x, y in zip(languages, near, scores, strict=True):
                if x is not None and y is not None:
                    points.setdefault(language, []).append((x, y))
        if points:
            panels = {**panels, named: list(points.items())}
    if not panels:
        return None
    names = [language for language in languages if language in series_of(panels)]
    drawn = [
        embedded(
            "",
            line_chart(
                f"Accuracy by {named}",
                [Line(name, [point], names.index(name)) for name, some in found for point in some],
                named,
                "accuracy",
            ),
        )
        for named, found in panels.items()
    ]
    return sheet(entry.title, drawn, legend=names)


def _value(name: str) -> float | None:
    try:
        return float(name.replace("%", "").strip())
    except ValueError:
        return None
