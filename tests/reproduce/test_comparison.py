"""Cells and statistics against values computed by hand."""

from dataclasses import replace
from statistics import stdev

import pytest

from crosslift.data.storage import read_json, write_json
from crosslift.reproduce import claims as claiming
from crosslift.reproduce.claims import Claim, decide
from crosslift.reproduce.collect import Cell, _ranked, collect
from crosslift.reproduce.comparison import Compared, apart, compare_entry, decimals, rows_of, spearman
from crosslift.reproduce.plan import Choice, Source
from crosslift.reproduce.records import _fuller, as_text, record, verdict
from crosslift.reproduce.rules import RULES, Unknown
from tests.reproduce.made import ENTRY, made


@pytest.fixture
def compared(tmp_path):
    plan, done = made(tmp_path)
    cells = collect(ENTRY, plan, done)
    return cells, {row.name: row for row in compare_entry(ENTRY, cells)}


def test_a_cell_is_the_mean_over_seeds_with_their_spread(compared):
    cells, _ = compared
    assert cells["plain", "de"].values == {1: 50.0, 2: 70.0}
    assert cells["plain", "de"].mean == 60.0
    assert cells["plain", "de"].sd == pytest.approx(stdev([50, 70]))
    assert cells["quoted", "de"].mean is None and cells["quoted", "de"].missing == "quoted: of another paper"


def test_the_most_frequent_class_is_what_english_must_beat(compared):
    cells, _ = compared
    assert cells["plain", "de"].majority == 50.0
    assert cells["plain", "de"].english == 90.0
    assert cells["plain", "de"].learnt
    assert Cell(english=51.0, english_low=49.0, majority=50.0).learnt is False
    assert Cell(english=53.0, english_low=51.0, majority=50.0).learnt is True
    assert Cell().learnt is None


def test_differences_and_the_difference_of_differences(compared):
    _, rows = compared
    ours = rows["ours"]
    assert ours.paper_difference == [1.0, 4.0, 1.0, 2.0]
    assert ours.difference == pytest.approx([0.0, 20.0, 20.0, -10.0])
    assert ours.of_differences == pytest.approx([-1.0, 16.0, 19.0, -12.0])
    assert ours.mean_difference == pytest.approx((20 + 20 - 10) / 3)
    assert ours.paper_mean_difference == pytest.approx(7 / 3)
    assert rows["plain"].baseline == "" and rows["plain"].difference == []
    assert rows["quoted"].mean is None


def test_signs_are_compared_in_target_languages_only(compared):
    _, rows = compared
    assert (rows["ours"].agree, rows["ours"].judged, rows["ours"].unlearnt) == (2, 3, 0)


def test_signs_are_not_compared_where_nothing_was_learnt(compared):
    cells, _ = compared
    poor = {key: replace(cell, english_low=40.0) if key[0] == "plain" else cell for key, cell in cells.items()}
    row = compare_entry(ENTRY, poor)[1]
    assert (row.agree, row.judged, row.unlearnt) == (0, 0, 3)


def test_rank_correlation_over_languages(compared):
    _, rows = compared
    # The paper orders de > th > sw, and so do both rows here.
    assert rows["ours"].spearman == pytest.approx(1.0)
    assert spearman([1, 2, 3], [1, 3, 2]) == pytest.approx(0.5)
    assert spearman([1, 2, None], [1, 2, 3]) is None
    assert spearman([1, 2, 3], [4, 4, 4]) is None


def test_the_paired_test_sees_what_differs_by_example(compared):
    _, rows = compared
    p = rows["ours"].p
    assert set(p) == {"de", "th", "sw"}
    # th: two of ten examples differ, in both seeds: two-sided, every other swap of two is as extreme.
    assert p["th"] == pytest.approx(0.5, abs=0.06)
    assert 0 < rows["ours"].p_mean <= 1


def test_a_row_that_is_the_baseline_run_itself_has_no_test(tmp_path):
    plan, done = made(tmp_path)
    for column in ENTRY.columns:
        plan.cells[ENTRY.id, "ours", column.name] = plan.cells[ENTRY.id, "plain", column.name]
    row = compare_entry(ENTRY, collect(ENTRY, plan, done))[1]
    assert row.difference == [0.0] * 4 and row.p == {} and row.p_mean is None


def test_printed_differences_of_a_paper_are_taken_as_they_are(compared):
    cells, _ = compared
    row = compare_entry(replace(ENTRY, paper_gains=True), cells)[1]
    assert row.paper_difference == [81.0, 74.0, 61.0, 52.0]


