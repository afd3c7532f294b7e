"""Adjusting an encoder: from files of sentence pairs to an encoder that other methods start from."""

import json
from dataclasses import replace

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

import crosslift as xl
from crosslift import cli
from crosslift.errors import BadInput, Unfinished
from crosslift.methods.adjust import Adjust, Settings, word_vectors
from crosslift.models.load import load_encoder, load_tokenizer
from crosslift.runs.adjust import (
    AdjustOptimisation,
    AdjustPlan,
    Pairing,
    adjust,
    anchor_rows,
    encoder_fingerprint,
    make_pairs,
    read_bitexts,
)
from crosslift.runs.settings import Execution
from tests.tiny_bitext import bitext
from tests.tiny_data import classification
from tests.tiny_models import save_encoder


def test_adjustment_pulls_words_together_and_the_encoder_is_a_start_for_others(encoder, linked, tmp_path):
    pairs, links = linked
    done = adjust(
        bitext={"de": pairs}, model=encoder, out=tmp_path / "adjusted", aligner=str(links), epochs=20, batch_size=8,
        learning_rate=1e-3, warmup=0.0,
    )  # fmt: skip
    before, after = done.summary["before"], done.summary["after"]
    assert before["anchor"] < 1e-4  # the anchor is stored in half precision
    assert after["pull"] < 0.6 * before["pull"]
    assert after["anchor"] < before["pull"]
    assert done.summary["pairs"] == {"de": 40}
    data = classification(24)
    run = xl.fit("finetune", model=tmp_path / "adjusted", data=data, dev=data, out=tmp_path / "run", steps=2)
    assert run.model.exists()


def test_the_adjusted_weights_are_the_delivered_ones(encoder, linked, tmp_path):
    done = adjust(bitext={"de": linked[0]}, model=encoder, out=tmp_path / "a", aligner=str(linked[1]), steps=3)
    before, after = (load_file(folder / "model.safetensors") for folder in (encoder, done.model))
    moved = [name for name in after if name in before and not torch.equal(before[name], after[name])]
    assert "embeddings.word_embeddings.weight" in moved


def test_an_interrupted_adjustment_ends_with_the_same_weights(encoder, linked, tmp_path, monkeypatch):
    settings = {
        "bitext": {"de": linked[0]},
        "model": encoder,
        "aligner": str(linked[1]),
        "steps": 6,
        "batch_size": 8,
    }
    whole = adjust(out=tmp_path / "whole", **settings)
    real = AdjustPlan.loss
    calls = []

    def interrupted(self, model, batch):
        calls.append(1)
        if len(calls) == 4:
            raise Unfinished("stop", "")
        return real(self, model, batch)

    monkeypatch.setattr(AdjustPlan, "loss", interrupted)
    with pytest.raises(Unfinished):
        adjust(out=tmp_path / "torn", checkpoint_every=2, **settings)
    monkeypatch.setattr(AdjustPlan, "loss", real)
    again = adjust(out=tmp_path / "torn", checkpoint_every=2, **settings)
    one, other = (load_file(done.model / "model.safetensors") for done in (whole, again))
    assert all(torch.equal(one[name], other[name]) for name in one)
    assert again.summary["after"] == whole.summary["after"]


def plan_of(encoder, max_tokens, **settings):
    tokenizer = load_tokenizer(encoder)
    model = load_encoder(encoder)
    own = Settings(**settings)
    sets = read_bitexts({"de": bitext(20), "fr": bitext(13, seed=5, language="fr")}, "en", Pairing())
    pairs = make_pairs(sets, tokenizer, own, Pairing(), seed=1)
    # Every other pair keeps few links, so that a share of the links is not the same share of the words.
    few = (pairs.links.pairs() % 2 == 0) | (pairs.links.source < 2)
    pairs = replace(pairs, links=pairs.links.keep(few))
    anchors = anchor_rows(model, tokenizer, pairs, own, Execution())
    method = Adjust(own, pairs, anchors, tokenizer.pad_token_id)
    return AdjustPlan(method, AdjustOptimisation(batch_size=16), max_tokens, seed=1), model


