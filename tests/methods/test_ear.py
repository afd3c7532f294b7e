"""EAR: its terms by hand, its word grids, and what may not change anything (padding, batches, x = xᵃ)."""

from pathlib import Path

import numpy as np
import pytest
import torch
from torch._dynamo.testing import CompileCounter

import crosslift as xl
from crosslift.data.examples import Answer, Examples
from crosslift.errors import BadInput, BrokenRun, Unfinished
from crosslift.methods.ear import (
    Ear,
    Settings,
    attention_pull,
    embedding_push,
    mean_pool,
    sentence_pull,
    word_attention,
)
from crosslift.models.load import load_model
from crosslift.runs.folder import RunFolder
from crosslift.runs.plan import Plan
from crosslift.runs.settings import Execution, Optimisation
from crosslift.runs.train import train
from crosslift.tasks import task_for
from tests.tiny import unigram_tokenizer, wordpiece_tokenizer
from tests.tiny_data import MAKERS, classification
from tests.tiny_models import save_encoder

SYNONYMS = str(Path(__file__).with_name("synonyms.tsv"))


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    return {family: save_encoder(tmp_path_factory.mktemp(family), family) for family in ("bert", "xlm-roberta")}


def made(folders, kind="classification", family="bert", examples=None, seed=3, **settings):
    examples = examples or MAKERS[kind](12, seed=1)
    tokenizer = wordpiece_tokenizer() if family == "bert" else unigram_tokenizer()
    task = task_for(examples, None, max_length=64, **({"stride": 16} if kind == "qa" else {}))
    model = load_model(str(folders[family]), task, head_seed=1).eval()
    method = Ear(Settings(**{"synonyms": SYNONYMS, **settings}), task, tokenizer, examples)
    method.prepare(model, seed)
    return method, model


# --- the terms by hand


def test_push_is_minus_the_squared_distance():
    x, xa = torch.tensor([[1.0, 2.0], [0.0, 0.0]]), torch.tensor([[0.0, 4.0], [3.0, 0.0]])
    # distances: 1 + 4 = 5 and 9
    assert embedding_push(x, xa, "sum").item() == pytest.approx(-7.0)
    assert embedding_push(x, xa, "mean").item() == pytest.approx(-3.5)
    assert embedding_push(x, xa, "sum", margin=6.0).item() == pytest.approx(-(5 + 6) / 2)
    assert sentence_pull(x, xa, "sum").item() == pytest.approx(7.0)


def test_beyond_the_margin_the_push_has_no_gradient():
    x = torch.tensor([[2.0, 0.0]], requires_grad=True)
    embedding_push(x, torch.zeros(1, 2), "sum", margin=1.0).backward()
    assert torch.equal(x.grad, torch.zeros(1, 2))


def test_pull_counts_cells_present_in_both():
    x, xa = torch.zeros(2, 1, 2, 2), torch.zeros(2, 1, 2, 2)
    x[0, 0] = torch.tensor([[0.5, 0.5], [1.0, 0.0]])
    xa[0, 0] = torch.tensor([[0.0, 1.0], [1.0, 0.0]])
    x[1, 0] = torch.tensor([[0.2, 9.0], [9.0, 9.0]])
    present = torch.tensor([[True, True], [True, False]])
    # example 1: 0.25 + 0.25 over 4 cells; example 2: 0.04 over its 1 valid cell
    assert attention_pull(x, xa, present, "sum").item() == pytest.approx((0.5 + 0.04) / 2)
    assert attention_pull(x, xa, present, "mean").item() == pytest.approx((0.125 + 0.04) / 2)


def test_pull_averages_over_heads():
    x = torch.stack([torch.full((1, 2, 2), 0.5), torch.zeros(1, 2, 2)], dim=1)
    present = torch.ones(1, 2, dtype=torch.bool)
    assert attention_pull(x, torch.zeros_like(x), present, "sum").item() == pytest.approx(4 * 0.25 / 2)


def test_words_sum_over_key_pieces_and_average_over_query_pieces():
    tokens = torch.tensor([[0.2, 0.3, 0.5], [0.6, 0.2, 0.2], [0.0, 1.0, 0.0]])[None, None]
    first, stop = torch.tensor([[0, 2, -1]]), torch.tensor([[2, 3, -1]])
    words = word_attention(tokens, first, stop)
    wanted = torch.tensor([[0.65, 0.35, 0.0], [1.0, 0.0, 0.0], [0.0, 0.0, 0.0]])
    torch.testing.assert_close(words[0, 0], wanted)


