"""Labels of words carried to a translation, against projections written by hand."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from crosslift.translate.project import entities, overlaps, project, relink


def test_entities_are_read_from_tags():
    assert entities(["O", "B-date", "I-date", "B-date", "O", "I-time", "place"]) == [
        ("date", 1, 3),
        ("date", 3, 4),
        ("time", 5, 6),
        ("place", 6, 7),
    ]


def test_a_stretch_covers_from_its_first_to_its_last_linked_word():
    # the red house  ->  la casa roja: red-roja, house-casa
    assert project(["O", "B-thing", "I-thing"], [(0, 0), (1, 2), (2, 1)], 3) == (["O", "B-thing", "I-thing"], 0)
    # a word between two linked ones belongs to the stretch
    assert project(["B-x", "I-x"], [(0, 0), (1, 2)], 4) == (["B-x", "I-x", "I-x", "O"], 0)


def test_a_stretch_without_links_is_lost_and_counted():
    assert project(["B-x", "O", "B-y"], [(2, 0)], 2) == (["B-y", "O"], 1)


def test_what_two_stretches_claim_goes_to_the_first():
    assert project(["B-x", "B-y"], [(0, 0), (0, 1), (1, 1), (1, 2)], 3) == (["B-x", "I-x", "B-y"], 0)
    assert project(["B-x", "B-y"], [(0, 0), (1, 0)], 1) == (["B-x"], 1)
    # y surrounds x: only y's first run stays, so that it is one entity still
    assert project(["B-x", "B-y"], [(0, 1), (1, 0), (1, 2)], 3) == (["B-y", "B-x", "O"], 0)


@st.composite
def tagged(draw):
    count = draw(st.integers(1, 8))
    tags = []
    for _ in range(count):
        tags.append(
            draw(st.sampled_from(["O", "B-a", "B-b", *(["I-a"] if tags and tags[-1] in ("B-a", "I-a") else [])]))
        )
    return tags


@given(tagged())
def test_links_of_each_word_to_itself_change_nothing(tags):
    assert project(tags, [(i, i) for i in range(len(tags))], len(tags)) == (tags, 0)


@given(tagged(), st.lists(st.tuples(st.integers(0, 7), st.integers(0, 5)), max_size=12))
def test_whatever_the_links_no_entity_is_made_up_or_broken(tags, links):
    links = [(i, j) for i, j in links if i < len(tags)]
    made, lost = project(tags, links, 6)
    assert sorted(kind for kind, _, _ in entities(made)) <= sorted(kind for kind, _, _ in entities(tags)) or lost
    assert len(entities(made)) + lost == len(entities(tags))
    assert all(not tag.startswith("I-") or made[i - 1][1:] == tag[1:] for i, tag in enumerate(made))


def test_links_move_from_an_aligners_words_to_those_of_a_data_set():
    # "don't stop": the set has two words, the aligner three (do, n't, stop)
    own = overlaps(np.array([[0, 5], [6, 10]]), np.array([[0, 2], [2, 5], [6, 10]]))
    assert own.tolist() == [[True, True, False], [False, False, True]]
    there = np.eye(2, dtype=bool)
    assert relink([(1, 0), (2, 1)], own, there) == [(0, 0), (1, 1)]
    assert relink([], own, there) == []
