import json

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoModelForMaskedLM, AutoTokenizer, BertConfig, BertModel

from crosslift.data.tokenise import Workers
from crosslift.errors import BadFile, BadInput, BrokenRun
from crosslift.methods.pretrain import Objectives, Sampling
from crosslift.models.load import load_tokenizer
from crosslift.models.new_encoder import Architecture, new_encoder, rotation, take_body, waves
from crosslift.models.sentence_teacher import StoredVectors, write_vectors
from crosslift.runs.pretrain import main, pretrain
from crosslift.runs.pretrain_data import prepare, read_corpus
from crosslift.runs.progress import Silent
from tests.tiny import wordpiece_tokenizer

ENGLISH = "the small dog sleeps near old house while warm rain falls on quiet river".split()  # noqa: SIM905
GERMAN = "der kleine hund schläft bei alt haus während warmer regen fällt auf still fluss".split()  # noqa: SIM905
SHAPE = {
    "layers": 2,
    "width": 32,
    "heads": 2,
    "feedforward": 64,
    "max_positions": 64,
    "pieces": 150,
    "window": 32,
    "window_tokens": 256,
    "pair_tokens": 128,
    "pair_lengths": (16, 32),
    "processes": 1,
    "log_every": 1,
}


class Listener(Silent):
    def __init__(self):
        self.lines = []

    def say(self, text):
        self.lines.append(text)


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("text")
    rng = np.random.default_rng(0)

    def write(name, lines):
        (folder / name).write_text("\n".join(lines) + "\n", encoding="utf-8")
        return folder / name

    picks = [rng.choice(len(ENGLISH), 7) for _ in range(600)]
    english = [" ".join(ENGLISH[i] for i in pick) + "." for pick in picks]
    german = [" ".join(GERMAN[i] for i in pick) + "." for pick in picks]
    return {
        "text": {"en": write("en.txt", english[:300]), "de": write("de.txt", german[:300])},
        "bitext": [write("pairs.tsv", [f"de\t{e}\t{g}" for e, g in zip(english[300:], german[300:], strict=True)])],
        "lexicons": {"de": write("lexicon.tsv", [f"{e}\t{g}" for e, g in zip(ENGLISH, GERMAN, strict=True)])},
    }


@pytest.fixture(scope="module")
def teacher(tmp_path_factory):
    folder = tmp_path_factory.mktemp("teacher")
    tokenizer = wordpiece_tokenizer()
    torch.manual_seed(0)
    shape = {"hidden_size": 16, "num_hidden_layers": 4, "num_attention_heads": 2, "intermediate_size": 32}
    BertModel(BertConfig(vocab_size=len(tokenizer), pad_token_id=tokenizer.pad_token_id, **shape)).save_pretrained(
        folder
    )
    tokenizer.save_pretrained(folder)
    return folder


def test_text_pairs_lexicon_and_teacher_give_an_encoder_that_opens_with_transformers(files, teacher, tmp_path):
    watch = Listener()
    done = pretrain(out=tmp_path / "run", **files, teachers=[teacher], steps=4, watch=watch, **SHAPE)
    model = AutoModelForMaskedLM.from_pretrained(done.model)
    tokenizer = AutoTokenizer.from_pretrained(done.model)
    assert model.config.model_type == "xlm-roberta" and model.config.num_hidden_layers == 2
    assert model.config.vocab_size == len(tokenizer)
    logits = model(**tokenizer("the dog", return_tensors="pt")).logits
    assert logits.isfinite().all()
    rows = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    terms = {"masked", "contrast", "sentences", "words"}
    assert all(terms <= row.keys() for row in rows if "loss" in row)
    assert set(done.held_out) == {"en", "de"}
    assert all({"loss", "accuracy", "unigram_loss", "unigram_accuracy"} == set(s) for s in done.held_out.values())
    assert load_file(done.model / "model.safetensors")["lm_head.dense.weight"].dtype == torch.float16
    again = pretrain(out=tmp_path / "run", **files, teachers=[teacher], steps=4, watch=watch, **SHAPE)
    assert again.held_out == done.held_out
    assert "is done already" in watch.lines[-1]


def test_a_short_run_is_called_stuck_and_the_remedies_are_named(files, tmp_path):
    watch = Listener()
    done = pretrain(out=tmp_path / "run", text=files["text"], steps=2, watch=watch, **SHAPE)
    assert done.stuck
    assert sum("no better than piece frequencies" in line for line in watch.lines) == 1
    assert any("--warmup" in line for line in watch.lines)


@pytest.mark.slow
def test_a_run_long_enough_beats_piece_frequencies(tmp_path):
    # Text in which each word is followed by the same next one, so context tells all.
    lines = [" ".join(ENGLISH[(start + i) % len(ENGLISH)] for i in range(9)) for start in range(400)]
    (tmp_path / "en.txt").write_text("\n".join(lines), encoding="utf-8")
    larger = SHAPE | {"width": 64, "feedforward": 128, "window_tokens": 1024, "log_every": 50}
    done = pretrain(
        out=tmp_path / "run", text={"en": tmp_path / "en.txt"}, steps=300, learning_rate=3e-3, shifted=0.0, **larger
    )
    assert not done.stuck
    scores = done.held_out["en"]
    assert scores["loss"] < 0.6 * scores["unigram_loss"]
    assert scores["accuracy"] > 50 > scores["unigram_accuracy"]


