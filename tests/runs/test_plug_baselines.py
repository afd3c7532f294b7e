"""EmbMap, EmbLearn, and how near vectors of two models are."""

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoModel, AutoModelForMaskedLM, AutoModelForSequenceClassification

import crosslift as xl
from crosslift.errors import BadInput
from crosslift.measure.plug_alignment import cross_model_alignment, histogram
from crosslift.models.connectors import load_connector
from crosslift.models.load import load_tokenizer
from crosslift.models.other_vocabulary import linear_map, mapped_embeddings, piece_strings, shared_pieces
from crosslift.runs.plug import fit_connector
from crosslift.runs.plug_baselines import emb_learn, emb_map, plug_embeddings
from tests.runs.test_plug import SMALL, save_mono
from tests.tiny import TEXTS, bpe_tokenizer, unigram_tokenizer, wordpiece_tokenizer
from tests.tiny_data import classification
from tests.tiny_models import save_encoder


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    folder = tmp_path_factory.mktemp("baselines")
    save_encoder(folder / "multi")
    save_mono(folder / "mono")
    (folder / "de.txt").write_text("\n".join(TEXTS[3:5] * 20), encoding="utf-8")
    (folder / "en.txt").write_text("\n".join(TEXTS[:3] * 40), encoding="utf-8")
    xl.fit(
        "finetune", model=folder / "mono", data=classification(24), dev=classification(8, seed=2),
        out=folder / "task", steps=2, batch_size=8, evaluations=1,
    )  # fmt: skip
    return folder


def test_pieces_are_compared_by_what_they_stand_for():
    byte_level, unigram, wordpiece = (
        piece_strings(t()) for t in (bpe_tokenizer, unigram_tokenizer, wordpiece_tokenizer)
    )
    for strings in (byte_level, unigram):
        assert any(text.startswith(" ") for text in strings)
        assert not any("▁" in text or "Ġ" in text for text in strings)
    assert " the" in wordpiece
    left, right = shared_pieces(unigram_tokenizer(), bpe_tokenizer())
    ours, theirs = unigram_tokenizer(), bpe_tokenizer()
    assert len(left) > 20
    for a, b in zip(left.tolist(), right.tolist(), strict=True):
        assert ours.convert_ids_to_tokens(a).replace("▁", " ") == theirs.backend_tokenizer.decoder.decode(
            [theirs.convert_ids_to_tokens(b)]
        )


def test_a_linear_map_is_found_again():
    torch.manual_seed(0)
    source, true = torch.randn(400, 6), torch.randn(6, 4)
    assert torch.allclose(linear_map(source, source @ true, ridge=1e-9), true, atol=1e-4)
    assert linear_map(source, source @ true, ridge=10.0).norm() < true.norm()


def test_mapped_embeddings_keep_special_pieces(home):
    multi, mono = AutoModel.from_pretrained(home / "multi"), AutoModelForMaskedLM.from_pretrained(home / "mono")
    tokenizers = load_tokenizer(home / "multi"), load_tokenizer(home / "mono")
    mapped = mapped_embeddings(multi, mono, *tokenizers)
    assert mapped.shape == multi.get_input_embeddings().weight.shape
    mask = mono.get_input_embeddings().weight[tokenizers[1].mask_token_id]
    assert torch.equal(mapped[tokenizers[0].mask_token_id], mask)


def test_emb_map_gives_a_model_that_reads_the_other_vocabulary(home, tmp_path):
    out = emb_map(home / "task", home / "multi", home / "mono", tmp_path / "mapped")
    model = AutoModelForSequenceClassification.from_pretrained(out)
    before = AutoModelForSequenceClassification.from_pretrained(home / "task" / "model")
    assert model.get_input_embeddings().weight.shape[0] == len(unigram_tokenizer())
    body = [name for name in before.state_dict() if "word_embeddings" not in name]
    assert all(torch.equal(model.state_dict()[name], before.state_dict()[name]) for name in body)
    assert len(xl.predict(out, classification(4))) == 4


