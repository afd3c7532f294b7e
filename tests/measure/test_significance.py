"""Intervals and tests against scipy, exhaustive enumeration and hand-computed values."""

from itertools import product

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from scipy import stats as scipy_stats

from crosslift.errors import BadInput
from crosslift.measure.significance import (
    Comparison,
    bootstrap_interval,
    holm,
    mcnemar,
    paired_bootstrap,
    paired_t_test,
    permutation_test,
)
from crosslift.tasks.metrics import Metric, accuracy, answer_f1, entity_f1, macro_f1

RESAMPLING = [paired_bootstrap, permutation_test]
TESTS = [*RESAMPLING, paired_t_test, mcnemar]
TAGS = ("O", "B-PER", "I-PER", "B-LOC", "I-LOC")


def right(values) -> Metric:
    """Accuracy of a system that is right where the value is true."""
    return accuracy(["y"] * len(values), ["y" if value else "n" for value in values])


def mean_metric(values) -> Metric:
    """A metric with one value in 0..1 per example."""
    like = right([True])
    return Metric("f1", np.stack([values, np.ones(len(values))], axis=1), like.combine, is_mean=True)


def tag_metrics(rng, sentences=60):
    def noisy(gold, share):
        return [[tag if rng.random() < share else TAGS[rng.integers(5)] for tag in tags] for tags in gold]

    gold = [[TAGS[i] for i in rng.integers(0, 5, rng.integers(2, 9))] for _ in range(sentences)]
    return entity_f1(gold, noisy(gold, 0.9)), entity_f1(gold, noisy(gold, 0.7))


def test_bootstrap_interval_agrees_with_scipy():
    rng = np.random.default_rng(1)
    values = rng.random(300) ** 2
    low, high = bootstrap_interval(mean_metric(values), samples=4000)
    # Unseeded, as the argument's name depends on scipy's version; the tolerance is over four standard errors.
    expected = scipy_stats.bootstrap((100 * values,), np.mean, n_resamples=9999, method="percentile")
    interval = expected.confidence_interval
    assert (low, high) == pytest.approx((interval.low, interval.high), abs=0.4)


def test_bootstrap_of_accuracy_has_the_binomial_width():
    metric = right([True] * 700 + [False] * 300)
    low, high = bootstrap_interval(metric, samples=4000)
    assert high - low == pytest.approx(2 * 1.96 * 100 * np.sqrt(0.7 * 0.3 / 1000), rel=0.06)
    assert low < metric.value < high


def test_bootstrap_of_f1_agrees_with_scoring_resampled_sentences_one_by_one():
    metric, _ = tag_metrics(np.random.default_rng(3))
    rng = np.random.default_rng(4)
    slow = []
    for _ in range(4000):
        correct, predicted, gold = metric.stats[rng.integers(0, len(metric), len(metric))].sum(axis=0)
        slow.append(200 * correct / (predicted + gold))
    assert bootstrap_interval(metric, samples=4000) == pytest.approx(np.quantile(slow, [0.025, 0.975]), abs=0.4)


def test_wider_level_gives_a_wider_interval_and_the_seed_decides():
    metric = right([True, False] * 200)
    narrow, wide = bootstrap_interval(metric, level=0.5), bootstrap_interval(metric, level=0.99)
    assert wide[0] < narrow[0] < 50 < narrow[1] < wide[1]
    assert bootstrap_interval(metric, seed=3) == bootstrap_interval(metric, seed=3)
    assert bootstrap_interval(metric, seed=3) != bootstrap_interval(metric, seed=4)


def test_resampling_draws_the_same_distribution_whether_or_not_rows_repeat():
    values = np.repeat([0.0, 0.25, 1.0], [50, 30, 120])
    nearly = values + np.linspace(0, 1e-6, len(values))  # all rows distinct: the other way of drawing
    repeated = bootstrap_interval(mean_metric(values), samples=8000)
    distinct = bootstrap_interval(mean_metric(nearly), samples=8000)
    assert repeated == pytest.approx(distinct, abs=0.35)


@settings(max_examples=60)
@given(st.lists(st.tuples(st.floats(0, 1), st.floats(0, 1)), min_size=2, max_size=30))
def test_t_test_equals_scipy(pairs):
    a, b = np.array(pairs).T
    assume((100 * (a - b)).std() > 1e-6)
    found = paired_t_test(mean_metric(a), mean_metric(b))
    expected = scipy_stats.ttest_rel(100 * a, 100 * b)
    interval = expected.confidence_interval(0.95)
    assert found.p_value == pytest.approx(expected.pvalue, abs=1e-7)
    assert (found.low, found.high) == pytest.approx((interval.low, interval.high), abs=1e-5)
    assert found.difference == pytest.approx(100 * (a - b).mean())


def test_t_test_works_on_item_means_over_seeds():
    gold = ["y"] * 6
    a = accuracy(gold, ["y", "y", "n", "y", "n", "y"]).by_group([0, 1, 2, 0, 1, 2])
    b = accuracy(gold, ["n", "y", "n", "n", "n", "y"]).by_group([0, 1, 2, 0, 1, 2])
    expected = scipy_stats.ttest_rel([100, 50, 50], [0, 50, 50]).pvalue
    assert paired_t_test(a, b).p_value == pytest.approx(expected)


