"""The inference pairs and questions of the embedded corpus: what they promise, in every language."""

import re
import unicodedata
from collections import Counter
from importlib.resources import files

import numpy as np
import pytest
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GroupKFold, cross_val_score
from sklearn.pipeline import make_pipeline

from crosslift.data.examples import concatenate
from crosslift.demo.pairs import (
    FINGERPRINTS,
    LABELS,
    LANGUAGES_NLI,
    LANGUAGES_QA,
    SPLITS_NLI,
    SPLITS_QA,
    TEST_ONLY_NLI,
    _paragraph,
    _read,
    _scene,
    fingerprint,
    load_nli,
    load_qa,
    splits_nli,
)
from crosslift.errors import BadFile, BadInput

SCRIPTS = {
    "ar": ("ARABIC",),
    "hi": ("DEVANAGARI",),
    "ja": ("CJK", "HIRAGANA", "IDEOGRAPHIC", "KATAKANA", "KATAKANA-HIRAGANA"),
    "ru": ("CYRILLIC",),
    "zh": ("CJK",),
}
FULL_STOPS = {"hi": "।", "ja": "。", "zh": "。"}
WITHOUT_SPACES = ("ja", "zh")
PAIRS = [(language, split) for language in LANGUAGES_NLI for split in splits_nli(language)]
QUESTIONS = [(language, split) for language in LANGUAGES_QA for split in SPLITS_QA]


def whole_nli(language):
    return concatenate([load_nli(language, split) for split in splits_nli(language)])


def whole_qa(language):
    return concatenate([load_qa(language, split) for split in SPLITS_QA])


def check_script(language, text):
    scripts = SCRIPTS.get(language, ("LATIN",))
    strangers = [char for char in text if char.isalpha() and unicodedata.name(char).split()[0] not in scripts]
    assert not strangers, (text, strangers)
    assert unicodedata.normalize("NFC", text) == text


def check_typing(language, text):
    assert text == text.strip()
    assert not re.search(r"[⟦⟧|_<>{}\[\]#\t\n\"„“”…]|  | [,.;:?!،。，？]|,,|\.\.", text), text
    if language in WITHOUT_SPACES:
        assert not re.search(r"[ ,.?!;]", text), text


@pytest.mark.parametrize(("language", "split"), PAIRS)
def test_each_split_has_nine_pairs_a_scene_and_its_labels_in_balance(language, split):
    examples = load_nli(language, split)
    scenes = len(SPLITS_NLI[split])
    assert (examples.kind, examples.language, len(examples)) == ("classification", language, 9 * scenes)
    assert Counter(examples.labels) == dict.fromkeys(LABELS, 3 * scenes)
    assert examples.label_names() == ("contradiction", "entailment", "neutral")
    assert Counter(examples.groups) == {f"s{number:02d}": 9 for number in SPLITS_NLI[split]}


def test_a_premise_affirms_its_own_hypothesis_leaves_the_next_open_and_denies_the_third():
    examples = load_nli("en", "train")
    labels = dict(zip(examples.ids, examples.labels, strict=True))
    assert [labels[f"s01.p1.h{number}"] for number in (1, 2, 3)] == ["entailment", "neutral", "contradiction"]
    assert [labels[f"s01.p2.h{number}"] for number in (1, 2, 3)] == ["contradiction", "entailment", "neutral"]
    assert [labels[f"s01.p3.h{number}"] for number in (1, 2, 3)] == ["neutral", "contradiction", "entailment"]


@pytest.mark.parametrize("language", LANGUAGES_NLI)
def test_every_premise_and_every_hypothesis_meets_every_label_once(language):
    examples = whole_nli(language)
    for side in (examples.texts, examples.pairs):
        met = Counter(zip(side, examples.labels, strict=True))
        assert set(met.values()) == {1}
        assert len(met) == len(examples)


def test_one_side_alone_does_not_give_the_label_away():
    examples = whole_nli("en")
    for side in (examples.texts, examples.pairs):
        guess = make_pipeline(CountVectorizer(ngram_range=(1, 2)), LogisticRegression(max_iter=1000))
        accuracies = cross_val_score(
            guess, list(side), np.array(examples.labels), groups=examples.groups, cv=GroupKFold(5)
        )
        assert accuracies == pytest.approx(1 / 3)


@pytest.mark.parametrize(("language", "split"), PAIRS)
def test_pairs_share_ids_labels_and_groups_with_english(language, split):
    examples, english = load_nli(language, split), load_nli("en", split)
    assert examples.ids == examples.parallel_ids == english.ids
    assert examples.labels == english.labels
    assert examples.groups == english.groups


@pytest.mark.parametrize("language", LANGUAGES_NLI)
def test_premises_and_hypotheses_are_clean_sentences_in_their_own_script(language):
    examples = whole_nli(language)
    for text in {*examples.texts, *examples.pairs}:
        check_script(language, text)
        check_typing(language, text)
        assert text.endswith(FULL_STOPS.get(language, "."))
        assert text[0] == text[0].upper()
        assert not any(char.isdigit() for char in text)


@pytest.mark.parametrize("language", LANGUAGES_NLI)
def test_no_hypothesis_is_copied_out_of_its_premise(language):
    examples = whole_nli(language)
    for premise, hypothesis in zip(examples.texts, examples.pairs, strict=True):
        assert hypothesis[:-1].lower() not in premise.lower()
        assert len(hypothesis) < len(premise)


