"""Static augmentation: copies that load as they were made, with labels on their words."""

from pathlib import Path

import numpy as np
import pytest

import crosslift as xl
from crosslift import cli
from crosslift.data.augment import Source, SynonymSettings, augmented_copies, copy_numbers, write_examples
from crosslift.data.examples import Examples
from crosslift.errors import BadInput
from crosslift.runs.augment import augment
from tests.tiny_data import MAKERS, classification
from tests.tiny_models import save_encoder

SYNONYMS = str(Path(__file__).parents[1] / "methods" / "synonyms.tsv")


def source(kind="classification", **settings):
    return Source(SynonymSettings(synonyms=SYNONYMS, **settings), MAKERS[kind](12, seed=1))


@pytest.mark.parametrize("kind", list(MAKERS))
def test_what_is_written_loads_as_it_was_made(kind, tmp_path):
    made = augmented_copies(source(kind, rate=1.0), 2, seed=1, originals=True)
    file = tmp_path / ("copies.conll" if kind == "tagging" else "copies.jsonl")
    write_examples(made, file)
    columns = {"id": "id"} if kind == "tagging" else None
    again = xl.load(file, language="en", columns=columns)
    assert (again.kind, list(again.ids), list(again.texts)) == (kind, list(made.ids), list(made.texts))
    assert [list(label) for label in again.labels] == [list(label) for label in made.labels]
    if kind == "tagging":
        assert all(np.array_equal(a, b) for a, b in zip(again.spans, made.spans, strict=True))
    else:
        assert again.pairs == made.pairs


def test_copies_follow_their_originals_and_differ_by_seed():
    examples = source().examples
    made = augmented_copies(source(rate=0.5), 3, seed=1, originals=True)
    assert list(made.ids[:12]) == list(examples.ids)
    assert list(made.ids[12:14]) == ["c0-1", "c1-1"]
    assert len(made) == 48
    assert list(made.labels) == 4 * list(examples.labels)
    assert made.texts[12:24] != made.texts[24:36]
    assert augmented_copies(source(rate=0.5), 3, seed=1).texts == made.texts[12:]
    assert augmented_copies(source(rate=0.5), 3, seed=2).texts != made.texts[12:]


def test_a_copy_number_is_one_of_the_copies_and_all_come_up():
    rows = np.arange(1000)
    numbers = copy_numbers(rows, seed=1, step=5, copies=4)
    assert np.bincount(numbers, minlength=4).min() > 200
    assert numbers.max() == 3
    assert (numbers != copy_numbers(rows, seed=1, step=6, copies=4)).any()


def test_stored_copies_are_the_texts_of_the_static_file():
    words = source(rate=0.5)
    rows, numbers = np.array([0, 3, 5]), np.array([2, 0, 1])
    drawn, _ = words.draw(rows, 1, numbers)
    made = augmented_copies(words, 3, seed=1)
    assert list(drawn.texts) == [made.texts[12 * copy + row] for row, copy in zip(rows, numbers, strict=True)]


def test_an_answer_that_is_none_stays_none():
    examples = Examples("qa", "en", ["q"], ["where is the house ?"], ["the house is red"], labels=[[]], name="none")
    drawn, _ = Source(SynonymSettings(synonyms=SYNONYMS, rate=1.0), examples).draw(np.array([0]), 1, 0)
    assert drawn.labels == [[]]


def test_neighbours_need_a_model_and_take_its_embeddings(tmp_path):
    texts = ["the dog is over the fox", "the capital of the dog", "in the fox was the capital"]
    examples = Examples("classification", "en", ["a", "b", "c"], texts, labels=["x", "y", "x"], name="whole-words")
    with pytest.raises(BadInput, match="--synonyms FILE or --model NAME"):
        augment(examples)
    made = augment(examples, model=str(save_encoder(tmp_path / "bert", "bert")), rate=1.0)
    assert list(made.texts) != texts


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"copies": 0}, "--copies must be at least 1"),
        ({"out": "here.tsv"}, r"written as .jsonl.\n  Name it here.jsonl"),
        ({"rate": 2.0}, "--rate is a chance"),
        ({"scael": 0.5}, 'no setting "scael". Did you mean "scale"'),
    ],
)
def test_what_cannot_be_is_refused_in_one_line(arguments, message):
    with pytest.raises(BadInput, match=message):
        augment(classification(6), synonyms=SYNONYMS, **arguments)


@pytest.mark.parametrize("options", [[], ["--format", "jsonl"]])
def test_the_data_is_not_written_over(options, tmp_path, capsys):
    data = tmp_path / "data.jsonl"
    write_examples(classification(6), data)
    before = data.read_bytes()
    words = ["augment", "--data", str(data), "--out", str(tmp_path / "." / "data.jsonl"), "--synonyms", SYNONYMS]
    assert cli.run([*words, *options]) == 2
    assert "is the data itself" in capsys.readouterr().err
    assert data.read_bytes() == before


def test_text_without_labels_of_a_task_is_refused():
    with pytest.raises(BadInput, match="augment takes classification, tagging or qa"):
        augment(Examples("text", "en", ["a"], ["the house"], name="lines"), synonyms=SYNONYMS)


def test_the_command_writes_the_file(tmp_path, capsys):
    data = tmp_path / "data.tsv"
    data.write_text("text\tlabel\nthe house is red\tred\nthe tree is green\tgreen\n", encoding="utf-8")
    out = tmp_path / "more.jsonl"
    words = ["augment", "--data", str(data), "--out", str(out), "-k", "3", "--synonyms", SYNONYMS, "--rate", "1"]
    assert cli.run(words) == 0
    assert "6 × classification (en)" in capsys.readouterr().out
    assert xl.load(out, language="en").labels == ["red", "green"] * 3
