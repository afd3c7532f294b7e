"""Two models put together: parts where they belong, and one plain model out of them."""

import pytest
import torch
from transformers import AutoConfig, AutoModel, AutoModelForSequenceClassification

from crosslift.errors import BadInput
from crosslift.models.anatomy import depth_of, layers_of
from crosslift.models.load import AUTO
from crosslift.models.reassembled import Connector, Reassembled, native_obstacle, to_native
from tests.tiny_models import config_for, tokenizer_for

PAIRS = [("xlm-roberta", "roberta"), ("bert", "bert"), ("distilbert", "distilbert"), ("electra", "electra")]
KINDS = ("classification", "tagging", "qa")


def config_of(family, layers, changes):
    config = config_for(family, tokenizer_for(family))
    setattr(config, config.attribute_map.get("num_hidden_layers", "num_hidden_layers"), layers)
    if getattr(config, "layer_types", None) is not None:
        config.layer_types = ["full_attention", "sliding_attention"] * (layers // 2)
    for name, value in changes.items():
        setattr(config, name, value)
    return config


def encoder(family, layers=4, seed=0, **changes):
    config = config_of(family, layers, changes)
    torch.manual_seed(seed)
    return AutoModel.from_config(config).eval()


def task_model(family, kind="classification", layers=4, seed=1, **changes):
    config = config_of(family, layers, changes)
    if kind != "qa":
        config.id2label = {0: "red", 1: "green", 2: "blue"}
        config.label2id = {"red": 0, "green": 1, "blue": 2}
    torch.manual_seed(seed)
    return AUTO[kind].from_config(config).eval()


def shaken(connector, seed=5):
    """Move the weights, as training does, so that a connector is not its own beginning."""
    torch.manual_seed(seed)
    with torch.no_grad():
        for parameter in connector.parameters():
            parameter += 0.05 * torch.randn_like(parameter)
    return connector.eval()


def batch(family):
    torch.manual_seed(3)
    ids = torch.randint(5, 200, (3, 17))
    mask = torch.ones_like(ids)
    mask[1, 9:] = 0
    mask[2, 5:] = 0
    ids[mask == 0] = tokenizer_for(family).pad_token_id
    return {"input_ids": ids, "attention_mask": mask}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("multi", "mono"), PAIRS)
@pytest.mark.parametrize(("k", "c", "p"), [(2, 2, 2), (0, 4, 0), (3, 1, 4), (1, 5, 3)], ids=str)
def test_a_native_model_gives_the_reassembled_models_logits_with_transformers_alone(
    multi, mono, kind, k, c, p, tmp_path
):
    below, task = encoder(multi), task_model(mono, kind)
    connector = shaken(Connector(below, k, c, 32))
    whole = Reassembled(below, connector, task, p).eval()
    native = to_native(below, connector, task, p, kind)
    native.save_pretrained(tmp_path)
    opened = AUTO[kind].from_pretrained(tmp_path).eval()
    inputs = batch(multi)
    with torch.no_grad():
        expected, found = whole(**inputs), opened(**inputs)
    names = ("start_logits", "end_logits") if kind == "qa" else ("logits",)
    for name in names:
        assert torch.allclose(found[name], expected[name], atol=1e-5)
    assert depth_of(opened) == k + c + 4 - p
    assert AutoConfig.from_pretrained(tmp_path).model_type == multi
    if kind != "qa":
        assert opened.config.id2label == task.config.id2label


def test_the_second_of_two_texts_is_told_from_the_first_where_the_encoder_has_token_types():
    below, task = encoder("bert"), task_model("bert")
    connector = shaken(Connector(below, 2, 2, 32))
    inputs = batch("bert")
    types = (torch.arange(17) >= 4).long().expand(3, -1) * inputs["attention_mask"]
    whole = Reassembled(below, connector, task, 2).eval()
    native = to_native(below, connector, task, 2, "classification")
    with torch.no_grad():
        told, untold = whole(**inputs, token_type_ids=types).logits, whole(**inputs).logits
        assert torch.allclose(native(**inputs, token_type_ids=types).logits, told, atol=1e-5)
    assert not torch.allclose(told, untold, atol=1e-4)


def test_a_new_connector_leaves_the_multilingual_model_as_it_was():
    below, task = encoder("xlm-roberta"), task_model("roberta")
    connector = Connector(below, 2, 2, 32).eval()
    whole = Reassembled(below, connector, task, 4).eval()
    inputs = batch("xlm-roberta")
    with torch.no_grad():
        hidden = below(**inputs).last_hidden_state
        expected = task.classifier(hidden)
        found = whole(**inputs).logits
    assert torch.allclose(found, expected, atol=1e-5)
    shaken(connector)
    with torch.no_grad():
        assert torch.equal(below(**inputs).last_hidden_state, hidden)  # copies moved, not the model's own layers