def step_of(plan, model, world=1):
    """The loss terms and gradients of one step, as the loop adds them up."""
    torch.manual_seed(3)
    for parameter in model.parameters():
        parameter.data += 0.05 * torch.randn_like(parameter)
    model.eval()
    totals = {"pull": 0.0, "anchor": 0.0}
    for rank in range(world):
        for batch, share in plan.batches(0, rank, world):
            terms = plan.loss(model, batch)
            (sum(terms.values()) * share).backward()
            totals = {name: totals[name] + float(terms[name].detach()) * share for name in totals}
    return totals, model.embeddings.word_embeddings.weight.grad


@pytest.mark.parametrize("world", [1, 3])
def test_micro_batches_and_processes_change_neither_loss_nor_gradient(encoder, world):
    whole, gradient = step_of(*plan_of(encoder, max_tokens=10**6))
    cut, other = step_of(*plan_of(encoder, max_tokens=64), world=world)
    assert cut == pytest.approx(whole, rel=1e-4)
    torch.testing.assert_close(other, gradient, rtol=1e-3, atol=1e-6)


def test_pairs_of_several_languages_are_joined_with_their_counts(encoder):
    plan, _ = plan_of(encoder, 10**6)
    assert set(plan.method.pairs.languages) == {"de", "fr"}
    assert sum(plan.method.pairs.languages.values()) == len(plan.method.pairs)


def test_pairs_are_drawn_after_all_filters_and_too_many_are_refused(encoder):
    tokenizer = load_tokenizer(encoder)
    sets = read_bitexts({"de": bitext(30)}, "en", Pairing())
    drawn = make_pairs(sets, tokenizer, Settings(), Pairing(pairs=7), seed=1)
    assert len(drawn) == 7
    again = make_pairs(sets, tokenizer, Settings(), Pairing(pairs=7), seed=1)
    assert drawn.texts == again.texts
    with pytest.raises(BadInput, match=r"--pairs 99, but only \d+ pairs"):
        make_pairs(sets, tokenizer, Settings(), Pairing(pairs=99), seed=1)


def test_anchor_vectors_are_computed_once(encoder, monkeypatch):
    plan, _ = plan_of(encoder, 10**6)

    def never(*_, **__):
        raise AssertionError("computed a second time")

    monkeypatch.setattr("crosslift.runs.adjust.word_vectors", never)
    pairs, own = plan.method.pairs, plan.method.settings
    again = anchor_rows(load_encoder(encoder), load_tokenizer(encoder), pairs, own, Execution())
    rows = np.arange(len(pairs))
    np.testing.assert_array_equal(again.flat(rows), plan.method.anchors.flat(rows))


def test_kept_anchor_vectors_are_those_of_the_very_encoder_layer_pooling_and_cut(encoder, tmp_path):
    """All in one cache, one after another: nothing is taken for what it is not."""
    other = save_encoder(tmp_path / "other", seed=1)
    for folder, own, length in [
        (encoder, Settings(), 128),
        (encoder, Settings(), 6),
        (encoder, Settings(layer=1), 128),
        (encoder, Settings(pooling="first"), 128),
        (encoder, Settings(pooling="last"), 128),
        (encoder, Settings(pooling="subwords"), 128),
        (other, Settings(), 128),
    ]:
        tokenizer, model = load_tokenizer(folder), load_encoder(folder)
        pairs = make_pairs({"de": bitext(30)}, tokenizer, own, Pairing(pair_length=length, keep_identical=True), seed=1)
        rows = np.arange(len(pairs))
        kept = anchor_rows(model, tokenizer, pairs, own, Execution()).flat(rows)
        fresh = word_vectors(model, pairs.source, rows, tokenizer.pad_token_id, layer=own.layer, how=own.word)
        np.testing.assert_allclose(kept.astype(np.float32), fresh.values, atol=5e-3)


