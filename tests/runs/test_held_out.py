import pytest
import torch

from crosslift.runs.held_out import all_hidden, is_stuck


def test_every_chosen_piece_is_hidden_and_nothing_else():
    ids = torch.tensor([[0, 7, 8, 9, 2], [0, 5, 2, 6, 2]])
    places = torch.tensor([[1, 3], [3, 2]])
    targets = torch.tensor([[7, 9], [6, -100]])  # the second row had only one piece that may be hidden
    assert all_hidden(ids, places, targets, 4).tolist() == [[0, 4, 8, 4, 2], [0, 5, 2, 4, 2]]


@pytest.mark.parametrize(("loss", "stuck"), [(5.0, True), (4.7, True), (4.6, False), (2.0, False)])
def test_a_run_is_stuck_when_frequencies_do_as_well(loss, stuck):
    assert is_stuck({"en": {"loss": loss, "unigram_loss": 5.0}}) is stuck


def test_without_held_out_text_no_run_is_called_stuck():
    assert not is_stuck({})
