"""Rows stored flat, batches made of them, and the choice of a task."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from crosslift.data.examples import Examples
from crosslift.errors import BadInput, BadLabels
from crosslift.tasks import Classification, QuestionAnswering, Tagging, task_for
from crosslift.tasks.encoded import Encoded, Ragged, collate, mean_cross_entropy, tokenize
from tests.tiny import unigram_tokenizer, wordpiece_tokenizer

rows_strategy = st.lists(st.lists(st.integers(0, 99), max_size=6), min_size=1, max_size=6)


@given(rows=rows_strategy, data=st.data())
def test_padding_equals_a_loop(rows, data):
    picked = data.draw(st.lists(st.integers(0, len(rows) - 1), max_size=6))
    length = max((len(rows[i]) for i in picked), default=0) + data.draw(st.integers(0, 3))
    padded = Ragged.of(rows).pad(np.array(picked, int), length, -1)
    assert padded.tolist() == [rows[i] + [-1] * (length - len(rows[i])) for i in picked]


@given(rows=rows_strategy)
def test_rows_come_back_as_they_went_in(rows):
    ragged = Ragged.of(rows)
    assert [row.tolist() for row in ragged] == rows
    assert ragged.lengths().tolist() == [len(row) for row in rows]


def test_rows_of_vectors_are_padded_too():
    ragged = Ragged(np.arange(6).reshape(3, 2), np.array([0, 2, 3]))
    assert ragged.pad(np.array([1, 0]), 2, 0).tolist() == [[[4, 5], [0, 0]], [[0, 1], [2, 3]]]


def test_a_row_longer_than_the_batch_is_refused():
    with pytest.raises(ValueError, match="cannot assign"):
        Ragged.of([[1, 2, 3]]).pad(np.array([0]), 2, 0)


ENCODED = Encoded(
    inputs={"input_ids": Ragged.of([[5, 6, 7], [8]]), "token_type_ids": Ragged.of([[0, 1, 1], [0]])},
    example_of=np.array([0, 1], dtype=np.int32),
    targets={"labels": Ragged.of([[-100, 2, -100], [3]], np.int64), "classes": np.array([1, 0])},
)


@pytest.mark.parametrize(("pad_to", "length"), [(1, 3), (2, 4), (8, 8)])
def test_a_batch_is_padded_to_its_longest_row_rounded_up(pad_to, length):
    batch = collate(ENCODED, np.array([1, 0]), pad_id=9, pad_to=pad_to)
    more = length - 3
    assert batch["input_ids"].tolist() == [[8] + [9] * (length - 1), [5, 6, 7] + [9] * more]
    assert batch["attention_mask"].tolist() == [[1] + [0] * (length - 1), [1, 1, 1] + [0] * more]
    assert batch["token_type_ids"].tolist() == [[0] * length, [0, 1, 1] + [0] * more]
    assert batch["labels"].tolist() == [[3] + [-100] * (length - 1), [-100, 2, -100] + [-100] * more]
    assert batch["classes"].tolist() == [0, 1]
    assert {tensor.dtype for tensor in batch.values()} == {torch.int64}


def test_more_tokens_than_the_model_reads_are_refused():
    with pytest.raises(BadInput, match="max_length is 600, but the model reads at most 512"):
        tokenize(wordpiece_tokenizer(), ["the dog"], max_length=600)


def test_an_empty_set_is_refused():
    with pytest.raises(BadInput, match="no examples"):
        tokenize(wordpiece_tokenizer(), [], max_length=16)


def test_cross_entropy_without_any_target_is_zero_with_zero_gradient():
    logits = torch.randn(2, 3, requires_grad=True)
    loss = mean_cross_entropy(logits, torch.tensor([-100, -100]))
    loss.backward()
    assert loss.item() == 0
    assert not logits.grad.any()


def examples(kind, labels=None, pairs=None):
    words = np.array([[0, 3], [4, 7]], dtype=np.int32)
    spans = [words] if kind == "tagging" else None
    return Examples(kind, "en", ["a"], ["the dog"], pairs=pairs, spans=spans, labels=labels)


def test_the_kind_of_examples_picks_the_task():
    several = Examples("classification", "en", ["a", "b"], ["x", "y"], labels=["yes", "no"])
    assert task_for(several, max_length=32) == Classification(("no", "yes"), 32)
    assert task_for(examples("tagging", [["B-PER", "O"]])) == Tagging(("O", "B-PER"))
    assert task_for(examples("qa", pairs=["c"]), stride=16) == QuestionAnswering(stride=16)


def test_labels_keep_the_order_they_are_given_in():
    task = task_for(examples("tagging", [["O", "O"]]), labels=["B-X", "O", "I-X"])
    assert task.labels == ("B-X", "O", "I-X")


def test_an_unknown_setting_shows_the_nearest_one():
    with pytest.raises(BadInput, match=r'no setting "max_len".*Did you mean "max_length"'):
        task_for(examples("tagging", [["O", "O"]]), labels=["O", "B-X"], max_len=3)


def test_examples_without_labels_need_a_label_list():
    with pytest.raises(BadInput, match="no labels to take the label list from"):
        task_for(examples("classification"))


@pytest.mark.parametrize("labels", [["only"], ["a", "b", "a"]])
def test_a_task_needs_different_labels(labels):
    with pytest.raises(BadLabels, match="two labels or more, each once"):
        task_for(examples("classification"), labels=labels)


def test_plain_text_has_no_task():
    with pytest.raises(BadInput, match="text examples have no task"):
        task_for(Examples("text", "en", ["a"], ["x"]))


def test_tokenizers_without_token_types_give_none():
    task = Classification(("a", "b"))
    pair = Examples("classification", "en", ["1"], ["the dog"], pairs=["a fox"])
    assert set(task.encode(pair, unigram_tokenizer()).inputs) == {"input_ids"}
    assert set(task.encode(pair, wordpiece_tokenizer()).inputs) == {"input_ids", "token_type_ids"}
