import numpy as np
import pytest
import torch

from crosslift.data.pair_rows import PairRows, pools_of
from crosslift.data.pairs import LINKS, Draft, Tokenised, pair_stream, read_pairs, tokenise_pairs
from crosslift.data.streams import Rows
from crosslift.data.tokenise import Workers, tokenise_lines, tokenise_words
from crosslift.errors import BadFile
from crosslift.models.tokenizer_training import train_unigram

LEXICON = {"de": {"dog": ["Hund"], "house": ["Haus"]}}
TEXTS = ["The dog is in the house.", "Der Hund ist im Haus.", "dogs and houses", "Hund Haus ist im der"]


@pytest.fixture(scope="module")
def tokenizer():
    return train_unigram(TEXTS * 50, 80).backend_tokenizer


def tokenised(drafts, tokenizer, processes=1, longest=32):
    with Workers(processes) as workers:
        return tokenise_pairs(drafts, tokenizer, LEXICON, longest=longest, seed=0, workers=workers)


def side(pairs, which, row):
    ids, lengths = getattr(pairs, which), getattr(pairs, f"{which}_lengths")
    start = lengths[:row].sum()
    return ids[start : start + lengths[row]].tolist()


def linked_words(pairs, tokenizer, row):
    found = []
    for first, stop, other_first, other_stop in pairs.spans[row][pairs.words[row] >= 0].tolist():
        left = tokenizer.decode(side(pairs, "left", row)[first:stop])
        right = tokenizer.decode(side(pairs, "right", row)[other_first:other_stop])
        found.append((left.strip(), right.strip()))
    return found


def test_a_pair_is_tokenised_with_its_links(tokenizer):
    pairs = tokenised([Draft("pair", "de", TEXTS[0], TEXTS[1], 0)], tokenizer)
    assert side(pairs, "left", 0) == tokenizer.encode(TEXTS[0]).ids
    assert side(pairs, "right", 0) == tokenizer.encode(TEXTS[1]).ids
    assert linked_words(pairs, tokenizer, 0) == [("dog", "Hund"), ("house", "Haus")]
    assert pairs.words[0].tolist() == [1, 5] + [-1] * (LINKS - 2)


def test_plain_switched_and_same_pairs_have_their_forms(tokenizer):
    drafts = [
        Draft("plain", "de", TEXTS[0], TEXTS[1], 0),
        Draft("switched", "de", "The dog and the dog and the dog", "", 1),
        Draft("same", "en", TEXTS[0], "", 2),
    ]
    pairs = tokenised(drafts, tokenizer)
    assert side(pairs, "left", 0) == tokenizer.encode("the dog is in the house").ids
    assert side(pairs, "right", 0) == tokenizer.encode("der hund ist im haus").ids
    assert linked_words(pairs, tokenizer, 1) and set(linked_words(pairs, tokenizer, 1)) == {("dog", "Hund")}
    assert linked_words(pairs, tokenizer, 2)[1] == ("dog", "dog")


def test_links_beyond_the_cut_vanish(tokenizer):
    pairs = tokenised([Draft("pair", "de", TEXTS[0], TEXTS[1], 0)], tokenizer, longest=5)
    assert pairs.left_lengths.tolist() == [5]
    assert all("house" not in left for left, _ in linked_words(pairs, tokenizer, 0))


@pytest.mark.slow
def test_several_processes_give_the_same_as_one(tokenizer):
    drafts = [Draft("switched", "de", f"{TEXTS[0]} {i} dogs", "", i) for i in range(9000)]
    one, two = tokenised(drafts, tokenizer), tokenised(drafts, tokenizer, processes=2)
    for name in Tokenised.__annotations__:
        assert np.array_equal(getattr(one, name), getattr(two, name))


