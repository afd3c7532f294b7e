"""What a translator alone can do: translate-test and translate-train, on a made-up language that a dictionary knows."""

import json

import pytest

import crosslift as xl
from crosslift.cli import run as cli
from crosslift.data.augment import write_examples
from crosslift.runs import translate_baselines
from crosslift.runs.distill import distill
from crosslift.runs.translate_baselines import pseudo_label, translate_test, translate_train
from crosslift.translate import open_translator, translate_examples
from crosslift.translate.balanced import balanced
from tests import tiny_data
from tests.tiny_models import save_encoder

WORDS = (
    "red green blue house tree river stone bird cloud the is today saw in Berlin Lima Oslo Nairobi we and slept well"
)
SHORT = {"steps": 12, "batch_size": 16, "evaluations": 1, "learning_rate": 3e-3}


@pytest.fixture(scope="module")
def lexicon(tmp_path_factory):
    """A language in which every word is written backwards."""
    file = tmp_path_factory.mktemp("words") / "lexicon.tsv"
    file.write_text("".join(f"{word.lower()}\t{word.lower()[::-1]}\n" for word in WORDS.split()), encoding="utf-8")
    return file


@pytest.fixture(scope="module")
def english(tmp_path_factory):
    """A model that knows the colours in English."""
    folder = tmp_path_factory.mktemp("runs")
    encoder = save_encoder(folder / "encoder", "bert")
    data = tiny_data.classification(90)
    return xl.fit("finetune", model=encoder, data=data, dev=data.take(30), out=folder / "run", **SHORT)


def backwards(examples, lexicon):
    return translate_examples(examples, open_translator(f"dictionary:{lexicon}", "en", "xx"))


def test_translate_test_predicts_what_the_model_says_about_the_original(english, lexicon):
    test = tiny_data.classification(60, seed=5)
    foreign = backwards(test, lexicon)
    assert foreign.texts != test.texts
    found = translate_test(english, {"xx": foreign, "en": test}, translator=f"dictionary-back:{lexicon}")
    assert found.of_language("xx") == found.of_language("en")
    folder = english.path / "translate-test"
    files = [folder / "predictions" / f"tiny-colours.{language}.jsonl" for language in ("xx", "en")]
    there, here = ([json.loads(line) for line in file.read_text().splitlines()[1:]] for file in files)
    assert there == here
    assert json.loads((folder / "config.json").read_text())["method"] == "translate-test"


def test_translate_test_can_be_compared_with_the_plain_model(english, lexicon):
    foreign = backwards(tiny_data.classification(60, seed=5), lexicon)
    xl.evaluate(english, {"xx": foreign})
    translate_test(english, {"xx": foreign}, translator=f"dictionary-back:{lexicon}")
    found = xl.compare(english.path / "translate-test", english.path)
    assert "xx" in found.table()


def test_tags_found_in_the_translation_come_back_to_their_words(tmp_path, lexicon):
    data = tiny_data.tagging(90)
    encoder = save_encoder(tmp_path / "encoder", "bert")
    run = xl.fit("finetune", model=encoder, data=data, dev=data.take(30), out=tmp_path / "run", **SHORT | {"steps": 40})
    test = tiny_data.tagging(40, seed=5)
    found = translate_test(run, {"xx": backwards(test, lexicon)}, translator=f"dictionary-back:{lexicon}")
    assert found.of_language("xx").mean > 90
    assert found.of_language("xx").mean == xl.evaluate(run, {"en": test}).of_language("en").mean


def test_pseudo_labels_are_the_models_own_and_gold_is_not_read(english):
    text = tiny_data.classification(20, seed=3)
    wrong = xl.Examples("classification", "en", text.ids, text.texts, labels=["nonsense"] * 20, name="wrong")
    assert pseudo_label(english, wrong).labels == pseudo_label(english, text).labels
    assert set(pseudo_label(english, text).labels) <= set(tiny_data.COLOURS)


def test_translate_train_is_given_translations_with_the_teachers_labels(english, lexicon, tmp_path, monkeypatch):
    text = tiny_data.classification(60, seed=2)
    given = {}
    monkeypatch.setattr(translate_baselines, "fit", lambda method, **settings: given.update(settings) or method)
    encoder = save_encoder(tmp_path / "encoder")
    options = {"target": "xx", "translator": f"dictionary:{lexicon}", "model": encoder, "out": tmp_path / "run"}
    assert translate_train(english, text, **options, steps=2) == "finetune"
    assert given["data"].texts == backwards(text, lexicon).texts
    assert given["data"].labels == pseudo_label(english, text.unlabelled()).labels
    assert (given["source"], given["steps"], given["model"]) == ("xx", 2, encoder)
    monkeypatch.undo()
    run = translate_train(english, text.unlabelled(), **options, **SHORT | {"steps": 2})
    assert run.folders[0].done
    assert run.folders[0].config["task"]["labels"] == sorted(tiny_data.COLOURS)  # also those never predicted
    assert run.folders[0].config["source"] == "xx"


def test_balanced_text_is_what_distillation_takes(english, lexicon, tmp_path):
    text = tiny_data.classification(60, seed=2).unlabelled()
    translations = balanced(text, {"xx": open_translator(f"dictionary:{lexicon}", "en", "xx")})
    run = distill(
        teacher=english, text={"en": text}, translations=translations, student=save_encoder(tmp_path / "encoder"),
        out=tmp_path / "run", cache=tmp_path / "cache", steps=2, batch_size=8, learning_rate=1e-3, evaluations=1,
    )  # fmt: skip
    assert run.folders[0].done
    assert run.folders[0].config["translations"] == ["xx"]


def test_both_baselines_are_reached_from_the_command_line(english, lexicon, tmp_path, capsys):
    foreign = backwards(tiny_data.classification(30, seed=5), lexicon)
    write_examples(foreign, tmp_path / "test.jsonl")
    model, back = str(english.path), f"dictionary-back:{lexicon}"
    command = ["evaluate", model, "-d", str(tmp_path / "test.jsonl"), "--translator", back, "--json"]
    assert cli([*command, "-o", str(tmp_path / "out")]) == 0
    assert json.loads(capsys.readouterr().out)["system"] == "translate-test"
    write_examples(tiny_data.classification(30, seed=2), tmp_path / "text.jsonl")
    made = tmp_path / "made.jsonl"
    words = ["translate", str(tmp_path / "text.jsonl"), "--from", "en", "--to", "xx", "--with", f"dictionary:{lexicon}"]
    assert cli([*words, "--label-with", model, "-o", str(made), "--quiet"]) == 0
    row = json.loads(made.read_text().splitlines()[0])
    assert row["language"] == "xx" and row["label"] in tiny_data.COLOURS and row["text"].startswith("eht ")
