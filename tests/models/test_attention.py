"""One layer's attention beside fused kernels, against what transformers' eager attention returns."""

import pytest
import torch
from torch._dynamo.testing import CompileCounter
from transformers import AlbertConfig, AlbertModel, AutoModel, AutoModelForSequenceClassification

from crosslift.errors import BadInput
from crosslift.models.attention import Disturbance, Listener
from tests.tiny_models import FAMILIES, config_for, save_encoder, tokenizer_for


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
        with Listener(fused, layer) as taken:
            fused(**inputs)
    got = taken.attention(inputs["attention_mask"])
    queries = real[:, None, :, None].expand_as(got)
    torch.testing.assert_close(got[queries], wanted.attentions[layer - 1][queries], atol=1e-6, rtol=0)
    torch.testing.assert_close(taken.embeddings[real], wanted.hidden_states[0][real], atol=1e-6, rtol=0)
    # These two put a norm behind their last layer, which transformers counts in.
    if layer == 1 or family not in ("modernbert", "gemma3"):
        torch.testing.assert_close(taken.hidden[real], wanted.hidden_states[layer][real], atol=1e-5, rtol=0)


@pytest.mark.parametrize("family", ["bert", "distilbert", "mpnet", "modernbert", "gemma3"])
def test_gradients_of_the_attention_equal_eagers(family, folder):
    grads = []
    for implementation in ("eager", None):
        options = {"attn_implementation": implementation} if implementation else {}
        model = AutoModel.from_pretrained(folder(family), **options).eval()
        inputs = batch()
        if implementation:
            attention = model(**inputs, output_attentions=True).attentions[1]
        else:
            with Listener(model, 2) as taken:
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
        with Listener(model, layer) as taken, torch.no_grad():
            model(**batch())
        seen.append(taken.attention(batch()["attention_mask"]))
    assert torch.equal(*seen)


def test_nothing_is_caught_or_added_outside_the_context_and_close_takes_the_hooks_off(folder):
    model = AutoModel.from_pretrained(folder("bert")).eval()
    with torch.no_grad():
        plain = model(**batch()).last_hidden_state
        listener, disturbance = Listener(model, 1), Disturbance(model)
        with listener, disturbance(torch.ones(())):
            model(**batch())
        listener.forget()
        assert torch.equal(model(**batch()).last_hidden_state, plain)
    assert listener.caught == {}
    listener.close()
    disturbance.close()
    assert not any(m._forward_hooks or m._forward_pre_hooks for m in model.modules())


def test_a_compiled_model_is_traced_once_with_what_listens_to_it(folder):
    model = AutoModel.from_pretrained(folder("bert")).eval()
    listener, disturbance = Listener(model, 2), Disturbance(model)
    mask = batch()["attention_mask"]

    def attention(seed):
        noise = torch.randn(3, 7, 32, generator=torch.Generator().manual_seed(seed))
        with listener, disturbance(noise):
            model(**batch())
        return listener.attention(mask)

    wanted = [attention(seed) for seed in range(4)]
    torch._dynamo.reset()
    graphs = CompileCounter()
    model.compile(backend=graphs, fullgraph=True)
    for seed in range(4):
        torch.testing.assert_close(attention(seed), wanted[seed])
    assert graphs.frame_count == 1


def test_a_family_whose_attention_cannot_be_read_says_so_and_names_those_that_can():
    config = AlbertConfig(hidden_size=32, num_attention_heads=2, embedding_size=16, intermediate_size=64)
    with pytest.raises(BadInput, match='of a "albert" model cannot be read'), Listener(AlbertModel(config), 1):
        pass


def test_a_window_of_local_attention_is_kept():
    config = config_for("modernbert", tokenizer_for("modernbert"))
    config.num_hidden_layers, config.layer_types = 2, ["full_attention", "sliding_attention"]
    config.global_attn_every_n_layers = 2  # how transformers 5.0 says the same
    config.local_attention = 4
    model = AutoModel.from_config(config).eval()
    with Listener(model, 2) as taken, torch.no_grad():
        model(**batch())
    seen = taken.attention(batch()["attention_mask"])[0, 0] > 0
    assert seen.sum(1).tolist() == [3, 4, 5, 5, 5, 4, 3]


def test_noise_on_the_embeddings_is_a_shifted_embedding(folder):
    model = AutoModel.from_pretrained(folder("xlm-roberta")).eval()
    noise = torch.randn(3, 7, 32, generator=torch.Generator().manual_seed(1))
    inputs = batch()
    with torch.no_grad():
        with Disturbance(model)(noise), Listener(model, 1) as taken:
            model(**inputs)
        shifted = model.get_input_embeddings()(inputs["input_ids"]) + noise
        # Position ids as they follow from the input ids.
        wanted = model(
            inputs_embeds=shifted, attention_mask=inputs["attention_mask"], output_hidden_states=True,
            position_ids=torch.arange(2, 9).expand(3, -1),
        )  # fmt: skip
    torch.testing.assert_close(taken.embeddings, wanted.hidden_states[0], atol=1e-6, rtol=0)