def test_how_far_apart_goes_over_the_columns_that_both_know(compared):
    cells, _ = compared
    lost = replace(ENTRY.rows[1], paper=(81.0, 74.0, None, None))
    entry = replace(ENTRY, rows=(ENTRY.rows[0], lost))
    row = compare_entry(entry, cells)[1]
    # Only de is known in the paper: +4 there, +20 here; th and sw count in our own mean alone.
    assert row.mean_difference == pytest.approx(10.0) and row.paper_mean_difference == pytest.approx(4.0)
    assert apart(entry, row) == pytest.approx(16.0)
    assert "+4.00 in the paper, +16.00 apart" in verdict(entry, row)


def test_means_over_other_languages_are_not_subtracted(compared):
    cells, _ = compared
    whole = replace(cells["plain", "de"], languages=("de", "fr"))
    part = replace(cells["ours", "de"], languages=("de",), missing="without fr: not run yet")
    row = compare_entry(ENTRY, {**cells, ("plain", "de"): whole, ("ours", "de"): part})[1]
    assert row.difference[1] is None and row.difference[2] == pytest.approx(20.0)
    # Rows that mean another language by a column (a source beside its students) lack nothing.
    part.missing = ""
    row = compare_entry(ENTRY, {**cells, ("plain", "de"): whole, ("ours", "de"): part})[1]
    assert row.difference[1] == pytest.approx(20.0)


def test_shares_are_shown_with_more_decimals_than_percentages(tmp_path):
    plan, done = made(tmp_path)
    found = record(ENTRY, plan, done, Choice("small"))
    ours = found["rows"][1]
    assert decimals(ENTRY, Compared(**ours)) == [1] * 4
    ours["ours"], ours["difference"] = [0.9, 0.784, 0.75, 0.7], [0.0, 0.012, 0.0, 0.0]
    ours["mean_difference"] = 0.004
    assert decimals(ENTRY, Compared(**ours)) == [3] * 4
    text = as_text(ENTRY, found)
    assert "0.784" in text and "+0.012" in text and "ours: +0.004 against plain" in text
    columns = (*ENTRY.columns[:3], replace(ENTRY.columns[3], metric="l2"))
    assert decimals(replace(ENTRY, columns=columns), Compared("x", [], [0.9, 0.8, None, 30.5], [])) == [3, 3, 3, 1]


def test_the_time_of_runs_that_noted_none_is_not_given(tmp_path):
    plan, done = made(tmp_path)
    write_json(done.folders["ours-2"] / "finished.json", {"texts": 5})
    assert record(ENTRY, plan, done, Choice("small"))["seconds"] is None


def test_a_record_says_which_folder_was_taken_but_not_where_it_lay(tmp_path):
    plan, done = made(tmp_path)
    (tmp_path / "my-encoder").mkdir()
    given = {"main": str(tmp_path / "my-encoder"), "mbert": "google-bert/bert-base-multilingual-cased"}
    assert record(ENTRY, plan, done, Choice("small", given))["models"] == {**given, "main": "my-encoder"}


def test_a_whole_record_is_not_given_up_for_one_that_lacks_seeds(tmp_path):
    plan, done = made(tmp_path)
    whole = record(ENTRY, plan, done, Choice("small"))
    done.left = {"ours-2"}
    part = record(ENTRY, plan, done, Choice("small"))
    assert [row["ours"].count(None) for row in part["rows"]] == [0, 0, 4], "every cell has a seed"
    assert _fuller(whole, part) and not _fuller(part, whole)
    assert not _fuller({**whole, "seeds": [1]}, part), "a record of fewer seeds is no whole one"
    assert not _fuller({**whole, "models": {"main": "other"}}, part)


def test_what_a_cell_lacks_is_said_of_empty_ones_and_of_those_in_part(tmp_path):
    plan, done = made(tmp_path)
    found = record(ENTRY, plan, done, Choice("small"))
    found["rows"][0]["missing"] = {"de": "de: not defined with seed 2", "th": "th: not defined with seeds 1, 2"}
    found["rows"][0]["ours"][2] = None
    text = as_text(ENTRY, found)
    assert "partly: 1 of 12 cells: not defined with seed 2 (IGAP: no checkpoint" in text
    assert "empty: 1 of 12 cells: not defined with seeds 1, 2 (IGAP: no checkpoint" in text


