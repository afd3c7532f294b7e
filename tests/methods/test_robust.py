"""Robust fine-tuning: each variant's loss against a plain reference."""

from pathlib import Path

import numpy as np
import pytest
import torch
from torch.nn.functional import cross_entropy

import crosslift as xl
from crosslift.errors import BadInput, Unfinished
from crosslift.methods.robust import (
    RADII,
    Robust,
    Settings,
    _paired_by_word,
    ascend,
    symmetric_kl,
    uniform_in_ball,
)
from crosslift.models.attention import Disturbance
from crosslift.models.forward import forward
from crosslift.models.load import load_model, load_tokenizer
from crosslift.tasks import task_for
from tests.tiny import wordpiece_tokenizer
from tests.tiny_data import MAKERS, classification
from tests.tiny_models import save_encoder

SYNONYMS = str(Path(__file__).with_name("synonyms.tsv"))
VARIANTS = ("gaussian", "xtune", "adv", "rs-rp", "rs-da")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return save_encoder(tmp_path_factory.mktemp("bert"), "bert")


def made(folder, variant, kind="classification", **settings):
    examples = MAKERS[kind](12, seed=1)
    task = task_for(examples, None, max_length=64, **({"stride": 16} if kind == "qa" else {}))
    model = load_model(str(folder), task, head_seed=1).eval()
    method = Robust(
        Settings(variant=variant, **{"synonyms": SYNONYMS, **settings}), task, wordpiece_tokenizer(), examples
    )
    method.prepare(model, 3)
    return method, model


def test_symmetric_kl_by_hand():
    # p = (0.5, 0.5), q = (0.25, 0.75)
    p, q = torch.tensor([[0.0, 0.0]]), torch.tensor([[0.25, 0.75]]).log()
    forwards = 0.5 * np.log(0.5 / 0.25) + 0.5 * np.log(0.5 / 0.75)
    backwards = 0.25 * np.log(0.25 / 0.5) + 0.75 * np.log(0.75 / 0.5)
    assert symmetric_kl(p, q).item() == pytest.approx(forwards + backwards)
    assert symmetric_kl(p, q, "element").item() == pytest.approx((forwards + backwards) / 2)
    assert symmetric_kl(p.expand(3, 2), q.expand(3, 2)).item() == pytest.approx(forwards + backwards)


def test_items_that_are_not_there_do_not_count():
    p, q = torch.randn(2, 3, 4), torch.randn(2, 3, 4)
    there = torch.tensor([[True, False, True], [False, False, True]])
    torch.testing.assert_close(symmetric_kl(p, q, there=there), symmetric_kl(p[there], q[there]))
    assert symmetric_kl(p, q, there=torch.zeros_like(there)).item() == 0


def test_symmetric_kl_stops_the_gradient_of_each_target():
    p, q = (torch.randn(4, 3, dtype=torch.float64, requires_grad=True) for _ in range(2))
    symmetric_kl(p, q).backward()
    # d KL(sg t ‖ s) / d s is softmax(s) − softmax(t), averaged over the items.
    wanted = (p.softmax(-1) - q.softmax(-1)).detach() / 4
    torch.testing.assert_close(p.grad, wanted, atol=1e-6, rtol=1e-5)
    torch.testing.assert_close(q.grad, -wanted, atol=1e-6, rtol=1e-5)


def test_points_fill_the_ball_and_padding_stays_zero():
    torch.manual_seed(0)
    mask = torch.ones(200, 10, dtype=torch.long)
    mask[:, 7:] = 0
    points = uniform_in_ball(mask, 2, 0.5)
    norms = points.norm(dim=-1)
    assert norms.max() <= 0.5 + 1e-6
    assert torch.equal(norms[:, 7:], torch.zeros(200, 3))
    # In a disc a quarter of the points lies within half the radius.
    assert (norms[:, :7] < 0.25).float().mean().item() == pytest.approx(0.25, abs=0.05)


def test_a_step_goes_uphill_and_stays_in_the_ball():
    delta = torch.tensor([[[0.0, 0.0], [0.3, 0.0], [0.0, 0.0]]])
    gradient = torch.tensor([[[0.0, 5.0], [2.0, 0.0], [0.0, 0.0]]])
    wanted = torch.tensor([[[0.0, 0.4], [0.5, 0.0], [0.0, 0.0]]])
    torch.testing.assert_close(ascend(delta, gradient, 0.4, 0.5), wanted)


