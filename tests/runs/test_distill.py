"""Distillation end to end: students agree with teachers, nothing reads a label, interrupted runs go on."""

import json
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

import crosslift as xl
from crosslift.data.examples import Examples
from crosslift.errors import BadInput, BadLabels, CrossliftError, Unfinished
from crosslift.runs.distill import distill, distill_two_steps
from crosslift.runs.fit import Run
from tests import tiny_data

QUICK = {"steps": 3, "batch_size": 16, "evaluations": 1, "learning_rate": 1e-3}
LABELS = ("blue", "green", "red")


def by_colour(texts):
    """A black box that always knows the colour."""
    return np.array([[0.8 if colour in text else 0.1 for colour in LABELS] for text in texts])


def text_file(folder: Path, count=80, seed=0) -> Path:
    file = folder / "text.txt"
    file.write_text("\n".join(tiny_data.classification(count, seed).texts) + "\n")
    return file


@pytest.fixture(scope="module")
def teachers(encoder, tmp_path_factory):
    """Runs of every kind, trained a little."""
    runs = {}
    for kind, make in tiny_data.MAKERS.items():
        out = tmp_path_factory.mktemp(kind) / "run"
        runs[kind] = xl.fit(
            "finetune", model=encoder, data=make(48, seed=1), dev=make(16, seed=2), out=out, steps=40, batch_size=16,
            evaluations=1, learning_rate=5e-3,
        )  # fmt: skip
    return runs


QUICK_PAIRS = {("encoder", kind) for kind in tiny_data.MAKERS} | {("cnn", "tagging"), ("bilstm", "classification")}
PAIRS = [
    pytest.param(student, kind, marks=() if (student, kind) in QUICK_PAIRS else pytest.mark.slow)
    for kind in tiny_data.MAKERS
    for student in ("transformer", "bilstm", "cnn", "encoder")
]


@pytest.mark.parametrize(("student", "kind"), PAIRS)
def test_every_student_learns_every_task_from_a_run(kind, student, teachers, encoder, tmp_path):
    name = encoder if student == "encoder" else student
    text = {"en": tiny_data.MAKERS[kind](60, seed=3)}
    run = distill(teacher=teachers[kind], text=text, student=name, out=tmp_path / "run", pieces=400, **QUICK)
    (summary,) = run.summary()
    assert 0 <= summary["dev"]["best"]["agreement"] <= 100
    assert "no label was read" in summary["selected_on"]
    dev = tiny_data.MAKERS[kind](8, seed=4)
    assert [p["id"] for p in xl.predict(run, dev)] == list(dev.ids)
    assert xl.evaluate(run, {"en": dev}).table()
    assert not (tmp_path / "run" / "start").exists()


def test_a_student_comes_to_agree_with_a_black_box(tmp_path):
    run = distill(
        teacher=by_colour, labels=LABELS, text={"en": tiny_data.classification(150)}, student="cnn", pieces=300,
        out=tmp_path / "run", steps=25, batch_size=16, learning_rate=2e-3, evaluations=2,
    )  # fmt: skip
    assert run.summary()[0]["dev"]["best"]["agreement"] > 90
    fresh = tiny_data.classification(40, seed=9)
    said = [p["prediction"] for p in xl.predict(run, fresh)]
    assert np.mean([a == b for a, b in zip(said, fresh.labels, strict=True)]) > 0.9


@pytest.mark.slow
def test_a_run_that_is_started_again_goes_on_and_ends_with_the_same_weights(teachers, tmp_path, monkeypatch):
    def go(out, **more):
        return distill(
            teacher=teachers["tagging"], text={"en": tiny_data.tagging(60, seed=3)}, student="bilstm", pieces=300,
            out=tmp_path / out, **{**QUICK, "steps": 6, "checkpoint_every": 2}, **more,
        )  # fmt: skip

    whole = go("whole")
    from crosslift.runs import train as loop

    real, calls = loop._accumulate, []

    def dies(*args):
        calls.append(1)
        if len(calls) == 5:
            raise KeyboardInterrupt
        return real(*args)

    monkeypatch.setattr(loop, "_accumulate", dies)
    with pytest.raises(KeyboardInterrupt):
        go("broken")
    monkeypatch.setattr(loop, "_accumulate", real)
    resumed = go("broken")
    first, second = (xl.load_model(run.model).state_dict() for run in (whole, resumed))
    assert all(torch.equal(first[name], second[name]) for name in first)
    again = go("whole")
    assert again.summary() == whole.summary()


