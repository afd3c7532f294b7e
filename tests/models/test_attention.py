"""One layer's attention beside fused kernels, against what transformers' eager attention returns."""

import pytest
import torch
from transformers import AutoModel, AutoModelForSequenceClassification

from crosslift.errors import BadInput
from crosslift.models.attention import FAMILIES, disturbed, layer_attention
from tests.tiny_models import save_encoder


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    made = {}

    def of(family):
        if family not in made:
            made[family] = save_encoder(tmp_path_factory.mktemp(family), family)
        return made[family]

    return of


def batch():
    ids = torch.arange(10, 10 + 21).reshape(3, 7)
    mask = torch.ones(3, 7, dtype=torch.long)
    mask[1, 5:] = mask[2, 3:] = 0
    return {"input_ids": ids, "attention_mask": mask}


@pytest.mark.parametrize("layer", [1, 2])
@pytest.mark.parametrize("family", FAMILIES)
def test_attention_equals_eagers(family, layer, folder):
    eager = AutoModel.from_pretrained(folder(family), attn_implementation="eager").eval()
    fused = AutoModelForSequenceClassification.from_pretrained(folder(family)).eval()
    inputs = batch()
    real = inputs["attention_mask"].bool()
    with torch.no_grad():
        wanted = eager(**inputs, output_attentions=True, output_hidden_states=True)
        with layer_attention(fused, layer) as taken:
            fused(**inputs)
    got = taken.attention(inputs["attention_mask"])
    queries = real[:, None, :, None].expand_as(got)
    torch.testing.assert_close(got[queries], wanted.attentions[layer - 1][queries], atol=1e-6, rtol=0)
    torch.testing.assert_close(taken.embeddings[real], wanted.hidden_states[0][real], atol=1e-6, rtol=0)
    torch.testing.assert_close(taken.hidden[real], wanted.hidden_states[layer][real], atol=1e-5, rtol=0)


@pytest.mark.parametrize("family", ["bert", "distilbert", "mpnet"])
def test_gradients_of_the_attention_equal_eagers(family, folder):
    grads = []
    for implementation in ("eager", None):
        options = {"attn_implementation": implementation} if implementation else {}
        model = AutoModel.from_pretrained(folder(family), **options).eval()
        inputs = batch()
        if implementation:
            attention = model(**inputs, output_attentions=True).attentions[1]
        else:
            with layer_attention(model, 2) as taken:
                model(**inputs)
            attention = taken.attention(inputs["attention_mask"])
        real = inputs["attention_mask"][:, None, :, None]
        (attention.square() * real).sum().backward()
        grads.append(model.get_input_embeddings().weight.grad)
    assert grads[0].abs().max() > 0
    torch.testing.assert_close(grads[0], grads[1], atol=1e-6, rtol=1e-4)


def test_a_layer_beyond_the_last_is_the_last_one(folder):
    model = AutoModel.from_pretrained(folder("bert")).eval()
    seen = []
    for layer in (2, 6):
        with layer_attention(model, layer) as taken, torch.no_grad():
            model(**batch())
        seen.append(taken.attention(batch()["attention_mask"]))
    assert torch.equal(*seen)


def test_hooks_are_gone_after_the_context(folder):
    model = AutoModel.from_pretrained(folder("bert")).eval()
    with layer_attention(model, 1), disturbed(model, torch.ones(())):
        pass
    assert not any(m._forward_hooks or m._forward_pre_hooks for m in model.modules())


@pytest.mark.parametrize("family", ["modernbert", "gemma3"])
def test_a_family_whose_attention_cannot_be_read_says_so_and_still_gives_hidden_states(family, folder):
    model = AutoModel.from_pretrained(folder(family)).eval()
    with pytest.raises(BadInput, match="cannot be read yet"), layer_attention(model, 1):
        pass
    with layer_attention(model, 1, attention=False) as taken, torch.no_grad():
        wanted = model(**batch(), output_hidden_states=True)
    torch.testing.assert_close(taken.embeddings, wanted.hidden_states[0])


def test_noise_on_the_embeddings_is_a_shifted_embedding(folder):
    model = AutoModel.from_pretrained(folder("xlm-roberta")).eval()
    noise = torch.randn(3, 7, 32, generator=torch.Generator().manual_seed(1))
    inputs = batch()
    with torch.no_grad():
        with disturbed(model, noise), layer_attention(model, 1) as taken:
            model(**inputs)
        shifted = model.get_input_embeddings()(inputs["input_ids"]) + noise
        # Position ids as they follow from the input ids.
        wanted = model(
            inputs_embeds=shifted, attention_mask=inputs["attention_mask"], output_hidden_states=True,
            position_ids=torch.arange(2, 9).expand(3, -1),
        )  # fmt: skip
    torch.testing.assert_close(taken.embeddings, wanted.hidden_states[0], atol=1e-6, rtol=0)
