"""Forecasts of transfer: accuracy of a ranking, similarities, intervals of places, heat maps."""

import json

import numpy as np
import pytest
import torch

from crosslift.errors import BadInput
from crosslift.measure.igap_result import Matrix
from crosslift.measure.ranking import (
    Ranking,
    best_layer,
    forecasts,
    heat_map,
    mean_accuracy,
    rank_correlations,
    save_heat_map,
    similarities,
    tdr_accuracy,
)

GOLD = {"de": 80.0, "ru": 70.0, "th": 60.0, "sw": 50.0}


def test_the_accuracy_is_the_share_of_pairs_in_the_right_order():
    assert tdr_accuracy(GOLD, GOLD) == 100
    assert tdr_accuracy({language: -score for language, score in GOLD.items()}, GOLD) == 0
    # ru and th swapped: one of six pairs is wrong.
    assert tdr_accuracy({"de": 4, "ru": 2, "th": 3, "sw": 1}, GOLD) == pytest.approx(100 * 5 / 6)


def test_a_tied_pair_counts_as_wrong_on_either_side():
    assert tdr_accuracy({"de": 3, "ru": 3, "th": 2, "sw": 1}, GOLD) == pytest.approx(100 * 5 / 6)
    assert tdr_accuracy(GOLD, {**GOLD, "ru": 80.0}) == pytest.approx(100 * 5 / 6)


def test_the_papers_english_row_is_a_multiple_of_one_ninety_first():
    rng = np.random.default_rng(0)
    names = [f"l{k}" for k in range(14)]
    found = tdr_accuracy(dict(zip(names, rng.random(14), strict=True)), dict(zip(names, rng.random(14), strict=True)))
    assert found * 91 / 100 == pytest.approx(round(found * 91 / 100))


def test_a_ranking_of_one_language_is_refused():
    with pytest.raises(BadInput, match="two languages"):
        tdr_accuracy({"de": 1.0}, {"de": 1.0, "ru": 2.0})


def test_correlations_of_equal_and_opposite_orders():
    assert rank_correlations(GOLD, GOLD) == pytest.approx({"spearman": 1, "kendall": 1})
    opposite = {language: -score for language, score in GOLD.items()}
    assert rank_correlations(opposite, GOLD) == pytest.approx({"spearman": -1, "kendall": -1})


def test_similarities_of_two_sentences_by_hand():
    source = torch.tensor([[3.0, 4.0], [1.0, 0.0]])
    target = torch.tensor([[3.0, 4.0], [0.0, 1.0]])
    found = similarities(source, target)
    assert found == pytest.approx({"l2": -(0 + 2**0.5) / 2, "dot": (25 + 0) / 2, "cosine": 0.5})


def test_languages_are_ordered_by_gap_with_places_that_overlap_where_the_data_does():
    draw = np.random.default_rng(0)
    shared = draw.normal(0, 1, 4000)
    drawn = {"de": 10 + shared, "ru": 10.5 + draw.normal(0, 1, 4000), "sw": 40 + shared}
    rows = forecasts({"sw": 40, "ru": 10.5, "de": 10}, drawn, {"de": {"cosine": 0.9}})
    assert [row.language for row in rows] == ["de", "ru", "sw"]
    assert [(row.first, row.last) for row in rows] == [(1, 2), (1, 2), (3, 3)]
    assert rows[2].low < 40 < rows[2].high
    assert rows[0].similarities == {"cosine": 0.9}


def test_languages_that_tie_share_their_places():
    drawn = {"de": np.full(10, 5.0), "ru": np.full(10, 5.0), "sw": np.full(10, 9.0)}
    rows = forecasts({"de": 5, "ru": 5, "sw": 9}, drawn, {})
    assert [(row.first, row.last) for row in rows] == [(1, 2), (1, 2), (3, 3)]


