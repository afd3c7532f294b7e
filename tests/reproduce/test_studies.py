"""What a study of ours says about a claim, where the table that should decide has not been run: hand-made results."""

from pathlib import Path

import pytest

from crosslift.data.storage import read_json, write_json
from crosslift.errors import BadFile
from crosslift.reproduce import claims as claiming
from crosslift.reproduce.claims import Claim, claims, decide
from crosslift.reproduce.pages import write_pages
from crosslift.reproduce.plan import Choice
from crosslift.reproduce.records import record
from crosslift.reproduce.studies import decide_by, read_study
from tests.reproduce.made import ENTRY, made

ROOT = Path(__file__).parents[2]


def compared(task, system, difference, low, high, p):
    numbers = {"difference": difference, "low": low, "high": high, "p": p / 4, "p_holm": p}
    return {
        "task": task,
        "system": system,
        "against": "plain",
        **numbers,
        "far": {**numbers, "difference": -difference},
    }


RESULTS = {
    "comparisons": [
        compared("a", "ours", 2.0, 1.2, 2.8, 0.01),
        compared("b", "ours", 0.4, -0.2, 0.9, 0.2),
        compared("c", "ours", -3.0, -4.0, -2.0, 0.0004),
        compared("d", "ours", 9.0, 8.0, 10.0, 0.01),
    ],
    "not_above_majority": [{"task": "d", "system": "plain", "majority": 50.0}],
}
ASKED = {"results": "made.json", "page": "methods/made.md#measured", "at": "made by hand", "where": {"task": "a"}}


@pytest.fixture
def folder(tmp_path):
    write_json(tmp_path / "made.json", RESULTS)
    return tmp_path


def said(folder, **given):
    return decide_by(read_study(folder / "claims.yaml", {**ASKED, **given}), folder)


@pytest.mark.parametrize(
    ("rule", "tasks", "answer"),
    [
        ("higher", "a", "holds"),
        ("higher", "b", "undecided"),
        ("higher", "c", "does not hold"),
        ("higher", ["a", "b"], "undecided"),
        ("higher", ["a", "b", "c"], "does not hold"),
        ("lower", "a", "does not hold"),
        ("lower", "c", "holds"),
        ("alike", "b", "holds"),
        ("alike", "a", "does not hold"),
        ("alike", ["a", "b"], "does not hold"),
        ("no_lower", ["a", "b"], "holds"),
        ("no_lower", "c", "does not hold"),
        ("no_higher", ["b", "c"], "holds"),
        ("no_higher", "a", "does not hold"),
    ],
)
def test_a_rule_reads_differences_intervals_and_p_after_holm(folder, rule, tasks, answer):
    assert said(folder, where={"task": tasks}, **{rule: [["ours", "plain"]]})[0] == answer


def test_an_interval_that_reaches_over_the_limit_leaves_it_open(folder):
    # b lies between -0.2 and 0.9.
    pair = {"where": {"task": "b"}}
    assert said(folder, **pair, alike=[["ours", "plain"]], within=0.5)[0] == "undecided"
    assert said(folder, **pair, no_lower=[["ours", "plain"]], within=0.1)[0] == "undecided"
    assert said(folder, **pair, no_higher=[["ours", "plain"]], within=0.5)[0] == "undecided"


def test_the_numbers_are_said_in_words(folder):
    _, words = said(folder, where={"task": ["a", "c"]}, higher=[["ours", "plain"]])
    assert words == "ours − plain: a +2.00 (+1.20 to +2.80), p = 0.010; c -3.00 (-4.00 to -2.00), p < 0.001"


def test_a_part_of_a_comparison_may_be_the_one_that_counts(folder):
    assert said(folder, higher=[["ours", "plain"]], part="far")[0] == "does not hold"


def test_nothing_is_decided_where_a_system_learnt_nothing(folder):
    answer, words = said(folder, where={"task": ["a", "d"]}, higher=[["ours", "plain"]])
    assert answer == "undecided" and "d not above the most frequent class" in words


def test_a_study_that_is_not_there_says_nothing(tmp_path):
    assert said(tmp_path, higher=[["ours", "plain"]]) is None


def test_a_comparison_that_is_not_there_or_not_the_only_one_is_an_error(folder):
    with pytest.raises(BadFile, match="0 comparisons fit"):
        said(folder, higher=[["ours", "theirs"]])
    with pytest.raises(BadFile, match="4 comparisons fit"):
        said(folder, where={}, higher=[["ours", "plain"]])


def test_a_study_without_a_rule_or_with_an_unknown_key_is_refused(tmp_path):
    with pytest.raises(BadFile, match="one rule of higher"):
        read_study(tmp_path / "claims.yaml", ASKED)
    with pytest.raises(BadFile, match='no "partt"'):
        read_study(tmp_path / "claims.yaml", {**ASKED, "partt": "far", "higher": [["ours", "plain"]]})


def test_a_study_decides_only_where_the_rows_have_not_been_run(tmp_path, monkeypatch, folder):
    plan, done = made(tmp_path / "runs")
    study = read_study(folder / "claims.yaml", {**ASKED, "where": {"task": "c"}, "higher": [["ours", "plain"]]})
    claim = Claim("Ours is better.", "here", "ear.made", {"ordered": ["ours", "plain"]}, study)
    monkeypatch.setattr(claiming, "claims", lambda: (claim,))
    monkeypatch.setattr(claiming, "entries", lambda: {"ear.made": ENTRY})
    (before,) = decide(folder / "records", "small")
    assert before.answer == "does not hold" and before.by_study and "c" not in before.why.split(":")[0]
    found = record(ENTRY, plan, done, Choice("small"))
    write_json(folder / "records" / "small" / "ear.made.json", found)
    (after,) = decide(folder / "records", "small")
    assert after.answer == "holds" and not after.by_study
    assert after.beside == ("does not hold", "ours − plain: -3.00 (-4.00 to -2.00), p < 0.001")
    # A record without a cell of one of the rows cannot decide.
    found["rows"][1]["ours"] = [None] * 4
    write_json(folder / "records" / "small" / "ear.made.json", found)
    assert decide(folder / "records", "small")[0].by_study


def test_every_study_of_a_claim_has_its_comparisons_and_its_page():
    studies = [one.study for one in claims() if one.study is not None]
    assert len(studies) >= 20
    for study in studies:
        assert decide_by(study, ROOT / "benchmarks" / "results") is not None, study.results
        page, _, anchor = study.page.partition("#")
        headings = [
            line.lstrip("# ").lower() for line in (ROOT / "docs" / page).read_text().splitlines() if line[:1] == "#"
        ]
        plain = ["".join(x for x in title.replace("-", " ") if x.isalnum() or x in " _").split() for title in headings]
        assert anchor in {"-".join(words) for words in plain}, study.page


def test_the_page_of_claims_marks_what_a_study_says(tmp_path):
    robust = read_json(ROOT / "benchmarks" / "results" / "robust.json")
    write_json(tmp_path / "robust.json", robust)
    write_pages(tmp_path / "reproduce", tmp_path / "docs" / "reproduce")
    text = (tmp_path / "docs" / "reproduce" / "claims.md").read_text()
    (line,) = [line for line in text.splitlines() if line.startswith("| EAR is better than plain fine-tuning on inf")]
    assert (
        "not run; instead a [study](../methods/robust.md#measured) (mini-x, XNLI, five seeds): ear − finetune" in line
    )