def test_embeddings_that_do_not_fit_and_folders_of_something_else_are_refused(home, tmp_path):
    save_mono(home / "wide", hidden_size=48)
    with pytest.raises(BadInput, match="have a width of 48, the model's of 32"):
        emb_map(home / "task", home / "multi", home / "wide", tmp_path / "mapped")
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "notes.txt").write_text("keep this")
    with pytest.raises(BadInput, match="holds something that is no model"):
        emb_map(home / "task", home / "multi", home / "mono", tmp_path / "mine")
    assert (tmp_path / "mine" / "notes.txt").exists()
    for _ in range(2):  # an earlier one is replaced
        emb_map(home / "task", home / "multi", home / "mono", tmp_path / "mapped")


def test_emb_learn_moves_embeddings_alone(home, tmp_path):
    given = {"steps": 3, "batch_size": 4, "window": 16, "learning_rate": 1e-2}
    file = emb_learn(home / "mono", home / "multi", {"de": [home / "de.txt"]}, tmp_path / "run", **given)
    learnt = load_file(file)["embeddings"].float()
    multi, mono = AutoModel.from_pretrained(home / "multi"), AutoModelForMaskedLM.from_pretrained(home / "mono")
    start = mapped_embeddings(multi, mono, load_tokenizer(home / "multi"), load_tokenizer(home / "mono"))
    assert (learnt - start).abs().max() > 1e-3
    assert emb_learn(home / "mono", home / "multi", {"de": [home / "de.txt"]}, tmp_path / "run", **given) == file
    out = plug_embeddings(home / "task", str(file), home / "multi", tmp_path / "learnt")
    assert len(xl.predict(out, classification(4))) == 4


def test_a_connector_that_changes_nothing_is_as_near_as_the_models_are(home, tmp_path):
    run = fit_connector(
        multi=home / "multi", mono=home / "mono", text=home / "en.txt", out=tmp_path / "run",
        **{**SMALL, "align": 1.0, "steps": 3, "evaluations": 1},
    )  # fmt: skip
    loaded = load_connector(run.path)
    mono = AutoModelForMaskedLM.from_pretrained(home / "mono")
    tokenizers = load_tokenizer(home / "multi"), load_tokenizer(home / "mono")
    found = cross_model_alignment(
        loaded, mono, tokenizers, TEXTS[:2], {"en": TEXTS[:2], "de": TEXTS[3:5]}, max_tokens=64
    )
    # By hand, one sentence without padding.
    ours = tokenizers[0](TEXTS[3], return_tensors="pt")
    theirs = tokenizers[1](TEXTS[0], return_tensors="pt")
    with torch.no_grad():
        below = loaded.multi(input_ids=ours["input_ids"], output_hidden_states=True).hidden_states[1]
        vector = loaded.connector(below)[0, 1:-1].mean(0)
        target = mono(input_ids=theirs["input_ids"], output_hidden_states=True).hidden_states[1][0, 1:-1].mean(0)
    assert found["de"].l2[0].item() == pytest.approx((vector - target).norm().item(), abs=1e-4)
    assert found["de"].cosine[0].item() == pytest.approx(
        torch.cosine_similarity(vector, target, dim=0).item(), abs=1e-5
    )
    assert set(found["en"].to_dict()) == {"l2", "cosine"}
    long = " ".join(TEXTS[:3] * 20)  # more than these models can read
    tokenizers[0].model_max_length = tokenizers[1].model_max_length = 24
    assert cross_model_alignment(loaded, mono, tokenizers, [long], {"en": [long]})["en"].l2.isfinite().all()
    with pytest.raises(BadInput, match="no sentences"):
        cross_model_alignment(loaded, mono, tokenizers, [], {"de": []})
    with pytest.raises(BadInput, match="not parallel"):
        cross_model_alignment(loaded, mono, tokenizers, TEXTS[:2], {"de": TEXTS[3:4]})


def test_a_histogram_holds_the_share_of_values_between_two_edges():
    found = histogram(np.array([0.0, 0.1, 0.2, 1.0]), bins=2)
    assert found == {"edges": [0.0, 0.5, 1.0], "share": [0.75, 0.25]}
