import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from crosslift.align import align_words
from crosslift.align.embedding import EmbeddingSettings, _Side, align_embeddings, itermax, mutual
from crosslift.data.examples import Examples
from crosslift.data.segment import segment_all
from crosslift.errors import BadInput
from crosslift.models.load import load_encoder, load_tokenizer
from tests.tiny_models import save_encoder

SOURCE = ["The cat sleeps.", "", "I like the small dog near the old house, don't you?", "yes"]
TARGET = ["Die Katze schläft.", "nichts", "Ich mag den kleinen Hund beim alten Haus, du nicht?", "ja ja"]


def bitext(source=SOURCE, target=TARGET):
    return Examples("bitext", "en", [str(i) for i in range(len(source))], source, pairs=target, pair_language="de")


@pytest.fixture(scope="module")
def encoder(tmp_path_factory):
    return save_encoder(tmp_path_factory.mktemp("encoder"), "bert")


def one_by_one(encoder, layer, method, threshold=0.001):
    """Each pair by itself, with plain loops: the model's hidden states, mean of sub-words, similarities."""
    model, tokenizer = load_encoder(encoder).eval(), load_tokenizer(encoder)
    found = []
    for sides in zip(SOURCE, TARGET, strict=True):
        vectors = []
        for text, language in zip(sides, ("en", "de"), strict=True):
            encoded = tokenizer(text, return_tensors="pt", return_offsets_mapping=True)
            offsets = encoded.pop("offset_mapping")[0].tolist()
            with torch.no_grad():
                hidden = model(**encoded, output_hidden_states=True).hidden_states[layer][0]
            rows = []
            for a, b in segment_all([text], language)[0].tolist():
                own = [k for k, (x, y) in enumerate(offsets) if x < y and x < b and a < y]
                rows.append(hidden[own].mean(dim=0))
            vectors.append(torch.stack(rows) if rows else torch.zeros(0, 32))
        left, right = vectors
        links = set()
        if len(left) and len(right):
            if method == "softmax":
                dot = left @ right.T
                a, b = dot.softmax(dim=1), dot.softmax(dim=0)
                links = {(i, j) for i in range(len(left)) for j in range(len(right)) if a[i, j] > threshold < b[i, j]}
            else:
                like = (torch.nn.functional.cosine_similarity(left[:, None], right[None], dim=-1) + 1) / 2
                links = mutual_pairs(like)
                if method == "itermax":
                    again = like.clone()
                    for i in range(len(left)):
                        for j in range(len(right)):
                            row, column = any(x == i for x, _ in links), any(y == j for _, y in links)
                            again[i, j] *= 0 if row and column else 0.9 if row or column else 1
                    links |= {(i, j) for i, j in mutual_pairs(again) if again[i, j] > 0}
        found.append(sorted(links))
    return found


def mutual_pairs(like):
    return {(i, int(like[i].argmax())) for i in range(len(like)) if int(like[:, like[i].argmax()].argmax()) == i}


@pytest.mark.parametrize("method", ["argmax", "itermax", "softmax"])
def test_links_equal_those_of_one_pair_at_a_time(encoder, method):
    threshold = 0.05
    found = align_words(bitext(), aligner=str(encoder), method=method, layer=2, threshold=threshold, tokens=40)
    expected = one_by_one(encoder, 2, method, threshold)
    assert [found.alignment.links(p) for p in range(4)] == expected
    assert any(expected)


def test_batches_and_padding_change_nothing(encoder, monkeypatch):
    spans = [segment_all(side, "en") for side in (SOURCE, TARGET)]
    runs = [
        align_embeddings(str(encoder), bitext(), *spans, EmbeddingSettings(tokens=tokens, layer=1))
        for tokens in (1, 9_999)
    ]
    monkeypatch.setattr("crosslift.align.embedding._SLAB", 3)
    monkeypatch.setattr("crosslift.align.embedding._BLOCK_WORDS", 5)
    monkeypatch.setattr("crosslift.align.embedding._CELLS", 1)
    runs.append(align_embeddings(str(encoder), bitext(), *spans, EmbeddingSettings(layer=1)))
    assert all(runs[0][0].links(p) == runs[1][0].links(p) == runs[2][0].links(p) for p in range(4))
    assert runs[0][1].score == pytest.approx(runs[1][1].score, abs=1e-5)