def ranking():
    alike = {x: {"l2": -k, "dot": k, "cosine": 1 - k / 10} for k, x in enumerate(("sw", "de", "ru", "th"))}
    gaps = {"de": 10.0, "ru": 20.0, "th": 30.0, "sw": 40.0}
    drawn = {language: np.full(10, gap) for language, gap in gaps.items()}
    return Ranking("tiny", "en", "300 sentences", forecasts(gaps, drawn, alike), {1: 5, 2: 4}, 7)


def test_a_ranking_is_scored_beside_the_similarities():
    found = ranking().accuracy(GOLD)
    assert found["igap"]["tdr"] == 100
    assert found["cosine"]["tdr"] == 50  # sw is taken for the best: three of six pairs
    assert mean_accuracy([found, found])["cosine"] == 50


def test_a_ranking_shows_and_stores_its_rows():
    shown = ranking().table()
    assert shown.index("de") < shown.index("sw")
    assert "transfer will hurt most in th, sw; least in de, ru" in shown
    assert "checkpoints per seed: 5, 4; cosine at layer 7" in shown
    assert [row["language"] for row in json.loads(json.dumps(ranking().to_dict()))["languages"]] == [*GOLD]


def test_nothing_is_said_of_languages_whose_places_are_open():
    draw = np.random.default_rng(0)
    gaps = {"de": 10.0, "ru": 10.1, "th": 10.2, "sw": 10.3}
    drawn = {language: gap + draw.normal(0, 1, 4000) for language, gap in gaps.items()}
    assert Ranking("tiny", "en", "", forecasts(gaps, drawn, {}), {1: 1}, 7).verdict() == ""


@pytest.mark.parametrize(("languages", "said"), [(1, ""), (3, "transfer will hurt most in c; least in a")])
def test_the_middle_of_an_odd_number_lies_in_neither_half(languages, said):
    gaps = dict(zip("abc"[:languages], (5.0, 6.0, 40.0), strict=False))
    drawn = {language: np.full(10, gap) for language, gap in gaps.items()}
    assert Ranking("tiny", "en", "", forecasts(gaps, drawn, {}), {1: 1}, 7).verdict() == said


def test_the_accuracy_is_shown_for_every_forecast():
    shown = ranking().accuracy_table({**GOLD, "xx": 1.0}).splitlines()
    assert shown[0].startswith("order of 4 languages")
    assert shown[1].split() == ["igap", "100.0", "%", "1.00", "1.00"]
    assert [line.split()[0] for line in shown[2:]] == ["l2", "dot", "cosine"]


@pytest.mark.parametrize(("layers", "layer"), [(12, 7), (24, 14), (10, 6), (6, 4)])
def test_the_layer_keeps_its_relative_depth(layers, layer):
    assert best_layer(layers, None) == layer


def test_a_layer_that_is_not_there_is_refused():
    with pytest.raises(BadInput, match="there is no layer 9"):
        best_layer(6, 9)


def test_a_matrix_becomes_a_heat_map(tmp_path):
    matrix = Matrix("igap", ("en", "de"), ("en", "de"), np.array([[np.nan, 20.0], [12.0, np.nan]]))
    chart = heat_map(matrix)
    save_heat_map(chart, tmp_path / "map.json")
    values = json.loads((tmp_path / "map.json").read_text())["data"]["values"]
    assert {(cell["source"], cell["target"]): cell["value"] for cell in values} == {
        ("en", "en"): None, ("en", "de"): 20.0, ("de", "en"): 12.0, ("de", "de"): None,
    }  # fmt: skip


def test_a_heat_map_is_drawn_with_its_numbers(tmp_path):
    pytest.importorskip("vl_convert")
    matrix = Matrix("score", ("en",), ("de", "<b>"), np.array([[71.5, 20.0]]))
    save_heat_map(heat_map(matrix), tmp_path / "map.svg")
    svg = (tmp_path / "map.svg").read_text()
    assert "71.5" in svg and "<b>" not in svg
    with pytest.raises(BadInput, match=r"\.svg, \.png or \.json"):
        save_heat_map(heat_map(matrix), tmp_path / "map.pdf")
