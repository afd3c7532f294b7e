"""Checkpoints: whole or not there, checked when read, two kept."""

import pytest
import torch

from crosslift.errors import BrokenRun
from crosslift.runs import checkpoint
from crosslift.runs.checkpoint import State


def state(step: int, value: float = 1.0, **more) -> State:
    return State(step, {"model": {"w": torch.full((4,), value)}, **more}, {"averaged": 0.0})


def test_what_was_saved_comes_back(tmp_path):
    checkpoint.save(tmp_path, state(3, 2.5))
    found, passed_over = checkpoint.load_newest(tmp_path)
    assert passed_over == []
    assert (found.step, found.facts) == (3, {"averaged": 0.0})
    assert torch.equal(found.tensors["model"]["w"], torch.full((4,), 2.5))


def test_no_folder_means_no_checkpoint(tmp_path):
    assert checkpoint.load_newest(tmp_path / "missing") == (None, [])


def test_the_two_newest_are_kept(tmp_path):
    for step in (2, 9, 10, 100):
        checkpoint.save(tmp_path, state(step))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["step-00000010", "step-00000100"]


@pytest.mark.parametrize("spoil", ["cut", "flip", "remove", "torn json", "no json", "empty json", "no checksums"])
def test_a_spoiled_checkpoint_is_passed_over_for_the_one_before(tmp_path, spoil):
    checkpoint.save(tmp_path, state(1, 1.0))
    newest = checkpoint.save(tmp_path, state(2, 2.0))
    weights, record = newest / "model.safetensors", newest / "state.json"
    data = weights.read_bytes()
    match spoil:
        case "cut":
            weights.write_bytes(data[:-3])
        case "flip":
            weights.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
        case "remove":
            weights.unlink()
        case "torn json":
            record.write_text(record.read_text()[:-5])
        case "no json":
            record.unlink()
        case "empty json":
            record.write_text("")
        case "no checksums":
            record.write_text('{"step": 2}')
    found, passed_over = checkpoint.load_newest(tmp_path)
    assert found.step == 1
    assert torch.equal(found.tensors["model"]["w"], torch.ones(4))
    assert len(passed_over) == 1
    assert str(newest) in passed_over[0]


def test_a_disk_that_fills_up_leaves_the_last_checkpoint_and_no_rest(tmp_path, monkeypatch):
    checkpoint.save(tmp_path, state(1))

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(checkpoint, "save_file", full)
    with pytest.raises(BrokenRun, match="No space left"):
        checkpoint.save(tmp_path, state(2))
    assert [path.name for path in tmp_path.iterdir()] == ["step-00000001"]
    assert checkpoint.load_newest(tmp_path)[0].step == 1


def test_unchanged_weights_are_linked_and_outlive_the_old_checkpoint(tmp_path):
    best = {"w": torch.arange(4.0)}
    first = checkpoint.save(tmp_path, state(1, best=best))
    inode = (first / "best.safetensors").stat().st_ino
    for step in (2, 3, 4):
        newest = checkpoint.save(tmp_path, state(step, best=best), unchanged=("best",))
    assert not first.exists()
    assert (newest / "best.safetensors").stat().st_ino == inode
    assert torch.equal(checkpoint.load_newest(tmp_path)[0].tensors["best"]["w"], torch.arange(4.0))


def test_an_optimiser_goes_on_exactly_where_it_was():
    def three_steps(weights, optimizer):
        for k in range(3):
            optimizer.zero_grad()
            (weights * torch.tensor([1.0, -2.0, 3.0]) * (k + 1)).sum().backward()
            optimizer.step()

    weights = torch.nn.Parameter(torch.ones(3))
    optimizer = torch.optim.AdamW([weights], lr=0.1)
    three_steps(weights, optimizer)
    copy = torch.nn.Parameter(weights.detach().clone())
    resumed = torch.optim.AdamW([copy], lr=0.1)
    checkpoint.restore_optimizer(resumed, checkpoint.optimizer_tensors(optimizer))
    three_steps(weights, optimizer)
    three_steps(copy, resumed)
    assert torch.equal(weights, copy)
