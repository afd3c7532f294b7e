import pytest

from crosslift.data import Examples, check_labels, check_parallel
from crosslift.errors import BadInput, BadLabels


def classes(language, labels, **more):
    ids = [str(i) for i in range(len(labels))]
    return Examples("classification", language, ids, ids, labels=labels, name="set", **more)


def parallel(language, ids):
    rows = [str(i) for i in range(len(ids))]
    return Examples("text", language, rows, rows, parallel_ids=ids, name="set")


def test_fewer_labels_than_the_source_are_fine():
    check_labels([classes("en", ["a", "b"]), classes("de", ["a"])])
    check_labels([classes("en", ["a"])], model_labels=["b", "a"])
    check_labels([])


def test_labels_unknown_in_the_source_are_shown_with_both_lists():
    with pytest.raises(BadLabels) as error:
        check_labels([classes("en", ["neutral", "entailment"]), classes("de", ["neutrall", "entailment"])])
    assert str(error.value) == (
        'set (de) has labels that set (en) does not know: "neutrall". Did you mean "neutral"?\n'
        "  set (en): entailment, neutral\n"
        "  set (de): entailment, neutrall\n"
        "  Map them with --labels neutrall=…, or leave such rows out with --skip-unknown."
    )


def test_the_model_is_asked_first():
    with pytest.raises(BadLabels, match=r'set \(en\) has labels that the model does not know: "b"'):
        check_labels([classes("en", ["a", "b"])], model_labels=["a"])


def test_unlabelled_sets_and_allowed_labels_pass():
    check_labels([classes("en", ["a"]), classes("de", ["a"]).unlabelled()])
    check_labels([classes("en", ["a"]).unlabelled(), classes("de", ["b"])])
    tagged = Examples("tagging", "ar", ["1"], ["x"], labels=[["B-part", "I-part"]])
    check_labels([tagged], model_labels=["O"], allow=["part"])


def test_parallel_sets_may_be_in_any_order():
    check_parallel([parallel("en", ["1", "2"]), parallel("de", ["2", "1"])])


def test_sets_that_are_not_parallel_are_refused_saying_where():
    with pytest.raises(BadInput) as error:
        check_parallel([parallel("en", ["1", "2", "3"]), parallel("de", ["1", "3"])])
    assert error.value.seen == (
        'set (en) has 3 rows and set (de) 2, but they are not the same ones: "2" is only in set (en).'
    )
    with pytest.raises(BadInput, match='"9" is only in set'):
        check_parallel([parallel("en", ["1"]), parallel("de", ["1", "9"])])
    with pytest.raises(BadInput, match="its rows have no parallel ids"):
        check_parallel([classes("en", ["a"])])


def test_tags_are_compared_by_name_without_begin_and_inside():
    source = Examples("tagging", "en", ["1"], ["x"], labels=[["B-time", "O"]], name="set")
    check_labels([source, Examples("tagging", "de", ["1"], ["x"], labels=[["B-time", "I-time"]])])
    with pytest.raises(BadLabels, match=r'set \(de\) has labels that set \(en\) does not know: "date"'):
        check_labels([source, Examples("tagging", "de", ["1"], ["x"], labels=[["B-date", "O"]], name="set")])