def test_lines_become_one_run_per_language_closed_by_their_mark(tokenizer):
    with Workers(1) as workers:
        runs = tokenise_lines({"en": TEXTS[:1], "de": TEXTS[1:3], "xx": []}, tokenizer, workers)
    assert runs["en"].tolist() == tokenizer.encode(TEXTS[0]).ids[1:]
    assert runs["de"].tolist() == tokenizer.encode(TEXTS[1]).ids[1:] + tokenizer.encode(TEXTS[2]).ids[1:]
    assert runs["xx"].tolist() == []


def test_tokens_know_their_word(tokenizer):
    with Workers(1) as workers:
        ids, lengths, words = tokenise_words(["The dog.", "houses"], tokenizer, workers)
    assert lengths.sum() == len(ids) == len(words)
    first = words[: lengths[0]]
    assert first[0] == -1 and first[-1] == -1  # <s> and </s>
    assert set(first.tolist()) == {-1, 0, 1}  # the full stop belongs to no word
    second = words[lengths[0] :]
    assert set(second[1:-1].tolist()) == {0}


def test_streams_of_pairs_alternate_sides_without_opening_marks():
    pairs = Tokenised(
        np.array([0, 5, 2, 0, 6, 6, 2]), np.array([3, 4]), np.array([0, 7, 7, 2, 0, 8, 2]), np.array([4, 3]),
        np.empty((2, LINKS, 4)), np.empty((2, LINKS)),
    )  # fmt: skip
    rng = np.random.default_rng(0)
    assert pair_stream(pairs, np.array([1, 0]), rng, both=False).tolist() == [8, 2, 7, 7, 2]
    run = pair_stream(pairs, np.array([0]), rng, both=True).tolist()
    assert run in ([5, 2, 7, 7, 2], [7, 7, 2, 5, 2])
    assert pair_stream(pairs, np.array([], dtype=int), rng, both=True).tolist() == []


def test_pools_hold_one_language_and_one_length_class():
    groups = {"pair/de": np.array([0, 1, 2]), "pair/sw": np.array([3]), "switched/de": np.array([4])}
    lengths = np.array([5, 9, 40, 7, 8])
    pools, weights = pools_of(groups, lengths, (8, 16), {"pair": 0.75, "switched": 0.25}, 0.5)
    found = {(name, length): members.tolist() for name, length, members in pools}
    assert found == {
        ("pair/de", 8): [0],
        ("pair/de", 16): [1, 2],
        ("pair/sw", 8): [3],
        ("switched/de", 8): [4],
    }
    by_name = dict(zip(found, weights, strict=True))
    german = 0.75 * 3**0.5 / (3**0.5 + 1)
    assert by_name["pair/de", 8] == pytest.approx(german * 8 / 40)
    assert by_name["pair/de", 16] == pytest.approx(german * 32 / 40)
    assert by_name["switched/de", 8] == pytest.approx(0.25)
    assert weights.sum() == pytest.approx(1)


def test_a_kind_without_a_share_is_never_drawn():
    pools, _ = pools_of({"pair/de": np.array([0]), "same/en": np.array([1])}, np.array([3, 3]), (8,), {"pair": 1.0}, 1)
    assert [name for name, _, _ in pools] == ["pair/de"]


def test_drawn_pairs_fill_the_tokens_asked_for():
    rows = Rows.of(np.arange(12), np.array([4, 4, 4]))
    none = torch.full((3, LINKS), -1)
    pools = (("pair/de", 8, torch.tensor([0, 2])),)
    pairs = PairRows(rows, rows, torch.arange(3), none, none, pools, np.array([1.0]))
    length, drawn = pairs.draw(0, 0, 64, torch.Generator().manual_seed(0))
    assert length == 8 and len(drawn) == 8
    assert set(drawn.tolist()) <= {0, 2}


def test_a_broken_line_of_bitext_is_named(tmp_path):
    file = tmp_path / "pairs.tsv"
    file.write_text("de\tHello\tHallo\nde\tHello\n", encoding="utf-8")
    with pytest.raises(BadFile, match="line 2"):
        list(read_pairs(file))
