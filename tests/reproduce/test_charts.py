"""Figures drawn from records made by hand: the right cells, points and labels, in SVG that stands by itself."""

import re
from dataclasses import replace
from xml.etree import ElementTree

import pytest

from crosslift.errors import BadFile
from crosslift.reproduce.charts import CHARTS, chart
from crosslift.reproduce.charts.heat import BELOW, HIGH, LOW, colour
from crosslift.reproduce.comparison import Compared
from crosslift.reproduce.entries import Column, Entry, Row, entries, read_entry

SVG = "{http://www.w3.org/2000/svg}"


def entry(kind, columns, rows, **more):
    made = tuple(Column(name, (name,), "nli") for name in columns)
    return Entry("ear.made", "Made & drawn", "Figure 0", "It.", made, tuple(Row(name, "run") for name in rows),
                 chart=kind, **more)  # fmt: skip


def record(rows, **more):
    """A record of Compared rows: name -> ours, or what Compared takes."""
    made = []
    for name, one in rows.items():
        given = one if isinstance(one, dict) else {"ours": one}
        width = len(given["ours"])
        made.append(Compared(**{"name": name, "paper": [None] * width, "sd": [None] * width, **given}).to_dict())
    return {"rows": made, **more}


def opened(drawn):
    """Parse a figure: a broken one is no XML."""
    return ElementTree.fromstring(drawn)


def texts(drawn, kind):
    return [one.text for one in opened(drawn).iter(f"{SVG}text") if kind in one.get("class", "").split()]


def fills(drawn):
    return [one.get("fill") for one in opened(drawn).iter(f"{SVG}rect") if one.get("class") == "cell"]


def test_a_heat_map_has_a_coloured_cell_with_its_value_per_row_and_column():
    made = entry("heat", ["de", "th"], ["en", "fr"], axis="from row to column")
    drawn = chart(made, record({"en": [80.0, 60.0], "fr": [None, 70.0]}))
    assert texts(drawn, "value") == ["80.0", "60.0", "70.0"]
    assert texts(drawn, "label") == ["accuracy; from row to column", "de", "th", "en", "fr"]
    assert fills(drawn) == ["#0b6fb3", "#ffffff", "#f0f0f0", "#85b7d9"]
    dark, light = (re.search(rf"fill:(#\w+)\">{value}", drawn)[1] for value in ("80.0", "60.0"))
    assert (dark, light) == ("#fff", "#222"), "numbers are readable on both ends of the scale"


def test_negative_values_make_the_scale_diverge_from_white_at_zero():
    assert colour(0, -5, 10) == LOW
    assert colour(10, -5, 10) == HIGH and colour(-10, -10, 5) == BELOW
    # Half as far from zero is half as strong on either side.
    assert colour(-5, -5, 10) == tuple(round((a + b) / 2) for a, b in zip(LOW, BELOW, strict=True))
    assert colour(3, 1, 5) == tuple(round((a + b) / 2) for a, b in zip(LOW, HIGH, strict=True))
    assert colour(4, 4, 4) != LOW


def test_the_papers_heat_map_stands_before_ours_where_it_has_numbers():
    made = entry("heat", ["de", "th"], ["en"])
    drawn = chart(made, record({"en": {"ours": [50.0, 40.0], "paper": [75.0, None]}}))
    assert texts(drawn, "head") == ["paper", "ours"]
    assert texts(drawn, "value") == ["75.0", "50.0", "40.0"]
    assert texts(chart(made, record({"en": [50.0, 40.0]})), "head") == []
    assert chart(made, record({"en": {"ours": [None, None], "paper": [75.0, 70.0]}})) is None


def test_a_heat_map_of_several_measures_has_a_panel_each_with_its_own_scale():
    made = entry("heat", ["de", "en"], ["de score", "en score", "de gap", "en gap"], panels=("score", "gap"))
    rows = {"de score": [60.0, 50.0], "en score": [40.0, 80.0], "de gap": [None, -2.0], "en gap": [2.0, None]}
    drawn = chart(made, record(rows))
    assert texts(drawn, "head") == ["score", "gap"]
    assert fills(drawn)[3] == "#0b6fb3" and fills(drawn)[5:7] == ["#b8540b", "#0b6fb3"]