def test_settings_of_pairing_decide_which_links_there_are(encoder):
    tokenizer = load_tokenizer(encoder)
    plain = bitext(40)
    texts, pairs = ([f"{text} Berlin" for text in side] for side in (plain.texts, plain.pairs))
    sets = {"de": replace(plain, texts=[*texts, texts[0]], pairs=[*pairs, pairs[0]], ids=[*plain.ids, "again"])}

    def made(linked="all", pooling=None, **pairing):
        return make_pairs(sets, tokenizer, Settings(linked=linked, pooling=pooling), Pairing(**pairing), seed=1)

    usual = made()
    assert usual.skipped["pairs: came before"] == 1 and "pairs: came before" not in made(unfiltered=True).skipped
    assert len(made(keep_identical=True).links.source) > len(usual.links.source)
    assert len(made(linked="cls").links.source) == len(usual) < len(made(linked="words").links.source)
    # Linked pieces are single tokens of the text itself.
    pieces = made(pooling="subwords")
    assert set(pieces.texts) <= set(texts)
    for row, text in enumerate(pieces.texts):
        assert pieces.source.ids[row].tolist() == tokenizer(text)["input_ids"]
        spans = pieces.source.words[row]
        assert (spans.stop - spans.first).tolist() == [1] * len(pieces.source.ids[row])


def test_links_that_are_drawn_at_random_are_drawn_once(encoder, monkeypatch):
    from crosslift.align import eflomal
    from crosslift.align.links import Alignment

    draw = np.random.default_rng()

    def random_links(source, target):
        rows = [[(k, int(draw.integers(len(b)))) for k in range(len(a))] for a, b in zip(source, target, strict=True)]
        return Alignment.from_pairs(rows), Alignment.from_pairs(rows)

    monkeypatch.setattr(eflomal, "align_eflomal", random_links)
    tokenizer, sets = load_tokenizer(encoder), {"de": bitext(60)}

    def links(**settings):
        found = make_pairs(sets, tokenizer, Settings(linked="words"), Pairing(aligner="eflomal", **settings), seed=1)
        return np.stack([found.links.pairs(), found.links.source, found.links.target]).tolist()

    assert links() == links()
    assert links() != links(symmetrise="union")


def test_the_fingerprint_of_an_encoder_leaves_out_its_pooler(encoder):
    one, other = load_encoder(encoder), load_encoder(encoder)
    other.pooler.dense.weight.data += 1
    assert encoder_fingerprint(one) == encoder_fingerprint(other)
    assert other.pooler is not None
    other.embeddings.word_embeddings.weight.data += 1
    assert encoder_fingerprint(one) != encoder_fingerprint(other)


def refused(capsys, *arguments):
    code = cli.run(["fit", "adjust", *map(str, arguments)])
    return code, capsys.readouterr().err


def test_a_link_past_the_end_is_refused_with_its_line_before_training(encoder, linked, tmp_path, capsys):
    pairs, links = linked
    lines = links.read_text().splitlines()
    lines[4] += " 99-0"
    links.write_text("\n".join(lines) + "\n")
    command = ["--model", encoder, "--bitext", f"de={pairs}", "--out", tmp_path / "out", "--steps", "1", "--aligner"]
    code, said = refused(capsys, *command, links)
    assert code == 2
    assert "bitext.pharaoh, line 5" in said
    assert "99-0" in said
    assert not (tmp_path / "out").exists()
    mended = tmp_path / "mended.links"
    mended.write_text(links.read_text().replace(" 99-0", ""))
    assert refused(capsys, *command, mended)[0] == 0  # another file of links, the same folder


def test_a_pair_with_an_empty_side_keeps_its_place_in_a_file_of_links(encoder, linked, tmp_path):
    pairs, links = linked
    lines, numbers = pairs.read_text().splitlines(), links.read_text().splitlines()
    made = []
    for name, line in (("whole", None), ("holed", "\tein haus")):
        (tmp_path / f"{name}.tsv").write_text("\n".join([*lines[:3], *filter(None, [line]), *lines[3:]]) + "\n")
        given = [*numbers[:3], *(["0-0 7-9"] if line else []), *numbers[3:]]
        (tmp_path / f"{name}.pharaoh").write_text("\n".join(given) + "\n")
        pairing = Pairing(aligner=str(tmp_path / f"{name}.pharaoh"))
        sets = read_bitexts({"de": tmp_path / f"{name}.tsv"}, "en", pairing)
        made.append(make_pairs(sets, load_tokenizer(encoder), Settings(), pairing, seed=1))
    whole, holed = made
    assert whole.texts == holed.texts
    assert [whole.links.links(p) for p in range(len(whole))] == [holed.links.links(p) for p in range(len(holed))]