@pytest.mark.parametrize(("only_a", "only_b"), [(9, 2), (1, 0), (12, 12), (0, 20)])
def test_mcnemar_with_few_disagreements_is_the_exact_binomial_test(only_a, only_b):
    a = right([True] * only_a + [False] * only_b + [True] * 30)
    b = right([False] * only_a + [True] * only_b + [True] * 30)
    found = mcnemar(a, b)
    assert found.test == "McNemar, exact"
    assert found.p_value == pytest.approx(scipy_stats.binomtest(only_a, only_a + only_b).pvalue)
    assert found.difference == pytest.approx(a.value - b.value)
    assert found.low <= found.difference <= found.high


def test_mcnemar_with_many_disagreements_is_the_corrected_chi_square():
    a, b = right([True] * 60 + [False] * 40 + [True] * 100), right([False] * 60 + [True] * 40 + [True] * 100)
    found = mcnemar(a, b)
    assert found.test == "McNemar, chi-square with continuity correction"
    assert found.p_value == pytest.approx(scipy_stats.chi2.sf(19**2 / 100, df=1))


def test_mcnemar_refuses_values_between_right_and_wrong():
    half = answer_f1([["red house"]] * 2, ["red car"] * 2, "squad", "en")
    with pytest.raises(BadInput, match="right or wrong"):
        mcnemar(half, half)


def exhaustive_p(a: Metric, b: Metric) -> float:
    observed = abs(a.value - b.value)
    hits = 0
    for swap in product([False, True], repeat=len(a)):
        mask = np.array(swap)[:, None]
        first = np.where(mask, b.stats, a.stats).sum(axis=0)
        second = np.where(mask, a.stats, b.stats).sum(axis=0)
        hits += abs(a.combine(first) - b.combine(second)) >= observed - 1e-9
    return hits / 2 ** len(a)


def test_permutation_of_accuracy_agrees_with_all_swaps():
    a, b = right([1, 1, 1, 1, 1, 0, 1, 1]), right([0, 1, 0, 0, 1, 1, 0, 0])
    assert permutation_test(a, b, samples=20_000).p_value == pytest.approx(exhaustive_p(a, b), abs=0.01)


def test_permutation_of_corpus_f1_agrees_with_all_swaps():
    a, b = tag_metrics(np.random.default_rng(5), sentences=9)
    assert permutation_test(a, b, samples=20_000).p_value == pytest.approx(exhaustive_p(a, b), abs=0.01)


def test_permutation_of_macro_f1_agrees_with_all_swaps():
    gold = list("xxyyzzxy")
    a, b = macro_f1(gold, list("xxyyzyxy"), "xyz"), macro_f1(gold, list("xyyxzzyy"), "xyz")
    assert permutation_test(a, b, samples=20_000).p_value == pytest.approx(exhaustive_p(a, b), abs=0.01)


@pytest.mark.parametrize("test", TESTS)
def test_a_clear_difference_is_found_and_has_the_right_sign(test):
    rng = np.random.default_rng(6)
    a, b = right(rng.random(400) < 0.85), right(rng.random(400) < 0.6)
    found, mirrored = test(a, b), test(b, a)
    assert found.difference == pytest.approx(a.value - b.value)
    assert found.p_value < 0.01 and found.low > 0
    assert mirrored.difference == pytest.approx(-found.difference)
    assert mirrored.high < 0


@pytest.mark.parametrize("test", RESAMPLING)
def test_resampling_tests_agree_with_the_t_test_on_means(test):
    rng = np.random.default_rng(7)
    a, b = right(rng.random(1000) < 0.62), right(rng.random(1000) < 0.58)
    reference = paired_t_test(a, b)
    found = test(a, b, samples=5000)
    assert found.p_value == pytest.approx(reference.p_value, abs=0.02)
    assert (found.low, found.high) == pytest.approx((reference.low, reference.high), abs=0.4)


@pytest.mark.parametrize("test", TESTS)
@pytest.mark.parametrize(
    ("a", "b"),
    [
        ([1, 0, 1, 1], [1, 0, 1, 1]),  # identical
        ([1, 1, 1], [1, 1, 1]),  # all right
        ([0, 0], [0, 0]),  # all wrong
        ([1], [0]),  # one example
        ([1], [1]),
    ],
)
def test_degenerate_cases_give_p_of_one_and_no_nan(test, a, b):
    found = test(right(a), right(b))
    assert found.p_value == 1
    assert np.isfinite([found.difference, found.low, found.high]).all()
    assert found.low <= found.difference <= found.high


@pytest.mark.parametrize("test", RESAMPLING)
def test_systems_that_find_no_entity_give_p_of_one(test):
    nothing = entity_f1([["O"], ["O", "O"]], [["O"], ["O", "O"]])
    found = test(nothing, nothing)
    assert (found.difference, found.low, found.high, found.p_value) == (0, 0, 0, 1)