def test_a_synonym_of_more_pieces_does_not_shift_the_grid():
    # Three words; in xᵃ the first is two pieces. Word for word, attention is the same; index by index it is not.
    x = torch.tensor([[0.6, 0.3, 0.1], [0.2, 0.7, 0.1], [0.1, 0.2, 0.7]])[None, None]
    split = torch.tensor([[0.4, 0.2, 0.3, 0.1], [0.3, 0.3, 0.3, 0.1], [0.1, 0.1, 0.7, 0.1], [0.05, 0.05, 0.2, 0.7]])[
        None, None
    ]
    words_x = word_attention(x, torch.tensor([[0, 1, 2]]), torch.tensor([[1, 2, 3]]))
    words_a = word_attention(split, torch.tensor([[0, 2, 3]]), torch.tensor([[2, 3, 4]]))
    present = torch.ones(1, 3, dtype=torch.bool)
    assert attention_pull(words_x, words_a, present).item() == pytest.approx(0, abs=1e-12)
    assert (x - split[..., :3, :3]).square().mean().item() > 0.01


def test_gradients_of_all_terms_are_right():
    torch.manual_seed(0)
    double = {"dtype": torch.float64, "requires_grad": True}
    x, xa = torch.randn(2, 5, **double), torch.randn(2, 5, **double)
    assert torch.autograd.gradcheck(lambda a, b: embedding_push(a, b, "sum"), (x, xa))
    tokens = torch.rand(2, 2, 4, 4, **double)
    first, stop = torch.tensor([[0, 2], [0, -1]]), torch.tensor([[2, 4], [1, -1]])

    def pull(a, b):
        return attention_pull(word_attention(a, first, stop), word_attention(b, first, stop), first >= 0)

    assert torch.autograd.gradcheck(pull, (tokens, torch.rand(2, 2, 4, 4, **double)))


def test_padding_is_not_pooled():
    hidden, mask = torch.randn(2, 4, 3), torch.tensor([[1, 1, 0, 0], [1, 1, 1, 0]])
    torch.testing.assert_close(mean_pool(hidden, mask)[0], hidden[0, :2].mean(0))


# --- the method on a model


@pytest.mark.parametrize("kind", list(MAKERS))
def test_push_and_pull_are_exactly_zero_when_nothing_is_replaced(kind, folders):
    method, model = made(folders, kind, rate=0.0, preset="paper")
    terms = method.loss(model, method.batch(np.arange(6), 0))
    assert terms["apt"].item() == 0
    assert terms["ept"].item() == 0
    assert terms["ce"].item() == terms["ce_augmented"].item() > 0


@pytest.mark.parametrize("kind", list(MAKERS))
@pytest.mark.parametrize("family", ["bert", "xlm-roberta"])
def test_padding_changes_nothing(kind, family, folders):
    method, model = made(folders, kind, family)
    batch = method.batch(np.arange(6), 0)
    wider = dict(batch)
    for name, fill in (("input_ids", method.data.pad_id), ("attention_mask", 0), ("token_type_ids", 0)):
        if name in batch:
            wider[name] = torch.nn.functional.pad(batch[name], (0, 8), value=fill)
    if kind == "tagging":
        wider["labels"] = torch.nn.functional.pad(batch["labels"], (0, 8), value=-100)
    for name in ("word_first", "word_stop"):
        wider[name] = torch.nn.functional.pad(batch[name], (0, 3), value=-1)
    with torch.no_grad():
        terms, same = method.loss(model, batch), method.loss(model, wider)
    assert terms["apt"] > 0 > terms["ept"]
    for name in terms:
        torch.testing.assert_close(terms[name], same[name], atol=1e-6, rtol=1e-4)


def test_one_forward_gives_what_two_separate_ones_give(folders):
    method, model = made(folders, preset="paper")
    batch = method.batch(np.arange(6), 0)
    with torch.no_grad():
        terms = method.loss(model, batch)
        sides = []
        for part in (slice(0, 6), slice(6, 12)):
            inputs = {name: batch[name][part] for name in ("input_ids", "attention_mask", "token_type_ids")}
            sides.append(model(**inputs, output_hidden_states=True))
        masks = batch["attention_mask"].split(6)
        pooled = [mean_pool(side.hidden_states[0], mask) for side, mask in zip(sides, masks, strict=True)]
        ce = torch.nn.functional.cross_entropy(sides[1].logits, batch["labels"][6:])
    torch.testing.assert_close(terms["ce_augmented"], ce)
    torch.testing.assert_close(terms["ept"], -(pooled[0] - pooled[1]).square().sum(-1).mean())


