"""Related against unrelated words: numbers that can be counted by hand, and what adjustment does to them."""

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import roc_auc_score

from crosslift import cli
from crosslift.align import AlignedBitext, Alignment
from crosslift.align.encoded_pairs import encode_pairs
from crosslift.data.segment import segment_all
from crosslift.errors import BadInput
from crosslift.measure.alignment import (
    compare_vectors,
    dimension_shares,
    measure_alignment,
    sample_pairs,
    sampled_vectors,
    separation,
)
from crosslift.models.load import load_encoder
from tests.tiny import unigram_tokenizer
from tests.tiny_bitext import bitext, write_bitext
from tests.tiny_models import save_encoder


def tiny_aligned(count=30):
    found = bitext(count)
    spans = [segment_all(texts, "en") for texts in (found.texts, found.pairs)]
    return AlignedBitext(found, *spans, Alignment.from_pairs([[(i, i) for i in range(len(s))] for s in spans[0]]))


@pytest.fixture(scope="module")
def encoder(tmp_path_factory):
    return save_encoder(tmp_path_factory.mktemp("encoder"))


def test_known_distances_give_known_auc_and_overlap():
    # Of nine (related, unrelated) pairs related is nearer in seven, equal in one: AUC 7.5 / 9.
    found = separation(np.array([1.0, 2.0, 4.0]), np.array([2.0, 5.0, 5.0]), nearer="low", bins=4)
    assert found.auc == pytest.approx(100 * 7.5 / 9, abs=0.01)
    # Bins [1, 2), [2, 3), [3, 4), [4, 5]: related 1, 1, 0, 1; unrelated 0, 1, 0, 2 of three each.
    assert found.overlap == pytest.approx(100 * 2 / 3, abs=0.01)
    assert (found.related, found.unrelated) == pytest.approx((7 / 3, 4), abs=1e-3)
    assert sum(found.related_share) == pytest.approx(1, abs=1e-3)


@given(
    st.lists(st.integers(0, 6), min_size=1, max_size=20),
    st.lists(st.integers(0, 6), min_size=1, max_size=20),
    st.sampled_from(["low", "high"]),
)
def test_auc_is_that_of_scikit_learn(related, unrelated, nearer):
    found = separation(np.array(related, float), np.array(unrelated, float), nearer=nearer)
    values = np.array([*related, *unrelated], float) * (-1 if nearer == "low" else 1)
    truth = roc_auc_score([1] * len(related) + [0] * len(unrelated), values)
    assert found.auc == pytest.approx(100 * truth, abs=0.01)
    assert 0 <= found.overlap <= 100.01


def test_the_largest_dimensions_carry_their_share():
    source = np.array([[3.0, 0.0, 1.0], [0.0, 0.0, 0.0]])
    target = np.array([[0.0, 0.0, 0.0], [1.0, 1.0, 0.0]])
    # Squared distances by dimension: 9 + 1, 1, 1 of 12.
    assert dimension_shares(source, target, (1, 2, 9)) == {1: 83.33, 2: 91.67, 9: 100.0}


def test_equal_vectors_are_at_no_distance():
    same = np.random.default_rng(0).normal(size=(50, 8)).astype(np.float32)
    l2, cosine, _ = compare_vectors((same, same, same[::-1].copy()))
    assert (l2.related, l2.auc, cosine.related, cosine.auc) == (0, 100, 1, 100)


def test_unrelated_words_come_from_other_sentences_and_cover_all_of_them():
    pairs = encode_pairs(tiny_aligned(8), unigram_tokenizer(), linked="words")
    pair = pairs.links.pairs()
    seen = set()
    for seed in range(60):
        related, other = sample_pairs(pairs, 10, seed)
        assert (pair[related] != pair[other]).all()
        seen |= set(other.tolist())
    assert seen == set(range(len(pair)))


def test_one_sentence_pair_has_no_unrelated_words():
    pairs = encode_pairs(tiny_aligned(8), unigram_tokenizer(), linked="words").select(np.array([0]))
    with pytest.raises(BadInput, match="only one pair"):
        sample_pairs(pairs, 5, 0)


def test_sampled_vectors_are_those_of_the_words(encoder):
    pairs = encode_pairs(tiny_aligned(6), unigram_tokenizer(), linked="words")
    model = load_encoder(encoder)
    source, target, unrelated = sampled_vectors(model, pairs, 1, samples=7, seed=2)
    related, other = sample_pairs(pairs, 7, 2)
    from crosslift.methods.adjust import word_vectors

    everything = [word_vectors(model, side, np.arange(len(pairs)), 1) for side in (pairs.source, pairs.target)]
    pair = pairs.links.pairs()
    for k, (one, another) in enumerate(zip(related, other, strict=True)):
        np.testing.assert_allclose(source[k], everything[0][pair[one]][pairs.links.source[one]], atol=1e-5)
        np.testing.assert_allclose(target[k], everything[1][pair[one]][pairs.links.target[one]], atol=1e-5)
        np.testing.assert_allclose(unrelated[k], everything[1][pair[another]][pairs.links.target[another]], atol=1e-5)


def test_two_models_are_measured_on_the_same_words(encoder):
    report = measure_alignment({"one": encoder, "two": encoder}, tiny_aligned(), samples=50, sentences=20)
    assert report.encoders["one"] == report.encoders["two"]
    assert report.encoders["one"].samples == 50
    lines = report.table().splitlines()
    assert [line.split()[0] for line in lines] == ["encoder", "one", "two"]


def test_the_command_writes_numbers_and_a_picture(encoder, tmp_path, capsys):
    pytest.importorskip("altair")
    pytest.importorskip("vl_convert")
    pairs, links = write_bitext(tmp_path)
    code = cli.run([
        "measure", "alignment", "--model", f"original={encoder}", "--bitext", f"de={pairs}", "--aligner", str(links),
        "--samples", "40", "--sentences", "10", "--out", str(tmp_path / "out"),
    ])  # fmt: skip
    assert code == 0
    assert "original" in capsys.readouterr().out
    found = json.loads((tmp_path / "out" / "alignment.json").read_text())
    assert found["encoders"]["original"]["samples"] == 40
    assert (tmp_path / "out" / "alignment.png").read_bytes().startswith(b"\x89PNG")


def test_pictures_of_other_kinds_are_refused(encoder, tmp_path):
    report = measure_alignment({"one": encoder}, tiny_aligned(), samples=20, sentences=5)
    with pytest.raises(BadInput, match=r"\.png or \.svg"):
        report.draw(tmp_path / "picture.gif")


def test_two_models_of_one_name_are_refused(capsys):
    assert cli.run(["measure", "alignment", "-m", "one=a", "-m", "one=b", "-b", "de=pairs.tsv"]) == 2
    assert "Two models have the same name" in capsys.readouterr().err


@pytest.mark.parametrize("option", ["--samples", "--sentences", "--limit", "--layer"])
def test_measuring_nothing_is_refused(option, capsys):
    assert cli.run(["measure", "alignment", "-m", "one=model", "-b", "de=pairs.tsv", option, "0"]) == 2
    assert option in capsys.readouterr().err