def test_one_example_has_the_whole_scale_as_interval():
    assert bootstrap_interval(right([1])) == (0, 100)
    assert (paired_t_test(right([1]), right([0])).low, paired_bootstrap(right([1]), right([0])).high) == (
        -100,
        100,
    )


def test_t_test_of_a_constant_difference_falls_back_to_the_sign_test():
    assert paired_t_test(right([1, 1, 1]), right([0, 0, 0])).p_value == 0.25


def test_different_metrics_and_different_sets_are_not_compared():
    squad, mlqa = (answer_f1([["x"]], ["x"], name, "en") for name in ("squad", "mlqa"))
    with pytest.raises(BadInput, match="f1_squad with f1_mlqa"):
        paired_bootstrap(squad, mlqa)
    with pytest.raises(BadInput, match="2 examples with 3"):
        permutation_test(right([1, 0]), right([1, 0, 1]))
    with pytest.raises(BadInput, match="at least one sample"):
        bootstrap_interval(right([1, 0]), samples=0)


def test_corpus_f1_is_refused_by_tests_on_means():
    a, b = tag_metrics(np.random.default_rng(8))
    with pytest.raises(BadInput, match="permutation_test"):
        paired_t_test(a, b)


def test_clusters_widen_the_interval_when_their_members_agree():
    values = np.repeat(np.random.default_rng(9).random(80) < 0.6, 5)
    alone = bootstrap_interval(right(values))
    clustered = bootstrap_interval(right(values).by_group(list(np.arange(400) // 5)))
    assert clustered[1] - clustered[0] == pytest.approx(np.sqrt(5) * (alone[1] - alone[0]), rel=0.2)


def test_holm_by_hand():
    # sorted 0.01, 0.02, 0.03, 0.04 times 4, 3, 2, 1 = 0.04, 0.06, 0.06, 0.04; running maximum
    assert holm([0.01, 0.04, 0.03, 0.02]) == pytest.approx([0.04, 0.06, 0.06, 0.06])
    assert holm([0.6, 0.9]) == [1, 1]
    assert holm([]) == []


@given(st.lists(st.floats(0, 1), min_size=1, max_size=20))
def test_holm_lies_between_the_raw_and_the_bonferroni_values_and_keeps_their_order(p_values):
    adjusted = np.array(holm(p_values))
    raw = np.array(p_values)
    assert (adjusted >= raw - 1e-12).all()
    assert (adjusted <= np.minimum(1, raw * len(raw)) + 1e-12).all()
    assert (np.diff(adjusted[np.argsort(raw, kind="stable")]) >= 0).all()


def test_a_comparison_reads_as_one_line_and_as_plain_data():
    found = Comparison("paired permutation", 1.234, -0.5, 2.0, 0.0004, 5010, 1000)
    line = "+1.23 (95% -0.50 to +2.00), p < 0.001, n = 5,010 (paired permutation, 1,000 samples)"
    assert repr(found) == line
    assert Comparison(**found.to_dict()) == found
    assert repr(paired_t_test(right([1, 0]), right([1, 0]))).endswith("p = 1.000, n = 2 (paired t-test)")


def share_below_five_percent(test, metrics, trials):
    return np.mean([test(*metrics(np.random.default_rng(seed))).p_value < 0.05 for seed in range(trials)])


def null_accuracy(rng):
    """Two systems of equal accuracy that agree on most examples."""
    base = rng.random(200) < 0.7
    flips = rng.random((2, 200)) < 0.2
    return right(base ^ flips[0]), right(base ^ flips[1])


@pytest.mark.parametrize("test", RESAMPLING)
def test_equal_systems_are_called_different_in_one_of_twenty_sets(test):
    # 300 trials at 5 %: standard error 1.3 points
    assert 0.015 < share_below_five_percent(test, null_accuracy, 300) < 0.09


@pytest.mark.slow
@pytest.mark.parametrize("test", [*RESAMPLING, paired_t_test])
def test_calibration_over_two_thousand_sets(test):
    # Values without ties: on right and wrong answers only some p-values can occur, and less than 5 % is due.
    def null(rng):
        base, noise = rng.random(100), rng.random((2, 100))
        return mean_metric((base + noise[0]) / 2), mean_metric((base + noise[1]) / 2)

    assert share_below_five_percent(test, null, 2000) == pytest.approx(0.05, abs=0.015)


@pytest.mark.slow
def test_permutation_attains_the_level_of_the_exact_test_on_right_and_wrong_answers():
    found = share_below_five_percent(permutation_test, null_accuracy, 2000)
    assert found == pytest.approx(share_below_five_percent(mcnemar, null_accuracy, 2000), abs=0.01)


@pytest.mark.slow
@pytest.mark.parametrize("test", RESAMPLING)
def test_calibration_on_entity_f1(test):
    def null(rng):
        gold = [[TAGS[i] for i in rng.integers(0, 5, 6)] for _ in range(120)]
        noisy = [
            [[tag if rng.random() < 0.8 else TAGS[rng.integers(5)] for tag in tags] for tags in gold] for _ in range(2)
        ]
        return entity_f1(gold, noisy[0]), entity_f1(gold, noisy[1])

    assert share_below_five_percent(test, null, 1000) == pytest.approx(0.05, abs=0.02)