def test_two_steps_in_one_call_leave_a_bridge_and_a_student_per_language(teachers, encoder, tmp_path):
    text = tiny_data.classification(60, seed=5)
    runs = distill_two_steps(
        teacher=teachers["classification"], bridge=encoder, source_text={"en": text}, student=encoder,
        target_text={"de": replace(text, language="de"), "es": replace(text, language="es")},
        out=tmp_path / "all", bridge_settings=QUICK, **QUICK,
    )  # fmt: skip
    assert list(runs) == ["bridge", "de", "es"]
    assert runs["de"].folders[0].config["teacher"] == str(runs["bridge"].path)
    assert all(isinstance(run, Run) and run.model.exists() for run in runs.values())


def test_labels_in_the_text_change_nothing(teachers, encoder, tmp_path):
    right = tiny_data.classification(60, seed=6)
    wrong = replace(right, labels=["blue"] * 60)
    models = []
    for name, text in (("right", right), ("wrong", wrong), ("none", right.unlabelled())):
        run = distill(
            teacher=teachers["classification"],
            text={"en": text},
            student="cnn",
            pieces=300,
            out=tmp_path / name,
            **QUICK,
        )
        models.append(xl.load_model(run.model).state_dict())
    assert all(torch.equal(models[0][k], m[k]) for m in models[1:] for k in models[0])


class Opened:
    """Remembers which files are opened while it is told to; an audit hook cannot be taken away again."""

    def __init__(self):
        self.files = None
        sys.addaudithook(self)

    def __call__(self, event, arguments):
        if self.files is not None and event == "open" and isinstance(arguments[0], (str, bytes)):
            self.files.append(Path(str(arguments[0])))


def test_no_label_file_is_ever_opened(teachers, encoder, tmp_path):
    """The text is all that is opened in the data folder; gold labels lie beside it. The teacher is its model alone."""
    data = tmp_path / "data"
    data.mkdir()
    text = text_file(data)
    gold = "\n".join(map(str, tiny_data.classification(80, 0).labels))
    for name in ("labels.txt", "text.labels", "text.tsv", "dev.tsv", "test.tsv", "train.tsv"):
        (data / name).write_text(gold)
    opened = Opened()
    opened.files = []
    distill(teacher=teachers["classification"].model, text={"en": text}, student=encoder, out=tmp_path / "run", **QUICK)
    files, opened.files = opened.files, None
    assert {file.name for file in files if file.parent == data} == {"text.txt"}
    assert teachers["classification"].model / "model.safetensors" in files or len(files) > 10, "the hook sees files"
    trained_with = teachers["classification"].path
    assert {file.parent for file in files if trained_with in file.parents} <= {teachers["classification"].model}


def test_gold_target_dev_data_needs_the_explicit_flag(teachers, encoder, tmp_path):
    given = {"teacher": teachers["classification"], "text": {"de": tiny_data.classification(60, language="de")}}
    given |= {"student": encoder, "dev": tiny_data.classification(20, seed=8, language="de")}
    with pytest.raises(BadInput, match="--allow-target-dev"):
        distill(**given, out=tmp_path / "no", **QUICK)
    run = distill(**given, out=tmp_path / "yes", allow_target_dev=True, **QUICK)
    assert "gold dev data in the target language" in run.summary()[0]["selected_on"]


@pytest.mark.slow
def test_translations_are_taught_what_was_said_about_their_originals(tmp_path):
    """The teacher knows English colours only; the student reads the translations."""
    english = tiny_data.classification(120, seed=3)
    words = {"red": "rot", "green": "grün", "blue": "blau", "the": "das", "is": "ist", "today": "heute"}

    def german(text):
        for word, other in words.items():
            text = text.replace(word, other)
        return text

    translated = Examples(
        "classification", "de", [f"de-{i}" for i in english.ids], [german(t) for t in english.texts],
        parallel_ids=english.parallel_ids,
    )  # fmt: skip
    asked = []

    def teacher(texts):
        asked.extend(texts)
        return by_colour(texts)

    run = distill(
        teacher=teacher, labels=LABELS, text={"en": english}, translations={"de": translated},
        student="cnn", pieces=300, out=tmp_path / "run", steps=60, batch_size=32, learning_rate=2e-3, evaluations=1,
    )  # fmt: skip
    assert not any("ist" in text.split() for text in asked)
    said = [p["prediction"] for p in xl.predict(run, translated)]
    assert np.mean([a == b for a, b in zip(said, english.labels, strict=True)]) > 0.9
    with pytest.raises(BadInput, match="belongs to a text here"):
        distill(
            teacher=teacher, labels=LABELS, text={"en": english}, out=tmp_path / "x", **QUICK,
            translations={"de": replace(translated, parallel_ids=None)},
        )  # fmt: skip