@pytest.mark.parametrize("language", [code for code in LANGUAGES_NLI if code not in TEST_ONLY_NLI])
def test_splits_of_pairs_share_no_sentence(language):
    seen: set[str] = set()
    for split in SPLITS_NLI:
        examples = load_nli(language, split)
        sentences = {*examples.texts, *examples.pairs}
        assert not sentences & seen
        seen |= sentences
    assert len(seen) == 6 * 60


@pytest.mark.parametrize(("language", "split"), QUESTIONS)
def test_each_split_has_four_questions_a_paragraph(language, split):
    examples = load_qa(language, split)
    assert (examples.kind, examples.language) == ("qa", language)
    assert Counter(examples.groups) == {f"p{number:02d}": 4 for number in SPLITS_QA[split]}
    assert len(set(examples.pairs)) == len(SPLITS_QA[split])


@pytest.mark.parametrize(("language", "split"), QUESTIONS)
def test_questions_share_ids_and_groups_with_english(language, split):
    examples, english = load_qa(language, split), load_qa("en", split)
    assert examples.ids == examples.parallel_ids == english.ids
    assert examples.groups == english.groups


@pytest.mark.parametrize("language", LANGUAGES_QA)
def test_answers_stand_in_the_paragraph_where_they_are_said_to(language):
    examples = whole_qa(language)
    for context, answers in zip(examples.pairs, examples.labels, strict=True):
        ((answer, start),) = answers
        end = start + len(answer)
        assert context[start:end] == answer
        assert context.count(answer) == 1
        assert answer == answer.strip("., ;:。，、；")
        if language not in WITHOUT_SPACES:
            assert not context[start - 1 : start].isalnum()
            assert not context[end : end + 1].isalnum()


@pytest.mark.parametrize("language", LANGUAGES_QA)
def test_questions_and_paragraphs_are_clean_and_in_their_own_script(language):
    examples = whole_qa(language)
    assert len(set(examples.texts)) == len(examples)
    for text in {*examples.texts, *examples.pairs}:
        check_script(language, text)
        check_typing(language, text)
    for question in examples.texts:
        assert question.endswith("？" if language == "zh" else "?")
        assert question.startswith("¿") == (language == "es")
    for context in examples.pairs:
        assert context.endswith(FULL_STOPS.get(language, "."))
        assert 3 <= len(re.findall(r"[.。]", context)) <= 5


@pytest.mark.parametrize("language", LANGUAGES_QA)
def test_a_question_does_not_contain_its_answer(language):
    examples = whole_qa(language)
    for question, ((answer, _),) in zip(examples.texts, examples.labels, strict=True):
        assert not re.search(rf"\b{re.escape(answer.lower())}\b", question.lower())


@pytest.mark.parametrize("language", LANGUAGES_QA)
def test_questions_of_one_paragraph_have_different_answers(language):
    examples = whole_qa(language)
    answers = {(group, label[0].text) for group, label in zip(examples.groups, examples.labels, strict=True)}
    assert len(answers) == len(examples)


@pytest.mark.parametrize("load", [load_nli, load_qa])
def test_an_unknown_language_is_answered_with_those_there_are(load):
    with pytest.raises(BadInput, match='no language "xx"') as error:
        load("xx", "test")
    assert "de, en, es" in str(error.value)


@pytest.mark.parametrize("load", [load_nli, load_qa])
def test_an_unknown_split_is_answered_with_the_nearest(load):
    with pytest.raises(BadInput, match=r'no split "tets" in "en"\. Did you mean "test"\?') as error:
        load("en", "tets")
    assert "train, dev, test" in str(error.value)


def test_a_language_with_a_test_split_alone_says_so():
    with pytest.raises(BadInput, match='no split "train" in "fr"') as error:
        load_nli("fr", "train")
    assert str(error.value).endswith("It has test.")


def test_an_answer_that_occurs_twice_is_an_error_that_names_it():
    rows = [["Who?", "Ann"], ["When?", "May"], ["Where?", "home"], ["What?", "tea"]]
    good = {"context": "In May Ann drank tea at home.", "questions": rows}
    assert _paragraph("qa.toml", "p01", good).questions[1][1] == ("May", 3)
    with pytest.raises(BadFile, match=r'qa\.toml: \[p01\] the answer "Ann" must occur .* exactly once'):
        _paragraph("qa.toml", "p01", {**good, "context": "In May Ann and Ann drank tea at home."})
    with pytest.raises(BadFile, match="4 questions"):
        _paragraph("qa.toml", "p01", {**good, "questions": rows[:3]})


def test_a_scene_with_a_missing_sentence_is_an_error():
    with pytest.raises(BadFile, match=r"\[s01\] needs 3 premises and 3 hypotheses"):
        _scene("nli.toml", "s01", {"premises": ["A.", "B.", ""], "hypotheses": ["C.", "D.", "E."]})


def test_a_file_with_a_missing_paragraph_is_an_error():
    with pytest.raises(BadFile, match="p41"):
        _read("corpus/qa.en.toml", [f"p{number:02d}" for number in range(1, 42)])


@pytest.mark.parametrize("corpus", ["nli", "qa"])
def test_the_corpus_is_what_its_fingerprint_says(corpus):
    assert fingerprint(corpus) == FINGERPRINTS[corpus]


def test_the_files_are_those_of_the_languages_and_stay_small():
    folder = files("crosslift.demo").joinpath("corpus")
    sizes = {path.name: len(path.read_bytes()) for path in folder.iterdir() if path.name[:3] in ("nli", "qa.")}
    expected = {f"nli.{code}.toml" for code in LANGUAGES_NLI} | {f"qa.{code}.toml" for code in LANGUAGES_QA}
    assert set(sizes) == expected
    assert sum(sizes.values()) < 600_000
