"""Exported models say what the originals say; a file that does not is never delivered."""

import json
import runpy
import subprocess
import sys

import numpy as np
import pytest
import torch
from torch import nn

import crosslift as xl
from crosslift.errors import BadInput, CrossliftError
from crosslift.models import export
from crosslift.models.load import load_model
from crosslift.models.students import new_student, save_student
from crosslift.models.teachers import ModelTeacher, open_teacher
from crosslift.tasks import Classification, QuestionAnswering, Tagging
from tests import tiny_data
from tests.tiny import bpe_tokenizer
from tests.tiny_models import save_encoder, tokenizer_for

onnxruntime = pytest.importorskip("onnxruntime")
pytest.importorskip("onnxscript")

# The exporter itself takes its time.
pytestmark = pytest.mark.slow

LABELS = ("blue", "green", "red")
TASKS = {
    "classification": Classification(labels=LABELS, max_length=64),
    "tagging": Tagging(labels=("O", "B-LOC", "I-LOC"), max_length=64),
    "qa": QuestionAnswering(max_length=128, stride=32),
}


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    """A tiny classifier, exported."""
    home = tmp_path_factory.mktemp("tiny")
    save_encoder(home / "encoder")
    save_student(load_model(home / "encoder", TASKS["classification"]), tokenizer_for("xlm-roberta"), home / "model")
    facts = export.export_onnx(home / "model", home / "onnx")
    return home, facts


def test_the_file_agrees_and_its_teacher_says_the_same(tiny):
    home, facts = tiny
    assert facts["largest_difference"] <= export.ATOL
    assert facts["int8_megabytes"] < facts["megabytes"]
    examples = tiny_data.classification(20)
    teacher = open_teacher(home / "onnx" / "model.onnx")
    assert teacher.labels == LABELS
    assert np.allclose(teacher(examples), ModelTeacher(home / "model")(examples), atol=1e-4)


def test_the_standalone_script_predicts_without_torch(tiny):
    home, _ = tiny
    texts = tiny_data.classification(6).texts
    program = (
        "import sys, runpy; sys.modules['torch'] = None; sys.modules['transformers'] = None; "
        f"sys.argv = ['predict.py']; runpy.run_path({str(home / 'onnx' / 'predict.py')!r}, run_name='__main__')"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], input="\n".join(texts), capture_output=True, text=True, check=True
    )
    answers = [json.loads(line) for line in done.stdout.splitlines()]
    expected = xl.predict(home / "model", list(texts))
    assert [a["prediction"] for a in answers] == [e["prediction"] for e in expected]
    for answer, other in zip(answers, expected, strict=True):
        assert answer["probabilities"] == pytest.approx(other["probabilities"], abs=1e-3)


def test_a_file_that_differs_is_not_delivered(tiny, tmp_path, monkeypatch):
    home, _ = tiny
    monkeypatch.setattr(export, "ATOL", -1.0)
    monkeypatch.setattr(
        export, "_write", lambda *_: (_.__getitem__(2)).write_bytes((home / "onnx" / "model.onnx").read_bytes())
    )
    with pytest.raises(CrossliftError, match="nothing was written"):
        export.export_onnx(home / "model", tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_an_lstm_keeps_its_gates_and_reads_any_length(tmp_path):
    """With weights so large that a gate in another's place would show."""
    torch.manual_seed(0)
    lstm = nn.LSTM(5, 7, batch_first=True)
    for weight in lstm.parameters():
        nn.init.normal_(weight, std=1.0)
    axes = {0: torch.export.Dim("batch"), 1: torch.export.Dim("length")}
    file = str(tmp_path / "lstm.onnx")
    torch.onnx.export(
        export._LstmNode(lstm).eval(), (torch.randn(3, 6, 5),), file, input_names=["x"], dynamo=True,
        dynamic_shapes=(axes,), external_data=False, verbose=False,
    )  # fmt: skip
    session = onnxruntime.InferenceSession(file, providers=["CPUExecutionProvider"])
    for shape in ((1, 1, 5), (2, 9, 5), (4, 30, 5)):
        x = torch.randn(shape)
        with torch.inference_mode():
            expected = lstm(x)[0].numpy()
        assert expected.std() > 0.1
        assert np.allclose(session.run(None, {"x": x.numpy()})[0], expected, atol=1e-5)


def test_what_is_no_export_is_never_replaced(tiny, tmp_path):
    home, _ = tiny
    (tmp_path / "thesis.txt").write_text("years of work")
    with pytest.raises(BadInput, match="no exported model"):
        export.export_onnx(home / "model", tmp_path)
    assert (tmp_path / "thesis.txt").read_text() == "years of work"


@pytest.mark.timeout(900)
@pytest.mark.parametrize("kind", TASKS)
@pytest.mark.parametrize("name", ["transformer", "bilstm", "cnn"])
def test_every_student_can_be_exported(name, kind, tmp_path):
    save_student(new_student(name, bpe_tokenizer(), kind, seed=1), bpe_tokenizer(), tmp_path / "start")
    save_student(load_model(tmp_path / "start", TASKS[kind]), bpe_tokenizer(), tmp_path / "model")
    facts = export.export_onnx(tmp_path / "model", tmp_path / "onnx")
    assert facts["largest_difference"] <= export.ATOL
    assert facts["int8_megabytes"] < 0.35 * facts["megabytes"]
    examples = tiny_data.MAKERS[kind](6)
    ours, theirs = (open_teacher(tmp_path / where)(examples) for where in ("onnx/model.onnx", "model"))
    values = [x if isinstance(x, np.ndarray) else x.values for x in (ours, theirs)]
    assert np.allclose(*values, atol=1e-3, equal_nan=True)
    said = predictor(tmp_path / "onnx")(
        list(zip(examples.texts, examples.pairs, strict=True)) if examples.pairs else examples.texts
    )
    if kind != "tagging":
        assert [one["prediction"] for one in said] == [
            one["prediction"] for one in xl.predict(tmp_path / "model", examples.unlabelled())
        ]
    else:
        assert [one["pieces"][0][0] for one in said]


def predictor(folder):
    """The class of the script that goes with an export."""
    return runpy.run_path(str(folder / "predict.py"))["Predictor"](folder)


def test_a_model_that_tells_two_texts_apart_still_does(tmp_path):
    save_encoder(tmp_path / "encoder", "bert")
    model = load_model(tmp_path / "encoder", TASKS["classification"])
    torch.manual_seed(0)
    with torch.no_grad():  # so that a wrong token type changes the answer
        for weight in model.parameters():
            if weight.ndim == 2:
                weight.normal_(std=0.5)
        model.base_model.embeddings.token_type_embeddings.weight.normal_(std=5.0)
    save_student(model, tokenizer_for("bert"), tmp_path / "model")
    assert export.export_onnx(tmp_path / "model", tmp_path / "onnx", int8=False)["largest_difference"] <= export.ATOL
    qa = tiny_data.qa(8)
    pairs = list(zip(qa.texts, qa.pairs, strict=True))
    said, expected = predictor(tmp_path / "onnx")(pairs), xl.predict(tmp_path / "model", pairs)
    for one, other in zip(said, expected, strict=True):
        assert one["probabilities"] == pytest.approx(other["probabilities"], abs=1e-4)
    apart = predictor(tmp_path / "onnx")([f"{text} {pair}" for text, pair in pairs])
    assert any(
        abs(one["probabilities"]["red"] - other["probabilities"]["red"]) > 0.001
        for one, other in zip(said, apart, strict=True)
    ), "the types matter"
