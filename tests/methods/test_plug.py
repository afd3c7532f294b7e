"""The connector's losses, and that nothing else learns."""

import copy

import pytest
import torch
from transformers import AutoModelForMaskedLM

from crosslift.errors import BadInput
from crosslift.methods.plug import (
    PRESETS,
    Adaptation,
    PlugPoints,
    Settings,
    compiler_options,
    hidden_loss,
    pooled,
    relative_distance,
    sentence,
)
from crosslift.models.anatomy import part
from tests.models.test_reassembled import encoder
from tests.tiny_models import config_for, tokenizer_for


def mono_model(family="roberta", layers=4, **changes):
    config = config_for(family, tokenizer_for(family))
    setattr(config, config.attribute_map.get("num_hidden_layers", "num_hidden_layers"), layers)
    for name, value in changes.items():
        setattr(config, name, value)
    torch.manual_seed(7)
    return AutoModelForMaskedLM.from_config(config).eval()


def adaptation(points=(2, 2, 2), **settings):
    return Adaptation(encoder("xlm-roberta"), mono_model(), PlugPoints(*points), Settings(dropout=0.0, **settings))


def batch(extra=0):
    """Two rows, three masks; `extra` more tokens of padding."""
    torch.manual_seed(0)
    ids = torch.randint(5, 200, (2, 9))
    mask = torch.ones_like(ids)
    mask[1, 6:] = 0
    ids[mask == 0] = 1
    mono_ids, mono_mask = torch.randint(5, 200, (2, 7)), torch.ones(2, 7, dtype=torch.long)
    words = torch.tensor([[1, 3, 3, 4, 4, 4, 5, 0, 0], [2, 6, 7, 7, 0, 0, 0, 0, 0]])
    mono_words = torch.tensor([[1, 3, 4, 4, 5, 0, 0], [2, 6, 6, 7, 0, 0, 0]])
    width = 9 + extra
    flat = torch.tensor([0 * width + 3, 0 * width + 5, 1 * width + 2])
    grow = torch.nn.functional.pad
    return {
        "ids": grow(ids, (0, extra), value=1),
        "mask": grow(mask, (0, extra)),
        "places": flat,
        "labels": torch.tensor([11, 12, 13]),
        "mono_ids": grow(mono_ids, (0, extra), value=1),
        "mono_mask": grow(mono_mask, (0, extra)),
        "words": grow(words, (0, extra)),
        "mono_words": grow(mono_words, (0, extra)),
        "real_words": torch.ones(7),
    }


def test_only_the_connector_learns():
    module = adaptation(align=1.0)
    frozen = [p.clone() for model in module._frozen for p in model.parameters()]
    before = [p.clone() for p in module.connector.parameters()]
    assert {id(p) for p in module.parameters()} == {id(p) for p in module.connector.parameters()}
    optimizer = torch.optim.AdamW(module.parameters(), lr=1e-2)
    module.train()
    for _ in range(3):
        sum(module(batch()).values()).backward()
        optimizer.step()
        optimizer.zero_grad()
    after = [p for model in module._frozen for p in model.parameters()]
    assert all(torch.equal(a, b) for a, b in zip(frozen, after, strict=True))
    assert all(not torch.equal(a, b) for a, b in zip(before, module.connector.parameters(), strict=True))


def test_the_frozen_bottom_has_no_graph_and_frozen_parts_get_no_gradient():
    module = adaptation()
    below = module._frozen[0](batch()["ids"], batch()["mask"])
    assert not below.requires_grad
    module(batch())["hmlm"].backward()
    assert all(p.grad is None for model in module._frozen for p in model.parameters())
    assert all(p.grad is not None for p in module.connector.parameters())


