"""Classification: encoding, loss, decoding and scores."""

import math

import numpy as np
import pytest
import torch

from crosslift.data.examples import Examples
from crosslift.errors import BadInput, BadLabels
from crosslift.tasks import Classification
from tests.tiny import bpe_tokenizer, unigram_tokenizer, wordpiece_tokenizer

LABELS = ("contradiction", "entailment", "neutral")
TASK = Classification(LABELS)
PAIRS = Examples(
    "classification",
    "en",
    ids=["1", "2", "3"],
    texts=["the quick brown fox", "Berlin", "the dog " * 40],
    pairs=["a fox", "the capital of Germany", "the fox"],
    labels=["entailment", None, "neutral"],
    name="nli",
)


@pytest.mark.parametrize("tokenizer", [wordpiece_tokenizer, bpe_tokenizer, unigram_tokenizer])
def test_a_set_is_encoded_as_the_tokenizer_does_it_one_by_one(tokenizer):
    tokenizer = tokenizer()
    encoded = Classification(LABELS, max_length=24).encode(PAIRS, tokenizer)
    for row, (text, pair) in enumerate(zip(PAIRS.texts, PAIRS.pairs, strict=True)):
        one = tokenizer(text, pair, truncation="longest_first", max_length=24)
        for name, ragged in encoded.inputs.items():
            assert ragged[row].tolist() == one[name]
    assert encoded.inputs["input_ids"].values.dtype == np.int32
    assert encoded.lengths()[2] == 24
    assert encoded.targets["labels"].tolist() == [1, -100, 2]
    assert encoded.example_of.tolist() == [0, 1, 2]


def test_of_a_pair_the_longer_text_is_shortened():
    tokenizer = wordpiece_tokenizer()
    encoded = Classification(LABELS, max_length=24).encode(PAIRS, tokenizer)
    assert tokenizer.decode(encoded.inputs["input_ids"][2]).endswith("[SEP] the fox [SEP]")


def test_rows_without_a_label_are_no_unit_of_the_loss():
    tokenizer = wordpiece_tokenizer()
    assert TASK.units(TASK.encode(PAIRS, tokenizer), np.array([2, 1, 0])).tolist() == [1, 0, 1]
    assert TASK.units(TASK.encode(PAIRS.unlabelled(), tokenizer), np.arange(3)).tolist() == [1, 1, 1]


def test_an_unknown_label_is_named_with_its_nearest_match():
    wrong = Examples("classification", "de", ["1"], ["x"], labels=["entailmant"], name="nli")
    with pytest.raises(BadLabels, match=r'nli .de.: unknown label "entailmant". Did you mean "entailment"'):
        TASK.encode(wrong, wordpiece_tokenizer())


def test_loss_by_hand():
    logits = torch.tensor([[0.0, 0.0, 0.0], [math.log(2), 0.0, 0.0], [9.0, 9.0, 9.0]])
    batch = {"labels": torch.tensor([1, 0, -100])}
    expected = (math.log(3) + math.log(2)) / 2
    assert TASK.loss({"logits": logits}, batch).item() == pytest.approx(expected)


def test_loss_gradient():
    logits = torch.randn(3, 3, dtype=torch.float64, requires_grad=True)
    batch = {"labels": torch.tensor([1, -100, 2])}
    # The loss is computed in single precision, hence the wide step.
    assert torch.autograd.gradcheck(lambda x: TASK.loss({"logits": x}, batch), logits, eps=1e-2, atol=1e-3, rtol=1e-2)


def test_decoding_names_the_likeliest_class():
    encoded = TASK.encode(PAIRS, wordpiece_tokenizer())
    logits = torch.tensor([[0.0, math.log(2), 0.0], [5.0, 0.0, 0.0], [0.0, 0.0, math.log(8)]])
    kept = TASK.keep({"logits": logits.to(torch.bfloat16)}, encoded, np.arange(3))
    exact = TASK.keep({"logits": logits}, encoded, np.arange(3))
    assert [k["logits"].shape for k in kept] == [(3,)] * 3
    predictions = TASK.decode(exact, encoded, PAIRS)
    assert [p["prediction"] for p in predictions] == ["entailment", "contradiction", "neutral"]
    assert predictions[0]["id"] == "1"
    assert predictions[0]["probabilities"] == {"contradiction": 0.25, "entailment": 0.5, "neutral": 0.25}
    assert predictions[2]["probabilities"]["neutral"] == 0.8


def test_scores():
    gold = Examples("classification", "en", ["1", "2", "3"], ["x"] * 3, labels=["neutral", "neutral", "entailment"])
    predictions = [{"prediction": p} for p in ("neutral", "entailment", "entailment")]
    scores = TASK.metrics(gold, predictions)
    assert list(scores) == ["accuracy", "macro_f1"]
    assert scores["accuracy"].value == pytest.approx(200 / 3)
    assert scores["macro_f1"].value == pytest.approx(200 / 3)


def test_a_gold_class_the_model_does_not_know_is_missed():
    gold = Examples("classification", "en", ["1", "2"], ["x"] * 2, labels=["neutral", "other"])
    scores = TASK.metrics(gold, [{"prediction": "neutral"}, {"prediction": "neutral"}])
    assert scores["accuracy"].value == 50


def test_unknown_gold_is_not_scored():
    with pytest.raises(BadInput):
        TASK.metrics(PAIRS, [{"prediction": "neutral"}] * 3)
