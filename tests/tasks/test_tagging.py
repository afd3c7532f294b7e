"""Tagging: which token carries which tag, long texts, shared tokens, and the way back to words."""

import lzma
import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from crosslift.data.examples import Examples
from crosslift.errors import BadInput, BadLabels
from crosslift.tasks import Tagging
from tests.tiny import bpe_tokenizer, unigram_tokenizer, wordpiece_tokenizer

LABELS = ("O", "B-PER", "I-PER", "B-LOC", "I-LOC")
TOKENIZERS = [wordpiece_tokenizer, bpe_tokenizer, unigram_tokenizer]


def spans_of(text):
    """Return the words between spaces."""
    spans, place = [], 0
    for word in text.split(" "):
        if word:
            spans.append((place, place + len(word)))
        place += len(word) + 1
    return np.array(spans, dtype=np.int32).reshape(-1, 2)


def sentences(texts, labels=None, spans=None):
    spans = spans or [spans_of(text) for text in texts]
    return Examples("tagging", "en", [str(i) for i in range(len(texts))], texts, spans=spans, labels=labels)


def predict(task, encoded, scores):
    """Feed logits of our own through keep and decode: `scores` is (rows, length, tags) for all rows."""
    rows = np.arange(len(encoded))
    return task.keep({"logits": scores}, encoded, rows)


def gold_logits(task, encoded):
    """Return logits that put each labelled token on its label."""
    labels = task.collate(encoded, np.arange(len(encoded)), 0)["labels"]
    return torch.nn.functional.one_hot(labels.clamp(min=0), len(task.labels)).float()


def test_the_first_subword_carries_the_tag():
    tokenizer = wordpiece_tokenizer()
    task = Tagging(LABELS)
    encoded = task.encode(sentences(["Marie xyz born"], [["B-PER", "I-PER", "O"]]), tokenizer)
    tokens = tokenizer.convert_ids_to_tokens(encoded.inputs["input_ids"][0].tolist())
    labels = encoded.targets["labels"][0]
    expected = {"marie": 1, "x": 2, "born": 0}
    heads = [token for token in tokens if not token.startswith(("##", "["))]
    assert len(heads) == 3
    assert [label for label in labels if label >= 0] == list(expected.values())
    assert [token for token, label in zip(tokens, labels, strict=True) if label >= 0] == heads
    assert task.units(encoded, np.array([0])).tolist() == [3]


def test_label_all_puts_the_tag_on_every_subword():
    encoded = Tagging(LABELS, label_all=True).encode(
        sentences(["the xylophone"], [["O", "B-LOC"]]), wordpiece_tokenizer()
    )
    labels = encoded.targets["labels"][0].tolist()
    assert labels[0] == labels[-1] == -100
    assert set(labels[1:-1]) == {0, 3}
    assert sorted(labels[1:-1]) == labels[1:-1]
    assert Tagging(LABELS).units(encoded, np.array([0])).tolist() == [len(labels) - 2]


@pytest.mark.parametrize("tokenizer", TOKENIZERS)
@pytest.mark.parametrize("label_all", [False, True])
@settings(max_examples=25, deadline=None)
@given(
    texts=st.lists(
        st.lists(st.sampled_from(["The", "fox", "xylophone", "Übermut", "лиса", "𓀀", "猫"]), max_size=14),
        min_size=1,
        max_size=4,
    ),
    max_length=st.sampled_from([5, 9, 16, 128]),
    data=st.data(),
)
def test_every_word_of_every_text_gets_its_tag_back(tokenizer, label_all, texts, max_length, data):
    labels = [data.draw(st.lists(st.sampled_from(LABELS), min_size=len(t), max_size=len(t))) for t in texts]
    examples = sentences([" ".join(words) for words in texts], labels)
    task = Tagging(LABELS, max_length=max_length, label_all=label_all)
    encoded = task.encode(examples, tokenizer())
    assert encoded.lengths().max() <= max_length
    assert sorted(encoded.example_of.tolist()) == encoded.example_of.tolist()
    kept = predict(task, encoded, gold_logits(task, encoded))
    assert [p["prediction"] for p in task.decode(kept, encoded, examples)] == labels
    units = task.units(encoded, np.arange(len(encoded)))
    assert units.sum() == sum((row >= 0).sum() for row in encoded.targets["labels"])
    if not label_all:
        assert units.sum() == sum(map(len, texts))
        unlabelled = task.encode(examples.unlabelled(), tokenizer())
        assert task.units(unlabelled, np.arange(len(encoded))).tolist() == units.tolist()