def test_what_is_drawn_for_a_row_depends_on_seed_step_and_row_alone(folders):
    method, _ = made(folders, seed=3)
    again, _ = made(folders, seed=3)
    other, _ = made(folders, seed=4)
    rows = np.arange(6)

    def text(method, rows, step):
        return list(method.data.draw(rows, step)[0].texts)

    assert text(method, rows, 5) == text(again, rows, 5)
    assert text(method, rows, 5)[2:4] == text(method, rows[2:4], 5)
    assert text(method, rows, 5) != text(method, rows, 6)
    assert text(method, rows, 5) != text(other, rows, 5)


def test_micro_batches_add_up_to_the_whole_batch(folders):
    method, model = made(folders)
    with torch.no_grad():
        whole = method.loss(model, method.batch(np.arange(6), 0))
        parts = [method.loss(model, method.batch(rows, 0)) for rows in (np.arange(2), np.arange(2, 6))]
    for name in whole:
        torch.testing.assert_close(whole[name], (2 * parts[0][name] + 4 * parts[1][name]) / 6, atol=1e-6, rtol=1e-4)


def gradients(model):
    found = {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}
    model.zero_grad(set_to_none=True)
    return found


@pytest.mark.parametrize("kind", list(MAKERS))
def test_processes_together_have_the_gradient_of_one(kind, folders):
    method, model = made(folders, kind, preset="paper")
    plan = Plan(method, Optimisation(batch_size=7, steps=2), max_tokens=60, seed=1)
    found = {}
    for world in (1, 3):
        for rank in range(world):
            for batch, share in plan.batches(1, rank, world):
                (sum(method.loss(model, batch).values()) * share).backward()
        found[world] = gradients(model)
    for name, gradient in found[1].items():
        torch.testing.assert_close(found[3][name], gradient, atol=1e-5, rtol=1e-3)


@pytest.mark.parametrize("settings", [{"beta": 1e4}, {"pull": "sentence"}, {"push": "noise", "beta": 1e4}])
def test_gradient_checkpointing_changes_no_gradient(settings, folders):
    method, model = made(folders, preset="paper", **settings)
    batch = method.batch(np.arange(6), 0)
    for module in model.modules():
        if isinstance(module, torch.nn.Dropout):
            module.p = 0.0
    model.train()
    found = []
    for _ in range(2):
        torch.manual_seed(0)
        sum(method.loss(model, batch).values()).backward()
        found.append(gradients(model))
        model.gradient_checkpointing_enable()
    assert found[0].keys() == found[1].keys()
    for name, gradient in found[0].items():
        torch.testing.assert_close(found[1][name], gradient, atol=1e-6, rtol=1e-4)


def test_words_of_pairs_are_matched_on_both_sides(folders):
    method, _ = made(folders, examples=classification(12, seed=1, pairs=True))
    batch = method.batch(np.arange(6), 0)
    first, stop = batch["word_first"], batch["word_stop"]
    assert ((first >= 0).sum(1)[:6] == (first >= 0).sum(1)[6:]).all()
    # Words with their special tokens cover every real token once.
    assert ((stop - first).sum(1) == batch["attention_mask"].sum(1)).all()


def test_an_answer_keeps_its_text_and_moves_with_the_words_before_it(folders):
    method, _ = made(folders, "qa", rate=1.0)
    rows = np.arange(12)
    new, _ = method.data.draw(rows, 0)
    assert any(a != b for a, b in zip(new.pairs, method.data.examples.pairs, strict=True))
    for context, (answer,), old in zip(new.pairs, new.labels, method.data.examples.labels, strict=True):
        assert context[answer.start : answer.start + len(answer.text)] == answer.text == old[0].text


def test_tags_stay_with_their_words(folders):
    method, _ = made(folders, "tagging", rate=1.0)
    new, _ = method.data.draw(np.arange(12), 0)
    for i in range(12):
        tagged = [word for word, tag in zip(new.words(i), new.labels[i], strict=True) if tag == "B-LOC"]
        old = method.data.examples
        assert tagged == [word for word, tag in zip(old.words(i), old.labels[i], strict=True) if tag == "B-LOC"]
        assert "saw" not in new.words(i)