def test_a_student_with_other_labels_is_refused(teachers, encoder, tmp_path):
    data = replace(tiny_data.classification(40), labels=["yes", "no"] * 20)
    other = xl.fit("finetune", model=encoder, data=data, dev=data, out=tmp_path / "other", steps=1, evaluations=1)
    with pytest.raises(BadLabels, match="do not have the same labels"):
        distill(
            teacher=teachers["classification"], text={"en": tiny_data.classification(60)}, student=other.model,
            out=tmp_path / "run", **QUICK,
        )  # fmt: skip


@pytest.mark.slow
def test_a_student_that_has_a_head_keeps_its_own_label_order(teachers, encoder, tmp_path):
    task = xl.load_model(teachers["classification"].model).config
    order = tuple(reversed([task.id2label[i] for i in range(3)]))
    from crosslift.models.load import load_model, load_tokenizer
    from crosslift.models.students import save_student
    from crosslift.tasks import Classification

    save_student(load_model(encoder, Classification(labels=order)), load_tokenizer(encoder), tmp_path / "student")
    text = tiny_data.classification(120, seed=3)
    run = distill(
        teacher=teachers["classification"], text={"en": text}, student=tmp_path / "student", out=tmp_path / "run",
        steps=60, batch_size=32, learning_rate=5e-3, evaluations=1,
    )  # fmt: skip
    config = xl.load_model(run.model).config
    assert tuple(config.id2label[i] for i in range(3)) == order
    assert run.summary()[0]["dev"]["last"]["agreement"] > 60


@pytest.mark.slow
def test_the_range_test_leaves_a_picture_and_a_rate(teachers, encoder, tmp_path):
    run = distill(
        teacher=teachers["classification"], text={"en": tiny_data.classification(60)}, student=encoder,
        out=tmp_path / "run", steps=2, batch_size=8, evaluations=1,
    )  # fmt: skip
    found = json.loads((tmp_path / "run" / "range-test.json").read_text())
    assert len(found["rates"]) == len(found["losses"]) == 100
    assert found["rates"][0] == pytest.approx(1e-5)
    assert run.summary()[0]["learning_rate"] == found["rate"]
    assert (tmp_path / "run" / "range-test.svg").read_text().startswith("<svg")
    assert not (tmp_path / "run" / "range-test").exists()


def test_a_collapsed_student_stops_with_a_diagnosis(tmp_path):
    with pytest.raises(CrossliftError, match="has collapsed") as error:
        distill(
            teacher=by_colour, labels=LABELS, text={"en": tiny_data.classification(300)}, student="bilstm", pieces=300,
            out=tmp_path / "run", steps=6, batch_size=16, learning_rate=30.0, evaluations=1, clip=0,
        )  # fmt: skip
    assert "--learning-rate" in str(error.value)


def test_a_teacher_that_always_says_the_same_is_stopped_before_training(tmp_path):
    with pytest.raises(CrossliftError, match="nothing to learn"):
        distill(
            teacher=lambda texts: [[1.0, 0.0, 0.0]] * len(texts), labels=LABELS, out=tmp_path / "run",
            text={"en": tiny_data.classification(300)}, **QUICK,
        )  # fmt: skip


class Heard:
    """Remembers what was said."""

    def __init__(self):
        self.lines = []

    def say(self, text):
        self.lines.append(text)

    def start(self, *_):
        """Nothing."""

    advance = finish = start


def test_text_in_the_wrong_script_is_warned_about_and_empty_lines_are_counted(encoder, tmp_path):
    file = tmp_path / "text.txt"
    file.write_text("\n".join([*tiny_data.classification(80).texts, "", "  "]) + "\n")
    watch = Heard()
    distill(
        teacher=by_colour, labels=LABELS, text={"ru": file}, student=encoder, out=tmp_path / "run",
        watch=watch, **QUICK,
    )  # fmt: skip
    assert any("does not look like ru" in line and "Latin" in line for line in watch.lines)
    assert any("2 lines" in line and "empty" in line for line in watch.lines)


def test_an_answer_that_fails_stops_and_the_run_goes_on_later(tmp_path):
    state = {"up": False, "asked": 0}

    def service(texts):
        state["asked"] += len(texts)
        if not state["up"] and state["asked"] > 150:
            raise Unfinished("it is down")
        return by_colour(texts)

    text = tiny_data.classification(300)
    text = replace(text, texts=[f"{t} {i}" for i, t in enumerate(text.texts)])

    def go():
        return distill(
            teacher=service, labels=LABELS, text={"en": text}, student="cnn", pieces=300, out=tmp_path / "run", **QUICK
        )

    with pytest.raises(Unfinished):
        go()
    state.update(up=True, asked=0)
    go()
    assert state["asked"] == 300 - 128


