"""Scores by language and seed, against hand-computed means."""

import json
import time

import numpy as np
import pytest

from crosslift.errors import BadInput
from crosslift.measure.scores import Score, Scores, compare, over_languages, over_seeds, summarise
from crosslift.measure.significance import paired_t_test, permutation_test
from crosslift.tasks.metrics import accuracy, answer_f1, entity_f1


def right(values):
    return accuracy(["y"] * len(values), ["y" if value else "n" for value in values])


def score(value, metric="accuracy"):
    return Score(metric, value, value - 1, value + 2, 100)


@pytest.fixture
def scores():
    made = Scores("ear", "xnli", source="en")
    for seed, values in {7: (80, 60, 70), 8: (82, 64, 74)}.items():
        for language, value in zip(("en", "de", "sw"), values, strict=True):
            made.add(language, seed, score(value))
            made.add(language, seed, score(value / 2, "macro_f1"))
    return made


def test_summary_is_mean_and_sample_deviation():
    assert summarise([1.0, 2.0, 6.0]) == pytest.approx((3, np.std([1, 2, 6], ddof=1), 3))
    assert summarise([5.0]) == (5, None, 1)
    assert str(summarise([5.0])) == "5.00"
    with pytest.raises(BadInput, match="no seed"):
        summarise([])


def test_score_of_a_metric_carries_its_interval():
    made = Score.of(right([1] * 70 + [0] * 30))
    assert (made.metric, made.value, made.n) == ("accuracy", pytest.approx(70), 100)
    assert 58 < made.low < 66 < 74 < made.high < 82


def test_mean_of_targets_leaves_out_the_source_and_averages_per_seed_first(scores):
    assert scores.mean() == pytest.approx((67, np.std([65, 69], ddof=1), 2))
    assert scores.mean("all").mean == pytest.approx((80 + 60 + 70 + 82 + 64 + 74) / 6)
    assert scores.of_language("de").mean == 62
    assert scores.mean(metric="macro_f1").mean == pytest.approx(33.5)
    assert scores.interval() == pytest.approx((66, 69))


def test_seeds_that_lack_a_language_stay_out_of_the_mean(scores):
    scores.add("de", 9, score(99))
    assert scores.mean().seeds == 2
    assert scores.of_language("de").seeds == 3


def test_a_language_without_any_common_seed_leaves_the_mean_open(scores):
    scores.add("fr", 9, score(50))
    assert scores.mean() is None
    assert scores.table().splitlines()[2].endswith("–")


def test_table_has_languages_as_columns_and_the_target_mean_last(scores):
    title, heads, values, intervals = scores.table().splitlines()
    assert title == "ear, xnli, from en: accuracy, seeds 7, 8"
    assert heads.split() == ["en", "de", "sw", "all", "targets"]
    assert values.endswith("67.00 ± 2.83")
    assert intervals.endswith("66.0–69.0")
    assert len({len(line) for line in (heads, values, intervals)}) == 1


def test_other_metrics_have_their_own_table_and_unknown_ones_name_the_nearest(scores):
    assert scores.table("macro_f1").splitlines()[2].endswith("33.50 ± 1.41")
    with pytest.raises(BadInput, match='Did you mean "macro_f1"'):
        scores.table("macro_f")
    with pytest.raises(BadInput, match='no scores in "dee"'):
        scores.mean(["dee"])
    with pytest.raises(BadInput, match="no scores yet"):
        Scores("new", "xnli").table()


def test_scores_survive_json(scores):
    again = Scores.from_dict(json.loads(json.dumps(scores.to_dict())))
    assert again == scores
    assert again.table() == scores.table()


def test_html_escapes_names_from_data():
    made = Scores("<b>x</b>", "t&t", source="en")
    made.add("<script>", 0, score(50))
    page = made._repr_html_()
    assert "<script>" not in page and "<b>" not in page
    assert "&lt;script&gt;" in page and "t&amp;t" in page and "50.00" in page


def systems(rng, n=300, gain=0.0):
    base = rng.random(n)
    return right(base < 0.6 + gain), right(rng.permuted(base) < 0.6)


def test_comparison_by_language_is_the_t_test_on_item_means_over_seeds():
    rng = np.random.default_rng(0)
    seeds = [systems(rng, gain=0.1) for _ in range(3)]
    found = compare({"de": seeds}).languages["de"]
    a = np.mean([pair[0].per_example for pair in seeds], axis=0)
    b = np.mean([pair[1].per_example for pair in seeds], axis=0)
    assert found.difference == pytest.approx(a.mean() - b.mean())
    assert found == paired_t_test(over_seeds([p[0] for p in seeds]), over_seeds([p[1] for p in seeds]))
    np.testing.assert_allclose(over_seeds([p[0] for p in seeds]).per_example, a)