def test_an_interrupted_run_goes_on_to_the_same_weights(files, teacher, tmp_path, monkeypatch):
    options = {**files, "teachers": [teacher], "steps": 6, "checkpoint_every": 2, "evaluations": 1, **SHAPE}
    whole = pretrain(out=tmp_path / "whole", **options)

    class Broken(Exception):
        pass

    from crosslift.methods.pretrain import PretrainWork

    real = PretrainWork.batches

    def batches(self, step, rank, world):
        if step == 4:
            raise Broken
        return real(self, step, rank, world)

    monkeypatch.setattr(PretrainWork, "batches", batches)
    with pytest.raises(Broken):
        pretrain(out=tmp_path / "cut", **options)
    monkeypatch.undo()
    watch = Listener()
    resumed = pretrain(out=tmp_path / "cut", watch=watch, **options)
    assert any("Going on from step 4" in line for line in watch.lines)
    one, two = (load_file(run.model / "model.safetensors") for run in (whole, resumed))
    assert all(torch.equal(one[name], two[name]) for name in one)


def test_a_time_limit_still_writes_the_model(files, tmp_path):
    watch = Listener()
    done = pretrain(out=tmp_path / "run", text=files["text"], steps=100_000, max_minutes=1e-5, watch=watch, **SHAPE)
    assert AutoModelForMaskedLM.from_pretrained(done.model)
    assert any("Stopped after" in line for line in watch.lines)


def test_an_encoder_is_continued_with_its_own_tokenizer(files, tmp_path):
    first = pretrain(out=tmp_path / "first", text=files["text"], steps=2, **SHAPE)
    second = pretrain(
        out=tmp_path / "second", text=files["text"], start=first.model, steps=1, learning_rate=1e-9, **SHAPE
    )
    one, two = (load_file(run.model / "model.safetensors") for run in (first, second))
    assert one.keys() == two.keys()
    assert all(torch.allclose(one[name].float(), two[name].float(), atol=1e-3) for name in one)
    text = "the small dog"
    assert AutoTokenizer.from_pretrained(first.model)(text) == AutoTokenizer.from_pretrained(second.model)(text)


def test_a_new_vocabulary_starts_from_the_body_of_another_encoder(files, tmp_path):
    first = pretrain(out=tmp_path / "first", text=files["text"], steps=2, **SHAPE)
    tokenizer = load_tokenizer(first.model)
    donor = AutoModelForMaskedLM.from_pretrained(first.model, dtype=torch.float32)
    shape = Architecture(family="roberta", layers=2, width=32, heads=2, feedforward=64, max_positions=64)
    from crosslift.models.tokenizer_training import train_bpe

    pieces = train_bpe([" ".join(ENGLISH)] * 50, 340)
    model = new_encoder(shape, pieces, seed=5)
    take_body(model, pieces, donor, tokenizer)
    theirs = donor.base_model.encoder.layer[1].output.dense.weight
    assert torch.equal(model.base_model.encoder.layer[1].output.dense.weight, theirs)
    own, old = model.get_input_embeddings().weight, donor.get_input_embeddings().weight
    word = pieces.convert_tokens_to_ids("Ġhouse")
    ids = tokenizer(" house", add_special_tokens=False)["input_ids"]
    assert torch.allclose(own[word], old[ids].mean(0), atol=1e-6)
    assert torch.equal(own[0], old[0])  # <s>
    with pytest.raises(BadInput, match="another shape"):
        take_body(new_encoder(Architecture(layers=2, width=64, heads=2), pieces, 0), pieces, donor, tokenizer)


def test_stored_vectors_teach_the_texts_they_know(files, tmp_path):
    lines = files["text"]["de"].read_text(encoding="utf-8").split("\n")[:50]
    write_vectors(tmp_path / "vectors.npz", lines, np.random.default_rng(0).normal(size=(50, 8)))
    done = pretrain(
        out=tmp_path / "run", text=files["text"], teachers=[tmp_path / "vectors.npz"], steps=2, same_pairs=1.0, **SHAPE
    )
    rows = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    assert "sentences" in rows[0] and "words" not in rows[0]
    assert done.model.exists()


def test_phrases_are_learnt_where_a_teacher_knows_them_and_an_english_teacher_says_nothing_of_german_words(
    files, teacher, tmp_path
):
    lines = files["text"]["de"].read_text(encoding="utf-8").split("\n")[:50]
    phrases = tmp_path / "phrases.txt"
    phrases.write_text("kleine hund\nhaus\nniemand\nhaus\n", encoding="utf-8")
    write_vectors(tmp_path / "v.npz", [*lines, "kleine hund", "haus"], np.ones((52, 8)))
    corpus = read_corpus(
        {language: [path] for language, path in files["text"].items()}, [], {}, phrases={"de": [phrases]}
    )
    assert "3 phrases" in corpus.describe()
    sampling = Sampling(window=32, window_tokens=256, pair_lengths=(16,), phrase_pairs=0.5)
    with Workers(1) as workers:
        data = prepare(
            corpus,
            wordpiece_tokenizer(),
            [teacher, tmp_path / "v.npz"],
            sampling,
            Objectives(),
            torch.device("cpu"),
            0,
            workers,
            Silent(),
        )
    pools = {name: members for name, _, members in data.pairs.pools}
    assert len(pools["phrase/de"]) == 2 and len(pools["same/de"]) == len(set(lines))
    known = data.pairs.words >= 0
    assert known[pools["same/en"]].any() and not known[pools["same/de"]].any() and not known[pools["phrase/de"]].any()