@pytest.mark.parametrize("variant", ["gaussian", "rs-rp", "adv"])
def test_without_noise_it_is_plain_cross_entropy(folder, variant):
    method, model = made(folder, variant, sigma=0.0, radius=0.0)
    batch = method.batch(np.arange(6), 0)
    with torch.no_grad():
        plain = cross_entropy(model(**{k: v for k, v in batch.items() if k != "labels"}).logits, batch["labels"])
    torch.testing.assert_close(method.loss(model, batch)["ce"], plain)


def test_xtune_is_clean_cross_entropy_and_the_divergence_from_noised_logits(folder):
    method, model = made(folder, "xtune", weight=2.0)
    batch = method.batch(np.arange(6), 0)
    torch.manual_seed(5)
    with torch.no_grad():
        terms = method.loss(model, batch)
    torch.manual_seed(5)
    mask = batch["attention_mask"][:6]
    noise = torch.randn(*mask.shape, 32) * 0.075 * mask.unsqueeze(-1)
    half = {name: tensor[:6] for name, tensor in batch.items()}
    with torch.no_grad():
        clean = forward(model, half)["logits"]
        with Disturbance(model)(noise):
            noised = forward(model, half)["logits"]
    torch.testing.assert_close(terms["ce"], cross_entropy(clean, half["labels"]))
    torch.testing.assert_close(terms["kl"], 2 * symmetric_kl(clean, noised), atol=1e-7, rtol=1e-3)
    assert terms["kl"] > 0


def test_the_worst_case_is_worse_than_a_random_one_and_leaves_no_gradients(folder):
    hurt = {}
    for variant, settings in (("rs-rp", {}), ("adv", {"ascent_steps": 3})):
        method, model = made(folder, variant, radius=0.5, **settings)
        batch = method.batch(np.arange(8), 0)
        losses = []
        for seed in range(4):
            torch.manual_seed(seed)
            losses.append(method.loss(model, batch)["ce"].item())
        hurt[variant] = losses
        assert all(p.grad is None for p in model.parameters())
    assert min(hurt["adv"]) > max(hurt["rs-rp"])


def test_steps_of_the_ascent_have_their_length_and_number(folder):
    losses = {}
    for name, variant, settings in (
        ("random", "rs-rp", {}),
        ("none", "adv", {"ascent_size": 0.0}),
        ("one", "adv", {"ascent_size": 0.1}),
        ("ten", "adv", {"ascent_size": 0.1, "ascent_steps": 10}),
    ):
        method, model = made(folder, variant, radius=0.5, **settings)
        torch.manual_seed(1)
        losses[name] = method.loss(model, method.batch(np.arange(8), 0))["ce"].item()
    assert losses["none"] == pytest.approx(losses["random"])
    assert losses["none"] < losses["one"] < losses["ten"]


def test_the_unit_of_the_divergence_is_that_of_the_settings(folder):
    found = {}
    for unit in ("example", "element"):
        method, model = made(folder, "xtune", kl_unit=unit)
        torch.manual_seed(5)
        found[unit] = method.loss(model, method.batch(np.arange(6), 0))["kl"].item()
    assert found["example"] == pytest.approx(3 * found["element"])  # three colours


def test_the_divergence_of_answers_is_the_mean_of_that_of_starts_and_of_ends(folder):
    method, model = made(folder, "xtune", "qa", noise_from="synonyms", rate=1.0)
    batch = method.batch(np.arange(6), 0)
    with torch.no_grad():
        logits = forward(model, batch)
        terms = method.loss(model, batch)
    pairs = [_paired_by_word(logits[f"{side}_logits"], batch, "qa") for side in ("start", "end")]
    sides = [symmetric_kl(p, q, there=there) for p, q, there in pairs]
    torch.testing.assert_close(terms["kl"], (sides[0] + sides[1]) / 2)


def test_where_a_row_is_read_twice_it_counts_twice_for_the_memory(folder):
    lengths = {variant: made(folder, variant)[0].lengths for variant in VARIANTS}
    assert (lengths["xtune"] == 2 * lengths["gaussian"]).all()
    assert (lengths["rs-da"] == lengths["gaussian"]).all()


