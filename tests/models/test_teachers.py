"""Teachers of every kind say the same things, and bad answers are refused before anything is learnt from them."""

import json
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import ClassVar

import numpy as np
import pytest
import torch

from crosslift.data.examples import Examples
from crosslift.errors import BadFile, BadInput, BadLabels, Unfinished
from crosslift.models.black_box import AnswersTeacher, EndpointTeacher, FunctionTeacher, distribution
from crosslift.models.forward import forward
from crosslift.models.frozen import FrozenCache
from crosslift.models.load import load_model, load_tokenizer
from crosslift.models.students import save_student
from crosslift.models.teachers import context_spans, open_teacher, same_labels, teacher_outputs
from crosslift.tasks import Classification, QuestionAnswering, Tagging
from tests import tiny_data
from tests.tiny_models import save_encoder, tokenizer_for

LABELS = ("red", "green", "blue")
TASKS = {
    "classification": Classification(labels=LABELS, max_length=64),
    "tagging": Tagging(labels=("O", "B-LOC", "I-LOC"), max_length=32),
    "qa": QuestionAnswering(max_length=48, stride=16),
}


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """Untrained task models, by kind."""
    made = {}
    for kind, task in TASKS.items():
        home = tmp_path_factory.mktemp(kind)
        save_encoder(home / "encoder")
        model = load_model(home / "encoder", task)
        with torch.no_grad():
            for p in model.parameters():
                p.mul_(2)  # far from uniform outputs
        save_student(model, tokenizer_for("xlm-roberta"), home / "model")
        made[kind] = home / "model"
    return made


def test_a_model_s_class_distributions_are_its_softmax(folders):
    teacher = open_teacher(folders["classification"])
    examples = tiny_data.classification(9)
    said = teacher(examples)
    tokenizer, model = load_tokenizer(folders["classification"]), load_model(folders["classification"])
    for row, text in enumerate(examples.texts):
        inputs = tokenizer(text, return_tensors="pt")
        with torch.no_grad():
            expected = forward(model.eval(), dict(inputs))["logits"].log_softmax(-1)[0]
        assert np.allclose(said[row], expected.numpy(), atol=1e-5)
    assert teacher.labels == LABELS


def test_a_tagger_s_distribution_is_read_at_the_first_sub_word(folders):
    teacher = open_teacher(folders["tagging"])
    examples = tiny_data.tagging(6)
    said = teacher(examples)
    tokenizer, model = load_tokenizer(folders["tagging"]), load_model(folders["tagging"]).eval()
    for row, text in enumerate(examples.texts):
        inputs = tokenizer(text, return_tensors="pt", return_offsets_mapping=True)
        offsets = inputs.pop("offset_mapping")[0].tolist()
        with torch.no_grad():
            logs = forward(model, dict(inputs))["logits"].log_softmax(-1)[0].numpy()
        assert len(said[row]) == len(examples.spans[row])
        for word, (begin, end) in enumerate(examples.spans[row].tolist()):
            pieces = tokenizer.convert_ids_to_tokens(inputs["input_ids"][0].tolist())
            first = next(i for i, (a, b) in enumerate(offsets) if a < end and b > begin and pieces[i] != "▁" and b > a)
            assert np.allclose(said[row][word], logs[first], atol=1e-4)


def test_answers_are_distributions_over_no_answer_and_the_words_also_of_long_contexts(folders):
    teacher = open_teacher(folders["qa"])
    examples = tiny_data.qa(8)
    said = teacher(examples)
    spans = context_spans(examples)
    for row in range(8):
        assert said[row].shape == (len(spans[row]) + 1, 2)
        assert np.allclose(np.exp(said[row]).sum(0), 1, atol=1e-4)
    assert len(teacher.task.encode(examples, load_tokenizer(folders["qa"]))) >= 8