@pytest.mark.parametrize(
    ("kind", "options"), [("tagging", {"max_length": 24}), ("qa", {"max_length": 40, "stride": 8})]
)
def test_a_long_text_keeps_its_labels_in_both_and_has_no_pull(kind, options, folders):
    examples = MAKERS[kind](12, seed=1)
    task = task_for(examples, None, **options)
    model = load_model(str(folders["bert"]), task, head_seed=1).eval()
    method = Ear(Settings(synonyms=SYNONYMS, rate=1.0), task, wordpiece_tokenizer(), examples)
    method.prepare(model, 1)
    rows = np.arange(len(method.lengths))
    assert len(rows) > len(examples)
    batch = method.batch(rows, 0)
    cut = np.bincount(method.data.encoded.example_of)[method.data.encoded.example_of] > 1
    assert (batch["word_first"][: len(rows)][torch.from_numpy(cut)] == -1).all()
    assert all(torch.isfinite(term) for term in method.loss(model, batch).values())


def test_a_question_that_is_cut_has_no_pull(folders):
    questions = ["where is the house and the tree ? " * 8, "where is the house ?"]
    contexts = ["the house stands in Berlin"] * 2
    examples = Examples("qa", "en", ["a", "b"], questions, contexts, labels=[[Answer("Berlin", 20)]] * 2, name="long")
    method, _ = made(folders, "qa", examples=examples, rate=1.0)
    assert len(method.lengths) == 2
    first = method.batch(np.arange(2), 0)["word_first"]
    assert (first[[0, 2]] == -1).all()
    assert (first[[1, 3]] >= 0).any(1).all()


def test_a_text_that_is_cut_off_is_compared_in_the_words_that_are_left_in_both(folders):
    examples = classification(12, seed=1)
    task = task_for(examples, None, max_length=16)
    model = load_model(str(folders["bert"]), task, head_seed=1).eval()
    method = Ear(Settings(synonyms=SYNONYMS, rate=1.0), task, wordpiece_tokenizer(), examples)
    method.prepare(model, 1)
    batch = method.batch(np.arange(12), 0)
    there = (batch["word_first"] >= 0).chunk(2)
    # Synonyms here have more pieces, so fewer words have room.
    assert (there[0] & ~there[1]).any()
    assert (there[0] & there[1]).any(1).all()
    assert method.loss(model, batch)["apt"] > 0


def test_presets_set_weights_and_reductions(folders):
    rows = np.arange(6)
    terms = {}
    for preset in ("default", "paper", "released"):
        method, model = made(folders, preset=preset, exact=True, unprotected=True, copies=3)
        with torch.no_grad():
            terms[preset] = method.loss(model, method.batch(rows, 0))
            batch = method.batch(rows, 0)
    width = model.config.hidden_size
    assert terms["paper"]["ept"].item() == pytest.approx(width * terms["default"]["ept"].item(), rel=1e-4)
    assert terms["released"]["ept"].item() == pytest.approx(0.1 * terms["default"]["ept"].item(), rel=1e-4)
    inputs = {name: batch[name] for name in ("input_ids", "attention_mask", "token_type_ids")}
    model.set_attn_implementation("eager")
    with torch.no_grad():
        attention = model(**inputs, output_attentions=True).attentions[1]
    wanted = (attention[:6] - attention[6:]).square().mean()
    torch.testing.assert_close(terms["released"]["apt"], wanted, atol=1e-8, rtol=1e-3)


def test_ablations_have_the_terms_they_name(folders):
    def terms(**settings):
        method, model = made(folders, **settings)
        return set(method.loss(model, method.batch(np.arange(4), 0)))

    assert terms() == {"ce", "ce_augmented", "ept", "apt"}
    assert terms(push="none") == {"ce", "ce_augmented", "apt"}
    assert terms(pull="none") == {"ce", "ce_augmented", "ept"}
    assert terms(pull="sentence") == {"ce", "ce_augmented", "ept", "srpt"}
    assert terms(push="noise", synonyms="neighbours") == {"ce", "ce_augmented", "apt"}


def test_weights_that_are_given_take_the_place_of_the_presets(folders):
    rows = np.arange(4)
    plain, weighed = (
        method.loss(model, method.batch(rows, 0))
        for method, model in (made(folders), made(folders, alpha=2.0, beta=0.0))
    )
    assert weighed["ept"].item() == pytest.approx(2 * plain["ept"].item())
    assert weighed["apt"].item() == 0 < plain["apt"].item()


