"""The loop: exact resume, equal results however a step is cut, selection, and what goes wrong."""

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

import crosslift as xl
from crosslift.errors import BadInput, BrokenRun, MissingExtra, Unfinished
from crosslift.runs import checkpoint
from crosslift.runs.folder import RunFolder
from crosslift.runs.settings import Execution, Optimisation
from crosslift.runs.train import train
from tests.tiny_data import classification
from tests.tiny_models import save_encoder

STEPS = {"steps": 12, "batch_size": 8, "learning_rate": 1e-3, "evaluations": 4}


@pytest.fixture(scope="module")
def encoder(tmp_path_factory) -> Path:
    return save_encoder(tmp_path_factory.mktemp("encoder"))


@pytest.fixture(scope="module")
def plain_encoder(tmp_path_factory) -> Path:
    """Without dropout, so that only the arithmetic can differ."""
    none = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
    return save_encoder(tmp_path_factory.mktemp("plain"), **none)


def fit(encoder, out, **settings):
    data = classification()
    dev = classification(24, seed=9)
    return xl.fit("finetune", model=encoder, data=data, dev=dev, out=out, **{**STEPS, **settings})


def weights(run_path: Path, variant: str | None = None):
    folder = run_path / "model" if variant is None else run_path / "variants" / variant
    return load_file(folder / "model.safetensors")


def assert_equal(a, b):
    assert a.keys() == b.keys()
    for name in a:
        assert torch.equal(a[name], b[name]), name


def test_the_rate_rises_then_falls_to_its_floor():
    cosine = Optimisation(learning_rate=1.0, warmup=0.2, schedule="cosine", floor=0.1)
    rates = [cosine.rate(step, 10) for step in range(10)]
    assert rates[:3] == [0.5, 1.0, 1.0]
    assert rates == sorted(rates[:2]) + sorted(rates[2:], reverse=True)
    assert Optimisation(learning_rate=1.0, warmup=0.0, floor=0.1).rate(10, 10) == pytest.approx(0.1)


def test_two_runs_with_one_seed_end_with_the_same_weights_and_another_seed_does_not(encoder, tmp_path):
    first, again, other = (fit(encoder, tmp_path / name, seeds=[seed]) for name, seed in (("a", 1), ("b", 1), ("c", 2)))
    assert_equal(weights(first.path), weights(again.path))
    name = "classifier.dense.weight"
    assert not torch.equal(weights(first.path)[name], weights(other.path)[name])


def test_a_run_learns_and_says_how_its_weights_were_selected(encoder, tmp_path):
    run = fit(encoder, tmp_path / "run", steps=60, learning_rate=5e-3)
    (summary,) = run.summary()
    assert summary["dev"]["best"]["accuracy"] > 60  # three classes
    assert summary["dev"]["best"]["accuracy"] == max(entry["accuracy"] for entry in summary["history"])
    assert "no target data" in summary["selected_on"]
    assert set(summary["dev"]) == {"best", "last", "average"}
    assert not (run.path / "state").exists()


def test_average_is_the_mean_of_the_evaluated_weights_of_the_second_half(encoder, tmp_path):
    """The evaluated checkpoints of the second half are steps 9 and 12 of 12."""
    run = fit(encoder, tmp_path / "run", select="average")
    shorter = fit(encoder, tmp_path / "all", checkpoint_every=3, steps=12, select="last")
    last = weights(shorter.path)
    # Weights at step 9, from a run of the same schedule that is stopped there.
    stopped = tmp_path / "stopped"
    stop_after(encoder, stopped, step=9)
    state, _ = checkpoint.load_newest(stopped / "state")
    assert state is not None
    assert state.step == 9
    for name, mean in weights(run.path).items():
        expected = (state.tensors["model"][name] + last[name]) / 2
        assert torch.allclose(mean, expected, atol=1e-7), name


class Interrupting:
    """A watch that asks the process to stop, as Ctrl-C does, when a step is reached."""

    def __init__(self, step: int) -> None:
        self.step = step

    def start(self, label, total, done=0): ...

    def advance(self, done, note=""):
        if done == self.step:
            os.kill(os.getpid(), signal.SIGINT)

    def finish(self, note=""): ...

    def say(self, text): ...


