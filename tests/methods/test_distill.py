"""The losses of distillation: by hand, against slow references, with padding, with gradients."""

import math

import numpy as np
import pytest
import torch

from crosslift.errors import BadInput
from crosslift.methods.distill import Distill, Settings, divergence, span_divergence, word_divergence
from crosslift.models.frozen import FrozenRows
from crosslift.models.load import load_model, load_tokenizer
from crosslift.models.teachers import context_spans
from crosslift.tasks import Classification, QuestionAnswering, Tagging
from tests import tiny_data
from tests.tiny_models import save_encoder


def test_divergence_by_hand():
    teacher = torch.tensor([[0.75, 0.25]]).log()
    logits = torch.tensor([[0.0, 0.0]])
    expected = 0.75 * math.log(0.75 / 0.5) + 0.25 * math.log(0.25 / 0.5)
    assert divergence(teacher, logits).item() == pytest.approx(expected, abs=1e-6)
    assert divergence(teacher, teacher + 3).item() == pytest.approx(0, abs=1e-6)


def test_temperature_softens_both_sides_and_the_loss_is_multiplied_by_its_square():
    teacher, logits = torch.tensor([0.9, 0.1]).log(), torch.tensor([0.0, 1.0])
    p = (teacher / 2).softmax(-1)
    q = (logits / 2).softmax(-1)
    expected = 4 * (p * (p / q).log()).sum()
    assert divergence(teacher, logits, 2.0).item() == pytest.approx(expected.item(), abs=1e-6)


def test_hard_labels_give_the_cross_entropy():
    teacher = torch.tensor([[-30.0, 0.0, -30.0]])
    logits = torch.tensor([[0.3, -0.2, 0.5]])
    assert divergence(teacher, logits).item() == pytest.approx(-logits.log_softmax(-1)[0, 1].item(), abs=1e-5)


def test_the_gradient_is_the_difference_of_the_distributions():
    teacher, logits = torch.randn(4, 5).log_softmax(-1), torch.randn(4, 5, requires_grad=True)
    divergence(teacher, logits).sum().backward()
    assert torch.allclose(logits.grad, logits.detach().softmax(-1) - teacher.exp(), atol=1e-6)
    assert torch.autograd.gradcheck(
        lambda x: word_divergence(teacher.double()[None], x, torch.tensor([[0, 1, 3, -1]])).float().double(),
        torch.randn(1, 4, 5, dtype=torch.double, requires_grad=True),
        eps=1e-3,
        atol=1e-2,
    )


def test_words_count_alike_or_sentences_do():
    teacher = torch.randn(2, 3, 4).log_softmax(-1)
    logits = torch.randn(2, 6, 4)
    first = torch.tensor([[1, 3, 4], [2, -1, -1]])
    each = [divergence(teacher[b, w], logits[b, first[b, w]]) for b, w in ((0, 0), (0, 1), (0, 2), (1, 0))]
    assert word_divergence(teacher, logits, first).item() == pytest.approx(sum(each).item() / 4, abs=1e-6)
    by_sentence = word_divergence(teacher, logits, first, per="sentence")
    assert by_sentence.item() == pytest.approx(sum(each).item() / 2, abs=1e-6)
    wider = torch.nn.functional.pad(logits, (0, 0, 0, 5), value=9.0)
    more = torch.nn.functional.pad(first, (0, 2), value=-1)
    filled = torch.nn.functional.pad(teacher, (0, 0, 0, 2), value=7.0)
    assert word_divergence(filled, wider, more).item() == pytest.approx(sum(each).item() / 4, abs=1e-6)


def test_spans_by_hand_and_padding_is_no_candidate():
    teacher = torch.tensor([[0.5, 0.0, 0.5, 0.0]])
    logits, mask = torch.tensor([[1.0, 2.0, 3.0, 50.0]]), torch.tensor([[1, 1, 1, 0]])
    q = torch.tensor([1.0, 2.0, 3.0]).log_softmax(-1)
    expected = 0.5 * (math.log(0.5) - q[0]) + 0.5 * (math.log(0.5) - q[2])
    assert span_divergence(teacher, logits, mask).item() == pytest.approx(expected.item(), abs=1e-5)


def test_a_temperature_of_nothing_is_refused():
    with pytest.raises(BadInput, match="above 0"):
        Settings(temperature=0)


def rows_of(values):
    counts = np.array([len(v) for v in values])
    starts = np.cumsum([0, *counts[:-1]])
    return FrozenRows(np.concatenate(values).astype(np.float32), starts, counts)


@pytest.fixture(scope="module")
def encoder(tmp_path_factory):
    return save_encoder(tmp_path_factory.mktemp("encoder"))