def test_too_little_text_and_none_are_refused(tmp_path):
    with pytest.raises(BadInput, match="too few"):
        distill(teacher=by_colour, labels=LABELS, text={"en": tiny_data.classification(2)}, out=tmp_path / "a", **QUICK)
    with pytest.raises(BadInput, match="no text"):
        distill(teacher=by_colour, labels=LABELS, text={}, out=tmp_path / "b", **QUICK)
    with pytest.raises(BadInput, match="Did you mean"):
        distill(teacher=by_colour, labels=LABELS, text={"en": tiny_data.classification(60)}, out=tmp_path, epoch=3)


def test_seeds_differ_and_an_encoder_may_keep_some_layers(teachers, encoder, tmp_path):
    run = distill(
        teacher=teachers["classification"], text={"en": tiny_data.classification(60)}, student=encoder, layers=1,
        seeds=[1, 2], out=tmp_path / "run", **QUICK,
    )  # fmt: skip
    models = [xl.load_model(folder.model) for folder in run.folders]
    assert models[0].config.num_hidden_layers == 1
    assert not torch.equal(models[0].classifier.out_proj.weight, models[1].classifier.out_proj.weight)


@pytest.mark.parametrize(
    ("teacher", "student", "logits", "fine"),
    [
        (["a"] * 15 + ["b"] * 15, ["a"] * 30, [0.1, 0.0], False),
        (["a"] * 29 + ["b"], ["a"] * 30, [0.1, 0.0], True),
        (["a"] * 15 + ["b"] * 15, ["a"] * 29 + ["b"], [0.1, 0.0], True),
        (["a"] * 15 + ["b"] * 15, ["a"] * 29 + ["b"], [20.0, 0.0], True),
        (["a"] * 5 + ["b"] * 25, ["a"] * 29 + ["b"], [20.0, 0.0], False),
        (["a"] * 5 + ["b"] * 5, ["a"] * 10, [0.1, 0.0], True),
    ],
)
def test_what_counts_as_collapsed(teacher, student, logits, fine):
    """One label for all (unless the teacher nearly does so too), or certain and wrong; a few texts say nothing."""
    from crosslift.runs.agreement import refuse_collapse
    from crosslift.tasks import Classification

    ids = [str(i) for i in range(len(teacher))]
    examples = Examples("classification", "en", ids, ids, labels=teacher)
    agreement = 100 * float(np.mean([a == b for a, b in zip(teacher, student, strict=True)]))
    given = (
        Classification(labels=("a", "b")),
        examples,
        [{"prediction": x} for x in student],
        [{"logits": np.array(logits, dtype=np.float32)}] * len(ids),
        agreement,
    )
    if fine:
        assert refuse_collapse(*given) is None
    else:
        with pytest.raises(CrossliftError, match="has collapsed"):
            refuse_collapse(*given)


def test_the_teacher_s_likeliest_labels_of_every_kind():
    from crosslift.models.frozen import FrozenRows
    from crosslift.runs.agreement import with_teacher_labels

    def rows(values):
        counts = np.array([len(v) for v in values])
        return FrozenRows(np.concatenate(values), np.cumsum([0, *counts[:-1]]), counts)

    classes = Examples("classification", "en", ["1", "2"], ["x", "y"])
    found = with_teacher_labels(classes, rows([np.array([[-0.1, -3.0]]), np.array([[-3.0, -0.1]])]), ("a", "b"))
    assert found.labels == ["a", "b"]
    tags = tiny_data.tagging(1)
    said = np.tile(np.array([[-0.1, -3.0]]), (len(tags.spans[0]), 1))
    said[2] = [-3.0, -0.1]
    said[3] = np.nan
    expected = ["O"] * len(said)
    expected[2] = "B"
    assert with_teacher_labels(tags.unlabelled(), rows([said]), ("O", "B")).labels == [expected]
    question = Examples("qa", "en", ["q"], ["where ?"], ["he lives in Oslo now"])
    answer = np.full((6, 2), -9.0)
    answer[4, 0] = answer[4, 1] = -0.1
    assert with_teacher_labels(question, rows([answer]), ()).labels == [[("Oslo", 12)]]
    answer[0] = 0
    assert with_teacher_labels(question, rows([answer]), ()).labels == [[]]