def stop_after(encoder, out, step: int) -> None:
    with pytest.raises(Unfinished, match=f"step {step} of 12"):
        fit(encoder, out, watch=Interrupting(step))


@pytest.mark.parametrize("step", [2, 7, 11])
def test_ctrl_c_leaves_a_run_that_goes_on_to_the_same_weights(encoder, tmp_path, step):
    whole = fit(encoder, tmp_path / "whole")
    stop_after(encoder, tmp_path / "cut", step)
    resumed = fit(encoder, tmp_path / "cut")
    for variant in (None, "last", "average"):
        assert_equal(weights(whole.path, variant), weights(resumed.path, variant))
    assert resumed.summary()[0]["history"] == whole.summary()[0]["history"]
    steps = [json.loads(line)["step"] for line in (resumed.path / "metrics.jsonl").read_text().splitlines()]
    assert steps == [json.loads(line)["step"] for line in (whole.path / "metrics.jsonl").read_text().splitlines()]


SCRIPT = """
import sys
sys.path[:0] = [{root!r}, {src!r}]
import torch
torch.set_num_threads(1)
from tests.runs.test_train import fit
fit({encoder!r}, {out!r}, steps=40, checkpoint_every={every})
"""


def start(encoder: Path, out: Path, every: int = 3) -> subprocess.Popen:
    root = Path(__file__).parents[2]
    code = SCRIPT.format(root=str(root), src=str(root / "src"), encoder=str(encoder), out=str(out), every=every)
    return subprocess.Popen([sys.executable, "-c", code], env={**os.environ, "OMP_NUM_THREADS": "1"})


def wait_for(path: Path, process: subprocess.Popen) -> None:
    while not path.exists():
        assert process.poll() is None, "the run ended before it could be killed"
        time.sleep(0.002)


@pytest.mark.parametrize("moment", ["config.json", "metrics.jsonl", "state/step-00000006", "state/step-00000027"])
def test_kill_dash_nine_at_any_moment_loses_nothing(encoder, tmp_path, moment):
    whole = fit(encoder, tmp_path / "whole", steps=40)
    process = start(encoder, tmp_path / "killed")
    wait_for(tmp_path / "killed" / moment, process)
    process.kill()
    process.wait()
    assert not RunFolder(tmp_path / "killed").done
    resumed = fit(encoder, tmp_path / "killed", steps=40, checkpoint_every=3)
    assert_equal(weights(whole.path), weights(resumed.path))


@pytest.mark.slow
def test_kill_dash_nine_ten_times_in_one_run_loses_nothing(encoder, tmp_path):
    whole = fit(encoder, tmp_path / "whole", steps=40)
    draw, reached = random.Random(0), 0
    for _ in range(10):
        process = start(encoder, tmp_path / "killed", every=1)
        reached += draw.randint(1, 3)
        while max((int(p.name[5:]) for p in (tmp_path / "killed" / "state").glob("step-*")), default=0) < reached:
            assert process.poll() is None, "the run ended before it could be killed"
            time.sleep(0.002)
        process.kill()
        process.wait()
    assert not RunFolder(tmp_path / "killed").done
    resumed = fit(encoder, tmp_path / "killed", steps=40, checkpoint_every=1)
    assert_equal(weights(whole.path), weights(resumed.path))


def test_a_torn_checkpoint_is_passed_over_and_the_one_before_is_used(encoder, tmp_path):
    whole = fit(encoder, tmp_path / "whole")
    with pytest.raises(Unfinished):
        fit(encoder, tmp_path / "torn", checkpoint_every=2, watch=Interrupting(8))
    newest, before = sorted((tmp_path / "torn" / "state").glob("step-*"), reverse=True)
    torn = newest / "optimizer.safetensors"
    torn.write_bytes(torn.read_bytes()[:-100])
    state, passed_over = checkpoint.load_newest(tmp_path / "torn" / "state")
    assert state is not None
    assert state.step == int(before.name.removeprefix("step-"))
    assert "checksum" in passed_over[0]
    assert_equal(weights(whole.path), weights(fit(encoder, tmp_path / "torn", checkpoint_every=2).path))