def test_the_margin_bounds_the_push_of_a_run(folders):
    method, model = made(folders, rate=1.0, margin=1e-6)
    assert method.loss(model, method.batch(np.arange(4), 0))["ept"].item() == pytest.approx(-1e-6)


def test_the_pull_of_sentences_is_on_the_hidden_states_of_its_layer(folders):
    method, model = made(folders, pull="sentence", preset="paper", layer=1, beta=0.5)
    batch = method.batch(np.arange(6), 0)
    inputs = {name: batch[name] for name in ("input_ids", "attention_mask", "token_type_ids")}
    with torch.no_grad():
        hidden = model(**inputs, output_hidden_states=True).hidden_states[1]
        x, xa = mean_pool(hidden, batch["attention_mask"]).chunk(2)
        pull = method.loss(model, batch)["srpt"]
    torch.testing.assert_close(pull, 0.5 * (x - xa).square().sum(-1).mean())


def test_a_row_counts_as_two_for_the_memory(folders):
    method, _ = made(folders)
    assert (method.lengths == 2 * method.data.encoded.lengths()).all()


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"push": "none", "alpha": 2.0}, "--alpha: this loss does not read it"),
        ({"pull": "none", "layer": 2, "beta": 1.0, "margin": 1.0}, "--beta, --layer: this loss does not read them"),
        ({"noise": 0.1}, "--noise: this loss does not read it"),
        ({"push": "noise", "noise": 0.1, "rate": 0.3}, "--synonyms, --rate: this loss does not read them"),
        ({"alpha": 2.0, "beta": 1.0, "layer": 2, "margin": 1.0, "rate": 0.3}, None),
    ],
)
def test_settings_that_the_chosen_loss_does_not_read_are_named(settings, said, folders):
    method, _ = made(folders, **settings)
    assert [note for note in method.notes() if note.startswith("unused")] == ([f"unused    {said}"] if said else [])


def test_noise_is_on_the_second_half_alone(folders):
    method, model = made(folders, push="noise", noise=0.5)
    batch = method.batch(np.arange(4), 0)
    assert torch.equal(*batch["input_ids"].chunk(2))
    with torch.no_grad():
        terms = method.loss(model, batch)
        quiet = Ear.loss(made(folders, push="noise", noise=0.0)[0], model, batch)
    assert terms["ce"].item() == pytest.approx(quiet["ce"].item())
    assert terms["ce_augmented"].item() != pytest.approx(quiet["ce_augmented"].item())
    assert quiet["apt"].item() == 0 < terms["apt"].item()


def test_a_push_that_ran_away_stops_the_run(folders, tmp_path):
    method, model = made(folders, stop_at=1e-9)
    terms = method.loss(model, method.batch(np.arange(4), 0))
    means = {name: float(term.detach()) for name, term in terms.items()}
    with pytest.raises(BrokenRun, match=r"run away.*\n.*--margin"):
        method.check(means)
    method.check(means | {"ept": 0.0})
    with pytest.raises(BrokenRun, match="run away"):
        method.check(means | {"ept": float("nan")})
    train_once = Plan(method, Optimisation(steps=1), 8192, seed=1)
    with pytest.raises(BrokenRun, match="run away"):
        train(model, train_once, RunFolder(tmp_path), Optimisation(steps=1), Execution(), seed=1)


@pytest.mark.parametrize(
    ("setting", "value", "message"),
    [
        ("alpha", -1.0, "--alpha must be a number from 0, not -1"),
        ("beta", float("nan"), "--beta must be a number from 0, not nan"),
        ("noise", float("inf"), "--noise must be a number from 0, not inf"),
        ("margin", float("nan"), "--margin must be above 0, not nan"),
        ("stop_at", 0.0, "--stop-at must be above 0, not 0"),
        ("layer", 0, "--layer counts from 1"),
    ],
)
def test_settings_that_cannot_be_are_refused(setting, value, message):
    with pytest.raises(BadInput, match=message):
        Settings(**{setting: value})


def test_neighbours_come_from_the_models_own_embeddings(folders):
    # Words that the tiny vocabulary holds whole.
    texts = ["the dog is over the fox", "the capital of the dog", "in the fox was the capital"]
    examples = Examples("classification", "en", ["a", "b", "c"], texts, labels=["x", "y", "x"], name="whole-words")
    method, _ = made(folders, examples=examples, synonyms="neighbours", rate=1.0)
    new, _ = method.data.draw(np.arange(3), 0)
    assert list(new.texts) != texts
    assert {word for text in new.texts for word in text.split()} <= {w for text in texts for w in text.split()}