def test_a_connector_deeper_than_what_is_left_repeats_the_last_layer():
    below = encoder("xlm-roberta")
    connector = Connector(below, 3, 3, 32)
    last = layers_of(below)[3].state_dict()
    for layer in connector.layers:
        assert all(torch.equal(tensor, last[name]) for name, tensor in layer.state_dict().items())


@pytest.mark.parametrize("multi", ["modernbert", "gemma3", "mpnet", "xlm-roberta"])
def test_models_of_other_widths_and_families_are_joined_by_a_projection(multi):
    below = encoder(multi)
    task = task_model("roberta", hidden_size=48, num_attention_heads=4)
    connector = Connector(below, 2, 2, 48)
    assert connector.project is not None
    inputs = batch(multi)
    logits = Reassembled(below, connector, task, 2)(**inputs).logits
    assert logits.shape == (3, 3)
    logits.sum().backward()
    assert all(p.grad is not None for p in connector.parameters() if p.requires_grad)


def test_a_projection_begins_alike_whatever_was_drawn_before():
    below = encoder("xlm-roberta")
    one = Connector(below, 2, 2, 48)
    torch.rand(3)
    assert torch.equal(one.project.weight, Connector(below, 2, 2, 48).project.weight)


@pytest.mark.parametrize("mono", ["roberta", "bert", "gemma3"])
def test_padding_changes_nothing(mono):
    below, task = encoder("xlm-roberta"), task_model(mono)
    whole = Reassembled(below, shaken(Connector(below, 2, 2, 32)), task, 2).eval()
    inputs = batch("xlm-roberta")
    with torch.no_grad():
        padded = whole(**inputs).logits[2]
        alone = whole(input_ids=inputs["input_ids"][2:, :5], attention_mask=inputs["attention_mask"][2:, :5]).logits[0]
    assert torch.allclose(padded, alone, atol=1e-5)


@pytest.mark.parametrize("multi", ["xlm-roberta", "distilbert", "mpnet", "modernbert", "gemma3"])
def test_the_connectors_dropout_is_the_one_that_was_asked_for(multi):
    # ModernBERT and Gemma 3 keep the dropout of their attention as a number, not as a module.
    kept = {"attention_dropout": 0.5} if multi in ("modernbert", "gemma3") else {}
    base, states, mask = encoder(multi, **kept), torch.randn(2, 9, 32), torch.ones(2, 9, dtype=torch.long)
    for dropout in (0.0, 0.3):
        connector = Connector(base, 2, 2, 32, dropout=dropout).train()
        assert torch.equal(connector(states, mask), connector(states, mask)) == (dropout == 0.0)


def test_a_connectors_own_weights_are_all_that_it_stores():
    connector = Connector(encoder("xlm-roberta"), 2, 2, 32)
    assert {name.split(".")[0] for name in connector.state_dict()} == {"layers"}
    assert sum(p.numel() for p in connector.parameters()) == sum(p.numel() for p in connector.layers.parameters())


@pytest.mark.parametrize(
    ("multi", "mono", "changes", "reason"),
    [
        ("xlm-roberta", "bert", {}, "two families"),
        ("xlm-roberta", "roberta", {"intermediate_size": 80}, "intermediate_size"),
        ("xlm-roberta", "roberta", {"hidden_size": 48}, "hidden_size"),
        ("distilbert", "distilbert", {"hidden_dim": 80}, "hidden_dim"),
        ("distilbert", "distilbert", {"activation": "relu"}, "activation"),
        ("modernbert", "modernbert", {}, "its own layers"),
    ],
)
def test_models_that_no_one_class_holds_are_refused_with_the_reason(multi, mono, changes, reason):
    below, task = encoder(multi, 2), task_model(mono, layers=2, **changes)
    assert reason in native_obstacle(below.config, task.config)
    connector = Connector(below, 1, 1, task.config.hidden_size)
    with pytest.raises(BadInput, match=reason):
        to_native(below, connector, task, 1, "classification")


def test_a_connector_without_anything_to_learn_is_refused():
    with pytest.raises(BadInput, match="nothing to learn"):
        Connector(encoder("xlm-roberta"), 2, 0, 32)


def test_labels_pass_through_to_the_task_models_loss():
    below, task = encoder("xlm-roberta"), task_model("roberta")
    whole = Reassembled(below, Connector(below, 2, 2, 32), task, 2)
    loss = whole(**batch("xlm-roberta"), labels=torch.tensor([0, 1, 2])).loss
    assert loss.ndim == 0
    assert isinstance(task, type(AutoModelForSequenceClassification.from_config(task.config)))
