"""Fine-tuning with adjustment: pairs join every step, whatever the method, the family and the task."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

import crosslift as xl
from crosslift import cli
from crosslift.errors import BadInput
from crosslift.methods.adjust import Adjust, word_vectors
from crosslift.methods.finetune import Finetune
from crosslift.methods.finetune import Settings as FinetuneSettings
from crosslift.models.load import load_encoder, load_model, load_tokenizer
from crosslift.runs.adjust import Pairing, adjust, anchor_rows, make_pairs, read_bitexts
from crosslift.runs.continual import Continual, ContinualPlan, anchor_model, read_adjustment
from crosslift.runs.plan import Plan
from crosslift.runs.settings import Execution, Optimisation
from crosslift.tasks import task_for
from tests.tiny_data import MAKERS, classification
from tests.tiny_models import FAMILIES, save_encoder

SYNONYMS = str(Path(__file__).parents[1] / "methods" / "synonyms.tsv")


def test_presets_and_own_weights():
    paper, released = Continual().adjust(), Continual(adjustment_preset="released").adjust()
    assert (paper.pull_weight, paper.anchor_weight) == (0.01, 0.01)
    assert (released.pull_weight, released.anchor_weight) == (0.01, 1.0)
    own = Continual(adjustment_pull=0.5, adjustment_anchor=0.0).adjust()
    assert (own.pull_weight, own.anchor_weight) == (0.5, 0.0)
    with pytest.raises(BadInput, match="--adjustment-batch"):
        Continual(adjustment_batch=0)


@pytest.mark.parametrize(
    ("method", "settings"), [("finetune", {}), ("robust", {"variant": "adv"}), ("ear", {"synonyms": SYNONYMS})]
)
def test_any_method_takes_pairs_along_and_logs_their_terms(method, settings, encoder, linked, tmp_path):
    data = classification(24)
    run = xl.fit(
        method, model=encoder, data=data, dev=data, out=tmp_path / "run", steps=2, batch_size=8, log_every=1,
        with_adjustment={"de": linked[0]}, aligner=str(linked[1]), adjustment_batch=4, **settings,
    )  # fmt: skip
    logged = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    steps = [row for row in logged if "dev" not in row]
    assert len(steps) == 2
    assert all({"pull", "anchor", "ce"} <= set(str(row).replace("'", " ").split()) for row in steps)
    config = json.loads((tmp_path / "run" / "config.json").read_text())
    assert config["with_adjustment"]["settings"]["adjustment_batch"] == 4
    assert run.model.exists()


def plans_of(kind, encoder, linked, max_tokens=10**6, batch_size=8, pairs=4, **settings):
    """The plain plan and the one with pairs, with the model they train."""
    examples = MAKERS[kind](24)
    tokenizer, task = (
        load_tokenizer(encoder),
        task_for(examples, max_length=64, **({"stride": 16} if kind == "qa" else {})),
    )
    own = Continual(**settings).adjust()
    pairing = Pairing(aligner=str(linked[1]))
    sets = read_bitexts({"de": linked[0]}, "en", pairing)
    found = make_pairs(sets, tokenizer, own, pairing, seed=1)
    anchors = anchor_rows(load_encoder(encoder), tokenizer, found, own, Execution())
    method = Finetune(FinetuneSettings(), task, tokenizer, examples)
    plain = Plan(method, Optimisation(batch_size=batch_size), max_tokens, seed=1)
    model = load_model(encoder, task)
    torch.manual_seed(5)
    for parameter in model.parameters():
        parameter.data += 0.05 * torch.randn_like(parameter)
    plan = ContinualPlan(plain, Adjust(own, found, anchors, tokenizer.pad_token_id), pairs, cheap=10**6)
    return plain, plan, model.eval()


def step_of(plan, model, world=1, step=0):
    totals = {}
    model.zero_grad()
    for rank in range(world):
        for batch, share in plan.batches(step, rank, world):
            terms = plan.loss(model, batch)
            (sum(terms.values()) * share).backward()
            for name, term in terms.items():
                totals[name] = totals.get(name, 0.0) + float(term.detach()) * share
    return totals, model.get_input_embeddings().weight.grad.clone()


@pytest.mark.parametrize("kind", list(MAKERS))
@pytest.mark.parametrize("family", FAMILIES)
def test_one_pass_gives_what_two_passes_give(family, kind, linked, tmp_path):
    folder = save_encoder(tmp_path / family, family)
    plain, plan, model = plans_of(kind, folder, linked, adjustment_preset="released")
    joined, gradient = step_of(plan, model)
    plan.cheap = None
    apart, other = step_of(plan, model)
    alone, _ = step_of(plain, model)
    assert joined == pytest.approx(apart, rel=1e-3, abs=1e-5)
    torch.testing.assert_close(gradient, other, rtol=1e-2, atol=1e-5)
    assert apart["ce"] == pytest.approx(alone["ce"], rel=1e-5)


@pytest.mark.parametrize(("world", "batch_size"), [(1, 8), (3, 8), (4, 2)])
def test_micro_batches_and_processes_change_neither_loss_nor_gradient(world, batch_size, encoder, linked):
    _, plan, model = plans_of("tagging", encoder, linked, batch_size=batch_size)
    whole, gradient = step_of(plan, model)
    _, cut, _ = plans_of("tagging", encoder, linked, max_tokens=48, batch_size=batch_size)
    parts, other = step_of(cut, model, world=world)
    assert parts == pytest.approx(whole, rel=1e-4)
    torch.testing.assert_close(other, gradient, rtol=1e-3, atol=1e-6)


def test_longer_padding_of_pairs_changes_neither_loss_nor_gradient(encoder, linked):
    _, plan, model = plans_of("tagging", encoder, linked)
    plan.cheap = None
    whole, gradient = step_of(plan, model)
    plan.multiple = 32
    longer, other = step_of(plan, model)
    (batch, _), *_ = plan.batches(0, 0, 1)
    grids = ("input_ids", "word_first", "link_source", "anchor")
    assert {batch[f"pairs/{name}"].shape[1] % 32 for name in grids} == {0}
    assert longer == pytest.approx(whole, rel=1e-4)
    torch.testing.assert_close(other, gradient, rtol=1e-3, atol=1e-6)


def test_every_pair_comes_once_before_any_comes_again(encoder, linked):
    _, plan, _ = plans_of("classification", encoder, linked, pairs=8)
    seen = np.concatenate([plan.pairs(step) for step in range(5)])
    assert sorted(seen.tolist()) == list(range(40))
    assert plan.pairs(3).tolist() == plan.pairs(3).tolist()
    assert any(plan.pairs(k).tolist() != plan.pairs(k + 5).tolist() for k in range(5))


@pytest.mark.parametrize("kind", list(MAKERS))
def test_rows_share_a_pass_at_one_length_where_that_pads_little(kind, encoder, linked):
    def first(step, cheap):
        plan.cheap = cheap
        return next(iter(plan.batches(step, 0, 1)))[0]

    plain, plan, _ = plans_of(kind, encoder, linked)
    names = ("input_ids", "pairs/input_ids")
    step = next(k for k in range(10) if len({first(k, None)[name].shape[1] for name in names}) == 2)
    apart, joined = first(step, None), first(step, 10**6)
    longest = max(apart[name].shape[1] for name in names)
    (alone, _), *_ = plain.batches(step, 0, 1)
    grids = [name for name in (*alone, "pairs/input_ids", "pairs/attention_mask") if joined[name].ndim == 2]
    assert {joined[name].shape[1] for name in grids} == {longest}
    # What was there is there, and what is new does not count.
    for name in grids:
        assert torch.equal(joined[name][:, : apart[name].shape[1]], apart[name])
    for name in ("attention_mask", "pairs/attention_mask"):
        assert joined[name].sum() == apart[name].sum()
    assert kind != "tagging" or (joined["labels"] != -100).sum() == (apart["labels"] != -100).sum()
    padding = sum(longest * len(apart[name]) - apart[name].numel() for name in names)
    assert first(step, padding)["input_ids"].shape[1] == longest
    assert first(step, padding - 1)["input_ids"].shape == apart["input_ids"].shape


def test_the_anchor_of_an_adjusted_model_is_its_original_unless_said_otherwise(encoder, linked, tmp_path, monkeypatch):
    out = tmp_path / "adjusted"
    adjust(bitext={"de": linked[0]}, model=encoder, out=out, aligner=str(linked[1]), steps=1)
    assert anchor_model("original", str(out)) == str(encoder)
    assert anchor_model("original", str(out / "model")) == str(encoder)
    assert anchor_model("start", str(out)) == str(out)
    assert anchor_model("original", str(encoder)) == str(encoder)
    assert anchor_model("mini-x", str(out)) == "mini-x"
    monkeypatch.chdir(out)
    assert anchor_model("original", "model") == anchor_model("original", ".") == str(encoder)
    assert anchor_model("original", "mini-x") == "mini-x"  # the folder that one stands in says nothing about it


@pytest.mark.parametrize("held", ["original", "start"])
def test_the_anchor_holds_the_vectors_of_the_model_it_names(held, encoder, linked, tmp_path):
    adjusted = adjust(
        bitext={"de": linked[0]}, model=encoder, out=tmp_path / "run", aligner=str(linked[1]), steps=2,
        learning_rate=0.05,
    ).model  # fmt: skip
    plain, _, _ = plans_of("classification", encoder, linked)
    tokenizer, settings, pairing = load_tokenizer(adjusted), Continual(adjustment_model=held), Pairing()
    adjustment = read_adjustment({"de": linked[0]}, "en", settings, pairing)
    plan, said = adjustment.join(plain, "finetune", str(adjusted), tokenizer, Execution(), torch.device("cpu"))
    rows = np.arange(len(plan.adjust.pairs))
    kept = plan.adjust.anchors.flat(rows).astype(np.float32)
    named, other = (
        word_vectors(load_encoder(name), plan.adjust.pairs.source, rows, tokenizer.pad_token_id).values
        for name in ((encoder, adjusted) if held == "original" else (adjusted, encoder))
    )
    assert said[-1] == f"anchor    {encoder if held == 'original' else adjusted}"
    np.testing.assert_allclose(kept, named, atol=5e-3)
    assert np.abs(kept - other).max() > 0.05


def test_an_anchor_with_another_tokenizer_is_refused(encoder, linked, tmp_path):
    other = save_encoder(tmp_path / "bert", "bert")
    data = classification(24)
    with pytest.raises(BadInput, match="cut words differently"):
        xl.fit(
            "finetune", model=encoder, data=data, dev=data, out=tmp_path / "run", with_adjustment={"de": linked[0]},
            aligner=str(linked[1]), adjustment_model=str(other),
        )  # fmt: skip


def test_settings_of_adjustment_without_pairs_are_refused(encoder, tmp_path):
    data = classification(24)
    with pytest.raises(BadInput, match="adjustment_pull"):
        xl.fit("finetune", model=encoder, data=data, dev=data, out=tmp_path / "run", adjustment_pull=1.0)


def test_the_command_takes_pairs_and_refuses_unequal_files(encoder, linked, tmp_path, capsys):
    rows = [f"{label}\t{text}" for text, label in zip(classification(30).texts, classification(30).labels, strict=True)]
    (tmp_path / "train.tsv").write_text("label\ttext\n" + "\n".join(rows) + "\n")
    call = [
        "fit",
        "finetune",
        "--model",
        str(encoder),
        "--data",
        str(tmp_path / "train.tsv"),
        "--steps",
        "1",
        "--quiet",
    ]
    pairs = [
        "--with-adjustment",
        f"de={linked[0]}",
        "--aligner",
        str(linked[1]),
        "--adjustment-preset",
        "released",
    ]
    assert cli.run([*call, *pairs, "--out", str(tmp_path / "run")]) == 0
    (tmp_path / "short.txt").write_text("haus\n")
    (tmp_path / "long.txt").write_text("house\ntree\n")
    bad = ["--with-adjustment", f"de={tmp_path / 'long.txt'},{tmp_path / 'short.txt'}"]
    assert cli.run([*call, *bad, "--out", str(tmp_path / "bad")]) == 2
    assert "short.txt, line 2: the files part here" in capsys.readouterr().err


def both_runs(encoder, linked, out):
    """One adjustment and one fine-tuning with adjustment, as two processes do them as well."""
    pairs, links = linked
    adjust(
        bitext={"de": pairs}, model=encoder, out=f"{out}-adjusted", aligner=str(links), steps=4, batch_size=6,
        learning_rate=1e-3, log_every=1,
    )  # fmt: skip
    data = classification(24)
    xl.fit(
        "finetune", model=f"{out}-adjusted", data=data, dev=data, out=out, steps=4, batch_size=8, learning_rate=1e-3,
        evaluations=1, log_every=1, with_adjustment={"de": pairs}, aligner=str(links), adjustment_batch=5,
        adjustment_pull=1.0,
    )  # fmt: skip


@pytest.mark.slow
def test_two_processes_equal_one(linked, tmp_path):
    still = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
    encoder = save_encoder(tmp_path / "encoder", **still)
    both_runs(encoder, linked, tmp_path / "one")
    root = Path(__file__).parents[2]
    script = tmp_path / "two.py"
    script.write_text(
        f"import sys; sys.path[:0] = [{str(root)!r}, {str(root / 'src')!r}]\n"
        "import torch; torch.set_num_threads(1)\n"
        "from tests.runs.test_continual import both_runs\n"
        f"both_runs({str(encoder)!r}, {[str(f) for f in linked]!r}, {str(tmp_path / 'two')!r})\n"
    )
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node", "2", str(script)]
    subprocess.run(command, check=True, env={**os.environ, "OMP_NUM_THREADS": "1"}, capture_output=True, timeout=200)
    # Adam turns the rounding of a gradient near zero into a step, so losses and gradients are compared, not weights.
    for name in ("adjusted", ""):
        rows = [logged(tmp_path / "-".join(filter(None, (run, name)))) for run in ("one", "two")]
        assert len(rows[0]) == 4
        for mine, theirs in zip(*rows, strict=True):
            assert theirs == pytest.approx(mine, rel=1e-3, abs=1e-6)


def logged(folder):
    """The loss terms and gradient norm of every step."""
    rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    return [{k: v for k, v in row.items() if k != "steps_per_second"} for row in rows if "dev" not in row]
