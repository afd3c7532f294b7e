"""Predictions on disk, and scores rebuilt from them."""

from dataclasses import replace

import pytest

from crosslift.data.examples import Answer, Examples
from crosslift.data.storage import read_jsonl
from crosslift.runs.predictions import make_task, read_predictions, rescore, write_predictions
from crosslift.tasks import Classification, QuestionAnswering, Tagging


def said(*answers):
    return [{"id": str(i), "prediction": answer} for i, answer in enumerate(answers)]


def examples(kind, labels, **more):
    ids = [str(i) for i in range(len(labels))]
    texts = ["\u2028 a line that is one line", *["text"] * (len(ids) - 1)]
    return Examples(kind, "de", ids, texts, pairs=texts if kind == "qa" else None, labels=labels, name="x", **more)


def test_classes_come_back_with_hand_counted_scores(tmp_path):
    task = Classification(labels=("b", "a"))
    gold = examples("classification", ["a", "a", "b", "b"])
    write_predictions(tmp_path / "p.jsonl", task, gold, said("a", "b", "b", "b"))
    read, predictions = read_predictions(tmp_path / "p.jsonl")
    assert (read.labels, read.ids, read.language) == (gold.labels, gold.ids, "de")
    assert predictions == said("a", "b", "b", "b")
    scores = rescore(tmp_path / "p.jsonl")
    assert scores["accuracy"].value == 75
    assert scores["macro_f1"].value == pytest.approx(100 * (2 / 3 + 4 / 5) / 2)


def test_two_models_with_their_labels_in_another_order_line_up(tmp_path):
    gold = examples("classification", ["a", "b", "c", "a"])
    for name, labels in (("one", ("a", "b", "c")), ("two", ("c", "a", "b"))):
        write_predictions(tmp_path / name, Classification(labels=labels), gold, said("a", "b", "b", "b"))
    one, two = rescore(tmp_path / "one")["macro_f1"], rescore(tmp_path / "two")["macro_f1"]
    assert (one.stats == two.stats).all()


def test_a_gold_label_the_model_does_not_know_is_an_error_in_the_rebuilt_score_too(tmp_path):
    write_predictions(
        tmp_path / "p", Classification(labels=("a", "b")), examples("classification", ["a", "z"]), said("a", "a")
    )
    assert rescore(tmp_path / "p")["accuracy"].value == 50


def test_tags_come_back_with_hand_counted_scores(tmp_path):
    gold = examples("tagging", [["O", "B-X"], ["B-X", "I-X", "O"]])
    task = Tagging(labels=("O", "B-X", "I-X"))
    write_predictions(tmp_path / "p.jsonl", task, gold, said(["O", "B-X"], ["B-X", "O", "O"]))
    scores = rescore(tmp_path / "p.jsonl")
    assert scores["entity_f1"].value == 50  # one of two entities found, one of two predictions right
    assert scores["token_f1"].value == pytest.approx(100 * 2 * 2 / (2 + 3))


def test_answers_come_back_and_are_compared_as_the_task_said(tmp_path):
    gold = examples("qa", [[Answer("das Haus", 0)], [Answer("Baum", 3), Answer("ein Baum", 0)]])
    for normaliser in ("squad", "mlqa"):
        write_predictions(
            tmp_path / normaliser, QuestionAnswering(normaliser=normaliser), gold, said("Haus", "ein Baum")
        )
    assert read_predictions(tmp_path / "squad")[0].labels == gold.labels
    assert rescore(tmp_path / "squad")["exact_match_squad"].value == 50
    assert rescore(tmp_path / "mlqa")["exact_match_mlqa"].value == 100  # German articles do not count there


def test_the_language_of_the_context_decides_how_answers_are_compared(tmp_path):
    gold = replace(examples("qa", [[Answer("das Haus", 0)]]), language="en", pair_language="de")
    write_predictions(tmp_path / "p", QuestionAnswering(normaliser="mlqa"), gold, said("Haus"))
    assert rescore(tmp_path / "p")["exact_match_mlqa"].value == 100


def test_the_file_is_one_json_line_per_example_after_a_line_about_the_task(tmp_path):
    gold = examples("classification", ["a", "b"])
    write_predictions(tmp_path / "p.jsonl", Classification(labels=("a", "b")), gold, said("a", "\u2028"))
    header, *rows = read_jsonl(tmp_path / "p.jsonl")
    assert header["kind"] == "classification"
    assert header["task"] == {"labels": ["a", "b"], "max_length": 128}
    assert rows[1] == {"id": "1", "prediction": "\u2028", "gold": "b"}


def test_a_task_is_made_from_plain_settings():
    assert make_task("tagging", ["O", "B-X"], max_length=64) == Tagging(labels=("O", "B-X"), max_length=64)
    assert make_task("qa", (), stride=32) == QuestionAnswering(stride=32)
