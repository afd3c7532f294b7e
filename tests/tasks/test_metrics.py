"""Metrics against scikit-learn, seqeval and hand-computed values."""

import pickle
import warnings
from itertools import chain

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from seqeval.metrics import f1_score as seqeval_f1
from seqeval.scheme import IOB2
from sklearn.metrics import accuracy_score, f1_score

from crosslift.data.examples import Answer
from crosslift.errors import BadInput
from crosslift.tasks.metrics import (
    Metric,
    accuracy,
    answer_f1,
    entity_f1,
    exact_match,
    macro_f1,
    token_f1,
)

LABELS = ("contradiction", "entailment", "neutral")
TAGS = ("O", "B-PER", "I-PER", "B-LOC", "I-LOC")

class_pairs = st.lists(st.tuples(st.sampled_from(LABELS), st.sampled_from(LABELS)), min_size=1, max_size=40)
sentence = st.lists(st.tuples(st.sampled_from(TAGS), st.sampled_from(TAGS)), max_size=9)
tagged = st.lists(sentence, min_size=1, max_size=6)


def columns(pairs):
    return [a for a, _ in pairs], [b for _, b in pairs]


def sequences(sentences):
    return [columns(s)[0] for s in sentences], [columns(s)[1] for s in sentences]


@given(class_pairs)
def test_accuracy_equals_scikit_learn(pairs):
    gold, pred = columns(pairs)
    assert accuracy(gold, pred).value == pytest.approx(100 * accuracy_score(gold, pred))


@given(class_pairs)
def test_macro_f1_equals_scikit_learn_over_the_labels_that_occur(pairs):
    gold, pred = columns(pairs)
    expected = 100 * f1_score(gold, pred, average="macro", zero_division=0)
    assert macro_f1(gold, pred, LABELS).value == pytest.approx(expected)


def test_macro_f1_by_hand():
    metric = macro_f1(["x", "x", "y", "y"], ["x", "y", "y", "y"], ["x", "y", "never"])
    assert metric.value == pytest.approx(100 * (2 / 3 + 4 / 5) / 2)


def test_macro_f1_refuses_a_label_that_is_not_listed():
    with pytest.raises(BadInput, match=r'Unknown class "neutrl".*Did you mean "neutral"'):
        macro_f1(["neutral"], ["neutrl"], LABELS)


def reference(gold, pred, **kind):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return 100 * seqeval_f1(gold, pred, zero_division=0, **kind)


@settings(max_examples=400)
@given(tagged)
def test_lenient_entity_f1_equals_seqeval_default(sentences):
    gold, pred = sequences(sentences)
    assert entity_f1(gold, pred, "lenient").value == pytest.approx(reference(gold, pred))


@settings(max_examples=400)
@given(tagged)
def test_strict_entity_f1_equals_seqeval_strict_iob2(sentences):
    gold, pred = sequences(sentences)
    expected = reference(gold, pred, mode="strict", scheme=IOB2)
    assert entity_f1(gold, pred, "strict").value == pytest.approx(expected)


@given(tagged)
def test_entity_counts_of_a_sentence_do_not_depend_on_its_neighbours(sentences):
    gold, pred = sequences(sentences)
    together = entity_f1(gold, pred).stats
    alone = [entity_f1([g], [p]).stats[0] for g, p in zip(gold, pred, strict=True)]
    np.testing.assert_array_equal(together, alone)


def test_modes_differ_on_an_entity_without_its_beginning():
    gold, pred = [["B-PER", "I-PER", "O"]], [["I-PER", "I-PER", "O"]]
    assert entity_f1(gold, pred, "lenient").value == 100
    assert entity_f1(gold, pred, "strict").value == 0
    assert entity_f1(gold, pred, "lenient").name == "entity_f1"
    assert entity_f1(gold, pred, "strict").name == "entity_f1_strict"


def test_entity_f1_by_hand():
    gold = [["B-PER", "I-PER", "O", "B-LOC"], [], ["B-ORG"]]
    pred = [["B-PER", "I-PER", "O", "B-PER"], [], ["O"]]
    metric = entity_f1(gold, pred)
    assert metric.stats.tolist() == [[1, 2, 2], [0, 0, 0], [0, 0, 1]]
    assert metric.value == pytest.approx(100 * 2 / 5)


def test_entity_f1_refuses_tags_that_are_not_iob2():
    with pytest.raises(BadInput, match='"NOUN" is not an IOB2 tag'):
        entity_f1([["NOUN"]], [["O"]])


@given(tagged)
def test_token_f1_equals_scikit_learn_micro_f1_over_all_labels_but_o(sentences):
    gold, pred = sequences(sentences)
    flat_gold, flat_pred = list(chain(*gold)), list(chain(*pred))
    expected = 0.0
    if flat_gold:
        expected = 100 * f1_score(flat_gold, flat_pred, labels=TAGS[1:], average="micro", zero_division=0)
    assert token_f1(gold, pred).value == pytest.approx(expected)


