"""Sub-word <-> word maps against a slow reading of the same offsets, one character at a time."""

from itertools import pairwise

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from crosslift.data.words import WordMaps, pool_words, ranges, token_spans, token_words, word_maps
from crosslift.errors import BadInput
from tests.tiny import bpe_tokenizer, unigram_tokenizer, wordpiece_tokenizer

TOKENIZERS = {
    "wordpiece": wordpiece_tokenizer,
    "bpe": bpe_tokenizer,
    "bpe-untrimmed": lambda: bpe_tokenizer(trim_offsets=False),
    "unigram": unigram_tokenizer,
}
# Words that are known, unknown, accented, written without spaces, compatibility forms, zero-width or control.
WORDS = [
    "The",
    "fox",
    "über",
    "Straße",
    "naïve",
    "лиса",
    "北京",
    "猫",
    "สวัสดี",
    "ﬁn",
    "ﷺ",
    "𓀀𓀁",
    "\u200b",
    "\x01",
    "don't",
    "é",
    "e\u0301",
    "😀",
    "1867",
    "龘",
]


def whitespace_spans(text):
    """Return the words between spaces."""
    spans, start = [], None
    for place, character in enumerate(text + " "):
        if character == " ":
            if start is not None:
                spans.append((start, place))
            start = None
        elif start is None:
            start = place
    return np.array(spans, dtype=np.int32).reshape(-1, 2)


def encode(tokenizer, texts, pairs=None, **options):
    encoding = tokenizer(texts, pairs, return_offsets_mapping=True, **options)
    return encoding, token_spans(encoding, tokenizer)


def slow_map(encoding, row, spans, sequence=0):
    """Read one row character by character: the tokens that share a character with each word."""
    tokens, sequences = encoding.tokens(row), encoding.sequence_ids(row)
    found = []
    for start, end in np.asarray(spans).tolist():
        mine = [
            i
            for i, (begin, stop) in enumerate(encoding["offset_mapping"][row])
            if sequences[i] == sequence
            and tokens[i] not in ("▁", "Ġ")
            and any(start <= character < end for character in range(begin, stop))
        ]
        found.append((min(mine), max(mine) + 1) if mine else (-1, -1))
    return found


def pairs_of(word_map):
    return list(zip(word_map.first.tolist(), word_map.stop.tolist(), strict=True))


texts_strategy = st.lists(
    st.lists(st.sampled_from(WORDS) | st.text(min_size=1, max_size=4), max_size=8).map(" ".join),
    min_size=1,
    max_size=5,
)


@pytest.mark.parametrize("name", TOKENIZERS)
@settings(max_examples=60, deadline=None)
@given(texts=texts_strategy, data=st.data())
def test_maps_equal_the_slow_reading(name, texts, data):
    spans = [whitespace_spans(text) for text in texts]
    max_length = data.draw(st.sampled_from([6, 12, 512]))
    encoding, tokens = encode(TOKENIZERS[name](), texts, truncation=True, max_length=max_length)
    maps = word_maps(tokens, spans)
    assert len(maps) == len(texts)
    for row in range(len(texts)):
        assert pairs_of(maps[row]) == slow_map(encoding, row, spans[row])


@pytest.mark.parametrize("name", TOKENIZERS)
@settings(max_examples=30, deadline=None)
@given(texts=texts_strategy, data=st.data())
def test_any_cut_of_the_text_into_words_equals_the_slow_reading(name, texts, data):
    """Words inside tokens, as in zh and ja: neighbours share a token."""
    spans = []
    for text in texts:
        cuts = data.draw(st.sets(st.integers(0, len(text)), max_size=6))
        bounds = sorted({0, len(text), *cuts})
        spans.append(np.array(list(pairwise(bounds)), dtype=np.int32).reshape(-1, 2))
    encoding, tokens = encode(TOKENIZERS[name](), texts)
    maps = word_maps(tokens, spans)
    for row in range(len(texts)):
        assert pairs_of(maps[row]) == slow_map(encoding, row, spans[row])


