"""From aligned words to tokens: which links stay, and that every token belongs to its word."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crosslift.align import AlignedBitext, Alignment
from crosslift.align.encoded_pairs import encode_pairs, join_pairs, pieces_as_words
from crosslift.data.examples import Examples
from crosslift.data.segment import segment_all
from crosslift.errors import BadInput
from tests.tiny import bpe_tokenizer, unigram_tokenizer, wordpiece_tokenizer

TOKENIZERS = (wordpiece_tokenizer, bpe_tokenizer, unigram_tokenizer)


def aligned(rows, links, language="de"):
    """`rows`: (source, target) texts; `links`: per pair, (source word, target word)."""
    source, target = zip(*rows, strict=True)
    ids = [str(i) for i in range(len(rows))]
    bitext = Examples("bitext", "en", ids, source, target, pair_language=language, name="hand-made")
    spans = (segment_all(source, "en"), segment_all(target, language))
    return AlignedBitext(bitext, *spans, Alignment.from_pairs(links))


def linked_texts(pairs, tokenizer):
    """The links of each pair as (source text, target text), read back from the tokens."""
    found = []
    for row in range(len(pairs)):
        words = []
        for i, j in pairs.links.links(row):
            ends = []
            for side, word in ((pairs.source, i), (pairs.target, j)):
                first, stop = side.words[row].first[word], side.words[row].stop[word]
                ends.append(tokenizer.decode(side.ids[row][first:stop]).strip())
            words.append(tuple(ends))
        found.append(words)
    return found


@pytest.mark.parametrize("make", TOKENIZERS)
def test_links_lead_to_the_tokens_of_their_words(make):
    tokenizer = make()
    pairs = encode_pairs(
        aligned([("the brown fox", "der braune fuchs"), ("the dog", "den hund")], [[(1, 1), (2, 2)], [(1, 1)]]),
        tokenizer,
        linked="words",
    )
    assert linked_texts(pairs, tokenizer) == [[("brown", "braune"), ("fox", "fuchs")], [("dog", "hund")]]


def test_only_links_of_words_that_are_in_no_other_link_stay():
    pairs = encode_pairs(
        aligned([("the brown fox", "der braune fuchs")], [[(0, 0), (1, 1), (1, 2)]]), wordpiece_tokenizer()
    )
    assert pairs.links.links(0)[0] == (0, 0)
    assert pairs.skipped == {"links: not one to one": 2}


def test_identical_words_are_dropped_unless_they_are_kept():
    rows, links = [("in Berlin ,", "nach berlin ,")], [[(0, 0), (1, 1), (2, 2)]]
    dropped = encode_pairs(aligned(rows, links), wordpiece_tokenizer(), linked="words")
    assert dropped.links.links(0) == [(0, 0)]
    assert dropped.skipped == {"links: identical words": 2}
    kept = encode_pairs(aligned(rows, links), wordpiece_tokenizer(), linked="words", keep_identical=True)
    assert kept.links.links(0) == [(0, 0), (1, 1), (2, 2)]


@pytest.mark.parametrize(
    ("linked", "expected"),
    [
        ("words", [(0, 0)]),
        ("all", [(0, 0), (2, 3), (3, 4)]),
        ("specials", [(2, 3), (3, 4)]),
        ("cls", [(2, 3)]),
    ],
)
def test_sentence_marks_are_the_last_two_words_and_linked_where_asked(linked, expected):
    # Two source words and three target words: marks are words 2, 3 and 3, 4.
    pairs = encode_pairs(aligned([("the dog", "den faulen hund")], [[(0, 0)]]), wordpiece_tokenizer(), linked=linked)
    assert pairs.links.links(0) == expected
    first, stop = pairs.source.words[0].first, pairs.source.words[0].stop
    length = len(pairs.source.ids[0])
    assert (first[-2:].tolist(), stop[-2:].tolist()) == ([0, length - 1], [1, length])


def test_long_pairs_and_pairs_without_links_are_counted_and_left_out():
    rows = [("the dog", "den hund"), ("the dog " * 5, "den hund"), ("the fox", "der fuchs")]
    pairs = encode_pairs(aligned(rows, [[(1, 1)], [(1, 1)], []]), wordpiece_tokenizer(), max_words=6)
    assert list(pairs.texts) == ["the dog"]
    assert pairs.skipped == {"pairs: more than 6 words": 1, "pairs: no link left": 1}


def test_a_word_that_was_cut_off_loses_its_link():
    long = "the quick brown fox jumps over the lazy dog"
    pairs = encode_pairs(
        aligned([(long, "der hund")], [[(0, 0), (8, 1)]]), wordpiece_tokenizer(), linked="words", max_length=8
    )
    assert pairs.links.links(0) == [(0, 0)]
    assert any(reason.startswith("links: a word without tokens") for reason in pairs.skipped)


def test_nothing_usable_is_an_error_that_says_why():
    with pytest.raises(BadInput, match=r"no pair has a usable link \(links: identical words: 1"):
        encode_pairs(aligned([("Berlin", "Berlin")], [[(0, 0)]]), wordpiece_tokenizer())


def test_a_link_past_the_end_is_refused_with_its_pair():
    with pytest.raises(BadInput, match="Pair 2: link 5-0 points past the end: 2 source and 2 target words"):
        encode_pairs(aligned([("the dog", "den hund")] * 2, [[(0, 0)], [(5, 0)]]), wordpiece_tokenizer())


@pytest.mark.parametrize("make", TOKENIZERS)
def test_linked_pieces_are_single_tokens_in_order(make):
    tokenizer = make()
    bitext = aligned([("the quick fox", "der schnelle fuchs")], [[]]).bitext
    pieces = pieces_as_words(bitext, tokenizer)
    counts = [len(text[0].split()) for text in (pieces.texts, pieces.pairs)]
    spans = [segment_all(texts, "en") for texts in (pieces.texts, pieces.pairs)]
    links = Alignment.from_pairs([[(i, i) for i in range(min(counts))]])
    pairs = encode_pairs(AlignedBitext(pieces, *spans, links), tokenizer, pieces_of=bitext, linked="words")
    first = pairs.source.words[0].first[: counts[0]]
    np.testing.assert_array_equal(first, np.arange(1, counts[0] + 1))
    ids = tokenizer("the quick fox")["input_ids"]
    assert pairs.source.ids[0].tolist() == ids
    assert " ".join(map(str, ids[1:-1])) == pieces.texts[0]


@settings(max_examples=25, deadline=None)
@given(st.lists(st.integers(1, 6), min_size=1, max_size=5), st.integers(0, 1000))
def test_joined_and_selected_pairs_are_the_pairs_themselves(sizes, seed):
    tokenizer = wordpiece_tokenizer()
    words = ["fox", "dog", "river", "capital", "mind"]
    parts = []
    for language, size in enumerate(sizes):
        texts = [" ".join(words[(i + k) % 5] for k in range(1 + i % 4)) for i in range(size)]
        rows = [(text, f"{text} der") for text in texts]
        links = [[(0, len(text.split()))] for text in texts]
        parts.append(encode_pairs(aligned(rows, links, f"x{language}"), tokenizer))
    joined = join_pairs(parts)
    assert dict(joined.languages) == {f"x{i}": size for i, size in enumerate(sizes)}
    singles = [part.select(np.array([row])) for part in parts for row in range(len(part))]
    for row in np.random.default_rng(seed).integers(0, len(joined), 3):
        one = singles[row]
        assert joined.texts[row] == one.texts[0]
        assert joined.links.links(row) == one.links.links(0)
        for side in ("source", "target"):
            mine, theirs = getattr(joined, side), getattr(one, side)
            np.testing.assert_array_equal(mine.ids[row], theirs.ids[0])
            np.testing.assert_array_equal(mine.words[row].first, theirs.words[0].first)
            np.testing.assert_array_equal(mine.words[row].stop, theirs.words[0].stop)