def test_a_file_of_links_that_is_not_there_is_not_taken_for_a_model(encoder, linked, tmp_path, capsys):
    wrong = tmp_path / "bitxt.pharaoh"
    code, said = refused(
        capsys, "--model", encoder, "--bitext", f"de={linked[0]}", "--aligner", wrong, "--out", tmp_path / "out"
    )
    assert code == 2
    assert "bitxt.pharaoh: there is no such file" in said


def test_files_of_unequal_length_are_refused(encoder, tmp_path, capsys):
    (tmp_path / "en.txt").write_text("the house\nthe tree\n")
    (tmp_path / "de.txt").write_text("das haus\n")
    files = f"de={tmp_path / 'en.txt'},{tmp_path / 'de.txt'}"
    code, said = refused(capsys, "--model", encoder, "--bitext", files, "--out", tmp_path / "out")
    assert code == 2
    assert "de.txt, line 2: the files part here: de.txt has 1 lines, but en.txt has 2." in said


def test_a_line_without_two_sentences_is_refused_with_its_number(encoder, tmp_path, capsys):
    (tmp_path / "pairs.tsv").write_text("the house\tdas haus\nthe tree\n")
    code, said = refused(
        capsys, "--model", encoder, "--bitext", f"de={tmp_path / 'pairs.tsv'}", "--out", tmp_path / "out"
    )
    assert code == 2
    assert "pairs.tsv, line 2" in said


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--bitext", "de={pairs}", "--bitext", "fr={pairs}", "--aligner", "{links}"], "One file of links"),
        (["--bitext", "de={pairs}", "--bitext", "de={pairs}"], "names de twice"),
        (["--bitext", "de={pairs}", "--aligner", "{links}", "--symmetrise", "union"], "union changes nothing"),
        (["--bitext", "de={pairs}", "--poling", "mean"], "Did you mean --pooling?"),
        (["--bitext", "de={pairs}", "--pooling", "median"], "--pooling"),
        (["--bitext", "de={pairs}", "--pooling", "subwords", "--aligner", "{links}"], "the pieces are aligned"),
        (["--bitext", "de={pairs}", "--pooling", "subwords", "--aligner", "mini-x"], "mini-x links words"),
        (["--bitext", "de={pairs}", "--pooling", "subwords", "--aligner", "a.safetensors"], "links words"),
    ],
)
def test_options_that_cannot_work_are_refused(options, said, encoder, linked, tmp_path, capsys):
    filled = [text.format(pairs=linked[0], links=linked[1]) for text in options]
    code, error = refused(capsys, "--model", encoder, "--out", tmp_path / "out", *filled)
    assert code == 2
    assert said in error


def test_the_command_adjusts_and_reports_as_json(encoder, linked, tmp_path, capsys):
    code = cli.run([
        "fit", "adjust", "--model", str(encoder), "--bitext", f"de={linked[0]}", "--aligner", str(linked[1]),
        "--out", str(tmp_path / "out"), "--steps", "2", "--preset", "cao", "--json",
    ])  # fmt: skip
    assert code == 0
    said = json.loads(capsys.readouterr().out)
    assert said["pairs"] == {"de": 40}
    assert (tmp_path / "out" / "model" / "model.safetensors").exists()


def test_a_translation_memory_says_its_other_language(tmp_path):
    unit = '<tu><tuv xml:lang="en"><seg>yes</seg></tuv><tuv xml:lang="de"><seg>ja</seg></tuv></tu>'
    (tmp_path / "a.tmx").write_text(f"<tmx><body>{unit}</body></tmx>")
    found = read_bitexts({"und": tmp_path / "a.tmx"}, "en", Pairing())
    assert (found["und"].pair_language, found["und"].pairs) == ("de", ["ja"])


@pytest.mark.parametrize("options", [[], ["--unfiltered"]])
def test_a_file_in_another_script_is_refused_with_a_line(options, encoder, tmp_path, capsys):
    rows = ["the house\tдом", "the tree\tдерево", "the river\tрека"]
    (tmp_path / "pairs.tsv").write_text("\n".join(rows) + "\n")
    code, said = refused(
        capsys, "--model", encoder, "--bitext", f"de={tmp_path / 'pairs.tsv'}", "--out", tmp_path / "out", *options
    )
    assert code == 2
    assert "pairs.tsv, line" in said
    assert "not de" in said
    assert not (tmp_path / "out").exists()