def test_a_full_disk_stops_with_a_clear_line_and_keeps_the_last_checkpoint(encoder, tmp_path, monkeypatch):
    real = checkpoint.save_file
    written = []

    def save_file(tensors, file, *rest):
        written.append(file)
        if len(written) > 5:
            raise OSError(28, "No space left on device")
        return real(tensors, file, *rest)

    monkeypatch.setattr(checkpoint, "save_file", save_file)
    with pytest.raises(BrokenRun, match="No space left on device") as caught:
        fit(encoder, tmp_path / "full", checkpoint_every=1)
    assert "start the same command again" in str(caught.value)
    state, passed_over = checkpoint.load_newest(tmp_path / "full" / "state")
    assert state is not None
    assert passed_over == []
    monkeypatch.undo()
    resumed = fit(encoder, tmp_path / "full", checkpoint_every=1)
    assert_equal(weights(fit(encoder, tmp_path / "whole").path), weights(resumed.path))


def test_one_batch_of_eight_equals_eight_batches_of_one(plain_encoder, tmp_path):
    whole = fit(plain_encoder, tmp_path / "whole", max_tokens=10_000)
    cut = fit(plain_encoder, tmp_path / "cut", max_tokens=1)
    for (name, a), b in zip(weights(whole.path).items(), weights(cut.path).values(), strict=True):
        assert torch.allclose(a, b, atol=2e-5), name


@pytest.mark.parametrize("size", [8, 59])
def test_two_processes_equal_one(plain_encoder, tmp_path, size):
    """Size 59 leaves a last batch of one row: nothing for the second process."""
    one = fit(plain_encoder, tmp_path / "one", batch_size=size, steps=14)
    root = Path(__file__).parents[2]
    script = tmp_path / "two.py"
    script.write_text(
        f"import sys; sys.path[:0] = [{str(root)!r}, {str(root / 'src')!r}]\n"
        "import os, torch; torch.set_num_threads(1)\n"
        "from tests.runs.test_train import fit\n"
        f"run = fit({str(plain_encoder)!r}, {str(tmp_path / 'two')!r}, batch_size={size}, steps=14)\n"
        f"open({str(tmp_path)!r} + '/rank' + os.environ['RANK'], 'w').close()\n"
    )
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node", "2", str(script)]
    subprocess.run(command, check=True, env={**os.environ, "OMP_NUM_THREADS": "1"}, capture_output=True, timeout=200)
    assert (tmp_path / "rank0").exists()
    assert (tmp_path / "rank1").exists()
    for (name, a), b in zip(weights(one.path).items(), weights(tmp_path / "two").values(), strict=True):
        assert torch.allclose(a, b, atol=2e-5), name


def test_a_finished_run_is_not_run_twice(encoder, tmp_path):
    first = fit(encoder, tmp_path / "run")
    stamp = (first.model / "model.safetensors").stat().st_mtime_ns
    fit(encoder, tmp_path / "run")
    assert (first.model / "model.safetensors").stat().st_mtime_ns == stamp


def test_a_folder_with_another_run_is_refused_with_what_differs(encoder, tmp_path):
    fit(encoder, tmp_path / "run")
    with pytest.raises(BadInput, match="learning_rate") as caught:
        fit(encoder, tmp_path / "run", learning_rate=5e-4)
    assert "--overwrite" in str(caught.value)
    replaced = fit(encoder, tmp_path / "run", learning_rate=5e-4, overwrite=True)
    assert replaced.folders[0].config["optimisation"]["learning_rate"] == 5e-4


def test_other_data_in_the_same_folder_is_refused(encoder, tmp_path):
    fit(encoder, tmp_path / "run")
    with pytest.raises(BadInput, match="fingerprint"):
        data, dev = classification(50), classification(24, seed=9)
        xl.fit("finetune", model=encoder, data=data, dev=dev, out=tmp_path / "run", **STEPS)


class BreaksAt:
    """Three steps of work, whose loss is no number from one of them on."""

    steps = 3

    def __init__(self, broken):
        self.broken, self.step = broken, 0

    def batches(self, step, rank, world):
        self.step = step + 1
        yield {"x": torch.ones(1)}, 1.0

    def loss(self, model, batch):
        return {"ce": model.weight.sum() * (float("nan") if self.step >= self.broken else 1.0)}


