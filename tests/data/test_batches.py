"""Batches: complete, reproducible, within their budgets, and with little padding."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from crosslift.data.batches import evaluation_batches, micro_batches, training_batches
from crosslift.errors import BadInput

lengths_strategy = st.lists(st.integers(1, 200), max_size=120)


def skewed_lengths(count=4000):
    """Many short rows, a few very long ones."""
    return np.clip(np.random.default_rng(0).lognormal(3.3, 0.7, count), 3, 512).astype(np.int64)


def waste(batches, lengths):
    padded = sum(len(rows) * lengths[rows].max() for rows in batches)
    return 1 - sum(lengths[rows].sum() for rows in batches) / padded


def listed(batches):
    return [rows.tolist() for rows in batches]


@given(lengths=lengths_strategy, size=st.integers(1, 40), seed=st.integers(0, 5), epoch=st.integers(0, 5))
def test_an_epoch_has_every_row_once(lengths, size, seed, epoch):
    batches = training_batches(lengths, size, seed, epoch, window=3)
    assert sorted(row for rows in batches for row in rows) == list(range(len(lengths)))
    assert sum(len(rows) < size for rows in batches) <= 1
    assert listed(batches) == listed(training_batches(lengths, size, seed, epoch, window=3))


@given(lengths=lengths_strategy, budget=st.integers(1, 500))
def test_a_token_budget_holds_and_every_row_comes_once(lengths, budget):
    batches = training_batches(lengths, None, 0, 0, batch_tokens=budget, window=4)
    assert sorted(row for rows in batches for row in rows) == list(range(len(lengths)))
    tokens = np.array(lengths)
    assert all(len(rows) * tokens[rows].max() <= budget or len(rows) == 1 for rows in batches)


def test_dropping_the_last_batch_leaves_full_batches_only():
    batches = training_batches(np.arange(1, 104), 10, 0, 0, drop_last=True)
    assert [len(rows) for rows in batches] == [10] * 10


def test_seed_and_epoch_change_the_batches():
    lengths = skewed_lengths(500)
    orders = {str(listed(training_batches(lengths, 16, *at))) for at in [(0, 0), (0, 1), (1, 0), (1, 1)]}
    assert len(orders) == 4


def test_batches_are_not_in_order_of_length():
    lengths = skewed_lengths()
    means = [lengths[rows].mean() for rows in training_batches(lengths, 32, 0, 0)]
    assert abs(np.corrcoef(np.arange(len(means)), means)[0, 1]) < 0.3


def test_batches_need_exactly_one_size():
    with pytest.raises(BadInput, match="either by rows"):
        training_batches([1, 2], None, 0, 0)
    with pytest.raises(BadInput, match="either by rows"):
        micro_batches([0, 1], [1, 2], 10, size=2)


@given(
    lengths=st.lists(st.integers(1, 200), min_size=1, max_size=60),
    world=st.integers(1, 5),
    budget=st.integers(1, 600),
    data=st.data(),
)
def test_processes_share_a_batch_without_loss_or_overlap(lengths, world, budget, data):
    rows = data.draw(st.lists(st.integers(0, len(lengths) - 1), unique=True))
    tokens = np.array(lengths)
    shares = [micro_batches(rows, lengths, budget, rank, world) for rank in range(world)]
    assert sorted(row for share in shares for part in share for row in part) == sorted(rows)
    assert all(len(p) * tokens[p].max() <= budget or len(p) == 1 for share in shares for p in share)
    counts = [sum(map(len, share)) for share in shares]
    assert max(counts) - min(counts) <= 1
    assert [listed(share) for share in shares] == [
        listed(micro_batches(rows, lengths, budget, rank, world)) for rank in range(world)
    ]


def test_processes_get_about_the_same_number_of_tokens():
    lengths = skewed_lengths(256)
    shares = [micro_batches(np.arange(256), lengths, 4096, rank, 4) for rank in range(4)]
    tokens = [sum(lengths[part].sum() for part in share) for share in shares]
    assert max(tokens) < 1.1 * min(tokens)


def test_a_process_without_rows_has_no_micro_batches():
    assert micro_batches([3], [1, 1, 1, 9], 100, 1, 2) == []
    assert listed(micro_batches([3], [1, 1, 1, 9], 100, 0, 2)) == [[3]]


def test_micro_batches_by_rows():
    assert [len(p) for p in micro_batches(np.arange(7), np.ones(7), size=3)] == [3, 3, 1]


@given(lengths=lengths_strategy, budget=st.integers(1, 500))
def test_evaluation_covers_every_row_within_the_budget(lengths, budget):
    batches = evaluation_batches(lengths, budget)
    assert sorted(row for rows in batches for row in rows) == list(range(len(lengths)))
    tokens = np.array(lengths)
    assert all(len(rows) * tokens[rows].max() <= budget or len(rows) == 1 for rows in batches)
    heads = [tokens[rows[0]] for rows in batches]
    assert heads == sorted(heads, reverse=True)


def test_little_is_padding_when_lengths_are_skewed():
    lengths = skewed_lengths()
    plain = [np.arange(start, start + 32) for start in range(0, len(lengths) - 31, 32)]
    assert waste(plain, lengths) > 0.4, "the distribution should be a hard one"
    assert waste(training_batches(lengths, 32, 0, 0), lengths) < 0.10
    assert waste(training_batches(lengths, None, 0, 0, batch_tokens=2048), lengths) < 0.10
    assert waste(evaluation_batches(lengths, 8192), lengths) < 0.10


def test_micro_batches_have_a_power_of_two_of_rows_unless_all_fit():
    def sizes(rows, budget):
        return [len(part) for part in micro_batches(np.arange(rows), np.full(rows, 10), budget)]

    assert sizes(32, 135) == [8, 8, 8, 8]  # 13 fit
    assert sizes(30, 310) == [30]
    assert sizes(32, 310) == [16, 16]  # 31 fit: not 31 and 1
    assert sizes(11, 89) == [8, 3]
    assert sizes(3, 9) == [1, 1, 1]