def test_dropout_stays_off_in_the_frozen_parts_while_the_connector_trains():
    module = Adaptation(encoder("xlm-roberta"), mono_model(), PlugPoints(2, 2, 2), Settings(dropout=0.5))
    module.train()
    assert not any(m.training for model in module._frozen for m in model.modules())
    assert module.connector.training
    given = batch()
    assert module(given)["hmlm"].item() != module(given)["hmlm"].item()
    below = [module._frozen[0](given["ids"], given["mask"]) for _ in range(2)]
    assert torch.equal(*below)


def test_hmlm_is_the_mean_cross_entropy_of_the_whole_models_scores():
    module = adaptation()
    given = batch()
    states = module.states(given["ids"], given["mask"])
    top = part(module._frozen[3], 2, 4, embeddings=False)(states, given["mask"])
    everywhere = module._frozen[3].lm_head(top).log_softmax(-1)
    expected = -torch.stack([everywhere[0, 3, 11], everywhere[0, 5, 12], everywhere[1, 2, 13]]).mean()
    assert module(given)["hmlm"].item() == pytest.approx(expected.item(), abs=1e-5)


def test_masked_places_alone_are_projected_to_the_vocabulary():
    module = adaptation(align=1.0)
    seen = []
    module._frozen[3].lm_head.register_forward_hook(lambda head, given, scores: seen.append(scores.shape))
    module(batch())
    assert seen == [(3, module._frozen[3].config.vocab_size)]


@pytest.mark.parametrize("layer", [0, 1, 3, 4])
def test_the_target_is_what_the_monolingual_model_has_at_the_plug_layer(layer):
    module = adaptation((2, 2, layer), align=1.0)
    given = batch()
    mono = {"input_ids": given["mono_ids"], "attention_mask": given["mono_mask"]}
    with torch.no_grad():
        hidden = module._frozen[3](**mono, output_hidden_states=True).hidden_states[layer]
    torch.testing.assert_close(module.target(given["mono_ids"], given["mono_mask"]), hidden)


def test_layers_that_are_computed_twice_have_the_same_gradients():
    module = adaptation(align=1.0).train()
    found = []
    for twice in (False, True):
        if twice:
            module.gradient_checkpointing_enable()
            assert any(getattr(layer, "gradient_checkpointing", False) for layer in module.connector.layers)
        module.zero_grad()
        sum(module(batch()).values()).backward()
        found.append([p.grad.clone() for p in module.connector.parameters()])
    for plain, again in zip(*found, strict=True):
        torch.testing.assert_close(plain, again)


def test_padding_changes_no_term():
    module = adaptation(align=1.0).eval()
    plain, padded = module(batch()), module(batch(extra=5))
    for name in ("hmlm", "align"):
        assert plain[name].item() == pytest.approx(padded[name].item(), abs=1e-5)


def test_free_places_for_words_change_neither_the_distance_nor_its_gradient():
    module = adaptation(hmlm=0.0, align=1.0)
    given = batch()
    found = []
    for real in (torch.ones(7), torch.tensor([1.0] * 7 + [0.0] * 4)):
        module.zero_grad()
        term = module(given | {"real_words": real})["align"]
        term.backward()
        found.append([term.detach(), *(p.grad.clone() for p in module.connector.parameters())])
    for plain, filled in zip(*found, strict=True):
        torch.testing.assert_close(plain, filled)
    ours, theirs = (
        pooled(module.states(given["ids"], given["mask"]), given["words"], 7),
        pooled(module.target(given["mono_ids"], given["mono_mask"]), given["mono_words"], 7),
    )
    torch.testing.assert_close(found[0][0], relative_distance(ours, theirs).detach())


