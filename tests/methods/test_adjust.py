"""Adjustment: pull and anchor against loops that can be read, on random words and on real encoders."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from crosslift.align.encoded_pairs import EncodedPairs, Side
from crosslift.align.links import Alignment
from crosslift.data.words import WordMaps, row_starts
from crosslift.errors import BadInput
from crosslift.methods.adjust import Adjust, Settings, distance, hidden_states, word_vectors
from crosslift.models.load import load_encoder
from crosslift.tasks.encoded import Ragged
from tests.tiny_models import FAMILIES, save_encoder

WIDTH = 5


class Stored:
    """Anchor vectors held in memory, one array per pair."""

    def __init__(self, rows):
        self.rows = rows

    def flat(self, index):
        return np.concatenate([self.rows[i] for i in index])


def side_of(lengths, words):
    """`words`: per row a list of (first, stop), (-1, -1) = vanished."""
    ids = Ragged.of([[7] * n for n in lengths])
    flat = np.array([w for row in words for w in row], dtype=np.int32).reshape(-1, 2)
    return Side(ids, WordMaps(flat[:, 0], flat[:, 1], row_starts([len(row) for row in words])))


@st.composite
def cases(draw):
    """Random pairs: sentence lengths, words as token ranges (some vanished), links between words that are there."""
    count = draw(st.integers(1, 4))
    sides = []
    for _ in range(2):
        lengths = draw(st.lists(st.integers(3, 9), min_size=count, max_size=count))
        words = []
        for n in lengths:
            cuts = sorted(draw(st.sets(st.integers(1, n - 1), max_size=4)))
            spans = [*zip([0, *cuts], [*cuts, n], strict=True)]
            spans += [(-1, -1)] * draw(st.integers(0, 1))
            words.append(spans)
        sides.append((lengths, words))
    links = []
    for p in range(count):
        real = [[i for i, (first, _) in enumerate(side[1][p]) if first >= 0] for side in sides]
        links.append(draw(st.sets(st.tuples(*(st.sampled_from(r) for r in real)), min_size=1, max_size=4)))
    return sides, links, draw(st.integers(0, 2**31))


def made(case):
    sides, links, seed = case
    source, target = (side_of(*side) for side in sides)
    pairs = EncodedPairs(source, target, Alignment.from_pairs(links), [""] * len(links), {"xx": len(links)})
    random = np.random.default_rng(seed)
    anchors = [random.normal(size=(len(row), WIDTH)).astype(np.float32) for row in sides[0][1]]
    return pairs, Stored(anchors), random


def pooled(hidden, first, stop, how):
    tokens = [hidden[t] for t in range(first, stop)]
    return {"mean": sum(tokens) / len(tokens), "first": tokens[0], "last": tokens[-1]}[how]


def slow_terms(case, anchors, hidden, rows, how, frozen):
    """Word by word, link by link: (pull, anchor)."""
    (_, source_words), (_, target_words) = case[0]
    pull, anchor = [], []
    for place, p in enumerate(rows):
        s_hidden, t_hidden = hidden[place], hidden[place + len(rows)]
        for i, j in sorted(case[1][p]):
            s = torch.from_numpy(anchors.rows[p][i]) if frozen else pooled(s_hidden, *source_words[p][i], how)
            t = pooled(t_hidden, *target_words[p][j], how)
            pull.append(((s - t) ** 2).sum() / WIDTH)
        for i, (first, stop) in enumerate(source_words[p]):
            if first >= 0:
                f0 = torch.from_numpy(anchors.rows[p][i])
                anchor.append(((pooled(s_hidden, first, stop, how) - f0) ** 2).sum() / WIDTH)
    return sum(pull) / len(pull), sum(anchor) / len(anchor)


@settings(max_examples=60, deadline=None)
@given(cases(), st.sampled_from(["mean", "first", "last"]), st.booleans())
def test_pull_anchor_and_their_gradients_equal_a_loop_over_words(case, how, frozen):
    pairs, anchors, random = made(case)
    setting = Settings(pooling=how, pull_to="frozen" if frozen else "moving", pull_weight=0.5, anchor_weight=2.0)
    method = Adjust(setting, pairs, anchors, pad_id=1)
    rows = random.permutation(len(pairs))
    batch = method.batch(rows, 0)
    values = random.normal(size=(*batch["input_ids"].shape, WIDTH)).astype(np.float32)
    fast, slow = (torch.from_numpy(values.copy()).requires_grad_() for _ in range(2))
    terms = method.terms(fast, batch)
    pull, anchor = slow_terms(case, anchors, slow, rows.tolist(), how, frozen)
    assert float(terms["pull"].detach()) == pytest.approx(0.5 * float(pull.detach()), rel=1e-5, abs=1e-6)
    assert float(terms["anchor"].detach()) == pytest.approx(2 * float(anchor.detach()), rel=1e-5, abs=1e-6)
    sum(terms.values()).backward()
    (0.5 * pull + 2 * anchor).backward()
    torch.testing.assert_close(fast.grad, slow.grad, rtol=1e-4, atol=1e-6)


def test_the_distance_of_known_vectors():
    one, other = torch.tensor([[1.0, 2.0], [0.0, 0.0]]), torch.tensor([[1.0, 0.0], [3.0, 1.0]])
    assert float(distance(one, other, torch.tensor([True, True]))) == pytest.approx((0 + 4 + 9 + 1) / 4)
    assert float(distance(one, other, torch.tensor([True, False]))) == pytest.approx((0 + 4) / 2)
    assert float(distance(one, other, torch.tensor([False, False]))) == 0


def test_presets_choose_pooling_and_what_the_pull_goes_to():
    assert (Settings().word, Settings().frozen) == ("mean", False)
    assert (Settings(preset="cao").word, Settings(preset="cao").frozen) == ("last", True)
    assert (Settings(preset="cao", pooling="first", pull_to="moving").word) == "first"
    assert not Settings(preset="cao", pull_to="moving").frozen
    assert Settings(pooling="subwords").word == "mean"


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"layer": 0}, "no layer 0"),
        ({"pull_weight": -1.0}, "--pull-weight"),
        ({"anchor_weight": -1.0}, "--anchor"),
        ({"pull_weight": math.nan}, "--pull-weight"),
        ({"anchor_weight": math.inf}, "--anchor"),
    ],
)
def test_settings_that_cannot_be_are_refused(wrong, said):
    with pytest.raises(BadInput, match=said):
        Settings(**wrong)


@pytest.fixture(scope="module")
def encoder(tmp_path_factory):
    return load_encoder(save_encoder(tmp_path_factory.mktemp("encoder")))


def simple_pairs(lengths=(6, 4, 9)):
    words = [[(1, 2), (2, n - 1), (0, 1), (n - 1, n)] for n in lengths]
    side = side_of(lengths, words)
    return EncodedPairs(
        side, side, Alignment.from_pairs([[(0, 0), (1, 1)]] * len(lengths)), ["x"] * len(lengths), {"xx": len(lengths)}
    )


def test_padding_changes_no_vector(encoder):
    pairs = simple_pairs()
    together = word_vectors(encoder, pairs.source, np.arange(3), 1)
    for row in range(3):
        alone = word_vectors(encoder, pairs.source, np.array([row]), 1)
        np.testing.assert_allclose(together[row], alone[0], atol=1e-5)


def test_the_anchor_is_zero_where_the_encoder_has_not_moved(encoder):
    pairs = simple_pairs()
    stored = word_vectors(encoder, pairs.source, np.arange(3), 1)
    method = Adjust(Settings(), pairs, Stored([stored[i] for i in range(3)]), 1)
    with torch.no_grad():
        terms = method.loss(encoder.eval(), method.batch(np.array([2, 0, 1]), 0))
    assert float(terms["anchor"]) < 1e-10
    # Both sides are the same sentences, so the pull is zero as well.
    assert float(terms["pull"]) < 1e-10


def test_a_layer_that_the_model_lacks_is_refused(encoder):
    batch = Adjust(Settings(), simple_pairs(), Stored([np.zeros((4, 32))] * 3), 1).batch(np.arange(3), 0)
    for layer in (0, 3):
        with pytest.raises(BadInput, match=f"--layer {layer}: this model has 2 layers"):
            hidden_states(encoder, batch, layer)


@pytest.mark.parametrize("family", FAMILIES)
def test_the_last_layer_is_the_same_by_number_and_by_default(family, tmp_path):
    encoder = load_encoder(save_encoder(tmp_path / family, family)).eval()
    ids = torch.tensor([[5, 6, 7, 8, 9]])
    batch = {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
    with torch.no_grad():
        torch.testing.assert_close(hidden_states(encoder, batch), hidden_states(encoder, batch, 2))