def test_a_failed_run_is_said_in_its_cells(tmp_path):
    plan, done = made(tmp_path)
    del done.folders["ours-1"], done.folders["ours-2"]
    done.failed |= {"ours-1": "out of memory", "ours-2": "out of memory"}
    cell = collect(ENTRY, plan, done)["ours", "de"]
    assert cell.missing == "failed: out of memory" and cell.mean is None


def test_a_forecast_is_scored_by_the_pairs_it_orders_rightly():
    forecast = {"igap": {x: {"scores": {"igap": {"value": v}}} for x, v in {"de": 5.0, "th": 9.0, "sw": 7.0}.items()}}
    gold = {"igap": {x: {"scores": {"score": {"value": v}}} for x, v in {"de": 80.0, "th": 60.0, "sw": 50.0}.items()}}
    gold["igap"]["en"] = {"scores": {"score": {"value": 90.0}}}
    source = Source("a", 1, "en", "igap", "igap", against="b", gold="score")
    # Lower gaps are better: de < sw < th; gold de > th > sw: two of three pairs are right.
    assert _ranked(source, forecast, gold) == pytest.approx(200 / 3)


def test_a_record_holds_everything_and_can_be_read_back(tmp_path):
    plan, done = made(tmp_path)
    found = record(ENTRY, plan, done, Choice("small", {"main": "mini-x"}))
    assert found["seeds"] == [1, 2] and found["runs"] == 4 and found["seconds"] == 8.0
    again = rows_of(found)
    assert again[1].difference == pytest.approx([0.0, 20.0, 20.0, -10.0])
    text = as_text(ENTRY, found)
    assert "Δ ours" in text and "empty: 4 of 12 cells: quoted: of another paper" in text
    assert "same sign in 2 of 3" in verdict(ENTRY, again[1])


@pytest.mark.parametrize(
    ("kind", "kept", "name"),
    [
        ("words", {"picture": {"words": ["a"]}}, "pictures"),
        ("histogram", {"histogram": {"edges": [0, 1]}}, "histograms"),
        ("histogram", {"histograms": {"accuracy": {"edges": [0, 1]}, "cosine": {}}}, "histograms"),
    ],
)
def test_a_record_keeps_what_its_figure_draws_of_the_first_seed(tmp_path, kind, kept, name):
    plan, done = made(tmp_path)
    figure = replace(ENTRY, chart=kind)
    for seed in (1, 2):
        file = done.folders[f"ours-{seed}"] / "results.json"
        results = read_json(file)
        results["made/test"]["de"] |= kept if seed == 1 else {}
        write_json(file, results)
    for key, sources in plan.cells.items():
        plan.cells[key] = [replace(source, metric="accuracy") for source in sources]
    found = record(figure, plan, done, Choice("small"))
    drawn = kept.get("picture") or kept.get("histogram") or kept["histograms"]["accuracy"]
    # The other cells have nothing to draw, and are no error.
    assert found[name] == {"ours / de": drawn}
    assert not record(ENTRY, plan, done, Choice("small"))[name]


def row(name, ours, sd=0.1, **more):
    return Compared(name, [None] * len(ours), ours, [sd] * len(ours), mean=sum(ours) / len(ours), **more)


A, B = row("A", [50.0, 60.0], baseline="B", p_mean=0.01), row("B", [40.0, 50.0])
SAME = {"A": A, "B": B, "C": row("C", [41.0, 51.0], 5.0), "D": row("D", [40.1, 50.1])}