class _HostReads(torch.utils._python_dispatch.TorchDispatchMode):
    """Counts what would wait for a GPU: reading a value, and results whose shape depends on values."""

    WAITS = ("_local_scalar_dense", "nonzero", "bincount", "masked_select", "unique", "repeat_interleave.Tensor")

    def __init__(self):
        super().__init__()
        self.found = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        if any(name in str(func) for name in self.WAITS):
            self.found.append(str(func))
        if "index.Tensor" in str(func) and any(i is not None and i.dtype == torch.bool for i in args[1]):
            self.found.append(str(func))
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("full", [True, False], ids=["full rows", "padded rows"])
def test_the_loss_of_a_batch_looks_at_no_value(full):
    module = adaptation(align=1.0)
    given = batch()
    if full:
        given |= {"ids": given["ids"].clamp(min=5)}
        del given["mask"]
    with _HostReads() as reads:
        sum(module(given).values()).backward()
    # The library looks whether anything is padded, unless a recording is under way: `Replay` says so.
    looks = [name for name in reads.found if "_local_scalar_dense" not in name]
    assert looks == []
    assert len(reads.found) <= (1 if full else 5)


def test_labels_of_minus_100_do_not_count():
    scores = torch.tensor([[2.0, 0.0], [0.0, 0.0], [9.0, 1.0]])
    loss = hidden_loss(scores, torch.tensor([0, 1, -100]))
    expected = (torch.log(torch.tensor(2.0).exp() + 1) - 2 + torch.log(torch.tensor(2.0))) / 2
    assert loss.item() == pytest.approx(expected.item(), abs=1e-6)
    assert hidden_loss(scores, torch.tensor([-100, -100, -100])).item() == 0


def test_words_are_pooled_by_their_number():
    states = torch.tensor([[[1.0, 0.0], [3.0, 2.0], [5.0, 5.0]], [[7.0, 1.0], [0.0, 0.0], [4.0, 4.0]]])
    words = torch.tensor([[1, 1, 0], [2, 0, 3]])
    assert pooled(states, words, 3).tolist() == [[2.0, 1.0], [7.0, 1.0], [4.0, 4.0]]


def test_relative_distance_is_zero_for_equal_vectors_and_one_for_their_mean():
    theirs = torch.tensor([[1.0, 0.0], [3.0, 0.0], [2.0, 3.0]])
    assert relative_distance(theirs, theirs).item() == 0
    assert relative_distance(theirs.mean(0).expand(3, 2), theirs).item() == pytest.approx(1)
    # spread: mean (2, 1); squared distances 2, 2, 4 -> 8; moved by (1, 0) each -> 3
    assert relative_distance(theirs + torch.tensor([1.0, 0.0]), theirs).item() == pytest.approx(3 / 8)


def test_relative_distance_has_the_right_gradient():
    ours = torch.randn(4, 3, dtype=torch.double, requires_grad=True)
    theirs = torch.randn(4, 3, dtype=torch.double)
    assert torch.autograd.gradcheck(lambda x: relative_distance(x, theirs), (ours,))


def test_a_sentence_is_its_first_token_and_the_mean_of_the_others():
    states = torch.tensor([[[1.0], [2.0], [4.0], [9.0]]])
    first, mean = sentence(states, torch.tensor([[1, 1, 1, 0]]))
    assert (first.item(), mean.item()) == (1.0, 3.0)


def test_alignment_alone_brings_the_vectors_together():
    module = adaptation(hmlm=0.0, align=1.0)
    optimizer = torch.optim.AdamW(module.parameters(), lr=3e-3)
    losses = []
    for _ in range(60):
        (loss,) = module(batch()).values()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    assert losses[-1] < 0.3 * losses[0]


def test_pairs_pull_a_translation_to_the_english_vectors():
    module = adaptation(hmlm=0.0, align=1.0, pairs=2.0).eval()
    given = batch()
    given |= {"pair_ids": given["ids"], "pair_mask": given["mask"]}
    given |= {"english_ids": given["mono_ids"], "english_mask": given["mono_mask"]}
    ours = sentence(module.states(given["ids"], given["mask"]), given["mask"])
    theirs = sentence(module.target(given["mono_ids"], given["mono_mask"]), given["mono_mask"])
    expected = sum(relative_distance(a, b) for a, b in zip(ours, theirs, strict=True))  # two terms, halved, weight 2
    assert module(given)["pairs"].item() == pytest.approx(expected.item(), abs=1e-5)


