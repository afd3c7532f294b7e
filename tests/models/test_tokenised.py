"""Sets are tokenised once per process, and never mixed up."""

from copy import deepcopy
from dataclasses import replace

import numpy as np
import pytest

from crosslift.data.examples import Examples
from crosslift.models import tokenised
from crosslift.models.tokenised import encode_once, size
from crosslift.tasks.classification import Classification
from tests import tiny

TEXTS = ["the cat sat", "a dog ran", "the dog sat"]
EXAMPLES = Examples("classification", "en", ["1", "2", "3"], TEXTS, labels=["x", "y", "x"], name="set")
TASK = Classification(("x", "y"), max_length=16)


@pytest.fixture(autouse=True)
def nothing_kept(monkeypatch):
    monkeypatch.setattr(tokenised, "_kept", type(tokenised._kept)())


def rows(encoded):
    return [encoded.inputs["input_ids"][row].tolist() for row in range(len(encoded))]


def test_the_same_set_is_tokenised_once_by_equal_tokenizers():
    first = encode_once(TASK, EXAMPLES, tiny.wordpiece_tokenizer())
    again = encode_once(TASK, replace(EXAMPLES, ids=["a", "b", "c"], name="other"), tiny.wordpiece_tokenizer())
    assert again is first
    assert rows(first) == rows(TASK.encode(EXAMPLES, tiny.wordpiece_tokenizer()))


@pytest.mark.parametrize(
    ("task", "examples"),
    [
        (Classification(("x", "y"), max_length=4), EXAMPLES),
        (Classification(("y", "x"), max_length=16), EXAMPLES),
        (TASK, replace(EXAMPLES, labels=["y", "y", "x"])),
        (TASK, EXAMPLES.unlabelled()),
        (TASK, replace(EXAMPLES, texts=["the catsat", "a dog ran", "the dog sat"])),
        (TASK, replace(EXAMPLES, texts=["the cat", "sata dog ran", "the dog sat"])),
        (TASK, replace(EXAMPLES, pairs=TEXTS[::-1])),
    ],
)
def test_what_differs_is_tokenised_anew(task, examples):
    tokenizer = tiny.wordpiece_tokenizer()
    encode_once(TASK, EXAMPLES, tokenizer)
    found, wanted = encode_once(task, examples, tokenizer), task.encode(examples, tokenizer)
    assert rows(found) == rows(wanted)
    assert found.targets.keys() == wanted.targets.keys()
    for name, targets in wanted.targets.items():
        np.testing.assert_array_equal(found.targets[name], targets)


def test_other_tokenizers_and_pieces_added_since_count():
    tokenizer = deepcopy(tiny.wordpiece_tokenizer())
    assert rows(encode_once(TASK, EXAMPLES, tokenizer)) != rows(encode_once(TASK, EXAMPLES, tiny.unigram_tokenizer()))
    tokenizer.add_tokens(["cat sat"])
    assert rows(encode_once(TASK, EXAMPLES, tokenizer)) == rows(TASK.encode(EXAMPLES, tokenizer))


def test_shared_rows_cannot_be_written_to():
    encoded = encode_once(TASK, EXAMPLES, tiny.wordpiece_tokenizer())
    with pytest.raises(ValueError, match="read-only"):
        encoded.targets["labels"][0] = 1
    with pytest.raises(ValueError, match="read-only"):
        encoded.inputs["input_ids"].values[0] = 1


def test_what_was_not_asked_for_longest_goes_first(monkeypatch):
    tokenizer = tiny.wordpiece_tokenizer()
    sets = [replace(EXAMPLES, texts=[f"{text} {extra}" for text in TEXTS]) for extra in ("cat", "dog", "sat")]
    second, first = encode_once(TASK, sets[1], tokenizer), encode_once(TASK, sets[0], tokenizer)
    encode_once(TASK, sets[1], tokenizer)
    monkeypatch.setattr(tokenised, "LIMIT", size(first) + size(TASK.encode(sets[2], tokenizer)))
    assert encode_once(TASK, sets[0], tokenizer) is first, "asked for again"
    encode_once(TASK, sets[2], tokenizer)
    assert encode_once(TASK, sets[0], tokenizer) is first
    assert encode_once(TASK, sets[1], tokenizer) is not second


def test_a_set_beyond_the_limit_is_not_kept(monkeypatch):
    monkeypatch.setattr(tokenised, "LIMIT", 10)
    first = encode_once(TASK, EXAMPLES, tiny.wordpiece_tokenizer())
    assert encode_once(TASK, EXAMPLES, tiny.wordpiece_tokenizer()) is not first
