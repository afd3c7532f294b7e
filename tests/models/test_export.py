"""Exported models say what the originals say; a file that does not is never delivered."""

import json
import subprocess
import sys

import numpy as np
import pytest

import crosslift as xl
from crosslift.errors import CrossliftError
from crosslift.models import export
from crosslift.models.load import load_model
from crosslift.models.students import new_student, save_student
from crosslift.models.teachers import ModelTeacher, open_teacher
from crosslift.tasks import Classification, QuestionAnswering, Tagging
from tests import tiny_data
from tests.tiny import bpe_tokenizer
from tests.tiny_models import save_encoder, tokenizer_for

pytest.importorskip("onnxruntime")
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