@pytest.mark.parametrize("name", TOKENIZERS)
@settings(max_examples=30, deadline=None)
@given(texts=texts_strategy)
def test_words_of_the_second_text_of_a_pair_equal_the_slow_reading(name, texts):
    spans = [whitespace_spans(text) for text in texts]
    encoding, tokens = encode(TOKENIZERS[name](), ["The fox jumps"] * len(texts), texts)
    maps = word_maps(tokens, spans, sequence=1)
    for row in range(len(texts)):
        assert pairs_of(maps[row]) == slow_map(encoding, row, spans[row], sequence=1)


def test_several_rows_of_one_text_each_map_the_words_they_hold():
    tokenizer = wordpiece_tokenizer()
    text = "The quick brown fox jumps over the lazy dog"
    spans = whitespace_spans(text)
    options = {"truncation": "only_second", "max_length": 14, "stride": 2, "return_overflowing_tokens": True}
    encoding, tokens = encode(tokenizer, ["dog", "fox"], [text, "the dog"], **options)
    example_of = np.array(encoding["overflow_to_sample_mapping"])
    assert len(example_of) > 3
    all_spans = [spans, whitespace_spans("the dog")]
    maps = word_maps(tokens, all_spans, sequence=1, example_of=example_of)
    held = set()
    for row, example in enumerate(example_of):
        assert pairs_of(maps[row]) == slow_map(encoding, row, all_spans[example], sequence=1)
        held |= {(example, word) for word in np.flatnonzero(maps[row].first >= 0)}
    assert len(held) == len(spans) + 2


@pytest.mark.parametrize("name", ["unigram", "bpe-untrimmed"])
def test_lone_mark_is_never_the_first_subword(name):
    tokenizer = TOKENIZERS[name]()
    encoding, tokens = encode(tokenizer, ["𓀀 x"])
    assert encoding.tokens(0)[1] in "▁Ġ"
    assert encoding["offset_mapping"][0][1] == (0, 1), "the mark claims the word's first character"
    assert word_maps(tokens, [whitespace_spans("𓀀 x")])[0].first[0] == 2


def test_byte_fallback_pieces_of_one_word_belong_together():
    encoding, tokens = encode(unigram_tokenizer(), ["fox 𓀀"])
    word = word_maps(tokens, [whitespace_spans("fox 𓀀")])[0]
    pieces = encoding.tokens(0)[word.first[1] : word.stop[1]]
    assert pieces == ["<0xF0>", "<0x93>", "<0x80>", "<0x80>"]


def test_words_that_vanish_have_no_token():
    text = "the \x01 \u200b dog"
    _, tokens = encode(wordpiece_tokenizer(), [text])
    assert (word_maps(tokens, [whitespace_spans(text)])[0].first >= 0).tolist() == [True, False, False, True]


def test_truncation_keeps_the_tokens_a_word_still_has():
    tokenizer = wordpiece_tokenizer()
    text = "the xylophone dog"
    whole = encode(tokenizer, [text])[1]
    full = word_maps(whole, [whitespace_spans(text)])[0]
    assert full.stop[1] - full.first[1] > 2
    cut = encode(tokenizer, [text], truncation=True, max_length=int(full.first[1]) + 3)[1]
    part = word_maps(cut, [whitespace_spans(text)])[0]
    assert part.first.tolist() == [full.first[0], full.first[1], -1]
    assert part.stop.tolist() == [full.stop[0], full.first[1] + 2, -1]


def test_a_piece_over_two_words_belongs_to_both():
    encoding, tokens = encode(unigram_tokenizer(), ["我爱北京"])
    spans = np.array([[0, 1], [1, 2], [2, 3], [3, 4]], dtype=np.int32)
    word = word_maps(tokens, [spans])[0]
    assert encoding.tokens(0)[word.first[2]] == "北京"
    assert word.first[2] == word.first[3] == word.stop[2] - 1 == word.stop[3] - 1


