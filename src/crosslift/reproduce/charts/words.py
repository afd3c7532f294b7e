"""Words in the plane: a dot per word, a colour per language or side, a line between words that belong together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast

from crosslift.data.storage import Json
from crosslift.reproduce.charts.sheet import LETTER, Panel, panel_name, sheet, text
from crosslift.reproduce.entries import Entry

WIDTH, HEIGHT, EDGE = 400, 360, 24
Box = tuple[float, float, float, float]
"""Left, top, right, bottom."""


def words(entry: Entry, record: Json) -> str | None:
    """Draw the words of each row, as many with their names as there is room for."""
    found = cast("dict[str, dict[str, Any]]", record.get("pictures") or {})
    if not found:
        return None
    groups = list(dict.fromkeys(group for one in found.values() for group in one["groups"]))
    panels = [_panel(panel_name(entry, name), one, groups) for name, one in found.items()]
    said = "t-SNE: who is near whom; longer distances say nothing. A line joins words that belong together."
    return sheet(entry.title, panels, said=said, legend=groups)


def _panel(name: str, one: Mapping[str, Any], groups: Sequence[str]) -> Panel:
    places = list(zip(_spread(one["x"], WIDTH), [HEIGHT - y for y in _spread(one["y"], HEIGHT)], strict=True))
    parts = [f'<rect width="{WIDTH}" height="{HEIGHT}" fill="none" stroke="#ddd"/>']
    linked: dict[int, list[int]] = {}
    for place, link in enumerate(one["links"]):
        if link >= 0:
            linked.setdefault(link, []).append(place)
    pairs = [pair for pair in linked.values() if len(pair) == 2]
    for (x1, y1), (x2, y2) in ((places[a], places[b]) for a, b in pairs):
        parts.append(f'<line class="link" x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}"/>')
    parts += [_mark(x, y, groups.index(group)) for (x, y), group in zip(places, one["groups"], strict=True)]
    # Words that belong together are named first, and both or neither.
    alone = [[place] for place in range(len(places)) if not any(place in pair for pair in pairs)]
    taken: list[Box] = [(x - 3, y - 3, x + 3, y + 3) for x, y in places]
    for wanted in (*pairs, *alone):
        boxes: list[Box] = []
        for place in wanted:
            possible = (box for box in _boxes(*places[place], one["words"][place]) if _free(box, [*taken, *boxes]))
            boxes += [box for box in [next(possible, None)] if box]
        if len(boxes) == len(wanted):
            taken += boxes
            for place, box in zip(wanted, boxes, strict=True):
                tone = groups.index(one["groups"][place])
                middle = (box[0] + box[2]) / 2
                parts.append(text(middle, box[3] - 3, one["words"][place], f"word s{tone}", "middle"))
    return Panel(name, "".join(parts), WIDTH, HEIGHT)


def _spread(values: Sequence[float], room: float) -> list[float]:
    """Return values stretched over the room inside the edges."""
    low, high = min(values), max(values)
    return [EDGE + (value - low) / ((high - low) or 1) * (room - 2 * EDGE) for value in values]


def _mark(x: float, y: float, number: int) -> str:
    """Draw a word's mark: a circle, or a square, so that colour alone never tells two sides apart."""
    if number == 0:
        return f'<circle class="mark s0" cx="{x:.1f}" cy="{y:.1f}" r="3.2"/>'
    return f'<rect class="mark s{number}" x="{x - 2.8:.1f}" y="{y - 2.8:.1f}" width="5.6" height="5.6"/>'


def _boxes(x: float, y: float, word: str) -> tuple[Box, Box]:
    """Return where a word's name may stand: above its mark or below it, inside the panel."""
    half = LETTER * len(word) / 2
    middle = min(max(x, half + 2), WIDTH - half - 2)
    return (middle - half, y - 16, middle + half, y - 3), (middle - half, y + 3, middle + half, y + 16)


def _free(box: Box, taken: Sequence[Box]) -> bool:
    return all(box[2] <= o[0] or o[2] <= box[0] or box[3] <= o[1] or o[3] <= box[1] for o in taken)
