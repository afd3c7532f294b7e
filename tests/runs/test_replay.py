"""Recorded steps on a GPU: the same training as the plain loop, for every method that says it may be recorded."""

from pathlib import Path

import numpy as np
import pytest
import torch

from crosslift.methods import METHODS, method_class, method_settings
from crosslift.models.load import load_model
from crosslift.runs.folder import RunFolder
from crosslift.runs.plan import Plan
from crosslift.runs.replay import Replay
from crosslift.runs.settings import Execution, Optimisation
from crosslift.runs.train import train
from crosslift.tasks import task_for
from tests.tiny import unigram_tokenizer
from tests.tiny_data import MAKERS
from tests.tiny_models import save_encoder

SYNONYMS = str(Path(__file__).parents[1] / "methods" / "synonyms.tsv")
CASES = [
    ("finetune", {}),
    ("ear", {"synonyms": SYNONYMS}),
    ("ear", {"synonyms": SYNONYMS, "push": "noise", "pull": "sentence"}),
    *(("robust", {"synonyms": SYNONYMS, "variant": v}) for v in ("gaussian", "xtune", "adv", "rs-rp", "rs-da")),
    ("robust", {"synonyms": SYNONYMS, "variant": "xtune", "noise_from": "synonyms"}),
]
STEPS = 24


def trained(folder, name, options, kind, where, graphs):
    examples = MAKERS[kind](40, seed=1)
    task = task_for(examples, None, max_length=64, **({"stride": 16} if kind == "qa" else {}))
    model = load_model(str(folder), task, head_seed=1)
    method = method_class(name)(method_settings(name)(**options), task, unigram_tokenizer(), examples)
    if hasattr(method, "prepare"):
        method.prepare(model, 1)
    optimisation = Optimisation(steps=STEPS, batch_size=8, learning_rate=1e-3)
    execution = Execution(precision="fp32", cuda_graphs=graphs)
    plan = Plan(method, optimisation, execution.max_tokens, seed=1)
    done = train(model, plan, RunFolder(where), optimisation, execution, seed=1)
    return {name: weight.float() for name, weight in done.weights["last"].items()}


@pytest.mark.gpu
@pytest.mark.parametrize("kind", list(MAKERS))
@pytest.mark.parametrize(("name", "options"), CASES)
def test_recorded_steps_train_as_plain_ones_do(name, options, kind, tmp_path, monkeypatch):
    counts = []
    real = Replay._record
    monkeypatch.setattr(Replay, "_record", lambda self, batch: counts.append(1) or real(self, batch))
    folder = save_encoder(tmp_path / "encoder", "xlm-roberta")
    plain = trained(folder, name, options, kind, tmp_path / "plain", False)
    assert not counts
    recorded = trained(folder, name, options, kind, tmp_path / "recorded", None)
    assert counts
    for weight, value in plain.items():
        np.testing.assert_allclose(recorded[weight].numpy(), value.numpy(), rtol=2e-3, atol=2e-4, err_msg=weight)


@pytest.mark.gpu
def test_what_cannot_be_recorded_runs_plainly():
    device = torch.device("cuda")
    weight = torch.ones(3, device=device, requires_grad=True)

    def looks(batch, share):
        loss = (weight * batch["x"]).sum() * share
        loss.backward()
        assert loss.item() > 0  # waits for the device, which a recording must not
        return {"loss": loss.detach()}

    run = Replay(looks, device)
    with torch.cuda.stream(torch.cuda.Stream()):
        found = [run({"x": torch.full((3,), float(k))}, 1.0)["loss"].item() for k in (1, 2, 3)]
    assert found == [3, 6, 9]
    assert run.refused
    assert not run.recorded
    assert torch.rand(2, device=device).shape == (2,)  # the random numbers outlive it


def test_every_method_with_labels_may_be_recorded():
    assert all(method_class(name).replayable for name in METHODS)


def test_without_a_gpu_nothing_is_recorded(tmp_path, monkeypatch):
    if torch.cuda.is_available():
        pytest.skip("there is a GPU")
    folder = save_encoder(tmp_path / "encoder", "xlm-roberta")
    asked, silent = (
        trained(folder, "finetune", {}, "classification", tmp_path / str(graphs), graphs) for graphs in (True, None)
    )
    assert all(torch.equal(asked[name], silent[name]) for name in asked)