@pytest.mark.parametrize(
    ("rule", "answer"),
    [
        ({"better": ["A", "B"]}, "holds"),
        ({"better": ["B", "A"]}, "does not hold"),
        ({"worse": ["B", "A"]}, "holds"),
        ({"better": ["C", "B"]}, "undecided"),
        ({"ordered": ["A", "B"]}, "holds"),
        ({"ordered": ["B", "A"]}, "does not hold"),
        ({"ordered": ["C", "B"]}, "undecided"),
        ({"alike": ["C", "B"], "within": 2.0}, "undecided"),
        ({"alike": ["D", "B"], "within": 2.0}, "holds"),
        ({"alike": ["A", "B"], "within": 2.0}, "does not hold"),
        ({"mostly_better": ["A", "B"]}, "holds"),
        ({"mostly_better": ["B", "A"]}, "does not hold"),
        ({"above": ["A", 33.3]}, "holds"),
        ({"above": ["B", 60]}, "does not hold"),
        ({"below": ["B", 60]}, "holds"),
        ({"below": ["A", 33.3]}, "does not hold"),
        ({"below": ["C", 50]}, "undecided"),
        ({"rising": ["B", "C", "A"]}, "holds"),
        ({"rising": ["A", "C", "B"]}, "does not hold"),
        ({"better": ["A", "B", "C"]}, "holds"),
        ({"better": ["C", "B", "A"]}, "does not hold"),
        ({"worse": ["B", "A"]}, "holds"),
        ({"no_better": ["B", "A"]}, "holds"),
        ({"no_better": ["A", "B"]}, "does not hold"),
        ({"no_better": ["C", "B"]}, "undecided"),
        ({"no_better": ["C", "B"], "within": 2.0}, "undecided"),
        ({"no_better": ["D", "B"], "within": 2.0}, "holds"),
        ({"alike": ["B", "C", "A"], "within": 2.0}, "does not hold"),
        ({"above": ["A", "B", 33.3]}, "holds"),
        ({"above": ["A", "B", 50]}, "does not hold"),
        ({"above": ["A", "C", 43]}, "undecided"),
    ],
)
def test_a_rule_decides_as_it_says(rule, answer):
    (kind,) = [name for name in rule if name in RULES]
    assert RULES[kind](ENTRY, SAME, rule)[0] == answer


def having(p, low, high):
    kept = {"against": "B", "columns": ["de", "th"], "p": p, "low": low, "high": high, "seeds": [0.3, 1.3]}
    return {"A": row("A", [40.8, 50.8], 5.0, tests=[kept]), "B": B}


@pytest.mark.parametrize(
    ("rule", "test", "answer"),
    [
        ({"better": ["A", "B"]}, (0.049, 0.01, 1.6), "holds"),
        ({"worse": ["B", "A"]}, (0.049, 0.01, 1.6), "holds"),
        ({"worse": ["A", "B"]}, (0.049, 0.01, 1.6), "does not hold"),
        ({"better": ["A", "B"]}, (0.051, -0.01, 1.6), "undecided"),
        ({"no_better": ["A", "B"]}, (0.2, -0.3, 0.95), "holds"),
        ({"no_better": ["A", "B"]}, (0.2, -0.3, 1.9), "undecided"),
        ({"no_better": ["A", "B"]}, (0.03, 0.1, 1.5), "does not hold"),
        ({"no_better": ["B", "A"]}, (0.03, 0.1, 1.5), "holds"),
        ({"alike": ["A", "B"]}, (0.2, -0.3, 0.95), "holds"),
        ({"alike": ["B", "A"]}, (0.2, -0.3, 0.95), "holds"),
        ({"alike": ["A", "B"]}, (0.2, -0.3, 1.1), "undecided"),
        ({"alike": ["A", "B"], "within": 0.5}, (0.03, 0.1, 1.5), "does not hold"),
    ],
)
def test_a_test_and_its_interval_go_before_the_spread_over_seeds(rule, test, answer):
    (kind,) = [name for name in rule if name in RULES]
    assert RULES[kind](ENTRY, having(*test), rule)[0] == answer


def test_seeds_that_point_both_ways_decide_nothing():
    rows = having(0.001, 0.1, 1.5)
    assert RULES["better"](ENTRY, rows, {"better": ["A", "B"]})[0] == "holds"
    rows["A"].tests[0]["seeds"] = [-0.2, 1.8]
    answer, said = RULES["better"](ENTRY, rows, {"better": ["A", "B"]})
    assert (answer, said) == ("undecided", "A − B: +0.80, p = 0.001, but not with every seed")
    assert RULES["worse"](ENTRY, rows, {"worse": ["A", "B"]})[0] == "undecided"


def test_of_several_parts_one_goes_against_a_claim_at_a_stricter_level():
    kept = {"against": "B", "columns": ["de", "th"], "p": 0.03, "low": -3.0, "high": -0.1, "seeds": [-1.0]}
    worse = row("A", [39.0, 49.0], 5.0, tests=[kept])
    rows = {"A": worse, "B": B, "C": row("C", [30.0, 40.0])}
    assert RULES["better"](ENTRY, rows, {"better": ["A", "B"]})[0] == "does not hold"
    assert RULES["better"](ENTRY, rows, {"better": ["A", "B", "C"]})[0] == "undecided"


def test_a_p_value_just_below_a_limit_is_not_rounded_up_to_it():
    assert row("A", [1.0], p_mean=500 / 10_001).to_dict()["p_mean"] == 0.049995