def test_a_teacher_is_asked_once_about_each_text(folders, tmp_path):
    teacher, examples = open_teacher(folders["tagging"]), tiny_data.tagging(12)
    asked = []
    original = type(teacher).__call__

    class Counting(type(teacher)):
        def __call__(self, part):
            asked.extend(part.texts)
            return original(self, part)

    teacher.__class__ = Counting
    first = teacher_outputs(teacher, examples, FrozenCache(tmp_path))
    again = teacher_outputs(teacher, examples, FrozenCache(tmp_path))
    assert sorted(asked) == sorted(set(examples.texts))
    everything = np.arange(12)
    assert np.array_equal(first.flat(everything), again.flat(everything))


def test_labels_are_matched_by_name(folders):
    with pytest.raises(BadLabels, match='"yellow"') as error:
        open_teacher(folders["classification"], labels=["red", "green", "yellow"])
    assert "red, green, blue" in str(error.value)
    assert "red, green, yellow" in str(error.value)
    same_labels(("a", "b"), ("b", "a"), "one", "other")
    with pytest.raises(BadInput, match="does classification, not tagging"):
        open_teacher(folders["classification"], "tagging")


def test_an_encoder_has_nothing_to_teach(tmp_path):
    with pytest.raises(BadInput, match="nothing to teach"):
        open_teacher(save_encoder(tmp_path))


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        ([0.5, 0.25, 0.25], [0.5, 0.25, 0.25]),
        ({"blue": 0.5, "red": 0.25, "green": 0.25}, [0.25, 0.25, 0.5]),
        ({"probabilities": {"green": 0.9}}, [0.05, 0.9, 0.05]),
        ({"label": "green"}, [0, 1, 0]),
        ("red", [1, 0, 0]),
    ],
)
def test_answers_may_be_lists_names_the_k_best_or_hard_labels(answer, expected):
    assert np.allclose(np.exp(distribution(answer, LABELS, "x")), expected, atol=1e-6)
    assert np.isfinite(distribution(answer, LABELS, "x")).all()


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        ([0.5, 0.2, 0.2], "sum to 0.9, not to 1"),
        ([2.0, -1.0, 0.0], "not to 1"),
        ([float("nan"), 0.5, 0.5], "not to 1"),
        ([0.5, 0.5], "2 probabilities for 3 labels"),
        ({"rad": 1.0}, 'unknown label "rad". Did you mean "red"'),
        ({"red": 0.8, "blue": 0.6}, "sum to 1.4"),
    ],
)
def test_what_is_no_distribution_is_refused(answer, message):
    with pytest.raises(BadInput) as error:
        distribution(answer, LABELS, "endpoint")
    assert message in str(error.value)


def test_a_callable_is_given_texts_and_gives_an_array():
    examples = tiny_data.classification(5)
    teacher = FunctionTeacher(lambda texts: np.array([[len(t) % 2, 1 - len(t) % 2, 0] for t in texts]), labels=LABELS)
    assert np.allclose(np.exp(teacher(examples)[:, 0]), [len(text) % 2 for text in examples.texts])
    with pytest.raises(BadInput, match="What are the labels"):
        FunctionTeacher(lambda texts: texts)
    with pytest.raises(BadInput, match="gave 2 answers to 5 texts"):
        FunctionTeacher(lambda texts: texts[:2], labels=LABELS)(examples)
    with pytest.raises(BadInput, match="classification and tagging"):
        FunctionTeacher(lambda texts: texts, "qa", LABELS)


def test_a_callable_tags_words():
    examples = tiny_data.tagging(3)
    tags = ("O", "B-LOC")
    teacher = FunctionTeacher(
        lambda texts: [[{"label": "B-LOC" if w[0].isupper() else "O"} for w in words] for words in texts],
        "tagging",
        tags,
    )
    said = teacher(examples)
    for row in range(3):
        assert [tags[i] for i in said[row].argmax(1)] == list(examples.labels[row])