def test_token_f1_without_an_outside_tag_is_accuracy_over_words():
    gold, pred = [["NOUN", "VERB"], ["DET"]], [["NOUN", "NOUN"], ["DET"]]
    assert token_f1(gold, pred).value == pytest.approx(200 / 3)


def test_tags_of_unequal_length_name_the_sentence():
    with pytest.raises(BadInput, match="Sentence 2 has 2 gold tags but 1 predicted"):
        entity_f1([["O"], ["O", "O"]], [["O"], ["O"]])


def test_answers_take_the_best_gold_answer_and_average_over_questions():
    gold = [["in the year 1066", "1066"], ["Paris"], ["the red house"]]
    pred = ["1066", "London", "a red car"]
    f1 = answer_f1(gold, pred, "squad", "en")
    assert f1.per_example.tolist() == [100, 0, pytest.approx(50)]
    assert f1.value == pytest.approx(50)
    assert exact_match(gold, pred, "squad", "en").value == pytest.approx(100 / 3)


def test_token_overlap_counts_repeated_words_once_each():
    # common: to, be (once each): precision 2/3, recall 2/4
    value = answer_f1([["to be or be"]], ["to to be"], "squad", "en").value
    assert value == pytest.approx(100 * 2 * (2 / 3) * (2 / 4) / (2 / 3 + 2 / 4))


def test_a_question_without_answer_is_right_only_when_left_unanswered():
    gold, pred = [[], [], ["Rome"]], ["", "Rome", ""]
    assert exact_match(gold, pred, "squad", "en").per_example.tolist() == [100, 0, 0]
    assert answer_f1(gold, pred, "squad", "en").per_example.tolist() == [100, 0, 0]


def test_gold_answers_may_carry_their_position():
    assert exact_match([[Answer("Rome", 3)]], ["rome."], "squad", "en").value == 100


def test_the_normaliser_is_part_of_the_name_and_changes_the_score():
    gold, pred = [["北京大学"]], ["北京"]
    squad, mlqa = (answer_f1(gold, pred, name, "zh") for name in ("squad", "mlqa"))
    assert (squad.name, squad.value) == ("f1_squad", 0)
    assert (mlqa.name, mlqa.value) == ("f1_mlqa", pytest.approx(100 * 4 / 6))
    assert exact_match(gold, pred, "unicode", "zh").name == "exact_match_unicode"


@pytest.mark.parametrize(
    "score",
    [
        lambda: accuracy(["x", None], ["x", "x"]),
        lambda: macro_f1(["x", None], ["x", "x"], ["x"]),
        lambda: entity_f1([["O"], None], [["O"], ["O"]]),
        lambda: token_f1([["O"], None], [["O"], ["O"]]),
        lambda: exact_match([["x"], None], ["x", "x"], "squad", "en"),
        lambda: answer_f1([["x"], None], ["x", "x"], "squad", "en"),
    ],
)
def test_unknown_gold_labels_are_refused(score):
    with pytest.raises(BadInput, match=r"labels of 1 of 2 examples are unknown \(first: example 2\)"):
        score()


def test_a_set_without_labels_is_refused():
    with pytest.raises(BadInput, match="unknown"):
        accuracy(None, ["x"])


def test_missing_predictions_and_empty_sets_are_refused():
    with pytest.raises(BadInput, match="2 gold labels but 1 predictions"):
        accuracy(["x", "y"], ["x"])
    with pytest.raises(BadInput, match="no examples"):
        accuracy([], [])


@given(tagged)
def test_grouping_keeps_the_score(sentences):
    gold, pred = sequences(sentences)
    metric = entity_f1(gold, pred)
    grouped = metric.by_group([i // 2 for i in range(len(metric))])
    assert grouped.value == pytest.approx(metric.value)
    assert len(grouped) == -(-len(metric) // 2)


def test_groups_of_one_item_over_seeds_give_item_means():
    metric = accuracy(["x", "y", "x", "y"], ["x", "y", "y", "y"])
    assert metric.by_group(["1", "2", "1", "2"]).per_example.tolist() == [50, 100]


def test_groups_of_unequal_size_have_no_per_example_values():
    metric = accuracy(["x", "y", "x"], ["x", "y", "y"])
    with pytest.raises(BadInput, match="not a mean of one value per example"):
        _ = metric.by_group([0, 0, 1]).per_example


def test_corpus_f1_has_no_per_example_values():
    with pytest.raises(BadInput, match="permutation_test"):
        _ = entity_f1([["B-PER"]], [["B-PER"]]).per_example


def test_metrics_survive_pickling():
    metric: Metric = pickle.loads(pickle.dumps(macro_f1(["x"], ["x"], ["x", "y"])))
    assert metric.value == 100
    assert repr(metric) == "Metric(macro_f1: 100.00, n = 1)"
