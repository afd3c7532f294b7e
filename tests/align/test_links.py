import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crosslift.align.links import WAYS, Alignment, Candidates, _Growing, symmetrise
from crosslift.errors import BadInput

LINKS = st.lists(st.frozensets(st.tuples(st.integers(0, 5), st.integers(0, 6)), max_size=14), min_size=1, max_size=5)


def slow(forward: set, backward: set, how: str) -> set:
    """The rules as loops over one pair."""
    both, union = forward & backward, forward | backward
    if how in ("intersection", "union", "forward", "backward"):
        return {"intersection": both, "union": union, "forward": forward, "backward": backward}[how]
    found = set(both)

    def free(link, side):
        return all(other[side] != link[side] for other in found)

    added = True
    while added:
        added = False
        for link in sorted(union):
            near = any(max(abs(link[0] - o[0]), abs(link[1] - o[1])) == 1 for o in found)
            if link not in found and near and (free(link, 0) or free(link, 1)):
                found.add(link)
                added = True
    for direction in (forward, backward):
        for link in sorted(direction):
            if free(link, 0) and free(link, 1):
                found.add(link)
    return found


@given(st.data(), LINKS, st.sampled_from(WAYS))
@settings(max_examples=150, deadline=None)
def test_two_directions_become_one_as_the_rules_say(data, forward, how):
    backward = data.draw(st.lists(st.frozensets(st.tuples(st.integers(0, 5), st.integers(0, 6))), min_size=len(forward), max_size=len(forward)))  # fmt: skip  # noqa: E501
    found = symmetrise(Alignment.from_pairs(forward), Alignment.from_pairs(backward), how)
    expected = [sorted(slow(set(f), set(b), how)) for f, b in zip(forward, backward, strict=True)]
    assert [found.links(pair) for pair in range(len(found))] == expected


def test_growth_takes_neighbours_of_the_intersection_and_then_lonely_words():
    forward = Alignment.from_pairs([[(0, 0), (1, 1), (3, 3), (5, 4)]])
    backward = Alignment.from_pairs([[(0, 0), (0, 1), (4, 5)]])
    # (1, 1) and (0, 1) touch (0, 0), but (0, 1) comes first and uses target word 1; then (1, 1) still has word 1 free.
    grown = symmetrise(forward, backward, "grow-diag-final-and").links(0)
    assert grown == [(0, 0), (0, 1), (1, 1), (3, 3), (4, 5), (5, 4)]


def test_links_grow_slab_by_slab(monkeypatch):
    forward = Alignment.build(7, np.arange(7), np.arange(7), np.arange(7), np.full(7, 0.5))
    backward = Alignment.build(7, np.arange(7), np.arange(7), np.arange(7) % 3, np.full(7, 0.5))
    whole = symmetrise(forward, backward, "grow-diag-final-and")
    tables = []
    monkeypatch.setattr("crosslift.align.links._SLAB", 2)
    monkeypatch.setattr(_Growing, "grow", lambda self, grow=_Growing.grow: (tables.append(len(self.table)), grow(self)))
    slabs = symmetrise(forward, backward, "grow-diag-final-and")
    assert len(tables) == 4
    for name in ("starts", "source", "target", "scores"):
        np.testing.assert_array_equal(getattr(slabs, name), getattr(whole, name))


def test_unknown_symmetrisation_names_the_nearest():
    with pytest.raises(BadInput, match='Did you mean "union"'):
        symmetrise(Alignment.from_pairs([[]]), Alignment.from_pairs([[]]), "unoin")


@given(LINKS)
@settings(deadline=None)
def test_select_and_keep_and_one_to_one_agree_with_lists(rows):
    alignment = Alignment.from_pairs(rows)
    order = [*reversed(range(len(rows))), 0]
    assert [alignment.select(order).links(i) for i in range(len(order))] == [sorted(rows[i]) for i in order]
    even = alignment.keep(alignment.source % 2 == 0)
    assert [even.links(i) for i in range(len(rows))] == [sorted(x for x in row if x[0] % 2 == 0) for row in rows]
    single = alignment.one_to_one()
    for pair, row in enumerate(rows):
        expected = [x for x in sorted(row) if sum(o[0] == x[0] for o in row) == sum(o[1] == x[1] for o in row) == 1]
        assert single.links(pair) == expected
    assert alignment.pairs().tolist() == [pair for pair, row in enumerate(rows) for _ in row]


def test_links_in_any_order_are_sorted_with_their_scores():
    built = Alignment.build(3, np.array([2, 0, 2]), np.array([1, 0, 0]), np.array([0, 3, 2]), np.array([0.1, 0.2, 0.3]))
    assert [built.links(p) for p in range(3)] == [[(0, 3)], [], [(0, 2), (1, 0)]]
    assert built.scores.tolist() == pytest.approx([0.2, 0.3, 0.1])


def test_scores_of_an_intersection_are_geometric_means():
    forward = Alignment(np.array([0, 2]), np.array([0, 1]), np.array([0, 1]), np.array([0.9, 0.5], np.float32))
    backward = Alignment(np.array([0, 1]), np.array([0]), np.array([0]), np.array([0.4], np.float32))
    assert symmetrise(forward, backward).scores.tolist() == pytest.approx([0.6])
    assert symmetrise(forward, backward, "union").scores.tolist() == pytest.approx([0.6, 0.25])


def test_a_word_is_linked_if_its_partner_is_likelier_than_none():
    found = Candidates(
        np.array([0, 2, 2, 3]),
        np.array([1, 0, -1], np.int32),
        np.array([0.6, 0.3, 0.0], np.float32),
        np.array([0.2, 0.5, 1.0], np.float32),
    )
    assert [found.links("target").links(p) for p in range(3)] == [[(1, 0)], [], []]
    assert found.links("source").links(0) == [(0, 1)]


@given(LINKS, LINKS)
@settings(deadline=None)
def test_corpora_are_joined_one_after_another(first, second):
    joined = Alignment.join([Alignment.from_pairs(first), Alignment.from_pairs(second)])
    assert [joined.links(p) for p in range(len(joined))] == [sorted(row) for row in (*first, *second)]
    assert len(Alignment.join([])) == 0