def test_a_text_longer_than_the_encoder_reads_is_read_in_windows(encoder):
    """In the middle of a window, words have the vectors they would have anywhere; every word gets one."""
    words = 300
    long = " ".join(("cat", "dog", "house")[i % 3] for i in range(words))
    found = align_words(bitext([long, "cat"], [long, "Katze"]), aligner=str(encoder), scores=True, layer=1)
    own, other = found.candidates
    assert (own.partner[:words] >= 0).all() and (other.partner[:words] >= 0).all()
    assert np.median(own.score[:words]) > 0.999


def test_a_word_is_read_in_the_window_in_which_most_stands_around_it(encoder):
    text = " ".join(("cat", "dog", "house")[i % 3] for i in range(300))
    side = _Side([text], segment_all([text], "en"), load_tokenizer(encoder))
    margins = np.full((len(side.ids), 300), -1)
    for window, words in enumerate(side.maps):
        there = words.first >= 0
        room = np.minimum(words.first - 1, len(side.ids[window]) - 1 - words.stop)
        margins[window, there] = room[there]
    chosen = side.place.reshape(margins.shape) >= 0
    assert (chosen.sum(axis=0) == 1).all()
    assert (margins[chosen.argmax(axis=0), np.arange(300)] == margins.max(axis=0)).all()


def test_two_thirds_up_is_the_default_layer_and_others_are_refused(encoder):
    with pytest.raises(BadInput, match="There is no layer 3: the encoder has 2"):
        align_words(bitext(), aligner=str(encoder), layer=3)
    default = align_words(bitext(), aligner=str(encoder), scores=True)
    first = align_words(bitext(), aligner=str(encoder), scores=True, layer=1)
    assert default.candidates[0].score == pytest.approx(first.candidates[0].score)


@pytest.mark.parametrize("family", ["xlm-roberta", "roberta", "distilbert", "xlm", "modernbert"])
def test_every_family_of_encoders_aligns(tmp_path, family):
    found = align_words(bitext(), aligner=str(save_encoder(tmp_path, family)))
    assert len(found.alignment) == 4
    assert len(found.alignment.source) > 0
    assert found.left_out == {"empty side": 1}


def test_a_device_that_is_not_there_and_a_share_that_is_none_are_refused(encoder):
    with pytest.raises(BadInput, match="--device tpu: torch has no such device here"):
        align_words(bitext(), aligner=str(encoder), device="tpu")
    for threshold in (-0.1, 1.0, float("nan")):
        with pytest.raises(BadInput, match="--threshold is a share"):
            EmbeddingSettings(method="softmax", threshold=threshold)


def test_an_unknown_method_names_the_nearest():
    with pytest.raises(BadInput, match='Did you mean "itermax"'):
        EmbeddingSettings(method="itermacs")


@given(st.integers(0, 10_000), st.integers(1, 6), st.integers(1, 6))
@settings(max_examples=50, deadline=None)
def test_itermax_contains_argmax_and_padding_gets_no_links(seed, rows, columns):
    like = torch.zeros(1, 8, 7)
    like[0, :rows, :columns] = torch.from_numpy(np.random.default_rng(seed).random((rows, columns)) + 0.01)
    first, more = mutual(like)[0], itermax(like)[0]
    assert bool((more | ~first).all())
    assert not more[rows:].any() and not more[:, columns:].any()
    assert set(map(tuple, first.nonzero().tolist())) == mutual_pairs(like[0, :rows, :columns])