@pytest.mark.parametrize(
    ("variant", "settings", "said"),
    [
        ("gaussian", {"radius": 0.1, "rate": 0.3}, "--radius, --synonyms, --rate: this loss does not read them"),
        ("rs-da", {"ascent_steps": 3, "rate": 0.3}, "--ascent-steps: this loss does not read it"),
        ("xtune", {"noise_from": "synonyms", "sigma": 0.1}, "--sigma: this loss does not read it"),
        ("xtune", {"synonyms": "neighbours", "sigma": 0.1, "weight": 2.0, "kl_unit": "element"}, None),
        ("adv", {"synonyms": "neighbours", "ascent_steps": 3, "ascent_size": 0.5, "radius": 0.1}, None),
    ],
)
def test_settings_that_the_variant_does_not_read_are_named(folder, variant, settings, said):
    method, _ = made(folder, variant, **settings)
    assert [note for note in method.notes() if note.startswith("unused")] == ([f"unused    {said}"] if said else [])


def test_the_radius_is_relative_to_what_the_model_looks_up(tmp_path):
    # Gemma multiplies its embeddings by the root of their width.
    examples = MAKERS["classification"](6, seed=1)
    folder = save_encoder(tmp_path, "gemma3")
    task = task_for(examples, None, max_length=64)
    model = load_model(str(folder), task, head_seed=1).eval()
    method = Robust(Settings(variant="rs-rp", radius=0.2), task, load_tokenizer(folder), examples)
    method.prepare(model, 3)
    embedding = model.get_input_embeddings()
    looked_up = embedding(torch.arange(embedding.num_embeddings))
    assert method.radius == pytest.approx(0.2 * looked_up.norm(dim=1).mean().item(), rel=1e-4)


def test_the_radius_is_relative_to_the_word_embeddings(folder):
    method, model = made(folder, "rs-rp", radius=0.2)
    norm = model.get_input_embeddings().weight.norm(dim=1).mean().item()
    assert method.radius == pytest.approx(0.2 * norm)
    assert made(folder, "rs-rp")[0].radius == pytest.approx(RADII["rs-rp"] * norm)
    assert made(folder, "adv")[0].radius == pytest.approx(RADII["adv"] * norm)


def test_rs_da_trains_on_replaced_words_alone(folder):
    method, _ = made(folder, "rs-da", rate=1.0)
    batch = method.batch(np.arange(6), 0)
    plain = method.task.collate(method.encoded, np.arange(6), method.pad_id)
    assert batch["input_ids"].shape[0] == 6
    assert batch["input_ids"].tolist() != plain["input_ids"].tolist()
    assert torch.equal(batch["labels"], plain["labels"])


@pytest.mark.parametrize("kind", list(MAKERS))
@pytest.mark.parametrize("variant", VARIANTS)
def test_padding_does_not_count(folder, variant, kind):
    # Without noise, so that the wider batch draws nothing else.
    method, model = made(folder, variant, kind, sigma=0.0, radius=0.0)
    batch = method.batch(np.arange(6), 0)
    wider = dict(batch)
    for name, fill in (("input_ids", 0), ("attention_mask", 0), ("token_type_ids", 0)):
        wider[name] = torch.nn.functional.pad(batch[name], (0, 8), value=fill)
    if kind == "tagging":
        wider["labels"] = torch.nn.functional.pad(batch["labels"], (0, 8), value=-100)
    terms, same = method.loss(model, batch), method.loss(model, wider)
    for name in terms:
        torch.testing.assert_close(terms[name], same[name], atol=1e-6, rtol=1e-4)


@pytest.mark.parametrize("kind", list(MAKERS))
def test_xtune_with_synonyms_is_zero_without_replacement_and_above_it_with(folder, kind):
    terms = {}
    for rate in (0.0, 1.0):
        method, model = made(folder, "xtune", kind, noise_from="synonyms", rate=rate)
        terms[rate] = method.loss(model, method.batch(np.arange(6), 0))
    assert terms[0.0]["kl"].item() == pytest.approx(0, abs=1e-11)
    assert terms[1.0]["kl"].item() > 10 * abs(terms[0.0]["kl"].item())
    assert terms[0.0]["ce"].item() == pytest.approx(terms[1.0]["ce"].item(), rel=1e-4)


def test_tags_are_compared_at_the_first_token_of_each_word():
    # Two words; in xᵃ the first is two pieces. -100: special tokens, pieces, padding.
    logits = torch.arange(2 * 5 * 2, dtype=torch.float32).reshape(2, 5, 2)
    batch = {
        "labels": torch.tensor([[-100, 1, 0, -100, -100], [-100, 1, -100, 0, -100]]),
        "word_first": torch.tensor([[0, 3, 1, 2], [0, 4, 1, 3]]),
        "word_stop": torch.tensor([[1, 4, 2, 3], [1, 5, 3, 4]]),
    }
    p, q, there = _paired_by_word(logits, batch, "tagging")
    assert torch.equal(p[there], logits[0, [1, 2]])
    assert torch.equal(q[there], logits[1, [1, 3]])


