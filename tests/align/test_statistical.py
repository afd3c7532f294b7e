import math
import time
from collections import Counter, defaultdict

import numpy as np
import pytest

from crosslift.align import Aligner, align_gold, score_alignment, symmetrise
from crosslift.align.statistical import LONGEST, Settings, train
from crosslift.data.bitext import read_bitext
from crosslift.data.wordalign import GoldAlignment, read_gold
from crosslift.errors import BadInput


def toy(count, seed=0, words=60, swap=0.3):
    """Sentences over an invented language, word for word, with neighbours sometimes swapped; and the true links."""
    rng = np.random.default_rng(seed)
    source, target, links = [], [], []
    for _ in range(count):
        ids = rng.choice(words, size=rng.integers(3, 9), replace=False)
        order = list(range(len(ids)))
        for place in range(len(ids) - 1):
            if rng.random() < swap:
                order[place], order[place + 1] = order[place + 1], order[place]
        source.append([f"w{i}" for i in ids])
        target.append([f"x{ids[i]}" for i in order])
        links.append(sorted((i, j) for j, i in enumerate(order)))
    return source, target, links


def links_of(own, other, how="intersection"):
    found = symmetrise(other.links("target"), own.links("source"), how)
    return [found.links(pair) for pair in range(len(found))]


def assert_nearly(found, links):
    """No wrong link, and hardly one missing: a word that was swapped far away may look like one without partner."""
    assert all(set(f) <= set(true) for f, true in zip(found, links, strict=True))
    assert sum(map(len, found)) > 0.97 * sum(map(len, links))


def test_an_invented_language_is_learnt():
    source, target, links = toy(300)
    _, own, other = train(source, target)
    assert_nearly(links_of(own, other), links)


def test_one_round_equals_a_slow_reference():
    """Diagonal prior, both directions, from the formulae; then the second round with a cell's own count left out."""
    source, target = [["a", "b"], ["a", "c", "a"]], [["x", "y", "b"], ["x"]]
    alpha, null, strength, same = 0.1, 0.2, 3.0, 0.5
    wanted = Settings(diagonal_rounds=1, rounds=0, free_rounds=9, prior=alpha, null=null, diagonal=strength, same=same)
    _, own, other = train(source, target, wanted)
    for swap, candidates in ((False, other), (True, own)):
        given, produced = (target, source) if swap else (source, target)
        size = len({w for s in produced for w in s})
        shared = {w for s in produced for w in s}
        share = {}
        for step in range(2):  # first round from nothing, then what `train` decodes with
            pairs, totals, nulls = Counter(), Counter(), Counter()
            for (n, j, i), q in share.items():
                pairs[given[n][i], produced[n][j]] += q
                totals[given[n][i]] += q
            left = defaultdict(lambda: 1.0)
            for (n, j, _), q in share.items():
                left[n, j] -= q
            for (n, j), rest in left.items():
                nulls[produced[n][j]] += rest
            new = {}
            for n, (g, p) in enumerate(zip(given, produced, strict=True)):
                for j, word in enumerate(p):
                    near = [np.exp(-strength * abs((i + 0.5) / len(g) - (j + 0.5) / len(p))) for i in range(len(g))]
                    cells = []
                    for i, e in enumerate(g):
                        q = share.get((n, j, i), 0)
                        top = pairs[e, word] - q + alpha + same * (e == word)
                        bottom = totals[e] - q + alpha * size + same * (e in shared)
                        cells.append((1 - null) * near[i] / sum(near) * top / bottom)
                    rest = (nulls[word] - (left[n, j] if step else 0) + alpha) / (sum(nulls.values()) + alpha * size)
                    whole = sum(cells) + null * rest
                    new |= {(n, j, i): cell / whole for i, cell in enumerate(cells)}
            share = new
        best = [
            max(share[n, j, i] for i in range(len(g))) for n, g in enumerate(given) for j in range(len(produced[n]))
        ]
        assert candidates.score.tolist() == pytest.approx(best, abs=1e-5)


def test_empty_and_over_long_sides_have_no_links():
    source, target, _ = toy(50)
    source[3], target[4] = [], []
    source[5] = ["w1"] * (LONGEST + 1)
    aligner, own, other = train(source, target)
    found = links_of(own, other, "union")
    assert found[3] == found[4] == found[5] == []
    assert np.isfinite(other.score).all() and np.isfinite(own.none).all()
    own, other = aligner.align([[], ["w1"]], [["x1"], []])
    assert links_of(own, other, "union") == [[], []]


