import pytest

from crosslift.align import Alignment, score_alignment
from crosslift.data.wordalign import GoldAlignment
from crosslift.errors import BadInput

WORDS = ("a", "b", "c")


def gold(sure, possible=()):
    return GoldAlignment(WORDS, WORDS, frozenset(sure), frozenset(possible))


def test_scores_by_hand():
    pairs = [gold({(0, 0), (1, 1)}, {(2, 2)}), gold({(0, 1)})]
    found = Alignment.from_pairs([[(0, 0), (2, 2), (2, 0)], [(0, 1)]])
    scores = score_alignment(found, pairs)
    # |A| = 4, |S| = 3, |A ∩ S| = 2, |A ∩ P| = 3.
    assert (scores.links, scores.sure) == (4, 3)
    assert scores.precision == pytest.approx(75)
    assert scores.recall == pytest.approx(200 / 3)
    assert scores.aer == pytest.approx(100 * (1 - 5 / 7))
    assert scores.f1 == pytest.approx(2 * 75 * (200 / 3) / (75 + 200 / 3))


def test_the_gold_links_themselves_have_no_error():
    pairs = [gold({(0, 0), (1, 1)}, {(2, 2)})]
    assert score_alignment(Alignment.from_pairs([[(0, 0), (1, 1)]]), pairs).aer == pytest.approx(0)


def test_no_links_at_all_are_all_error():
    scores = score_alignment(Alignment.from_pairs([[]]), [gold({(0, 0)})])
    assert (scores.aer, scores.precision, scores.recall, scores.f1) == (100, 0, 0, 0)


def test_other_numbers_of_pairs_are_refused():
    with pytest.raises(BadInput, match="2 pairs were aligned, but there are 1 with gold"):
        score_alignment(Alignment.from_pairs([[], []]), [gold({(0, 0)})])
