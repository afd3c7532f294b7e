"""The text of a distillation: what is made of it, what is held out, and what the teacher is asked about."""

import json
from dataclasses import replace

import numpy as np
import pytest

import crosslift as xl
from crosslift.errors import BadInput
from crosslift.runs.distill import distill, distill_two_steps
from crosslift.runs.distill_data import MoreText, make_corpus
from crosslift.runs.progress import Silent
from tests import tiny_data

LABELS = ("blue", "green", "red")
QUICK = {"steps": 3, "batch_size": 16, "evaluations": 1}
WORDS = {"red": "rot", "green": "grün", "blue": "blau", "the": "das", "is": "ist", "today": "heute"}


def by_colour(texts):
    return np.array([[0.8 if colour in text else 0.1 for colour in LABELS] for text in texts])


@pytest.fixture
def lexicon(tmp_path):
    file = tmp_path / "lexicon-de.tsv"
    file.write_text("".join(f"{a}\t{b}\n" for a, b in WORDS.items()))
    return f"dictionary:{tmp_path}/lexicon-{{lang}}.tsv"


def text_of(language, count=80, seed=0):
    examples = tiny_data.classification(count, seed, language=language).unlabelled()
    return replace(examples, texts=[f"{t} {language} {i}" for i, t in enumerate(examples.texts)])


def test_nothing_made_of_a_held_out_text_is_learnt_from(tmp_path):
    sets = [text_of("en"), text_of("de", seed=1)]
    plain = make_corpus(sets, {}, MoreText(), Silent(), tmp_path)
    more = make_corpus(sets, {}, MoreText(augment="noise", paraphrases=2), Silent(), tmp_path)
    held = {plain.examples.texts[row] for row in plain.held_out}
    assert {more.examples.texts[row] for row in more.held_out} == held, "the same texts, and no paraphrase"
    assert len(more.originals) > 160 + 100
    number = {text.split()[-1]: text for text in held}
    for row in more.train[more.train >= 160].tolist():
        words = more.examples.texts[row].split()
        one = next((number[word] for word in words if word in number), None)
        # A word may be dropped, but where both words that mark a text are there, it is not a held-out one.
        assert one is None or one.split()[-2] not in words


def test_the_teacher_reads_paraphrases_and_not_translations(tmp_path, lexicon):
    text = text_of("en")
    asked = MoreText(translator=lexicon, into=("de",), augment="noise", paraphrases=1)
    corpus = make_corpus([text], {}, asked, Silent(), tmp_path)
    assert corpus.originals.texts[:80] == text.texts
    assert not any("das" in text.split() for text in corpus.originals.texts)
    made = len(corpus.originals)
    assert made > 80
    assert corpus.original_of[:made].tolist() == list(range(made))
    translated = corpus.examples.texts[made:]
    assert len(translated) == 80
    for row, german in enumerate(translated):
        english = text.texts[int(corpus.original_of[made + row])]
        assert german.split()[-1] == english.split()[-1], "tied to its own original"
        assert "rot" in german if "red" in english else "rot" not in german


def test_translations_that_are_given_are_not_made_again(tmp_path, lexicon):
    text = text_of("en")
    given = replace(text, language="de", texts=[f"von Hand {i}" for i in range(80)])
    corpus = make_corpus([text], {"de": given}, MoreText(translator=lexicon, into=("de",)), Silent(), tmp_path)
    assert corpus.examples.texts[80:] == given.texts


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"translator": "apertium"}, "--into"),
        ({"into": ("de",)}, "--translator"),
        ({"via": "en"}, "--augment"),
        ({"augment": "noise", "via": "en"}, "--augment"),
        ({"paraphrases": 0}, "--paraphrases must be at least 1"),
    ],
)
def test_settings_that_do_not_go_together_are_refused(settings, said):
    with pytest.raises(BadInput, match=said):
        MoreText(**settings)


def test_what_cannot_be_translated_or_paraphrased_is_refused_first(tmp_path, lexicon):
    asked = MoreText(translator=lexicon, into=("de",))
    with pytest.raises(BadInput, match="text in one language, not in en, sw"):
        make_corpus([text_of("en"), text_of("sw", seed=1)], {}, asked, Silent(), tmp_path)
    tags = tiny_data.tagging(80).unlabelled()
    with pytest.raises(BadInput, match="for classification"):
        make_corpus([tags], {}, asked, Silent(), tmp_path)
    with pytest.raises(BadInput, match="can be paraphrased"):
        make_corpus([tags], {}, MoreText(augment="noise"), Silent(), tmp_path)


def test_two_steps_translate_for_the_bridge_and_paraphrase_for_the_student(encoder, tmp_path, lexicon):
    german = [" ".join(WORDS.get(w, w) for w in t.split()) for t in text_of("en").texts]
    runs = distill_two_steps(
        teacher=by_colour, labels=LABELS, bridge=encoder, student=encoder, source_text={"en": text_of("en")},
        target_text={"de": replace(text_of("de"), texts=german)}, translator=lexicon, augment="noise", paraphrases=1,
        out=tmp_path / "out", learning_rate=1e-3, bridge_settings={"learning_rate": 2e-3}, temperature=2.0, **QUICK,
    )  # fmt: skip
    bridge, student = (runs[name].folders[0].config for name in ("bridge", "de"))
    assert bridge["translations"] == ["de"]
    assert "augment" not in json.dumps({k: v for k, v in bridge["more_text"].items() if v})
    assert bridge["optimisation"]["learning_rate"] == 2e-3
    assert bridge["optimisation"]["steps"] == 3
    assert bridge["settings"]["temperature"] == student["settings"]["temperature"] == 2.0
    assert student["translations"] == []
    assert student["more_text"]["augment"] == "noise"
    assert "agreement with the teacher on held-out text" in runs["de"].table()


@pytest.mark.slow
def test_a_bridge_learns_the_words_of_translations_that_the_teacher_never_saw(tmp_path, lexicon):
    """Balanced distillation does what it is for: without translations German colours stay unknown."""
    english = tiny_data.classification(200, seed=3).unlabelled()
    gold = tiny_data.classification(60, seed=9)
    german = replace(gold, texts=[" ".join(WORDS.get(w, w) for w in t.split()) for t in gold.texts], language="de")
    right = {}
    for name, more in {"plain": {}, "balanced": {"translator": lexicon, "into": "de"}}.items():
        run = distill(
            teacher=by_colour, labels=LABELS, text={"en": english}, student="cnn", pieces=300, out=tmp_path / name,
            steps=60, batch_size=32, learning_rate=2e-3, evaluations=1, **more,
        )  # fmt: skip
        said = [p["prediction"] for p in xl.predict(run, german.unlabelled())]
        right[name] = np.mean([a == b for a, b in zip(said, gold.labels, strict=True)])
    assert right["balanced"] > 0.9 > 0.7 > right["plain"]