@pytest.mark.parametrize("points", [(0, 4, 0), (4, 1, 4), (2, 1, 0), (3, 3, 3)], ids=str)
def test_any_plug_point_works(points):
    terms = adaptation(points, align=1.0)(batch())
    sum(terms.values()).backward()
    assert all(torch.isfinite(term) for term in terms.values())


@pytest.mark.parametrize("family", ["bert", "distilbert", "electra", "mpnet", "modernbert"])
def test_every_family_with_a_masked_lm_head_can_be_the_top(family):
    module = Adaptation(encoder("xlm-roberta"), mono_model(family, layers=2), PlugPoints(2, 2, 1), Settings(align=1.0))
    terms = module(batch())
    sum(terms.values()).backward()
    assert all(p.grad is not None for p in module.connector.parameters())


def test_another_width_gets_a_projection_that_learns():
    mono = mono_model(hidden_size=48, num_attention_heads=4)
    module = Adaptation(encoder("xlm-roberta"), mono, PlugPoints(2, 2, 2), Settings(align=1.0))
    sum(module(batch()).values()).backward()
    assert module.connector.project.weight.grad.abs().sum() > 0


def test_layers_left_open_are_halves():
    multi, mono = encoder("xlm-roberta", layers=6), mono_model(layers=4)
    assert PlugPoints.of(Settings(), multi, mono) == PlugPoints(3, 3, 2)
    assert PlugPoints.of(Settings(encoder_layers=0), multi, mono) == PlugPoints(0, 6, 2)
    with pytest.raises(BadInput, match="between 0 and 4"):
        PlugPoints.of(Settings(plug_layer=5), multi, mono)
    with pytest.raises(BadInput, match="between 0 and 6"):
        PlugPoints.of(Settings(encoder_layers=7), multi, mono)


@pytest.mark.parametrize(
    "wrong",
    [
        *({"hmlm": 0.0}, {"hmlm": -1.0, "align": 1.0}, {"align": -1.0}, {"pairs": float("inf")}),
        *({"mask_rate": 1.0}, {"mask_rate": 0.0}, {"dropout": 1.0}, {"lines": 1.5}, {"length": 4}),
    ],
    ids=str,
)
def test_settings_that_cannot_work_are_refused(wrong):
    with pytest.raises(BadInput):
        Settings(**wrong)


def test_nothing_is_masked_where_only_vectors_are_compared():
    assert Settings(hmlm=0.0, align=1.0).rate == 0
    assert Settings().rate == 0.15


def test_the_paper_preset_is_table_5():
    paper = PRESETS["paper"]
    assert (paper["steps"], paper["batch_size"], paper["length"], paper["mask_rate"]) == (30_000, 256, 512, 0.15)
    assert (paper["learning_rate"], paper["clip"], paper["weight_decay"]) == (2e-4, 2.0, 0.01)
    assert (paper["beta2"], paper["schedule"], paper["warmup"] * paper["steps"]) == (0.98, "linear", 3_000)
    assert paper["epsilon"] == 1e-6


def test_the_compilers_options_are_known_to_this_torch_and_change_no_value():
    from torch._inductor import config

    options = compiler_options()
    assert bool(options) == hasattr(config.triton, "mix_order_reduction")
    torch.manual_seed(0)
    plain = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.LayerNorm(8))
    compiled = copy.deepcopy(plain)
    compiled.compile(dynamic=False, options=options)
    found = []
    for layer in (plain, compiled):
        inputs = torch.linspace(-1, 1, 32).reshape(4, 8).requires_grad_()
        layer(inputs).square().sum().backward()
        found.append((inputs.grad, layer[1].weight.grad))
    torch.testing.assert_close(found[0], found[1])
