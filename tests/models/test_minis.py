"""The encoders that ship: they open with the library alone, are small, and have learnt something."""

import pytest
import torch
from transformers import AutoConfig, AutoModel, AutoModelForMaskedLM, AutoTokenizer

import crosslift as xl
from crosslift.demo import load, load_parallel
from crosslift.measure.retrieval import retrieval_accuracy, sentence_vectors
from crosslift.models.load import EMBEDDED, embedded_names

LIMIT_MB = 52


def test_both_encoders_ship_with_a_card_and_within_their_size():
    assert embedded_names() == ["mini-en", "mini-x"]
    assert sum(path.stat().st_size for path in EMBEDDED.glob("*/*.safetensors")) < LIMIT_MB * 1e6
    for name in embedded_names():
        card = (EMBEDDED / name / "README.md").read_text(encoding="utf-8")
        assert "license: apache-2.0" in card and "## Data and licences" in card


@pytest.mark.parametrize("name", ["mini-x", "mini-en"])
def test_a_mini_opens_with_the_library_alone(name):
    tokenizer, model = AutoTokenizer.from_pretrained(EMBEDDED / name), AutoModel.from_pretrained(EMBEDDED / name)
    encoded = tokenizer("Wake me at seven.", return_tensors="pt", return_offsets_mapping=True)
    assert tokenizer.is_fast and encoded["input_ids"][0, 0] == tokenizer.cls_token_id
    encoded.pop("offset_mapping")
    assert model(**encoded).last_hidden_state.shape[-1] == 256


def shown_and_hidden(tokenizer, texts):
    """Each text with one piece hidden, in the middle."""
    for text in texts:
        ids = torch.tensor([tokenizer(text)["input_ids"]])
        place = ids.shape[1] // 2
        answer = int(ids[0, place])
        ids[0, place] = tokenizer.mask_token_id
        yield ids, place, answer


@pytest.mark.parametrize("name", ["mini-x", "mini-en"])
def test_the_masked_lm_guesses_many_more_pieces_than_chance(name):
    texts = sorted(set(load("demo-intent", "en", "test").texts))[:60]
    tokenizer, model = (
        AutoTokenizer.from_pretrained(EMBEDDED / name),
        AutoModelForMaskedLM.from_pretrained(EMBEDDED / name),
    )
    with torch.no_grad():
        right = [
            int(model(ids).logits[0, place].argmax()) == answer
            for ids, place, answer in shown_and_hidden(tokenizer, texts)
        ]
    assert sum(right) / len(right) > 0.15


def test_mini_x_finds_translations_that_random_weights_do_not():
    pairs = load_parallel("en", "tr", "test")
    rows = sorted(dict(zip(pairs.texts, range(len(pairs)), strict=True)).values())[:80]
    tokenizer = AutoTokenizer.from_pretrained(EMBEDDED / "mini-x")

    def accuracy(model):
        sides = [[side[row] for row in rows] for side in (pairs.texts, pairs.pairs)]
        left, right = (
            sentence_vectors(model.eval(), tokenizer, side, pooling="mean", max_tokens=4096)[-1] for side in sides
        )
        return retrieval_accuracy(left, right)

    torch.manual_seed(0)
    random = AutoModel.from_config(AutoConfig.from_pretrained(EMBEDDED / "mini-x"))
    assert accuracy(AutoModel.from_pretrained(EMBEDDED / "mini-x")) > 2 * accuracy(random)


@pytest.mark.slow
def test_the_embedded_connector_takes_an_english_model_to_languages_it_never_saw(tmp_path):
    run = xl.fit(
        "finetune", model="mini-en", data="demo-intent", out=tmp_path / "english", learning_rate=5e-4, steps=90,
        frozen_layers=4, batch_size=16, evaluations=1, select="last",
    )  # fmt: skip
    plugged = xl.plug(run.path, "mini-x/mini-en", tmp_path / "plugged")
    assert plugged.layers == (4, 4, 4)
    scores = xl.evaluate(plugged.model, "demo-intent", ["de", "zh"], limit=150, out=tmp_path / "scores").rows
    chance = 100 / len(set(load("demo-intent", "en", "test").labels))
    assert all(next(iter(seeds.values()))["accuracy"].value > 3 * chance for seeds in scores.values())