@pytest.mark.parametrize("kind", ["ordered", "better", "alike", "no_better", "mostly_better"])
def test_one_seed_without_a_test_decides_nothing(kind):
    alone = {"A": row("A", [50.0], None), "B": row("B", [49.5], None)}
    assert RULES[kind](ENTRY, alone, {kind: ["A", "B"]})[0] == "undecided"


def test_signs_that_are_within_the_spread_decide_nothing():
    rows = {"A": row("A", [50.0, 60.0], 2.0), "B": row("B", [49.0, 59.0], 2.0)}
    answer, said = RULES["mostly_better"](ENTRY, rows, {"mostly_better": ["A", "B"]})
    assert answer == "undecided" and said == "A is better than B in 2 of 2 columns, on average +1.00"
    assert (
        RULES["mostly_better"](replace(ENTRY, lower_is_better=True), SAME, {"mostly_better": ["B", "A"]})[0] == "holds"
    )


def test_rows_that_rise_within_the_spread_decide_nothing():
    rows = {name: row(name, [value], 1.0) for name, value in {"a": 50.0, "b": 50.5, "c": 51.0}.items()}
    rule = {"rising": ["a", "b", "c"]}
    # By their order alone ρ = 1, and -1 the other way round; from 50 to 51 is less than both spreads.
    assert RULES["rising"](ENTRY, rows, rule)[0] == "undecided"
    assert RULES["rising"](ENTRY, rows, {"rising": ["c", "b", "a"]})[0] == "undecided"
    assert RULES["rising"](ENTRY, rows | {"c": row("c", [53.0], 1.0)}, rule)[0] == "holds"
    # Up beyond doubt, but not step by step: 50, 49, 48, 53 has ρ = 0.2.
    crooked = {name: row(name, [value], 1.0) for name, value in zip("abcd", (50.0, 49.0, 48.0, 53.0), strict=True)}
    assert RULES["rising"](ENTRY, crooked, {"rising": ["a", "b", "c", "d"]})[0] == "undecided"


def test_a_row_rises_or_falls_along_its_columns():
    up = Compared("up", [], [10.0, 20.0, None, 30.0], [1.0, 1.0, None, 1.0])
    rows = {"up": up, "flat": row("flat", [10.0, 10.5, 11.0, 11.5], 1.0)}
    assert RULES["rising_along"](ENTRY, rows, {"rising_along": ["up"]})[0] == "holds"
    assert RULES["falling_along"](ENTRY, rows, {"falling_along": ["up"]})[0] == "does not hold"
    assert RULES["rising_along"](ENTRY, rows, {"rising_along": ["up", "flat"]})[0] == "undecided"
    with pytest.raises(Unknown, match="was not run in three columns"):
        RULES["rising_along"](ENTRY, {"up": row("up", [10.0, 20.0], 1.0)}, {"rising_along": ["up"]})


def test_points_of_several_pairs_of_rows_are_related_together():
    rows = {
        name: row(name, values) for name, values in {"a": [1.0, 2.0], "b": [5.0, 4.0], "c": [3.0], "d": [1.0]}.items()
    }
    # a with b, then c with d: 1, 2, 3 against 5, 4, 1.
    assert RULES["related"](ENTRY, rows, {"related": [["a", "b"], ["c", "d"]], "rho": -0.5})[0] == "holds"
    assert RULES["related"](ENTRY, rows, {"related": [["a", "b"], ["c", "d"]]})[0] == "does not hold"
    weak = {"a": row("a", [1.0, 2.0, 3.0, 4.0]), "b": row("b", [1.0, 4.0, 3.0, 2.0])}
    # ρ = 1 - 6 · 8 / 60 = 0.2: neither the claim nor its opposite.
    assert RULES["related"](ENTRY, weak, {"related": [["a", "b"]], "rho": -0.5})[0] == "undecided"


def test_a_gain_is_compared_between_columns():
    # In de and th ours is 20 above plain, in sw 10 below: 30 apart, beyond four spreads of 1.
    rows = {"ours": row("ours", [90.0, 80.0, 60.0, 20.0], 1.0), "plain": row("plain", [90.0, 60.0, 40.0, 30.0], 1.0)}
    rule = {"gains_more": ["ours", "plain"], "columns": ["de", "th"], "than": ["sw"]}
    answer, said = RULES["gains_more"](ENTRY, rows, rule)
    assert answer == "holds" and said == "ours − plain: +20.00 in de, th, -10.00 in sw"
    assert RULES["gains_more"](ENTRY, rows, rule | {"columns": ["sw"], "than": ["de"]})[0] == "does not hold"
    close = rows | {"ours": row("ours", [90.0, 63.0, 43.0, 30.0], 1.0)}
    assert RULES["gains_more"](ENTRY, close, rule)[0] == "undecided"