@pytest.mark.parametrize("tokenizer", TOKENIZERS)
def test_long_texts_are_cut_between_words_and_lose_no_token(tokenizer):
    tokenizer = tokenizer()
    text = "The quick brown fox jumps over the lazy dog and Berlin is the capital of Germany"
    task = Tagging(LABELS, max_length=16)
    encoded = task.encode(sentences([text, "the dog"]), tokenizer)
    whole = tokenizer(text)["input_ids"]
    rows = [encoded.inputs["input_ids"][row].tolist() for row in np.flatnonzero(encoded.example_of == 0)]
    assert len(rows) > 1
    assert all(row[0] == whole[0] and row[-1] == whole[-1] for row in rows)
    assert [token for row in rows for token in row[1:-1]] == whole[1:-1]
    words = [tokenizer.decode(row, skip_special_tokens=True).strip() for row in rows]
    assert " ".join(words).split() == tokenizer.decode(whole, skip_special_tokens=True).split()
    assert encoded.inputs["input_ids"][len(encoded) - 1].tolist() == tokenizer("the dog")["input_ids"]


def test_a_word_longer_than_a_row_is_tagged_by_its_first_subword():
    examples = sentences(["the " + "xyz" * 20 + " dog"], [["O", "B-PER", "B-LOC"]])
    task = Tagging(LABELS, max_length=16)
    encoded = task.encode(examples, wordpiece_tokenizer())
    assert encoded.lengths().max() == 16
    kept = predict(task, encoded, gold_logits(task, encoded))
    assert task.decode(kept, encoded, examples)[0]["prediction"] == ["O", "B-PER", "B-LOC"]


def test_a_word_that_vanishes_is_outside():
    examples = sentences(["the \x01 dog"], [["B-PER", "I-PER", "B-LOC"]])
    task = Tagging(LABELS)
    encoded = task.encode(examples, wordpiece_tokenizer())
    assert task.units(encoded, np.array([0])).tolist() == [2]
    kept = predict(task, encoded, gold_logits(task, encoded))
    assert task.decode(kept, encoded, examples)[0]["prediction"] == ["B-PER", "O", "B-LOC"]


def test_words_that_share_a_token_share_its_tag_and_go_on_with_it():
    spans = [np.array([[0, 1], [1, 2], [2, 3], [3, 4]], dtype=np.int32)]
    examples = sentences(["我爱北京"], [["O", "O", "B-LOC", "B-PER"]], spans)
    task = Tagging(LABELS)
    encoded = task.encode(examples, unigram_tokenizer())
    assert encoded.maps["first"][0].tolist()[2] == encoded.maps["first"][0].tolist()[3]
    assert task.units(encoded, np.array([0])).tolist() == [3]
    assert [label for label in encoded.targets["labels"][0] if label >= 0] == [0, 0, 3]
    kept = predict(task, encoded, gold_logits(task, encoded))
    assert task.decode(kept, encoded, examples)[0]["prediction"] == ["O", "O", "B-LOC", "I-LOC"]


def test_texts_without_words_have_no_tags():
    examples = sentences(["", "the dog"], [[], ["O", "B-LOC"]])
    task = Tagging(LABELS)
    encoded = task.encode(examples, wordpiece_tokenizer())
    kept = predict(task, encoded, gold_logits(task, encoded))
    assert [p["prediction"] for p in task.decode(kept, encoded, examples)] == [[], ["O", "B-LOC"]]


def test_a_sentence_with_unknown_tags_carries_no_loss():
    task = Tagging(LABELS)
    encoded = task.encode(sentences(["the dog", "a fox"], [None, ["O", "O"]]), wordpiece_tokenizer())
    assert task.units(encoded, np.arange(2)).tolist() == [0, 2]


