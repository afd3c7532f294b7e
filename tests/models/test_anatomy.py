"""A model run in parts equals the model run whole."""

import itertools

import pytest
import torch
import transformers
from transformers import (
    AutoModel,
    AutoModelForMaskedLM,
    AutoModelForQuestionAnswering,
    AutoModelForSequenceClassification,
    AutoModelForTokenClassification,
)

import crosslift.models.heads  # noqa: F401  registers Gemma 3's heads
from crosslift.errors import BadInput
from crosslift.models.anatomy import FAMILIES, depth_of, headed, layers_of, masked_lm_scores, part
from tests.tiny_models import config_for, tokenizer_for

OLD = transformers.__version__.startswith("5.0.")  # whose ModernBERT does not take hidden states everywhere

NAMES = ["gemma3" if name == "gemma3_text" else name for name in FAMILIES]
LAYERS = 4


def config(family):
    made = config_for(family, tokenizer_for(family))
    setattr(made, made.attribute_map.get("num_hidden_layers", "num_hidden_layers"), LAYERS)
    if getattr(made, "layer_types", None) is not None:  # both kinds of attention, a window narrower than the text
        made.layer_types = ["full_attention", "sliding_attention", "sliding_attention", "full_attention"]
        setattr(made, "local_attention" if family == "modernbert" else "sliding_window", 8)
    return made


def batch(family):
    torch.manual_seed(3)
    ids = torch.randint(5, 200, (3, 21))
    mask = torch.ones_like(ids)
    mask[1, 15:] = 0
    mask[2, 6:] = 0
    ids[mask == 0] = tokenizer_for(family).pad_token_id
    return ids, mask


def real(states, mask):
    return states[mask.bool()]


@pytest.mark.parametrize("family", NAMES)
@pytest.mark.parametrize("cuts", [(0, 4), (2, 4), (0, 1, 3, 4), (4, 4)], ids=str)
def test_layers_run_in_stretches_give_what_the_whole_model_gives(family, cuts):
    if OLD and family == "modernbert" and cuts == (4, 4):
        pytest.skip("this version reads its number format off its first layer")
    torch.manual_seed(0)
    model = AutoModel.from_config(config(family)).eval()
    ids, mask = batch(family)
    with torch.no_grad():
        whole = model(input_ids=ids, attention_mask=mask).last_hidden_state
        states = part(model, 0, cuts[0], norm=False)(ids, mask)
        for first, stop in itertools.pairwise(cuts):
            states = part(model, first, stop, embeddings=False, norm=False)(states, mask)
        ended = part(model, LAYERS, LAYERS)(states, mask)
    assert torch.allclose(real(ended, mask), real(whole, mask), atol=1e-5)


@pytest.mark.parametrize("family", NAMES)
def test_the_states_between_parts_are_the_librarys_hidden_states(family):
    torch.manual_seed(0)
    model = AutoModel.from_config(config(family)).eval()
    ids, mask = batch(family)
    with torch.no_grad():
        hidden = model(input_ids=ids, attention_mask=mask, output_hidden_states=True).hidden_states
        for k in range(LAYERS):
            assert torch.allclose(real(part(model, 0, k)(ids, mask), mask), real(hidden[k], mask), atol=1e-5)


@pytest.mark.parametrize("family", NAMES)
@pytest.mark.parametrize(
    "auto", [AutoModelForSequenceClassification, AutoModelForTokenClassification, AutoModelForQuestionAnswering]
)
def test_a_headed_top_gives_the_task_models_logits(family, auto):
    if OLD and family == "modernbert" and auto is AutoModelForQuestionAnswering:
        pytest.skip("this version's question answering reads ids alone")
    torch.manual_seed(0)
    model = auto.from_config(config(family)).eval()
    ids, mask = batch(family)
    with torch.no_grad():
        whole = model(input_ids=ids, attention_mask=mask)
        states = part(model, 0, 2)(ids, mask)
        cut = headed(model, 2)(inputs_embeds=states, attention_mask=mask)
    for name in ("logits", "start_logits", "end_logits"):
        if name in whole:
            assert torch.allclose(cut[name], whole[name], atol=1e-5)
    assert depth_of(model) == LAYERS  # the original is untouched


@pytest.mark.parametrize("family", [name for name in NAMES if name != "gemma3"])
def test_masked_lm_scores_of_some_places_equal_the_whole_models(family):
    torch.manual_seed(0)
    model = AutoModelForMaskedLM.from_config(config(family)).eval()
    ids, mask = batch(family)
    with torch.no_grad():
        whole = model(input_ids=ids, attention_mask=mask).logits
        states = part(model, 0, LAYERS)(ids, mask)
        rows, places = torch.tensor([0, 0, 1, 2]), torch.tensor([1, 20, 7, 0])
        scores = masked_lm_scores(model, states[rows, places])
    assert torch.allclose(scores, whole[rows, places], atol=1e-5)


def test_a_part_shares_its_weights_and_its_gradients_with_the_model():
    model = AutoModel.from_config(config("xlm-roberta")).eval()
    ids, mask = batch("xlm-roberta")
    part(model, 1, 3, embeddings=False)(part(model, 0, 1)(ids, mask), mask).sum().backward()
    touched = [any(p.grad is not None for p in layer.parameters()) for layer in layers_of(model)]
    assert touched == [True, True, True, False]


def test_other_layers_can_stand_in_for_the_models_own():
    torch.manual_seed(0)
    model, other = (AutoModel.from_config(config("gemma3")).eval() for _ in range(2))
    ids, mask = batch("gemma3")
    with torch.no_grad():
        states = part(model, 0, 1)(ids, mask)
        swapped = part(model, 1, 3, embeddings=False, norm=False, layers=layers_of(other)[1:3])(states, mask)
        own = part(other, 1, 3, embeddings=False, norm=False)(states, mask)
    assert torch.equal(real(swapped, mask), real(own, mask))


def test_layers_that_are_not_there_are_refused():
    model = AutoModel.from_config(config("bert"))
    with pytest.raises(BadInput, match="no layers 3 to 5 in a model of 4"):
        part(model, 3, 5)


def test_a_family_without_a_row_is_refused():
    model = AutoModel.from_config(config_for("xlm", tokenizer_for("xlm")))
    with pytest.raises(BadInput, match='"xlm" model cannot be cut'):
        part(model, 0, 1)


def test_a_model_without_a_masked_lm_head_says_so():
    model = AutoModel.from_config(config("gemma3"))
    with pytest.raises(BadInput, match="has no masked-LM head"):
        masked_lm_scores(model, torch.zeros(1, 32))