def test_a_file_of_answers_is_matched_by_text_or_id(tmp_path):
    examples = Examples("classification", "en", ["c0", "c1", "c2", "c3"], ["one", "two", "three", "four"])
    file = tmp_path / "answers.jsonl"
    rows = [
        {"text": examples.texts[0], "probabilities": {"red": 0.7, "green": 0.2, "blue": 0.1}},
        {"id": "c1", "label": "blue"},
        {"text": examples.texts[2], "probabilities": {"green": 1.0}},
        {"text": examples.texts[3], "label": "red"},
    ]
    file.write_text("\n".join(map(json.dumps, rows)) + "\n\n")
    teacher = AnswersTeacher(file)
    assert teacher.labels == ("blue", "green", "red")
    assert np.exp(teacher(examples))[0].tolist() == pytest.approx([0.1, 0.2, 0.7])
    assert teacher(examples)[1].argmax() == 0
    with pytest.raises(BadInput, match="no answer for"):
        teacher(tiny_data.classification(6, seed=5))
    file.write_text('{"text": "a", "probabilities": {"x": 0.4, "y": 0.4}}\n')
    with pytest.raises(BadInput, match=r"line 1: the probabilities sum to 0.8"):
        AnswersTeacher(file)(Examples("classification", "en", ["1"], ["a"]))
    file.write_text('{"text": "a"}\n')
    with pytest.raises(BadFile, match="line 1: needs text"):
        AnswersTeacher(file)
    file.write_text("nonsense\n")
    with pytest.raises(BadFile, match="line 1: is not JSON"):
        AnswersTeacher(file)


class Service(BaseHTTPRequestHandler):
    """An endpoint that fails as often as it is told."""

    codes: ClassVar[list[int]] = []
    asked: ClassVar[list[str]] = []

    def do_POST(self):
        texts = json.loads(self.rfile.read(int(self.headers["Content-Length"])))["texts"]
        code = Service.codes.pop(0) if Service.codes else 200
        self.send_response(code)
        self.end_headers()
        if code == 200:
            Service.asked += texts
            self.wfile.write(json.dumps({"predictions": [{"label": LABELS[len(t) % 3]} for t in texts]}).encode())

    def log_message(self, *_):
        """Say nothing."""


@pytest.fixture
def address():
    server = HTTPServer(("127.0.0.1", 0), Service)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    Service.codes, Service.asked = [], []
    yield f"http://127.0.0.1:{server.server_port}/"
    server.shutdown()
    thread.join()
    server.server_close()


def test_an_endpoint_that_stumbles_is_asked_again_with_longer_and_longer_pauses(address):
    examples, waits = tiny_data.classification(40), []
    teacher = EndpointTeacher(address, labels=LABELS, wait=waits.append)
    Service.codes = [500, 503, 200]
    said = teacher(examples)
    assert [LABELS[i] for i in said.argmax(1)] == [LABELS[len(t) % 3] for t in examples.texts]
    assert waits == [2.0, 4.0]
    assert len(Service.asked) == 40


def test_an_endpoint_that_stays_down_stops_the_run_and_what_it_said_is_kept(address, tmp_path):
    examples = tiny_data.classification(300, seed=2)
    examples = examples.select([list(examples.texts).index(t) for t in dict.fromkeys(examples.texts)])
    texts = [f"{t} {i}" for i, t in enumerate(examples.texts * 6)][:200]
    many = Examples("classification", "en", [str(i) for i in range(200)], texts)
    teacher = EndpointTeacher(address, labels=LABELS, wait=lambda _: None)
    Service.codes = [200] * 4 + [500] * 4
    with pytest.raises(Unfinished, match="kept") as error:
        teacher_outputs(teacher, many, FrozenCache(tmp_path))
    assert error.value.exit_code == 130
    before = len(Service.asked)
    assert before == 128
    Service.codes = []
    said = teacher_outputs(teacher, many, FrozenCache(tmp_path))
    assert len(Service.asked) == 200
    assert [LABELS[i] for i in said.stack(np.arange(200)).argmax(1)] == [LABELS[len(t) % 3] for t in texts]


def test_an_endpoint_that_refuses_is_not_asked_again(address):
    Service.codes = [404, 404, 404, 404]
    with pytest.raises(BadInput, match="404"):
        EndpointTeacher(address, labels=LABELS, wait=lambda _: None)(tiny_data.classification(2))
    assert len(Service.codes) == 3


def test_nobody_listening_is_a_resumable_stop():
    teacher = EndpointTeacher("http://127.0.0.1:9/", labels=LABELS, wait=lambda _: None)
    with pytest.raises(Unfinished, match="4 tries"):
        teacher(tiny_data.classification(2))
