"""Recorded steps on a GPU: the same training as the plain loop, for every method that says it may be recorded."""

from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

import crosslift as xl
from crosslift.methods import METHODS, method_class, method_settings
from crosslift.models.load import load_model
from crosslift.runs.adjust import adjust
from crosslift.runs.distill import distill
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


def weights_of(folder):
    return {name: tensor.float() for name, tensor in load_file(folder / "model.safetensors").items()}


def assert_alike(one, other):
    assert one.keys() == other.keys()
    for name, value in one.items():
        np.testing.assert_allclose(other[name].numpy(), value.numpy(), rtol=2e-3, atol=2e-4, err_msg=name)


@pytest.mark.gpu
@pytest.mark.parametrize("options", [{}, {"preset": "cao"}, {"pooling": "subwords"}, {"linked": "cls"}])
def test_recorded_adjustment_moves_an_encoder_as_the_plain_loop_does(options, encoder, linked, tmp_path):
    options = {"steps": STEPS, "batch_size": 4, "learning_rate": 1e-3, "precision": "fp32", **options}
    found = []
    for graphs in (False, None):
        out = tmp_path / str(graphs)
        aligned = {} if options.get("pooling") == "subwords" else {"aligner": str(linked[1])}
        adjust(bitext={"de": linked[0]}, model=encoder, out=out, cuda_graphs=graphs, **aligned, **options)
        found.append(weights_of(out / "model"))
    assert_alike(*found)


@pytest.mark.gpu
@pytest.mark.parametrize("kind", list(MAKERS))
@pytest.mark.parametrize(("name", "options"), [("finetune", {}), ("ear", {"synonyms": SYNONYMS})])
def test_recorded_steps_take_sentence_pairs_along(name, options, kind, encoder, linked, tmp_path):
    found = []
    for graphs in (False, None):
        run = xl.fit(
            name, model=encoder, data=MAKERS[kind](40, seed=1), dev=MAKERS[kind](8, seed=2), out=tmp_path / str(graphs),
            steps=STEPS, batch_size=8, learning_rate=1e-3, precision="fp32", evaluations=1, select="last",
            with_adjustment={"de": linked[0]}, aligner=str(linked[1]), adjustment_batch=4, cuda_graphs=graphs,
            **options,
        )  # fmt: skip
        found.append(weights_of(run.model))
    assert_alike(*found)


@pytest.mark.gpu
@pytest.mark.parametrize("kind", list(MAKERS))
@pytest.mark.parametrize("student", ["transformer", "cnn", "bilstm", "encoder"])
def test_recorded_students_learn_what_plain_ones_do(student, kind, encoder, tmp_path):
    teacher = xl.fit(
        "finetune", model=encoder, data=MAKERS[kind](48, seed=1), dev=MAKERS[kind](8, seed=2), out=tmp_path / "teacher",
        steps=40, batch_size=16, evaluations=1, learning_rate=5e-3,
    )  # fmt: skip
    found = []
    for graphs in (False, None):
        run = distill(
            teacher=teacher, text={"en": MAKERS[kind](60, seed=3)},
            student=encoder if student == "encoder" else student,
            out=tmp_path / str(graphs), pieces=400, steps=STEPS, batch_size=16, evaluations=1, learning_rate=1e-3,
            precision="fp32", select="last", cuda_graphs=graphs,
        )  # fmt: skip
        found.append(weights_of(run.model))
    assert_alike(*found)


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