def test_a_claim_about_several_columns_falls_with_one_that_goes_against_it():
    rule = {"better_in": {"de": ["ours", "plain"], "sw": ["ours", "plain"]}}
    ours = Compared("ours", [], [90.0, 80.0, 60.0, 20.0], [1.0] * 4, baseline="plain", p={"de": 0.01, "sw": 0.2})
    plain = Compared("plain", [], [90.0, 60.0, 40.0, 30.0], [1.0] * 4)
    # The test of sw decides where there is one, though 10 points are beyond the spread.
    assert RULES["better_in"](ENTRY, {"ours": ours, "plain": plain}, rule)[0] == "undecided"
    ours.p["sw"] = 0.01
    answer, said = RULES["better_in"](ENTRY, {"ours": ours, "plain": plain}, rule)
    assert answer == "does not hold" and "sw: ours − plain -10.00 (p = 0.010)" in said


def test_claims_are_decided_from_records_and_open_without(tmp_path, monkeypatch):
    plan, done = made(tmp_path / "runs")
    found = record(ENTRY, plan, done, Choice("small"))
    write_json(tmp_path / "small" / "ear.made.json", found)
    one = Claim("Ours is better.", "here", "ear.made", {"ordered": ["plain", "ours"]})
    other = replace(one, entry="ear.table1", rule={"better": ["+ EAR", "mBERT"]})
    monkeypatch.setattr(claiming, "claims", lambda: (one, other))
    monkeypatch.setattr(claiming, "entries", lambda: {"ear.made": ENTRY, "ear.table1": ENTRY})
    decided = decide(tmp_path, "small")
    # Ours is 10 points above, beyond the seeds' spread: that plain is better does not hold.
    assert [verdict.answer for verdict in decided] == ["does not hold", "undecided"]
    assert decided[1].why == "not run"
    for seen in found["english"].values():
        seen |= {"english": 10.0, "low": 10.0}
    write_json(tmp_path / "small" / "ear.made.json", found)
    unlearnt = decide(tmp_path, "small")[0]
    assert unlearnt.answer == "undecided"
    assert unlearnt.why == "English does not certainly beat the most frequent class or a guess in de, th, sw"


def test_columns_in_which_nothing_was_learnt_are_left_out(tmp_path, monkeypatch):
    plan, done = made(tmp_path / "runs")
    found = record(ENTRY, plan, done, Choice("small"))
    for name in ("plain / sw", "ours / sw"):
        found["english"][name] |= {"english": 10.0, "low": 10.0}
    write_json(tmp_path / "small" / "ear.made.json", found)
    claim = Claim("Ours is better.", "here", "ear.made", {"ordered": ["ours", "plain"]})
    both = replace(claim, rule={"better_in": {"de": ["ours", "plain"], "sw": ["ours", "plain"]}})
    monkeypatch.setattr(claiming, "claims", lambda: (claim, both))
    monkeypatch.setattr(claiming, "entries", lambda: {"ear.made": ENTRY})
    decided = decide(tmp_path, "small")
    # de and th alone: ours 80 and 60, plain 60 and 40.
    assert decided[0].answer == "holds"
    assert decided[0].why == "ours 70.00, plain 50.00 (without sw: not learnt)"
    assert decided[1].answer == "undecided" and decided[1].why.endswith("a guess in sw")


def test_columns_that_were_not_run_do_not_hide_that_nothing_was_learnt(tmp_path, monkeypatch):
    plan, done = made(tmp_path / "runs")
    found = record(ENTRY, plan, done, Choice("small"))
    for name in ("plain / de", "ours / de", "plain / th", "ours / th"):
        found["english"][name] |= {"english": 10.0, "low": 10.0}
    for seen in found["rows"]:
        seen["ours"][3] = None
    found["english"] = {name: seen for name, seen in found["english"].items() if "sw" not in name}
    write_json(tmp_path / "small" / "ear.made.json", found)
    claim = Claim("Ours is better.", "here", "ear.made", {"better": ["ours", "plain"]})
    monkeypatch.setattr(claiming, "claims", lambda: (claim,))
    monkeypatch.setattr(claiming, "entries", lambda: {"ear.made": ENTRY})
    (decided,) = decide(tmp_path, "small")
    assert decided.answer == "undecided" and decided.why.endswith("or a guess in de, th")


