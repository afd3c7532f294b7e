"""Two systems, paired example by example, seed by seed."""

import pytest
from scipy import stats

import crosslift as xl
from crosslift.data.examples import Examples
from crosslift.data.storage import write_json
from crosslift.errors import BadInput
from crosslift.runs.folder import RunFolder
from crosslift.runs.predictions import write_predictions
from crosslift.tasks import Classification

GOLD = ["a", "b"] * 20
TASK = Classification(labels=("a", "b"))


def evaluated(path, wrong, *, seed=1, languages=("de", "en"), data="set/test", ids=None, gold=GOLD):
    """Write a run whose predictions are wrong at the given places, as `evaluate` would have."""
    run = RunFolder.start(path, {"method": "finetune", "seed": seed, "source": "en"})
    ids = ids or [str(i) for i in range(len(gold))]
    results = run.results()
    for language in languages:
        examples = Examples("classification", language, ids, [""] * len(ids), labels=gold)
        said = [{"a": "b", "b": "a"}[label] if i in wrong else label for i, label in enumerate(gold)]
        predictions = [{"id": id_, "prediction": label} for id_, label in zip(ids, said, strict=True)]
        file = run.predictions / f"{data.replace('/', '.')}.{language}.jsonl"
        write_predictions(file, TASK, examples, predictions)
        results.setdefault(data, {})[language] = {"predictions": str(file.relative_to(run.path))}
    write_json(run.results_file, results)
    return run.path


def test_the_difference_is_a_minus_b_with_a_paired_test(tmp_path):
    a, b = evaluated(tmp_path / "a", range(4)), evaluated(tmp_path / "b", range(10))
    found = xl.compare(a, b)
    assert found.metric == "accuracy"
    assert list(found.languages) == ["de", "en"]
    assert found.languages["de"].difference == pytest.approx(15)
    expected = stats.ttest_rel([float(i >= 4) for i in range(40)], [float(i >= 10) for i in range(40)]).pvalue
    assert found.languages["de"].p_value == pytest.approx(expected)
    assert xl.compare(b, a).languages["de"].difference == pytest.approx(-15)
    assert found.pooled.difference == pytest.approx(15)


def test_seeds_are_paired_in_order(tmp_path):
    wrong = {"a": [range(2), range(4)], "b": [range(6), range(10)]}
    for name, places in wrong.items():
        for seed, place in enumerate(places, start=1):
            evaluated(tmp_path / name / f"seed-{seed}", place, seed=seed)
    found = xl.compare(tmp_path / "a", tmp_path / "b", languages=["de"])
    assert found.languages["de"].difference == pytest.approx(100 * ((6 - 2) + (10 - 4)) / 80)
    over_seeds = {name: [sum(i not in p for p in places) / 2 for i in range(40)] for name, places in wrong.items()}
    assert found.languages["de"].p_value == pytest.approx(stats.ttest_rel(over_seeds["a"], over_seeds["b"]).pvalue)


def test_unequal_numbers_of_seeds_are_refused(tmp_path):
    for seed in (1, 2):
        evaluated(tmp_path / "a" / f"seed-{seed}", range(3), seed=seed)
    evaluated(tmp_path / "b" / "seed-1", range(3))
    with pytest.raises(BadInput, match=r"a has 2 seeds and .*b has 1"):
        xl.compare(tmp_path / "a", tmp_path / "b")


def test_other_examples_are_refused(tmp_path):
    a = evaluated(tmp_path / "a", range(3))
    b = evaluated(tmp_path / "b", range(3), ids=[f"x{i}" for i in range(40)])
    with pytest.raises(BadInput, match="not evaluated on the same examples"):
        xl.compare(a, b)


def test_other_gold_labels_for_the_same_ids_are_refused(tmp_path):
    a = evaluated(tmp_path / "a", range(3))
    b = evaluated(tmp_path / "b", range(3), gold=["b", "a"] * 20)
    with pytest.raises(BadInput, match="not evaluated on the same examples"):
        xl.compare(a, b)


def test_a_language_that_only_one_of_them_has_is_told_not_dropped(tmp_path):
    a, b = evaluated(tmp_path / "a", range(3)), evaluated(tmp_path / "b", range(3), languages=("de",))
    assert list(xl.compare(a, b).languages) == ["de"]
    with pytest.raises(BadInput, match=r"Not evaluated by both.*: en") as caught:
        xl.compare(a, b, languages=["de", "en"])
    assert "Both have de" in caught.value.remedy


def test_of_several_evaluations_one_must_be_named(tmp_path):
    for name in ("a", "b"):
        for data in ("one/test", "two/test"):
            evaluated(tmp_path / name, range(3), data=data)
    with pytest.raises(BadInput, match="they share one/test, two/test"):
        xl.compare(tmp_path / "a", tmp_path / "b")
    assert xl.compare(tmp_path / "a", tmp_path / "b", data="one/test").languages["de"].difference == 0


def test_metrics_and_tests_are_chosen_by_name(tmp_path):
    a, b = evaluated(tmp_path / "a", range(3)), evaluated(tmp_path / "b", range(9))
    assert xl.compare(a, b, metric="macro_f1").metric == "macro_f1"
    assert "McNemar" in str(xl.compare(a, b, test="mcnemar").languages["de"].test)
    with pytest.raises(BadInput, match='no metric "f1"') as caught:
        xl.compare(a, b, metric="f1")
    assert "accuracy, macro_f1" in caught.value.remedy
    with pytest.raises(BadInput, match="Unknown test"):
        xl.compare(a, b, test="z")


def test_what_is_no_run_is_said(tmp_path):
    with pytest.raises(BadInput, match="is not a run folder"):
        xl.compare(tmp_path / "nothing", tmp_path)
