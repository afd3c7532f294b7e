"""`crosslift export` from the shell's side."""

import json

import pytest

from crosslift import cli
from crosslift.models.load import load_model
from crosslift.models.students import save_student
from crosslift.tasks import Classification
from tests.tiny_models import save_encoder, tokenizer_for


@pytest.fixture
def home(tmp_path, monkeypatch):
    """An encoder and a task model made of it."""
    monkeypatch.chdir(tmp_path)
    save_encoder(tmp_path / "encoder")
    task = Classification(labels=("a", "b", "c"), max_length=64)
    save_student(load_model("encoder", task), tokenizer_for("xlm-roberta"), tmp_path / "model")
    return tmp_path


@pytest.mark.slow
def test_a_folder_to_deploy_with_its_sizes(home, capsys):
    pytest.importorskip("onnxruntime")
    pytest.importorskip("onnxscript")
    assert cli.run(["export", "model", "--out", "deploy"]) == 0
    shown = capsys.readouterr().out
    assert shown.count(" MB, ") == 2
    assert "deploy/predict.py" in shown
    assert {"model.onnx", "model.int8.onnx", "predict.py", "config.json", "tokenizer.json"} <= {
        file.name for file in (home / "deploy").iterdir()
    }
    assert cli.run(["export", "model", "--out", "deploy", "--no-int8", "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert facts["largest_difference"] <= 1e-4
    assert facts["megabytes"] == pytest.approx((home / "deploy" / "model.onnx").stat().st_size / 1e6, abs=0.01)
    assert not (home / "deploy" / "model.int8.onnx").exists()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["encoder", "--out", "x"], "encoder without a task head"),
        (["./nowhere", "--out", "x"], "There is no folder nowhere"),
        (["model", "--out", "encoder"], "no exported model"),
    ],
)
def test_what_cannot_be_exported_is_said_in_a_line(words, said, home, capsys):
    pytest.importorskip("onnxscript")
    assert cli.run(["export", *words]) == 2
    assert said in capsys.readouterr().err