def test_a_heat_map_of_drops_shows_what_rows_lose_against_their_baselines_alone():
    made = entry("heat", ["to a", "to b"], ["source", "from a"], drops=True)
    lost = {"ours": [70.0, 80.0], "baseline": "source", "difference": [-10.0, 0.0]}
    drawn = chart(made, record({"source": [80.0, 80.0], "from a": lost}))
    assert texts(drawn, "value") == ["10.0", "0.0"], "no minus before a zero"
    assert "source" not in texts(drawn, "label") and "from a" in texts(drawn, "label")


POINTS = {
    "words": ["house", "بيت", "<b>", "tree"], "groups": ["en", "ar", "en", "en"], "links": [0, 0, -1, -1],
    "x": [0.0, 10.0, 5.0, 5.0], "y": [0.0, 10.0, 5.0, 5.0],
}  # fmt: skip


def test_words_are_points_in_the_colour_of_their_group_joined_where_linked():
    made = entry("words", ["ar"], ["EAR", "RS-DA"])
    drawn = chart(made, record({}, pictures={"EAR / ar": POINTS, "RS-DA / ar": POINTS}))
    tree = opened(drawn)
    assert texts(drawn, "head") == ["EAR", "RS-DA"], "one column goes without saying"
    marks = [one.get("class") for one in tree.iter() if one.get("r") == "3.2" or one.get("width") == "5.6"]
    assert marks == ["mark s0", "mark s1", "mark s0", "mark s0"] * 2
    links = [one for one in tree.iter(f"{SVG}line") if one.get("class") == "link"]
    assert len(links) == 2
    circles = [one for one in tree.iter(f"{SVG}circle") if one.get("r") == "3.2"]
    # The picture is stretched over the panel; y goes upwards, as in any plot.
    assert (links[0].get("x1"), links[0].get("y1")) == (circles[0].get("cx"), circles[0].get("cy"))
    assert float(links[0].get("y2")) < float(links[0].get("y1"))


def test_words_have_names_as_far_as_there_is_room_pairs_first():
    made = entry("words", ["ar"], ["EAR"])
    drawn = chart(made, record({}, pictures={"EAR / ar": POINTS}))
    # `<b>` and `tree` lie on one place: one is named above, the other below; a third would find no room.
    assert texts(drawn, "word") == ["house", "بيت", "<b>", "tree"]
    crowded = {**POINTS, "words": ["house", "بيت", "one", "two", "three"], "groups": [*POINTS["groups"], "en"],
               "links": [0, 0, -1, -1, -1], "x": [*POINTS["x"], 5.0], "y": [*POINTS["y"], 5.0]}  # fmt: skip
    drawn = chart(made, record({}, pictures={"EAR / ar": crowded}))
    assert texts(drawn, "word") == ["house", "بيت", "one", "two"]
    assert chart(made, record({}, pictures={})) is None


def test_histograms_of_pairs_have_two_areas_a_panel_and_leave_missing_ones_empty():
    made = entry("histogram", ["es", "hi"], ["Original", "Adjusted"])
    one = {"edges": [0.0, 1.0, 3.0], "related_share": [0.5, 0.5], "unrelated_share": [0.0, 1.0]}
    drawn = chart(
        made, record({}, histograms={f"{k}": one for k in ("Original / es", "Original / hi", "Adjusted / hi")})
    )
    assert texts(drawn, "head") == ["Original / es", "Original / hi", "Adjusted / hi"]
    areas = [one.get("points") for one in opened(drawn).iter(f"{SVG}polygon") if "area" in one.get("class")]
    assert len(areas) == 6
    # Shares by width: 0.5 over 1 is as high as 1 over 2, and both fill the panel; 0.5 over 2 is half as high.
    heights = [float(point.split(",")[1]) for point in areas[0].split()]
    assert heights == [120, 0, 0, 60, 60, 120]
    left = [one.get("x") for one in opened(drawn).iter(f"{SVG}text") if one.get("class") == "head"]
    assert left[0] != left[1] == left[2], "Hindi stands below Hindi"


