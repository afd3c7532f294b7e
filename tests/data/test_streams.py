import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from crosslift.data.streams import (
    Rows,
    Streams,
    framed,
    hold_out,
    mask_tokens,
    mixed,
    positions,
    step_generator,
    unigram_loss,
)
from crosslift.errors import BadInput

CPU = torch.device("cpu")


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


def test_rows_pad_to_the_length_asked_for_and_cut_what_is_longer():
    rows = Rows.of(np.array([5, 6, 7, 8, 9, 10]), np.array([2, 3, 1]))
    ids, mask = rows.pad(torch.tensor([1, 2, 0]), 2, pad_id=1)
    assert ids.tolist() == [[7, 8], [10, 1], [5, 6]]
    assert mask.tolist() == [[1, 1], [1, 0], [1, 1]]
    ids, mask = rows.pad(torch.tensor([1]), 5, pad_id=1)
    assert ids.tolist() == [[7, 8, 9, 1, 1]]
    assert mask.tolist() == [[1, 1, 1, 0, 0]]


def test_windows_are_consecutive_tokens_of_one_stream():
    streams = Streams.of({"a": np.arange(100, 200), "b": np.arange(1000, 1400)})
    windows = streams.draw(5000, 8, generator())
    assert (windows[:, 1:] - windows[:, :-1] == 1).all()
    starts = windows[:, 0]
    assert set(starts[starts < 1000].tolist()) == set(range(100, 193))  # every place occurs, the last one too


def test_streams_are_drawn_by_the_root_of_their_size():
    streams = Streams.of({"small": np.zeros(100), "large": np.ones(10_000)})
    share = streams.draw(40_000, 1, generator()).float().mean().item()
    assert share == pytest.approx(100 / 110, abs=0.01)


def test_a_stream_shorter_than_the_window_wraps_around():
    windows = Streams.of({"a": np.array([7, 8, 9])}).draw(3, 7, generator())
    assert windows.tolist() == [[7, 8, 9, 7, 8, 9, 7]] * 3


def test_mixed_streams_keep_their_shares_and_their_tokens():
    a = Streams.of({"a": np.full(50, 1)})
    b = Streams.of({"b": np.full(10, 2), "c": np.full(10, 3)})
    windows = mixed([(a, 0.5), (b, 0.5)]).draw(20_000, 4, generator())
    assert (windows == windows[:, :1]).all()
    counts = torch.bincount(windows[:, 0]) / 20_000
    assert counts.tolist() == pytest.approx([0, 0.5, 0.25, 0.25], abs=0.02)


def test_no_text_is_an_error():
    with pytest.raises(BadInput, match="no text"):
        Streams.of({"de": np.empty(0)})


def test_a_step_draws_the_same_whenever_it_is_asked():
    streams = Streams.of({"a": np.arange(1000)})
    first = streams.draw(4, 16, step_generator(1, 7, 0, CPU))
    streams.draw(4, 16, step_generator(1, 8, 0, CPU))
    again = streams.draw(4, 16, step_generator(1, 7, 0, CPU))
    assert torch.equal(first, again)
    for other in (step_generator(2, 7, 0, CPU), step_generator(1, 8, 0, CPU), step_generator(1, 7, 1, CPU)):
        assert not torch.equal(first, streams.draw(4, 16, other))


def test_held_out_windows_are_the_end_and_leave_training():
    kept, held = hold_out({"a": np.arange(1000), "tiny": np.arange(30)}, length=10, windows=3)
    assert held["a"].tolist() == np.arange(970, 1000).reshape(3, 10).tolist()
    assert kept["a"].tolist() == list(range(970))
    assert "tiny" not in held
    assert len(kept["tiny"]) == 30


def test_frame_puts_marks_around_each_window():
    assert framed(torch.tensor([[5, 6]]), 0, 2).tolist() == [[0, 5, 6, 2]]


@given(seed=st.integers(0, 2**31), length=st.integers(4, 40), rate=st.floats(0.05, 0.5))
@settings(max_examples=40, deadline=None)
def test_masking_hides_a_fixed_number_and_never_a_special_token(seed, length, rate):
    ids = framed(torch.randint(5, 50, (3, length), generator=generator(seed)), 0, 2)
    masked = mask_tokens(ids, rate, 4, (0, 1, 2, 3, 4), 50, generator(seed))
    hidden = max(1, round(rate * (length + 2)))
    assert masked.places.shape == (3, hidden)
    real = masked.targets != -100
    assert (ids.gather(1, masked.places)[real] == masked.targets[real]).all()
    untouched = torch.ones_like(ids, dtype=torch.bool).scatter(1, masked.places, False)
    assert torch.equal(masked.input_ids[untouched], ids[untouched])
    assert (masked.input_ids[:, 0] == 0).all() and (masked.input_ids[:, -1] == 2).all()


def test_a_row_with_too_few_tokens_has_targets_that_do_not_count():
    ids = torch.tensor([[0, 9, 2, 1, 1, 1, 1, 1, 1, 1]])
    masked = mask_tokens(ids, 0.3, 4, (0, 1, 2, 3, 4), 50, generator())
    assert sorted(masked.targets[0].tolist()) == [-100, -100, 9]


def test_hidden_tokens_are_masked_replaced_or_kept_at_80_10_10():
    ids = torch.full((400, 100), 7)
    masked = mask_tokens(ids, 0.2, 4, (0, 1, 2, 3, 4), 10_000, generator())
    shown = masked.input_ids.gather(1, masked.places)
    assert (shown == 4).float().mean().item() == pytest.approx(0.8, abs=0.02)
    assert (shown == 7).float().mean().item() == pytest.approx(0.1, abs=0.02)


def test_positions_begin_after_padding_and_shift_whole_rows():
    mask = torch.tensor([[1, 1, 1, 0]])
    assert positions(mask, 1, 512, 0.0, generator()).tolist() == [[2, 3, 4, 1]]
    shifted = positions(torch.ones(2000, 4, dtype=torch.long), 1, 10, 1.0, generator())
    assert (shifted[:, 1:] - shifted[:, :-1] == 1).all()
    assert shifted.min().item() == 2 and shifted.max().item() == 11  # every position is trained, none beyond
    assert len(shifted[:, 0].unique()) == 7


def test_positions_do_not_shift_where_the_row_fills_the_model():
    assert positions(torch.ones(5, 8, dtype=torch.long), 1, 8, 1.0, generator())[:, 0].tolist() == [2] * 5


def test_unigram_loss_is_the_cross_entropy_under_training_frequencies():
    train = np.array([5] * 300 + [6] * 100)
    held = np.array([[5, 6, 0]])
    expected = -(np.log(300.1 / 400.3) + np.log(100.1 / 400.3)) / 2  # 0.1 is added to each of 8 - 5 pieces
    assert unigram_loss(train, held, 8, (0, 1, 2, 3, 4)) == pytest.approx(expected)


def test_a_special_id_is_never_put_in_as_the_random_piece():
    ids = torch.full((64, 50), 5)
    hidden = mask_tokens(ids, 1.0, 4, [0, 1, 2, 3, 4], 6, torch.Generator().manual_seed(0))
    assert set(hidden.input_ids.unique().tolist()) == {4, 5}