def test_a_dictionary_without_any_word_of_the_data_is_an_error(folders, tmp_path):
    (tmp_path / "s.tsv").write_text("zebra\thorse\n")
    with pytest.raises(BadInput, match="No word of tiny-colours has a synonym"):
        made(folders, synonyms=str(tmp_path / "s.tsv"))


def test_the_same_seed_gives_the_same_weights_again(folders, tmp_path):
    options = {"model": folders["bert"], "data": classification(16), "dev": classification(6), "steps": 3}
    options |= {"batch_size": 8, "synonyms": SYNONYMS, "evaluations": 1}
    first, again = (
        xl.fit("ear", out=tmp_path / name, **options).model / "model.safetensors" for name in ("first", "again")
    )
    assert first.read_bytes() == again.read_bytes()


def test_a_run_that_was_interrupted_ends_with_the_same_weights(folders, tmp_path, monkeypatch):
    # Neighbours are those of the embeddings before training, also when the run goes on from trained ones.
    texts = ["the dog is over the fox", "the capital of the dog", "in the fox was the capital"] * 4
    names = [str(i) for i in range(12)]
    data = Examples("classification", "en", names, texts, labels=["x", "y", "x"] * 4, name="whole-words")
    options = {"model": folders["bert"], "data": data, "dev": data, "steps": 6, "batch_size": 4, "evaluations": 1}
    options |= {"checkpoint_every": 2, "learning_rate": 1e-2, "rate": 0.5}
    whole = xl.fit("ear", out=tmp_path / "whole", **options)
    real = Plan.batches

    def stop_at_4(self, step, rank, world):
        if step == 4:
            raise Unfinished("stop", "")
        yield from real(self, step, rank, world)

    monkeypatch.setattr(Plan, "batches", stop_at_4)
    with pytest.raises(Unfinished):
        xl.fit("ear", out=tmp_path / "cut", **options)
    monkeypatch.setattr(Plan, "batches", real)
    resumed = xl.fit("ear", out=tmp_path / "cut", **options)
    one, other = (run.model / "model.safetensors" for run in (whole, resumed))
    assert one.read_bytes() == other.read_bytes()


def test_fixed_copies_come_again_and_the_released_preset_has_three(folders):
    one, _ = made(folders, rate=0.5, copies=1)
    assert one.data.draw(np.arange(12), 0)[0].texts == one.data.draw(np.arange(12), 7)[0].texts
    released, _ = made(folders, preset="released")
    seen = [{released.data.draw(np.array([row]), step)[0].texts[0] for step in range(40)} for row in range(12)]
    assert max(map(len, seen)) <= 3
    assert max(map(len, seen)) > 1
    with pytest.raises(BadInput, match="--copies must be at least 1"):
        Settings(copies=0)


def test_the_released_preset_looks_words_up_as_they_stand_and_replaces_negations(folders, tmp_path):
    (tmp_path / "s.tsv").write_text("house\tcottage\nno\tnever\n")
    examples = Examples("classification", "en", ["a", "b"], ["no house", "House house, ."], labels=["x", "y"])
    method, _ = made(folders, examples=examples, preset="released", copies=20, synonyms=str(tmp_path / "s.tsv"))
    drawn = [method.data.draw(np.arange(2), step)[0].texts for step in range(40)]
    assert {texts[0] for texts in drawn} == {"no house", "never house", "no cottage", "never cottage"}
    assert {texts[1] for texts in drawn} == {"House house, ."}


@pytest.mark.slow
def test_a_compiled_model_is_traced_twice_whatever_the_lengths_and_gives_the_same_losses(folders):
    method, model = made(folders)
    by_length = np.argsort(method.lengths, kind="stable")
    batches = [method.batch(by_length[[i, i + 1]], step) for step, i in enumerate((0, 5, 9, 2, 7))]
    assert len({batch["input_ids"].shape for batch in batches}) > 2
    with torch.no_grad():
        wanted = [method.loss(model, batch) for batch in batches]
        torch._dynamo.reset()
        graphs = CompileCounter()
        model.compile(backend=graphs, dynamic=None, fullgraph=True)
        for batch, terms in zip(batches, wanted, strict=True):
            torch.testing.assert_close(method.loss(model, batch), terms)
    # Once for the first length, once more for any.
    assert graphs.frame_count == 2
