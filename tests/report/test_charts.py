"""Charts: values where they belong, round ticks, and nothing from data that could become markup."""

import re
import xml.etree.ElementTree as ElementTree
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crosslift.report.charts import WIDTH, Dots, Line, dot_chart, legend_mark, line_chart, thinned, ticks
from tests.report.reported import HOSTILE

NUMBERS = st.floats(-1e6, 1e6)


@given(NUMBERS, NUMBERS)
def test_ticks_are_evenly_spaced_round_and_enclose_what_is_shown(a, b):
    low, high = min(a, b), max(a, b)
    found = ticks(low, high)
    slack = 1e-6 * max(1.0, abs(low), abs(high))
    assert len(found) >= 2
    assert found[0] <= low + slack and found[-1] >= high - slack
    steps = [y - x for x, y in pairwise(found)]
    assert min(steps) > 0
    assert max(steps) - min(steps) <= 1e-6 * max(1.0, *map(abs, found))
    if high - low > 1e-3 * max(1.0, abs(low), abs(high)):
        assert len(found) <= 8


@pytest.mark.parametrize(
    ("low", "high", "expected"),
    [(0, 10, [0, 2, 4, 6, 8, 10]), (-1, 4, [-1, 0, 1, 2, 3, 4]), (0, 0.4, [0, 0.1, 0.2, 0.3, 0.4]), (3, 3, None)],
)
def test_ticks_by_hand(low, high, expected):
    found = ticks(low, high)
    assert found == expected if expected else found[0] <= 3 <= found[-1]


def parsed(svg: str) -> ElementTree.Element:
    return ElementTree.fromstring(svg)


def test_marks_and_whiskers_stand_at_their_values():
    svg = parsed(dot_chart("t", ["de", "sw"], [Dots("a", [0, 10], [0, 5], [5, 10])], "points"))
    x = [float(mark.get("cx")) for mark in svg.iter("circle")]
    left, right = x
    assert right == WIDTH - 16
    lines = [line for line in svg.iter("line") if "whisker" in line.get("class")]
    assert [float(line.get("x1")) for line in lines] == [left, pytest.approx((left + right) / 2)]
    said = [mark.find("title").text for mark in svg.iter("circle")]
    assert said == ["de, a: 0.0 (0.0 to 5.0)", "sw, a: 10.0 (5.0 to 10.0)"]


def test_what_is_missing_is_left_out_and_not_drawn_at_zero():
    svg = parsed(dot_chart("t", ["de", "sw"], [Dots("a", [None, 3.0]), Dots("b", [float("nan"), 1.0])], "points"))
    assert len(list(svg.iter("circle"))) == 1
    assert len(list(svg.iter("polygon"))) == 1
    assert parsed(dot_chart("t", [], [], "points")) is not None
    assert parsed(line_chart("t", [Line("a", [(0, float("nan")), (1, 2.0)])], "x", "y")) is not None


def test_lines_run_from_left_to_right_and_down_means_less():
    svg = parsed(line_chart("t", [Line("a", [(0, 10), (5, 0)])], "step", "loss"))
    (line,) = svg.iter("polyline")
    (x1, y1), (x2, y2) = (map(float, point.split(",")) for point in line.get("points").split())
    assert x1 < x2
    assert y1 < y2  # the axis of a picture points down


def test_series_differ_in_shape_as_well_as_colour():
    shapes = [re.sub(r'points="[^"]*"|cx.*r="4"', "", legend_mark(number)) for number in range(2)]
    assert shapes[0] != shapes[1]
    assert "circle" in legend_mark(0)
    assert "polygon" in legend_mark(1)


def test_hostile_titles_labels_and_names_stay_text():
    charts = [
        dot_chart(HOSTILE, [HOSTILE], [Dots(HOSTILE, [1.0], [0.0], [2.0])], HOSTILE),
        line_chart(HOSTILE, [Line(HOSTILE, [(0, 1), (1, 2)])], HOSTILE, HOSTILE),
    ]
    for chart in charts:
        assert "<script" not in chart
        assert "<img" not in chart
        svg = parsed(chart)
        assert svg.find("title").text == HOSTILE
        assert {element.tag for element in svg.iter()} <= {
            "svg", "title", "desc", "text", "line", "circle", "polygon", "polyline",
        }  # fmt: skip


def test_many_points_are_thinned_and_the_ends_stay():
    points = [(float(i), float(i * i)) for i in range(5000)]
    kept = thinned(points)
    assert len(kept) <= 160
    assert (kept[0], kept[-1]) == (points[0], points[-1])
    assert kept == sorted(kept)