def test_token_words_names_the_earliest_word_of_each_token():
    maps = WordMaps(
        first=np.array([1, 3, 3, -1, 1], dtype=np.int32),
        stop=np.array([3, 4, 5, -1, 2], dtype=np.int32),
        starts=np.array([0, 4, 5]),
    )
    words = token_words(maps, np.array([6, 3]))
    assert words.tolist() == [-1, 0, 0, 1, 2, -1, -1, 0, -1]


def test_texts_without_words_and_empty_texts_have_empty_maps():
    _, tokens = encode(wordpiece_tokenizer(), ["", "the dog"])
    none = np.zeros((0, 2), dtype=np.int32)
    maps = word_maps(tokens, [none, none])
    assert [len(maps[0].first), len(maps[1].first)] == [0, 0]
    first, stop = maps.pad(np.array([1, 0]))
    assert first.shape == stop.shape == (2, 0)


def test_padded_maps_are_filled_with_minus_one():
    _, tokens = encode(wordpiece_tokenizer(), ["the the", "the"])
    maps = word_maps(tokens, [whitespace_spans("the the"), whitespace_spans("the")])
    first, stop = maps.pad(np.array([1, 0, 1]))
    assert first.tolist() == [[1, -1], [1, 2], [1, -1]]
    assert stop.tolist() == [[2, -1], [2, 3], [2, -1]]


def test_offsets_are_asked_for_by_name():
    tokenizer = wordpiece_tokenizer()
    with pytest.raises(BadInput, match="no character offsets"):
        token_spans(tokenizer(["the dog"]), tokenizer)


@given(st.lists(st.tuples(st.integers(0, 50), st.integers(0, 5)), max_size=8))
def test_ranges_equal_a_loop(parts):
    starts, counts = np.array([p[0] for p in parts], int), np.array([p[1] for p in parts], int)
    assert ranges(starts, counts).tolist() == [s + i for s, c in parts for i in range(c)]


@pytest.mark.shared
def test_maps_of_an_xlmr_like_tokenizer_equal_the_slow_reading(shared):
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(shared / "models" / "probe-x")
    texts = [" ".join(WORDS), "สวัสดี ไทย", "我爱北京。", "  two   spaces\tand tabs ", " ".join(WORDS[::-1])]
    spans = [whitespace_spans(text) for text in texts]
    encoding, tokens = encode(tokenizer, texts)
    maps = word_maps(tokens, spans)
    for row in range(len(texts)):
        assert pairs_of(maps[row]) == slow_map(encoding, row, spans[row])


FIRST = torch.tensor([[1, 2, -1], [0, 2, 3]])
STOP = torch.tensor([[2, 4, -1], [3, 3, 5]])


@pytest.mark.parametrize("how", ["mean", "first", "last"])
def test_pooling_equals_a_loop(how):
    hidden = torch.randn(2, 5, 4, generator=torch.Generator().manual_seed(0))
    pooled = pool_words(hidden, FIRST, STOP, how)
    for row in range(2):
        for word in range(3):
            first, stop = FIRST[row, word], STOP[row, word]
            if first < 0:
                expected = torch.zeros(4)
            else:
                part = hidden[row, first:stop]
                expected = {"mean": part.mean(0), "first": part[0], "last": part[-1]}[how]
            torch.testing.assert_close(pooled[row, word], expected)


@pytest.mark.parametrize("how", ["mean", "first", "last"])
def test_pooling_has_the_right_gradient_and_none_for_missing_words(how):
    hidden = torch.randn(2, 5, 3, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda h: pool_words(h, FIRST, STOP, how), hidden)
    pool_words(hidden, FIRST, STOP, how)[0, 2].sum().backward()
    assert not hidden.grad.any()


def test_padding_changes_no_pooled_word():
    hidden = torch.randn(2, 5, 4)
    longer = torch.cat([hidden, torch.full((2, 3, 4), 7.0)], dim=1)
    more = torch.cat([FIRST, torch.full((2, 2), -1)], dim=1), torch.cat([STOP, torch.full((2, 2), -1)], dim=1)
    torch.testing.assert_close(pool_words(longer, *more)[:, :3], pool_words(hidden, FIRST, STOP))
