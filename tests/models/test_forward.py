"""Calling models of every family: what they see, and what comes back."""

import pytest
import torch

from crosslift.errors import BadInput
from crosslift.models.forward import forward
from crosslift.models.load import load_encoder, load_model
from crosslift.tasks import Classification, QuestionAnswering, Tagging
from tests.tiny_models import FAMILIES, save_encoder

TASKS = {
    "classification": Classification(labels=("a", "b")),
    "tagging": Tagging(labels=("O", "B-X", "I-X")),
    "qa": QuestionAnswering(),
}
SHAPES = {
    "classification": {"logits": (2, 2)},
    "tagging": {"logits": (2, 6, 3)},
    "qa": {"start_logits": (2, 6), "end_logits": (2, 6)},
}


@pytest.fixture(scope="module")
def encoders(tmp_path_factory):
    return {family: save_encoder(tmp_path_factory.mktemp(family), family) for family in FAMILIES}


@torch.no_grad()
def states(model, ids):
    ids = torch.tensor([ids])
    return model(input_ids=ids, attention_mask=torch.ones_like(ids)).last_hidden_state[0]


@pytest.mark.parametrize("family", FAMILIES)
def test_every_encoder_looks_both_ways(family, encoders):
    """A later token that changes must change an earlier token's state; so Gemma 3 is no longer causal."""
    model = load_encoder(encoders[family]).eval()
    before, after = states(model, [10, 11, 12, 13]), states(model, [10, 11, 12, 14])
    assert not torch.allclose(before[0], after[0], atol=1e-5)


def test_gemma_looks_both_ways_even_if_its_folder_does_not_say_so(tmp_path):
    folder = save_encoder(tmp_path / "causal", "gemma3", use_bidirectional_attention=False)
    model = load_encoder(folder).eval()
    assert not torch.allclose(states(model, [10, 11, 12])[0], states(model, [10, 11, 13])[0], atol=1e-5)
    tagger = load_model(folder, TASKS["tagging"])
    tagger.save_pretrained(tmp_path / "tagger")
    ids = torch.tensor([[10, 11, 12], [10, 11, 13]])
    with torch.no_grad():
        first = forward(tagger.eval(), {"input_ids": ids, "attention_mask": torch.ones_like(ids)})["logits"][:, 0]
    assert not torch.allclose(first[0], first[1], atol=1e-5)


@pytest.mark.parametrize("kind", list(TASKS))
@pytest.mark.parametrize("family", FAMILIES)
def test_padding_and_labels_change_nothing(family, kind, encoders):
    model = load_model(encoders[family], TASKS[kind]).eval()
    short = {"input_ids": torch.tensor([[5, 10, 11, 6], [5, 20, 21, 6]])}
    short["attention_mask"] = torch.ones_like(short["input_ids"])
    padded = {name: torch.nn.functional.pad(values, (0, 2)) for name, values in short.items()}
    padded["input_ids"][:, 4:] = model.config.pad_token_id
    padded["labels"] = torch.zeros(2, dtype=torch.long)
    padded["token_type_ids"] = torch.zeros_like(padded["input_ids"])
    with torch.no_grad():
        plain, filled = forward(model, short), forward(model, padded)
    assert {name: tuple(values.shape) for name, values in filled.items()} == SHAPES[kind]
    for name, values in filled.items():
        kept = values if kind == "classification" else values[:, :4]
        assert torch.allclose(kept, plain[name], atol=1e-5)


def test_an_encoder_without_a_head_is_said_in_one_line(encoders):
    ids = torch.tensor([[5, 10, 6]])
    with pytest.raises(BadInput, match="has no task head"):
        forward(load_encoder(encoders["bert"]), {"input_ids": ids, "attention_mask": torch.ones_like(ids)})