def test_columns_whose_rows_are_means_over_other_languages_are_left_out(tmp_path, monkeypatch):
    plan, done = made(tmp_path / "runs")
    found = record(ENTRY, plan, done, Choice("small"))
    found["rows"][1]["missing"] = {"sw": "without some of its seeds or languages: not run yet"}
    write_json(tmp_path / "small" / "ear.made.json", found)
    claim = Claim("Ours is better.", "here", "ear.made", {"ordered": ["ours", "plain"]})
    both = replace(claim, rule={"better_in": {"de": ["ours", "plain"], "sw": ["ours", "plain"]}})
    monkeypatch.setattr(claiming, "claims", lambda: (claim, both))
    monkeypatch.setattr(claiming, "entries", lambda: {"ear.made": ENTRY})
    decided = decide(tmp_path, "small")
    assert decided[0].why == "ours 70.00, plain 50.00 (without sw: some languages or seeds are missing)"
    assert decided[1].answer == "undecided" and decided[1].why.startswith("some languages or seeds are missing in sw")
    # What all rows lack alike is compared.
    found["rows"][0]["missing"] = {"sw": "without some of its seeds or languages: not run yet"}
    write_json(tmp_path / "small" / "ear.made.json", found)
    assert "missing" not in decide(tmp_path, "small")[0].why


def test_rows_that_lack_different_seeds_are_not_compared_but_each_may_be_above_a_number(tmp_path, monkeypatch):
    plan, done = made(tmp_path / "runs")
    found = record(ENTRY, plan, done, Choice("small"))
    found["rows"][0]["missing"] = {name: f"{name}: not defined with seed 1" for name in ("de", "th", "sw")}
    found["rows"][1]["missing"] = {name: f"{name}: not defined with seed 2" for name in ("de", "th", "sw")}
    write_json(tmp_path / "small" / "ear.made.json", found)
    claim = Claim("Ours is better.", "here", "ear.made", {"better": ["ours", "plain"]})
    monkeypatch.setattr(claiming, "claims", lambda: (claim, replace(claim, rule={"above": ["ours", "plain", 10]})))
    monkeypatch.setattr(claiming, "entries", lambda: {"ear.made": ENTRY})
    compared, above = decide(tmp_path, "small")
    assert compared.answer == "undecided" and compared.why.startswith("some languages or seeds are missing")
    assert above.answer == "holds"


def test_cells_of_different_seeds_are_not_subtracted(compared):
    cells, _ = compared
    parts = {
        key: replace(cell, values={1: 50.0} if key[0] == "plain" else {2: 60.0}, missing="de: not defined with a seed")
        for key, cell in cells.items()
    }
    assert compare_entry(ENTRY, parts)[1].difference == [None] * 4


def test_in_answering_english_must_beat_a_guess(tmp_path, monkeypatch):
    plan, done = made(tmp_path / "runs")
    found = record(ENTRY, plan, done, Choice("small"))
    for seen in found["english"].values():
        seen |= {"english": 17.0, "low": 14.0, "majority": 0.0}
    write_json(tmp_path / "small" / "ear.made.json", found)
    answering = replace(ENTRY, columns=tuple(replace(column, task="qa") for column in ENTRY.columns))
    claim = Claim("Ours is better.", "here", "ear.made", {"ordered": ["ours", "plain"]})
    monkeypatch.setattr(claiming, "claims", lambda: (claim,))
    monkeypatch.setattr(claiming, "entries", lambda: {"ear.made": answering})
    assert "or a guess" in decide(tmp_path, "small")[0].why
    monkeypatch.setattr(claiming, "entries", lambda: {"ear.made": ENTRY})
    assert decide(tmp_path, "small")[0].answer == "holds"


def test_one_column_alone_has_the_test_of_that_column(tmp_path, monkeypatch):
    plan, done = made(tmp_path / "runs")
    found = record(ENTRY, plan, done, Choice("small"))
    found["rows"][1]["p"]["th"], found["rows"][1]["p_mean"] = 0.5, 0.001
    write_json(tmp_path / "small" / "ear.made.json", found)
    claim = Claim("Ours is better.", "here", "ear.made", {"better": ["ours", "plain"], "columns": ["th"]})
    monkeypatch.setattr(claiming, "claims", lambda: (claim, replace(claim, rule={"better": ["ours", "plain"]})))
    monkeypatch.setattr(claiming, "entries", lambda: {"ear.made": ENTRY})
    assert [one.answer for one in decide(tmp_path, "small")] == ["undecided", "holds"]