def log_softmax(x):
    return x - np.log(np.exp(x).sum(-1, keepdims=True))


def test_a_batch_holds_the_teacher_s_columns_in_the_student_s_order(encoder):
    examples, draw = tiny_data.classification(6), np.random.default_rng(0)
    said = rows_of([log_softmax(draw.normal(size=(1, 3))) for _ in range(6)])
    task, tokenizer = Classification(labels=("blue", "green", "red"), max_length=64), load_tokenizer(encoder)
    method = Distill(Settings(), task, tokenizer, examples, said, order=np.array([2, 1, 0]))
    batch = method.batch(np.array([4, 1]), 0)
    assert np.allclose(batch["teacher"].numpy(), said.stack(np.array([4, 1]))[:, [2, 1, 0]])
    model = load_model(encoder, task).eval()
    loss = method.loss(model, batch)["kl"]
    with torch.no_grad():
        logits = model(input_ids=batch["input_ids"], attention_mask=batch["attention_mask"]).logits
    assert loss.item() == pytest.approx(divergence(batch["teacher"], logits).mean().item(), abs=1e-6)
    assert "labels" not in batch


def test_a_translation_is_taught_what_its_original_was_called(encoder):
    examples = tiny_data.classification(4)
    said = rows_of([log_softmax(np.eye(3)[[i % 3]] * 5) for i in range(2)])
    method = Distill(
        Settings(), Classification(labels=("a", "b", "c"), max_length=64), load_tokenizer(encoder), examples, said,
        text_of=np.array([0, 1, 1, 0]),
    )  # fmt: skip
    assert method.batch(np.arange(4), 0)["teacher"].argmax(-1).tolist() == [0, 1, 1, 0]


@pytest.mark.parametrize("max_length", [64, 12])
def test_tagging_pairs_each_word_s_first_token_with_the_teacher_s_word(encoder, max_length):
    """Also where a text is cut into several rows, and words that the teacher cannot tell apart are left out."""
    examples, draw = tiny_data.tagging(5), np.random.default_rng(1)
    values = [log_softmax(draw.normal(size=(len(spans), 3))) for spans in examples.spans]
    values[0][1] = np.nan
    task, tokenizer = Tagging(labels=("O", "B-LOC", "I-LOC"), max_length=max_length), load_tokenizer(encoder)
    method = Distill(Settings(), task, tokenizer, examples, rows_of(values))
    rows = np.arange(len(method.lengths))
    batch = method.batch(rows, 0)
    present = batch["first"] >= 0
    assert method.units(rows).sum() == present.sum() == sum(map(len, examples.spans)) - 1
    expected = np.concatenate([v[~np.isnan(v[:, 0])] for v in values])
    assert np.allclose(batch["teacher"][present].numpy(), expected, atol=1e-6)
    model = load_model(encoder, task).eval()
    one_by_one = [
        method.loss(model, method.batch(rows[i : i + 1], 0))["kl"] * method.units(rows[i : i + 1])[0] for i in rows
    ]
    assert method.loss(model, batch)["kl"].item() == pytest.approx(
        sum(one_by_one).item() / method.units(rows).sum(), rel=1e-4
    )


def test_answers_lie_on_the_tokens_of_their_words_and_what_is_outside_a_row_is_no_answer(encoder):
    examples = tiny_data.qa(6)
    spans = context_spans(examples)
    places = []
    for context, words, gold in zip(examples.pairs, spans, examples.labels, strict=True):
        places.append([context[a:b] for a, b in words.tolist()].index(gold[0].text))
    values = []
    for words, place in zip(spans, places, strict=True):
        row = np.full((len(words) + 1, 2), -30.0)
        row[place + 1] = 0
        values.append(row)
    task, tokenizer = QuestionAnswering(max_length=40, stride=12), load_tokenizer(encoder)
    method = Distill(Settings(), task, tokenizer, examples, rows_of(values))
    rows = np.arange(len(method.lengths))
    assert len(rows) > len(examples), "some contexts should be cut"
    batch = method.batch(rows, 0)
    gold = task.encode(examples, tokenizer).targets
    assert torch.allclose(batch["teacher_start"].sum(1), torch.ones(len(rows)))
    assert batch["teacher_start"].argmax(1).tolist() == gold["start_positions"].tolist()
    assert batch["teacher_end"].argmax(1).tolist() == gold["end_positions"].tolist()
    model = load_model(encoder, task).eval()
    targets = task.collate(task.encode(examples, tokenizer), rows, method.pad_id)
    with torch.no_grad():
        outputs = model(input_ids=batch["input_ids"], attention_mask=batch["attention_mask"])
        expected = task.loss(outputs, targets)
    assert method.loss(model, batch)["kl"].item() == pytest.approx(expected.item(), abs=1e-4)