@pytest.mark.parametrize("step", [1, 3])  # 3: the last one, long before a line of metrics would be due
def test_a_loss_that_is_not_finite_stops_the_run(step, tmp_path):
    folder = RunFolder.start(tmp_path / "run", {"method": "broken"})
    with pytest.raises(BrokenRun, match=f"not finite at step {step}"):
        train(torch.nn.Linear(2, 2), BreaksAt(step), folder, Optimisation(), Execution(), seed=1)


def test_several_seeds_make_a_group_whose_average_is_a_model(encoder, tmp_path):
    run = fit(encoder, tmp_path / "group", seeds=[1, 2], average_runs=True)
    parts = [weights(folder.path) for folder in run.folders]
    mean = load_file(tmp_path / "group" / "average" / "model" / "model.safetensors")
    for name, tensor in mean.items():
        assert torch.allclose(tensor, (parts[0][name] + parts[1][name]) / 2, atol=1e-6), name
    (prediction,) = xl.predict(tmp_path / "group" / "average", ["the house is red today"])
    assert prediction["prediction"] in ("red", "green", "blue")


def test_a_run_in_use_is_refused(encoder, tmp_path):
    folder = RunFolder.start(tmp_path / "run", {"method": "x"})
    with folder.locked(), pytest.raises(BrokenRun, match="in use"), RunFolder(tmp_path / "run").locked():
        pass


def test_gradient_checkpointing_changes_nothing_but_the_cost(plain_encoder, tmp_path):
    plain = fit(plain_encoder, tmp_path / "plain")
    saving = fit(plain_encoder, tmp_path / "saving", gradient_checkpointing=True)
    for (name, a), b in zip(weights(plain.path).items(), weights(saving.path).values(), strict=True):
        assert torch.allclose(a, b, atol=1e-6), name


def test_a_tracker_that_is_not_installed_is_named_with_its_extra(encoder, tmp_path, monkeypatch):
    monkeypatch.setattr("crosslift.runs.train.find_spec", lambda name: None)
    with pytest.raises(MissingExtra, match=r"crosslift\[trackers\]"):
        fit(encoder, tmp_path / "run", trackers="tensorboard")


def test_tensorboard_gets_the_loss(encoder, tmp_path):
    pytest.importorskip("tensorboard")
    fit(encoder, tmp_path / "run", trackers="tensorboard", log_every=2)
    assert list((tmp_path / "run").rglob("events.out.tfevents*"))


def test_weights_that_are_no_numbers_never_enter_a_checkpoint(tmp_path):
    class BreaksLater:
        steps = 9

        def batches(self, step, rank, world):
            yield {"x": torch.tensor([float("nan") if step >= 4 else 1.0])}, 1.0

        def loss(self, model, batch):
            return {"ce": (model.weight.sum() * batch["x"]).sum()}

    folder = RunFolder.start(tmp_path / "run", {"method": "breaks"})
    with pytest.raises(BrokenRun, match="not finite at step 5"):
        train(torch.nn.Linear(2, 2), BreaksLater(), folder, Optimisation(), Execution(checkpoint_every=1), seed=1)
    state, _ = checkpoint.load_newest(folder.state)
    assert state is not None
    assert state.step == 4
    assert all(tensor.isfinite().all() for tensor in state.tensors["model"].values())


def test_frozen_layers_stay_as_they_were_and_the_rest_learns(encoder, tmp_path):
    before = load_file(encoder / "model.safetensors")
    fit(encoder, tmp_path / "run", frozen_layers=1)
    after = weights(tmp_path / "run")
    kept = {
        name for name, value in before.items() for key in after if key.endswith(name) and torch.equal(after[key], value)
    }
    frozen = {name for name in before if "embeddings" in name or "encoder.layer.0." in name}
    assert frozen and frozen <= kept
    assert not any("encoder.layer.1." in name and name.endswith("weight") for name in kept)
    with pytest.raises(BadInput, match=r"Freeze 0 \(embeddings\) to 1"):
        fit(encoder, tmp_path / "all", frozen_layers=2)