def test_histograms_of_several_rows_lie_over_each_other_by_column():
    made = entry("histogram", ["L2", "cosine", "sd"], ["InfoXLM", "PlugIn-X"])
    found = {f"{row} / {name}": {"edges": [0.0, 1.0], "share": [1.0]} for row in ("InfoXLM", "PlugIn-X")
             for name in ("L2", "cosine")}  # fmt: skip
    drawn = chart(made, record({}, histograms=found))
    assert texts(drawn, "head") == ["L2", "cosine"] and texts(drawn, "label")[-2:] == ["InfoXLM", "PlugIn-X"]
    assert len(re.findall(r'class="area s[01]"', drawn)) == 4


def test_lines_go_over_the_numbers_that_columns_or_rows_are():
    drawn = chart(entry("lines", ["0.2", "0"], ["A en-zh", "B en-zh", "A zh-en"], panels=("en-zh", "zh-en")),
                  record({"A en-zh": [1.0, 2.0], "B en-zh": [2.0, None], "A zh-en": [3.0, 4.0]}))  # fmt: skip
    assert texts(drawn, "head") == ["en-zh", "zh-en"] and texts(drawn, "label") == ["A", "B"]
    assert re.findall(r'class="curve (s\d)"', drawn) == ["s0", "s1", "s0"], "a name has one colour in all panels"
    drawn = chart(entry("lines", ["en", "de"], ["1.0", "0.5"], axis="share"), record({"1.0": [5, 6], "0.5": [3, 4]}))
    assert texts(drawn, "label") == ["en", "de"] and "share" in texts(drawn, "unit")


def test_dots_leave_out_columns_that_a_panel_has_no_value_of():
    made = entry("dots", ["en", "de"], ["A gap", "A error"], panels=("gap", "error"))
    drawn = chart(made, record({"A gap": [None, 3.0], "A error": [5.0, None]}))
    assert texts(drawn, "label") == ["A", "de", "en"]


def test_a_scatter_has_a_panel_per_measure_and_a_colour_per_language():
    rows = {"Accuracy at 20 %": [50.0, 40.0], "L2 at 20 %": [2.0, 3.0], "Cosine at 20 %": [0.9, None],
            "Accuracy at 40 %": [55.0, 45.0], "L2 at 40 %": [1.0, 2.0], "Cosine at 40 %": [None, None]}  # fmt: skip
    drawn = chart(entry("scatter", ["de", "th"], list(rows)), record(rows))
    assert texts(drawn, "label") == ["de", "th"]
    assert len(re.findall("<polyline", drawn)) == 4 + 1
    assert set(texts(drawn, "unit")) == {"accuracy", "L2 distance", "cosine"}


def test_tables_are_no_figures_and_every_kind_of_figure_of_the_papers_is_drawn():
    assert chart(entries()["ear.table1"], {}) is None
    assert {one.chart for one in entries().values() if "figure" in one.id} == set(CHARTS)
    assert not [one.id for one in entries().values() if one.chart and "table" in one.id]


@pytest.mark.parametrize("kind", CHARTS)
def test_a_record_without_anything_is_no_figure(kind):
    made = entry(kind, ["0.1", "0.2"], ["A", "B"])
    assert chart(made, record({"A": [None, None], "B": [None, None]}, histograms={}, pictures={})) is None


def test_what_comes_from_data_is_escaped():
    made = replace(entry("heat", ["<de>"], ["<b>"]), title="a < b & c")
    tree = opened(chart(made, record({"<b>": [1.0]})))
    assert tree.find(f"{SVG}title").text == "a < b & c"


def test_a_row_outside_every_panel_is_refused(tmp_path):
    file = tmp_path / "figure9.yaml"
    file.write_text(
        "title: t\nplace: Figure 9\nshows: s.\ntask: nli\nchart: heat\npanels: [gap]\ncolumns: [de]\n"
        "rows:\n  - {name: de gap, run: x}\n  - {name: de IGAP, run: x}\n"
    )
    with pytest.raises(BadFile, match='"de IGAP" is in none of the panels gap'):
        read_entry(file, "igap")
