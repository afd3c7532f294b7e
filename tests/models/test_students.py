"""Students: sizes as in the paper, padding changes nothing, and a folder opens with one call."""

import numpy as np
import pytest
import torch
from torch import nn

import crosslift as xl
from crosslift.errors import BadInput
from crosslift.models.load import load_model, load_tokenizer
from crosslift.models.small_networks import BiLstmConfig, BiLstmModel, convolved, pooled, reversed_rows
from crosslift.models.students import (
    STUDENTS,
    new_student,
    save_student,
    save_with_layers,
    student_tokenizer,
    with_layers,
)
from crosslift.tasks import Classification, QuestionAnswering, Tagging
from tests.tiny import TEXTS, bpe_tokenizer
from tests.tiny_models import save_encoder

TASKS = {
    "classification": Classification(labels=("a", "b", "c")),
    "tagging": Tagging(labels=("O", "B-x", "I-x")),
    "qa": QuestionAnswering(max_length=128, stride=32),
}
CASES = [(name, kind) for name in STUDENTS for kind in TASKS]


class TenThousand:
    """Stands for a tokenizer with a full vocabulary: only its size counts."""

    pad_token_id, bos_token_id, eos_token_id = 1, 0, 2

    def __len__(self):
        return 10_000


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """Task models of every student, saved."""
    made = {}
    for name, kind in CASES:
        home = tmp_path_factory.mktemp(f"{name}-{kind}")
        save_student(new_student(name, bpe_tokenizer(), kind, seed=3), bpe_tokenizer(), home / "start")
        save_student(load_model(home / "start", TASKS[kind], head_seed=1), bpe_tokenizer(), home / "model")
        made[name, kind] = home / "model"
    return made


@pytest.mark.parametrize(
    ("name", "kind", "millions"),
    [
        ("transformer", "classification", 5.3),
        ("bilstm", "classification", 5.3),
        ("cnn", "classification", 5.0),
        ("transformer", "tagging", 5.3),
        ("bilstm", "tagging", 5.3),
        ("cnn", "tagging", 5.0),
    ],
)
def test_students_have_the_paper_s_five_million_parameters(name, kind, millions):
    encoder = new_student(name, TenThousand(), kind)
    assert sum(p.numel() for p in encoder.parameters()) / 1e6 == pytest.approx(millions, abs=0.15)


@pytest.mark.parametrize(("name", "kind"), CASES)
def test_a_student_s_folder_opens_with_one_call_and_says_the_same(name, kind, folders):
    first, second = xl.load_model(folders[name, kind]), load_model(folders[name, kind], TASKS[kind])
    for (key, a), (other, b) in zip(first.state_dict().items(), second.state_dict().items(), strict=True):
        assert key == other
        assert torch.equal(a, b), key
    still = [n for n, p in first.named_parameters() if p.ndim > 1 and len(p) > 1 and p.std() == 0]
    assert still == [], "a matrix was not initialised"
    assert load_tokenizer(folders[name, kind]).model_max_length >= 128


@pytest.mark.parametrize(("name", "kind"), CASES)
def test_more_padding_changes_nothing(name, kind, folders):
    model = load_model(folders[name, kind], TASKS[kind]).eval()
    ids = torch.randint(5, 300, (3, 9), generator=torch.Generator().manual_seed(0))
    mask = (torch.arange(9) < torch.tensor([[9], [4], [1]])).long()
    ids = torch.where(mask == 1, ids, 1)
    wide = {"input_ids": nn.functional.pad(ids, (0, 7), value=1), "attention_mask": nn.functional.pad(mask, (0, 7))}
    with torch.no_grad():
        for key, value in model(input_ids=ids, attention_mask=mask).items():
            other = model(**wide)[key]
            if value.shape[:2] == mask.shape:
                value, other = value[mask == 1], other[:, :9][mask == 1]
            assert torch.allclose(value, other, atol=1e-5), key


@pytest.mark.parametrize("name", ["bilstm", "cnn"])
def test_padded_pooling_does_not_depend_on_the_batch(name, tmp_path):
    encoder = new_student(name, bpe_tokenizer(), "classification", pooling="padded")
    save_student(encoder, bpe_tokenizer(), tmp_path / "s")
    model = load_model(tmp_path / "s", TASKS["classification"]).eval()
    ids = torch.tensor([[5, 9, 12, 1, 1], [6, 7, 8, 9, 10]])
    with torch.no_grad():
        both = model(input_ids=ids, attention_mask=(ids != 1).long()).logits
        alone = model(input_ids=ids[:1, :3], attention_mask=torch.ones(1, 3).long()).logits
    assert torch.allclose(both[:1], alone, atol=1e-6)