def test_bad_tags_are_named():
    task = Tagging(LABELS)
    with pytest.raises(BadLabels, match=r'unknown label "B-PRE". Did you mean "B-PER"'):
        task.encode(sentences(["the dog"], [["O", "B-PRE"]]), wordpiece_tokenizer())
    with pytest.raises(BadInput, match='Example "0" has 2 words but 1 tags'):
        task.encode(sentences(["the dog"], [["O"]]), wordpiece_tokenizer())
    with pytest.raises(BadInput, match="needs words"):
        task.encode(Examples("tagging", "en", ["0"], ["the dog"]), wordpiece_tokenizer())


def test_a_row_needs_room_for_text():
    with pytest.raises(BadInput, match="no room"):
        Tagging(LABELS, max_length=2).encode(sentences(["the dog"]), wordpiece_tokenizer())


def test_loss_by_hand_and_padding_changes_nothing():
    logits = torch.zeros(1, 3, 2)
    logits[0, 1, 0] = math.log(3)
    labels = torch.tensor([[-100, 0, 1]])
    task = Tagging(("O", "X"))
    expected = (math.log(4 / 3) + math.log(2)) / 2
    assert task.loss({"logits": logits}, {"labels": labels}).item() == pytest.approx(expected)
    longer = torch.cat([logits, torch.full((1, 4, 2), 7.0)], dim=1)
    padded = torch.cat([labels, torch.full((1, 4), -100)], dim=1)
    assert task.loss({"logits": longer}, {"labels": padded}).item() == pytest.approx(expected)


def test_loss_gradient_is_softmax_minus_target_over_units():
    logits = torch.randn(2, 3, 4, requires_grad=True)
    labels = torch.tensor([[-100, 2, -100], [1, 0, -100]])
    Tagging(("O", "a", "b", "c")).loss({"logits": logits}, {"labels": labels}).backward()
    expected = logits.softmax(-1) - torch.nn.functional.one_hot(labels.clamp(min=0), 4)
    expected = expected * (labels != -100).unsqueeze(-1) / 3
    torch.testing.assert_close(logits.grad, expected)


def test_scores_are_over_whole_sentences():
    gold = sentences(["a b c"], [["B-PER", "I-PER", "O"]])
    scores = Tagging(LABELS).metrics(gold, [{"prediction": ["B-PER", "O", "O"]}])
    assert list(scores) == ["entity_f1", "token_f1"]
    assert scores["entity_f1"].value == 0
    assert scores["token_f1"].value == pytest.approx(200 / 3)


def test_tags_without_b_and_i_are_scored_by_word():
    gold = sentences(["a b"], [["NOUN", "VERB"]])
    scores = Tagging(("NOUN", "VERB")).metrics(gold, [{"prediction": ["NOUN", "NOUN"]}])
    assert list(scores) == ["token_f1"]
    assert scores["token_f1"].value == 50


@pytest.mark.shared
@pytest.mark.parametrize(("language", "space", "ceiling"), [("de", " ", 100), ("zh", "", 99.5)])
def test_gold_tags_of_panx_survive_the_way_there_and_back(shared, language, space, ceiling):
    """What is lost in Chinese are tags that change inside a piece of the tokenizer."""
    from transformers import AutoTokenizer

    with lzma.open(shared / "data" / "panx" / f"{language}.test.conll.xz", "rt", encoding="utf-8") as file:
        blocks = [block.strip("\n").split("\n") for block in file.read().split("\n\n") if block.strip()]
    words = [[line.split("\t")[0] for line in block] for block in blocks]
    labels = [[line.split("\t")[1] for line in block] for block in blocks]
    spans = []
    for sentence in words:
        ends = np.cumsum([len(word) + len(space) for word in sentence]) - len(space)
        spans.append(np.stack([ends - [len(word) for word in sentence], ends], axis=1).astype(np.int32))
    examples = sentences([space.join(sentence) for sentence in words], labels, spans)
    tags = ("O", "B-PER", "I-PER", "B-LOC", "I-LOC", "B-ORG", "I-ORG")
    task = Tagging(tags, max_length=32)
    encoded = task.encode(examples, AutoTokenizer.from_pretrained(shared / "models" / "probe-x"))
    assert len(encoded) > len(examples)
    kept = predict(task, encoded, gold_logits(task, encoded))
    assert task.metrics(examples, task.decode(kept, encoded, examples))["entity_f1"].value >= ceiling
