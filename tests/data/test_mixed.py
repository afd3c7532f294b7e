import pytest

from crosslift.data import Answer, Examples, cross, mixed
from crosslift.errors import BadInput


def nli(language, ids):
    return Examples(
        kind="classification",
        language=language,
        ids=ids,
        texts=[f"{language} premise {i}" for i in ids],
        pairs=[f"{language} hypothesis {i}" for i in ids],
        labels=["neutral"] * len(ids),
        parallel_ids=ids,
        name="xnli",
    )


def asked(language, ids):
    return Examples(
        kind="qa",
        language=language,
        ids=[f"{language}-{i}" for i in ids],
        texts=[f"{language}? {i}" for i in ids],
        pairs=[f"{language} context {i}" for i in ids],
        labels=[[Answer(language, 0)]] * len(ids),
        parallel_ids=ids,
        groups=["p"] * len(ids),
    )


def test_exactly_one_of_the_two_sentences_is_english():
    ids = [str(i) for i in range(400)]
    made = mixed(nli("de", ids), nli("en", ids[::-1]), seed=3)
    assert (made.language, made.ids, made.parallel_ids) == ("de+en", ids, ids)
    english = [text.startswith("en") for text in made.texts]
    assert [pair.startswith("en") for pair in made.pairs] == [not first for first in english]
    assert all(t.split()[-1] == p.split()[-1] == i for t, p, i in zip(made.texts, made.pairs, ids, strict=True))
    assert 160 < sum(english) < 240


def test_the_coin_depends_on_seed_and_item_alone():
    ids = [str(i) for i in range(50)]
    whole = mixed(nli("de", ids), nli("en", ids), seed=1)
    part = mixed(nli("fr", ids[10:]), nli("en", ids), seed=1)
    assert [t[:2] == "en" for t in part.texts] == [t[:2] == "en" for t in whole.texts[10:]]
    assert mixed(nli("de", ids), nli("en", ids), seed=2).texts != whole.texts


def test_items_without_partner_are_left_out_and_counted():
    made = mixed(nli("de", ["1", "2"]), nli("en", ["2"]))
    assert (made.ids, made.skipped) == (["2"], {"no partner in en": 1})
    with pytest.raises(BadInput, match="shares no parallel id with the en set"):
        mixed(nli("de", ["1"]), nli("en", ["2"]))


def test_questions_and_contexts_of_two_languages_are_matched():
    made = cross(asked("en", ["b", "a", "c"]), asked("de", ["a", "b"]))
    assert made.texts == ["en? a", "en? b"]
    assert made.pairs == ["de context a", "de context b"]
    assert made.labels == [[Answer("de", 0)]] * 2
    assert (made.language, made.pair_language) == ("en", "de")


def test_sets_that_cannot_be_mixed_are_refused():
    with pytest.raises(BadInput, match="no sentence pairs to mix"):
        mixed(asked("de", ["1"]), asked("en", ["1"]))
    with pytest.raises(BadInput, match="between question-answering sets only"):
        cross(nli("de", ["1"]), nli("en", ["1"]))
    with pytest.raises(BadInput, match="its rows have no parallel ids"):
        single = nli("en", ["1"])
        mixed(single, Examples("classification", "en", ["1"], ["a"], pairs=["b"]))