def test_the_backward_lstm_starts_at_the_last_real_token():
    """Equal to torch's own bidirectional LSTM on packed rows."""
    torch.manual_seed(0)
    model = BiLstmModel(BiLstmConfig(vocab_size=30, embedding_size=6, hidden_size=8, num_hidden_layers=1)).eval()
    reference = nn.LSTM(6, 4, batch_first=True, bidirectional=True)
    state = dict(model.forwards[0].named_parameters())
    state |= {f"{k}_reverse": v for k, v in model.backwards[0].named_parameters()}
    reference.load_state_dict(state)
    ids, lengths = torch.randint(0, 30, (3, 7)), torch.tensor([7, 3, 1])
    packed = nn.utils.rnn.pack_padded_sequence(model.words(ids), lengths, batch_first=True)
    expected, _ = nn.utils.rnn.pad_packed_sequence(reference(packed)[0], batch_first=True)
    mask = (torch.arange(7) < lengths[:, None]).long()
    found = model(ids, mask).last_hidden_state
    assert torch.allclose(found[mask == 1], expected[mask == 1], atol=1e-6)


def test_pooling_by_hand():
    hidden = torch.tensor([[[1.0, 2.0], [3.0, -4.0], [50.0, 60.0]]])
    mask = torch.tensor([[1, 1, 0]])
    assert pooled(hidden, mask, "mean").tolist() == [[2.0, -1.0]]
    assert pooled(hidden, mask, "max").tolist() == [[3.0, 2.0]]
    assert pooled(hidden, mask, "last").tolist() == [[3.0, 2.0]]
    assert reversed_rows(hidden, torch.tensor([2]))[0, :, 0].tolist() == [3.0, 1.0, 50.0]


@pytest.mark.parametrize(("kernel", "dilation"), [(3, 1), (4, 1), (5, 1), (3, 2)])
def test_a_convolution_as_a_matrix_product_is_torch_s_own(kernel, dilation):
    layer, values = nn.Conv1d(6, 8, kernel, dilation=dilation), torch.randn(2, 9, 6)
    reach = (kernel - 1) * dilation
    filled = nn.functional.pad(values.transpose(1, 2), (reach // 2, reach - reach // 2))
    assert torch.allclose(convolved(values, layer), layer(filled).transpose(1, 2), atol=1e-5)


@pytest.mark.parametrize("name", STUDENTS)
def test_students_learn_from_every_weight(name):
    """The gradient reaches all of the encoder."""
    encoder = new_student(name, bpe_tokenizer(), "tagging").train()
    ids = torch.arange(5, 25).view(2, 10)
    encoder(input_ids=ids, attention_mask=torch.ones_like(ids)).last_hidden_state.square().sum().backward()
    assert [n for n, p in encoder.named_parameters() if p.grad is None] == []


def test_the_vocabulary_is_trained_on_the_given_text():
    tokenizer = student_tokenizer({"en": TEXTS * 3}, pieces=500)
    assert 256 < len(tokenizer) <= 500
    assert tokenizer.convert_ids_to_tokens(tokenizer("the capital")["input_ids"])[1:-1] == ["Ġthe", "Ġcapital"]


def test_layers_that_stay_are_spread_over_the_encoder(tmp_path):
    home = save_encoder(tmp_path / "deep", num_hidden_layers=5)
    whole, part = xl.load_encoder(home), with_layers(home, 3)
    assert part.config.num_hidden_layers == 3
    for kept, place in zip(part.encoder.layer, (0, 2, 4), strict=True):
        for a, b in zip(kept.parameters(), whole.encoder.layer[place].parameters(), strict=True):
            assert torch.equal(a, b)
    save_with_layers(home, 3, tmp_path / "less")
    assert xl.load_encoder(tmp_path / "less").config.num_hidden_layers == 3


@pytest.mark.parametrize("family", ["bert", "distilbert", "electra", "modernbert", "xlm-roberta"])
def test_layers_can_be_dropped_in_many_families(family, tmp_path):
    home = save_encoder(tmp_path / family, family)
    save_with_layers(home, 1, tmp_path / "less")
    model = xl.load_encoder(tmp_path / "less").eval()
    ids = torch.tensor([[5, 6, 7, 8]])
    with torch.no_grad():
        assert np.isfinite(model(input_ids=ids, attention_mask=torch.ones_like(ids)).last_hidden_state.numpy()).all()


def test_what_cannot_be_is_refused(tmp_path):
    with pytest.raises(BadInput, match="transformer, bilstm, cnn"):
        new_student("rnn", bpe_tokenizer(), "classification")
    with pytest.raises(BadInput, match="2 layers"):
        with_layers(save_encoder(tmp_path / "e"), 3)
    with pytest.raises(BadInput, match="first token"):
        new_student("transformer", bpe_tokenizer(), "classification", pooling="last")
    encoder = new_student("cnn", bpe_tokenizer(), "classification", pooling="last")
    save_student(encoder, bpe_tokenizer(), tmp_path / "c")
    with pytest.raises(BadInput, match="cannot pool"):
        load_model(tmp_path / "c", TASKS["classification"])
    with pytest.raises(BadInput, match="without a task head"):
        xl.load_model(save_encoder(tmp_path / "bare"))