def test_rows_that_claims_compare_are_tested_with_each_other(tmp_path, monkeypatch):
    plan, done = made(tmp_path / "runs")
    bare = replace(ENTRY, baseline="")
    claim = Claim("Ours is better.", "here", "ear.made", {"better": ["ours", "plain"], "columns": ["th"]})
    several = replace(claim, rule={"better": ["ours", "plain"], "columns": ["th", "de"]})
    column = replace(claim, rule={"better_in": {"th": ["plain", "ours"]}})
    monkeypatch.setattr(claiming, "claims", lambda: (claim, several, column))
    monkeypatch.setattr(claiming, "entries", lambda: {"ear.made": bare})
    found = record(bare, plan, done, Choice("small"))
    rows = {row["name"]: row for row in found["rows"]}
    assert [(one["against"], one["columns"]) for one in rows["ours"]["tests"]] == [
        ("plain", ["th"]),
        ("plain", ["de", "th"]),
    ]
    # In th two of ten examples differ, both for the better: a quarter of the sign flips are as far, each way.
    assert rows["ours"]["tests"][0]["p"] == pytest.approx(0.5, abs=0.05)
    assert "tests" not in rows["plain"], "it is the same test the other way round"
    write_json(tmp_path / "small" / "ear.made.json", found)
    assert all(", p = " in one.why or "(p = " in one.why for one in decide(tmp_path, "small"))
    assert [one.answer for one in decide(tmp_path, "small")] == ["undecided"] * 3
    # A test over other columns than those that are looked at says nothing.
    for name in ("plain / th", "ours / th"):
        found["english"][name] |= {"english": 10.0, "low": 10.0}
    write_json(tmp_path / "small" / "ear.made.json", found)
    assert decide(tmp_path, "small")[1].why == "ours − plain: +20.00, no paired test (without th: not learnt)"


def test_two_claims_about_the_same_rows_are_one_test(tmp_path, monkeypatch):
    plan, done = made(tmp_path)
    claim = Claim("Ours is better.", "here", "ear.made", {"better": ["ours", "plain"]})
    monkeypatch.setattr(claiming, "claims", lambda: (claim, replace(claim, rule={"worse": ["plain", "ours"]})))
    monkeypatch.setattr(claiming, "entries", lambda: {"ear.made": ENTRY})
    plain, ours, _ = record(ENTRY, plan, done, Choice("small"))["rows"]
    (test,) = ours["tests"]
    assert "tests" not in plain
    assert (test["against"], test["columns"], test["p"]) == ("plain", ["de", "th", "sw"], ours["p_mean"])
    assert test["low"] <= 10.0 <= test["high"]
    # Seed 1: 30, 20 and 0 points; seed 2: 10, 20 and −20.
    assert test["seeds"] == pytest.approx([50 / 3, 10 / 3], abs=1e-4)


def test_a_rule_does_not_look_at_source_columns(tmp_path, monkeypatch):
    plan, done = made(tmp_path / "runs")
    found = record(ENTRY, plan, done, Choice("small"))
    for one, english in zip(found["rows"][:2], (90.0, 10.0), strict=True):
        one["ours"], one["sd"], one["p_mean"] = [english, 50.0, 50.0, 50.0], [0.0] * 4, None
    found["rows"][1]["ours"][1:] = [60.0, 60.0, 40.0]
    write_json(tmp_path / "small" / "ear.made.json", found)
    claim = Claim("Ours is mostly better.", "here", "ear.made", {"mostly_better": ["ours", "plain"], "share": 0.6})
    named = replace(claim, rule={"mostly_better": ["ours", "plain"], "columns": ["en", "de", "th", "sw"], "share": 0.6})
    monkeypatch.setattr(claiming, "claims", lambda: (claim, named))
    monkeypatch.setattr(claiming, "entries", lambda: {"ear.made": ENTRY})
    decided = decide(tmp_path, "small")
    assert [one.answer for one in decided] == ["holds", "undecided"]
    assert decided[0].why == "ours is better than plain in 2 of 3 columns, on average +3.33"
