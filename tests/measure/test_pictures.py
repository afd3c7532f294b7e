"""Pictures of words: the right vectors, links and files; never a claim about what t-SNE shows."""

import json

import numpy as np
import pytest
import torch

from crosslift.align import AlignedBitext, Alignment, align_words
from crosslift.data.examples import Examples
from crosslift.data.segment import segment_all
from crosslift.errors import BadInput
from crosslift.measure.pictures import (
    WordPoints,
    draw,
    flat,
    placed,
    pull_together,
    replaced_words,
    translated_words,
    words_of,
)
from crosslift.models.load import load_encoder, load_tokenizer
from tests.tiny_bitext import WORDS, bitext
from tests.tiny_models import save_encoder

TEXTS = ["the quick brown fox", "jumps over"]


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    folder = save_encoder(tmp_path_factory.mktemp("bert"), "bert")
    return load_encoder(folder), load_tokenizer(folder)


@pytest.mark.parametrize("layer", [0, -1])
def test_a_word_is_the_mean_of_its_pieces_at_the_layer(model, layer):
    encoder, tokenizer = model
    points = words_of(encoder, tokenizer, TEXTS, "en", layer=layer)
    assert points.words == ["the", "quick", "brown", "fox", "jumps", "over"]
    encoder.eval()
    encoding = tokenizer("jumps over", return_tensors="pt", return_offsets_mapping=True)
    (offsets,) = encoding.pop("offset_mapping").tolist()
    with torch.no_grad():
        (states,) = encoder(**encoding, output_hidden_states=True).hidden_states[layer]
    inside = [i for i, (start, end) in enumerate(offsets) if start < end <= 5]
    torch.testing.assert_close(torch.from_numpy(points.vectors[4]), states[inside].mean(0), atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("layer", [9, -9])
def test_a_layer_that_is_not_there_is_refused(model, layer):
    with pytest.raises(BadInput, match=f"there is no layer {layer}"):
        words_of(*model, TEXTS, "en", layer=layer)


def test_linked_words_are_numbered_alike_in_both_texts(model):
    x = words_of(*model, TEXTS, "x", linked=True)
    xa = words_of(*model, ["the quick red fox", "leaps over"], "xᵃ", linked=True)
    both = x + xa
    assert both.links.tolist() == [0, 1, 2, 3, 4, 5] * 2
    assert [both.words[i] for i in np.flatnonzero(both.links == 2)] == ["brown", "red"]
    assert both.groups == ["x"] * 6 + ["xᵃ"] * 6


def test_pull_together_by_hand():
    vectors = np.array([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0]], dtype=np.float32)
    points = WordPoints(["a", "b", "c"], vectors, ["x"] * 3, np.array([0, 0, -1]))
    # The linked pair has cosine 1; all three pairs have 1, 0 and 0.
    assert pull_together(points) == pytest.approx(1 - 1 / 3)
    with pytest.raises(BadInput, match="linked"):
        pull_together(WordPoints(["a"], vectors[:1], ["x"], np.array([-1])))


def test_clusters_stay_apart_in_the_plane():
    rng = np.random.default_rng(0)
    vectors = rng.normal(size=(20, 8)).astype(np.float32) * 0.05
    vectors[:10, 0] += 1
    vectors[10:, 1] += 1
    points = WordPoints([str(i) for i in range(20)], vectors, ["x"] * 20, np.full(20, -1))
    places = flat(points)
    assert np.array_equal(places, flat(points))
    distance = np.linalg.norm(places[:, None] - places, axis=-1) + np.eye(20) * 1e9
    assert all((distance[i].argmin() < 10) == (i < 10) for i in range(20))


def test_a_picture_has_a_panel_per_model_and_a_line_per_link(model, tmp_path):
    x = words_of(*model, TEXTS, "x", linked=True) + words_of(*model, TEXTS, "xᵃ", linked=True)
    draw({"untrained": x, "EAR": x}, tmp_path / "picture.json", title="synonyms")
    chart = json.loads((tmp_path / "picture.json").read_text())
    assert [panel["title"] for panel in chart["hconcat"]] == ["untrained", "EAR"]
    assert [layer["mark"]["type"] for layer in chart["hconcat"][0]["layer"]] == ["line", "circle", "text"]
    draw({"EAR": x}, tmp_path / "picture.svg")
    assert "<svg" in (tmp_path / "picture.svg").read_text()
    with pytest.raises(BadInput, match=r"\.svg"):
        draw({"EAR": x}, tmp_path / "picture.gif")


def test_words_of_sentence_pairs_are_linked_to_their_translations(model):
    aligned = align_words(bitext(60), aligner="statistical")
    points = translated_words(*model, aligned, 30)
    count = points.groups.count("en")
    assert 8 <= count <= 30 and set(points.groups) == {"en", "de"}
    pairs = {link: np.flatnonzero(points.links == link) for link in set(points.links.tolist()) - {-1}}
    assert len(pairs) >= 4 and all(len(ends) == 2 for ends in pairs.values())
    # The aligner may err on so little text, but most words it links are translations of one another.
    right = [WORDS[points.words[a]] == points.words[b] for a, b in pairs.values()]
    assert sum(right) > 0.8 * len(right)
    again = translated_words(*model, aligned, 30)
    assert again.words == points.words, "the same sentences for every model"
    with pytest.raises(BadInput, match="No sentence pair"):
        translated_words(*model, aligned, 2)


def test_punctuation_is_no_word_of_a_picture(model):
    pairs = Examples("bitext", "en", ["0"], ["we saw the house ."], pairs=["wir sahen das haus ."], pair_language="de")
    links = Alignment.from_pairs([[(i, i) for i in range(5)]])
    aligned = AlignedBitext(pairs, segment_all(pairs.texts, "en"), segment_all(pairs.pairs, "de"), links)
    points = translated_words(*model, aligned)
    assert points.words == ["we", "saw", "the", "house", "wir", "sahen", "das", "haus"]
    assert points.links.tolist() == [0, 1, 2, 3] * 2


def test_replaced_words_are_those_that_have_another_in_their_place_each_once(model):
    x = words_of(*model, ["the quick fox", "the quick dog", "a red fox"], "x", linked=True)
    xa = words_of(*model, ["the fast fox", "the rapid dog", "a red animal"], "xᵃ", linked=True)
    points = replaced_words(x, xa)
    assert points.words == ["quick", "fox", "fast", "animal"]
    assert points.groups == ["x", "x", "xᵃ", "xᵃ"] and points.links.tolist() == [1, 8, 1, 8]
    np.testing.assert_array_equal(points.vectors[:2], x.vectors[[1, 8]])
    assert replaced_words(x, xa, 1).words == ["quick", "fast"]


def test_places_are_plain_data_as_the_picture_has_them(model):
    points = words_of(*model, TEXTS, "en")
    plain = json.loads(json.dumps(placed(points)))
    assert plain["words"] == list(points.words) and plain["groups"] == ["en"] * 6 and plain["links"] == [-1] * 6
    np.testing.assert_allclose(np.column_stack([plain["x"], plain["y"]]), flat(points), atol=0.0051)