def test_stored_vectors_come_back_by_text(tmp_path):
    vectors = np.arange(6, dtype=np.float16).reshape(3, 2)
    write_vectors(tmp_path / "v.npz", ["b", "a", "c"], vectors)
    stored = StoredVectors(tmp_path / "v.npz")
    assert stored.of(["a", "nobody", "b"]).tolist() == [[2, 3], [0, 0], [0, 1]]
    assert stored.known(["c", "d"]).tolist() == [True, False]
    (tmp_path / "bad.npz").write_bytes(b"nothing")
    with pytest.raises(BadFile, match="no file of text vectors"):
        StoredVectors(tmp_path / "bad.npz")


def test_excluded_lines_are_left_out_and_counted(files, tmp_path):
    line = files["text"]["de"].read_text(encoding="utf-8").split("\n")[0]
    (tmp_path / "out.txt").write_text(line + "\n", encoding="utf-8")
    watch = Listener()
    pretrain(out=tmp_path / "run", text=files["text"], exclude=[tmp_path / "out.txt"], steps=1, watch=watch, **SHAPE)
    assert any("1 lines and pairs excluded" in said for said in watch.lines)


def test_positions_start_as_waves_which_a_rotation_shifts():
    rates = torch.tensor([1.0, 0.25])
    table = waves(6, rates)
    assert table[0].tolist() == [0, 1, 0, 1]
    assert table[1].tolist() == pytest.approx([np.sin(1), np.cos(1), np.sin(0.25), np.cos(0.25)])
    assert torch.allclose(table[:-1] @ rotation(rates).T, table[1:], atol=1e-6)


def small_encoder(**shape):
    tokenizer = wordpiece_tokenizer()
    tokenizer.add_special_tokens({"bos_token": "[CLS]", "eos_token": "[SEP]"})
    return new_encoder(Architecture(**shape), tokenizer, seed=0), tokenizer


def test_what_later_layers_add_starts_small_and_their_attention_uneven():
    layer = small_encoder(layers=2, width=256, heads=4)[0].base_model.encoder.layer[1]
    assert layer.attention.self.query.weight.std().item() == pytest.approx(1 / 16, rel=0.05)
    assert layer.attention.self.value.weight.std().item() == pytest.approx(0.2 / 16, rel=0.05)
    assert layer.output.dense.weight.std().item() == pytest.approx(0.2 / 32, rel=0.05)


@pytest.mark.parametrize(("width", "heads"), [(256, 4), (64, 2), (96, 4)])
def test_heads_of_the_first_layer_start_at_their_neighbours(width, heads):
    model, tokenizer = small_encoder(layers=1, width=width, heads=heads, max_positions=40)
    model.set_attn_implementation("eager")
    ids = torch.randint(5, len(tokenizer), (1, 30), generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        weights = model.eval().base_model(input_ids=ids, output_attentions=True).attentions[0][0]
    for head, neighbour in zip(weights, (-1, 1, -2, 2), strict=False):
        places = torch.arange(3, 27)
        assert (head[3:27].argmax(-1) == places + neighbour).all()
        assert head[places, places + neighbour].min() > 0.8


def test_the_command_runs_a_config_file_and_says_what_is_wrong(files, tmp_path, capsys):
    config = {
        "out": str(tmp_path / "run"),
        "text": {k: str(v) for k, v in files["text"].items()},
        "steps": 1,
        **SHAPE,
    }
    (tmp_path / "c.json").write_text(json.dumps(config), encoding="utf-8")
    assert main(["--config", str(tmp_path / "c.json")]) == 0
    assert "model" in capsys.readouterr().err
    assert main(["--config", str(tmp_path / "c.json"), "--set", "stepps=3"]) == 2
    assert 'Did you mean "steps"?' in capsys.readouterr().err
    again = ["--set", "overwrite=true", "--set", "body=none", "--set", "evaluations=1", "--set", "seed=2"]
    assert main(["--config", str(tmp_path / "c.json"), *again]) == 0
    assert main(["--config", str(tmp_path / "c.json"), "--set", "seed=two"]) == 2
    assert 'seed is a number, not "two"' in capsys.readouterr().err


def test_a_loss_that_is_not_finite_stops_the_run(files, tmp_path):
    with pytest.raises(BrokenRun, match="not finite"):
        pretrain(out=tmp_path / "run", text=files["text"], steps=30, learning_rate=1e30, clip=0, **SHAPE)