def test_answers_are_compared_as_probabilities_of_words():
    logits = torch.tensor([[0.3, 0.1, 0.6, 1e-9], [0.3, 0.2, 0.1, 0.4]]).log()
    batch = {
        "word_first": torch.tensor([[0, 1, 2, -1], [0, 1, 3, -1]]),
        "word_stop": torch.tensor([[1, 2, 3, -1], [1, 3, 4, -1]]),
    }
    *sides, there = _paired_by_word(logits, batch, "qa")
    assert there.all()
    p, q = (side.softmax(-1) for side in sides)
    torch.testing.assert_close(p, torch.tensor([[0.3, 0.1, 0.6, 0.0]]))
    torch.testing.assert_close(q, torch.tensor([[0.3, 0.3, 0.4, 0.0]]))


@pytest.mark.parametrize(
    ("setting", "value", "message"),
    [
        ("sigma", float("nan"), "--sigma must be a number from 0, not nan"),
        ("radius", -1.0, "--radius must be a number from 0, not -1"),
        ("ascent_size", float("inf"), "--ascent-size must be a number from 0, not inf"),
        ("ascent_steps", 0, "--ascent-steps must be at least 1"),
    ],
)
def test_settings_that_cannot_be_are_refused(setting, value, message):
    with pytest.raises(BadInput, match=message):
        Settings(**{setting: value})


@pytest.mark.parametrize("variant", ["adv", "xtune"])
def test_gradient_checkpointing_changes_no_gradient(folder, variant):
    method, model = made(folder, variant, radius=0.5)
    batch = method.batch(np.arange(6), 0)
    for module in model.modules():
        if isinstance(module, torch.nn.Dropout):
            module.p = 0.0
    model.train()
    found = []
    for _ in range(2):
        torch.manual_seed(0)
        sum(method.loss(model, batch).values()).backward()
        found.append({name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None})
        model.zero_grad(set_to_none=True)
        model.gradient_checkpointing_enable()
    assert found[0].keys() == found[1].keys()
    for name, gradient in found[0].items():
        torch.testing.assert_close(found[1][name], gradient, atol=1e-6, rtol=1e-4)


def test_a_run_that_was_interrupted_ends_with_the_same_weights(folder, tmp_path, monkeypatch):
    # The radius is that of the embeddings before training, also when the run goes on from trained ones.
    options = {"variant": "rs-rp", "radius": 0.5, "model": folder, "data": classification(16), "dev": classification(6)}
    options |= {"steps": 6, "batch_size": 4, "evaluations": 1, "checkpoint_every": 2, "learning_rate": 1e-2}
    whole = xl.fit("robust", out=tmp_path / "whole", **options)
    real = Robust.batch

    def stop_at_4(self, rows, step):
        if step == 4:
            raise Unfinished("stop", "")
        return real(self, rows, step)

    monkeypatch.setattr(Robust, "batch", stop_at_4)
    with pytest.raises(Unfinished):
        xl.fit("robust", out=tmp_path / "cut", **options)
    monkeypatch.setattr(Robust, "batch", real)
    resumed = xl.fit("robust", out=tmp_path / "cut", **options)
    one, other = (run.model / "model.safetensors" for run in (whole, resumed))
    assert one.read_bytes() == other.read_bytes()


@pytest.mark.parametrize("kind", list(MAKERS))
@pytest.mark.parametrize("variant", VARIANTS)
def test_every_variant_trains_every_task(folder, variant, kind, tmp_path):
    run = xl.fit(
        "robust", variant=variant, synonyms=SYNONYMS, model=folder, data=MAKERS[kind](16, seed=1),
        dev=MAKERS[kind](6, seed=2), out=tmp_path / "run", steps=2, batch_size=8, evaluations=1,
    )  # fmt: skip
    assert run.model.is_dir()


def test_a_seed_gives_the_same_weights_again(folder, tmp_path):
    options = {"model": folder, "data": classification(16), "dev": classification(6), "steps": 2, "batch_size": 8}
    first, again = (
        xl.fit("robust", variant="adv", out=tmp_path / name, **options).model / "model.safetensors" for name in "ab"
    )
    assert first.read_bytes() == again.read_bytes()