def test_a_corpus_without_any_usable_pair_is_no_error():
    _, own, other = train([[], ["a"]], [["b"], []])
    assert links_of(own, other) == [[], []]


def test_new_text_is_aligned_by_a_saved_aligner(tmp_path):
    source, target, _ = toy(300)
    aligner, _, _ = train(source, target)
    aligner.save(tmp_path / "a.safetensors")
    loaded = Aligner.load(tmp_path / "a.safetensors")
    new_source, new_target, links = toy(40, seed=9)
    new_source[0] = [*new_source[0], "Zanzibar"]
    new_target[0] = [*new_target[0], "zanzibar"]  # never seen, but the same on both sides
    links[0] = [*links[0], (len(new_source[0]) - 1, len(new_target[0]) - 1)]
    found = links_of(*loaded.align(new_source, new_target))
    assert_nearly(found, links)
    assert links[0][-1] in found[0]
    assert found == links_of(*aligner.align(new_source, new_target))


def test_much_text_is_aligned_slab_by_slab(monkeypatch):
    source, target, _ = toy(100)
    aligner, _, _ = train(source, target)
    whole = links_of(*aligner.align(source, target))
    monkeypatch.setattr("crosslift.align.statistical._SLAB", 7)
    assert links_of(*aligner.align(source, target)) == whole
    assert links_of(*aligner.align([], [])) == []


def test_a_file_that_is_no_aligner_is_refused(tmp_path):
    (tmp_path / "a.safetensors").write_bytes(b"no tensors")
    with pytest.raises(BadInput, match="cannot be read as an aligner"):
        Aligner.load(tmp_path / "a.safetensors")
    from safetensors.numpy import save_file

    save_file({"a": np.zeros(1)}, tmp_path / "b.safetensors")
    with pytest.raises(BadInput, match="is not an aligner of this version"):
        Aligner.load(tmp_path / "b.safetensors")


def test_sides_of_other_lengths_are_refused():
    with pytest.raises(BadInput, match="2 source sentences, but 1 target"):
        train([["a"], ["b"]], [["c"]])


@pytest.mark.parametrize(
    "bad",
    [
        {"null": 1.0},
        {"prior": 0.0},
        {"rounds": 0, "diagonal_rounds": 0},
        {"same": -1.0},
        {"prior": math.nan},
        {"diagonal": math.inf},
    ],
)
def test_settings_that_cannot_work_are_refused(bad):
    with pytest.raises(BadInput):
        Settings(**bad)


def test_the_order_of_pairs_does_not_change_their_links():
    source, target, _ = toy(120, words=200)
    order = np.random.default_rng(1).permutation(120)
    _, own, other = train(source, target)
    _, own2, other2 = train([source[i] for i in order], [target[i] for i in order])
    found, shuffled = links_of(own, other), links_of(own2, other2)
    same = [found[i] == shuffled[n] for n, i in enumerate(order)]
    assert np.mean(same) > 0.97  # sums in another order may tip a tie


@pytest.mark.shared
def test_spanish_gold_links_are_found(shared):
    gold = read_gold(shared / "data/wordalign/en-es.dev.tsv")
    bitext = read_bitext(shared / "data/bitext/en-es.tsv.xz", language="en", pair_language="es", limit=3000)
    scores = score_alignment(align_gold(gold, bitext).alignment, gold)
    assert scores.aer < 30
    assert scores.precision > 85


@pytest.mark.slow
@pytest.mark.shared
def test_thirty_thousand_pairs_take_less_than_a_minute_of_processor_time(shared):
    bitext = read_bitext(shared / "data/bitext/en-es.tsv.xz", language="en", pair_language="es")
    source, target = ([text.split() for text in side] * 3 for side in (bitext.texts, bitext.pairs))
    began = time.process_time()
    train(source, target)
    assert time.process_time() - began < 60


def test_gold_pairs_are_aligned_alone_too():
    source, target, links = toy(80)
    gold = [
        GoldAlignment(tuple(s), tuple(t), frozenset(found), frozenset())
        for s, t, found in zip(source, target, links, strict=True)
    ]
    assert score_alignment(align_gold(gold).alignment, gold).aer < 5