def test_corpus_f1_is_compared_by_permutation_over_the_seeds_predictions_together():
    gold = [["B-PER", "O"], ["B-LOC", "I-LOC"], ["O", "B-PER"]]
    empty = [["O", "O"]] * 3
    found = compare({"hi": [(entity_f1(gold, gold), entity_f1(gold, empty))] * 2}).languages["hi"]
    assert found.test == "paired permutation"
    assert found.difference == 100
    assert found.n == 3


def test_holm_covers_the_languages_and_the_mean_leaves_out_the_source():
    rng = np.random.default_rng(1)
    pairs = {language: [systems(rng, gain=gain)] for language, gain in (("en", 0.3), ("de", 0.1), ("sw", 0.0))}
    found = compare(pairs, source="en")
    raw = {language: c.p_value for language, c in found.languages.items()}
    assert found.adjusted["en"] == pytest.approx(3 * raw["en"])
    assert all(found.adjusted[language] >= raw[language] for language in raw)
    expected = np.mean([found.languages[language].difference for language in ("de", "sw")])
    assert found.pooled.difference == pytest.approx(expected)
    assert found.table().count("\n") == 4
    assert json.loads(json.dumps(found.to_dict()))["pooled"]["n"] == 600


def test_mean_over_languages_weighs_languages_alike_whatever_their_size():
    small, large = right([1, 0]), right([1] * 90 + [0] * 10)
    assert over_languages([small, large]).value == pytest.approx((50 + 90) / 2)


def test_parallel_examples_move_together():
    rng = np.random.default_rng(2)
    a, b = systems(rng, n=200, gain=0.05)
    ids = [f"s{i}" for i in range(200)]
    shuffled = rng.permutation(200)
    # The same sentences in another order: the second language adds nothing new.
    a2, b2 = right(a.per_example[shuffled] > 0), right(b.per_example[shuffled] > 0)
    pairs = {"de": [(a, b)], "sw": [(a2, b2)]}
    groups = {"de": ids, "sw": [ids[i] for i in shuffled]}
    alone = permutation_test(a, b)
    together, apart = compare(pairs, groups=groups).pooled, compare(pairs).pooled
    assert together.n == 200 and apart.n == 400
    assert together.p_value == pytest.approx(alone.p_value, abs=0.03)
    assert apart.high - apart.low == pytest.approx((alone.high - alone.low) / np.sqrt(2), rel=0.15)


def test_groups_may_be_missing_in_a_language():
    joined = over_languages([right([1, 0, 1]), right([1])], [["x", "y", "z"], ["y"]])
    assert len(joined) == 3
    assert joined.value == pytest.approx((200 / 3 + 100) / 2)


def test_what_cannot_be_compared_is_refused():
    squad, mlqa = (answer_f1([["x"]], ["x"], name, "en") for name in ("squad", "mlqa"))
    with pytest.raises(BadInput, match="f1_mlqa and f1_squad"):
        over_languages([squad, mlqa])
    with pytest.raises(BadInput, match="not scored on the same examples"):
        over_seeds([right([1]), right([1, 0])])
    with pytest.raises(BadInput, match='Did you mean "bootstrap"'):
        compare({"de": [(right([1]), right([1]))]}, test="bootstrp")
    with pytest.raises(BadInput, match="nothing to compare"):
        compare({})


def test_other_tests_can_be_chosen():
    pairs = {"de": [(right([1, 0, 1]), right([1, 0, 0]))]}
    names = [compare(pairs, test=test).languages["de"].test for test in ("mcnemar", "bootstrap", "permutation")]
    assert names == ["McNemar, exact", "paired bootstrap", "paired permutation"]


def test_fifteen_parallel_languages_are_compared_in_seconds():
    rng = np.random.default_rng(3)
    pairs = {f"l{i}": [systems(rng, n=5010, gain=0.01)] for i in range(15)}
    groups = {language: list(range(5010)) for language in pairs}
    start = time.process_time()
    found = compare(pairs, groups=groups)
    assert found.pooled.n == 5010
    assert time.process_time() - start < 5


def test_a_table_of_many_languages_has_them_as_rows():
    made = Scores("finetune", "sib200", source="en")
    for language in ("en", "de", "es", "fr", "it", "pt", "ru", "tr", "ar", "hi", "th", "zh", "ja", "sw"):
        made.add(language, 1, score(50.0))
    lines = made.table().splitlines()
    assert lines[2].split() == ["en", "50.00", "49.0–52.0"]
    assert len(lines) == 2 + 14 + 2
    assert max(map(len, lines)) < 80
