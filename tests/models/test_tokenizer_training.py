import numpy as np
import pytest
from transformers import AutoTokenizer

from crosslift.errors import BadInput
from crosslift.models.tokenizer_training import (
    SPECIAL_TOKENS,
    TokenizerSettings,
    balanced_sample,
    pieces_per_word,
    prune_pieces,
    rare_characters,
    train_bpe,
    train_tokenizer,
    train_unigram,
)

WORDS = [
    "the",
    "cat",
    "sleeps",
    "on",
    "a",
    "warm",
    "sofa",
    "while",
    "rain",
    "falls",
    "over",
    "old",
    "houses",
    "near",
    "our",
    "river",
]


def corpus(lines=400, seed=0):
    rng = np.random.default_rng(seed)
    return [" ".join(rng.choice(WORDS, 8)) + "." for _ in range(lines)]


@pytest.fixture(scope="module")
def unigram():
    return train_unigram(corpus(), 120)


@pytest.fixture(scope="module")
def bpe():
    return train_bpe(corpus(), 340)


@pytest.mark.parametrize("kind", ["unigram", "bpe"])
def test_special_tokens_have_fixed_ids_and_frame_texts(kind, request):
    tokenizer = request.getfixturevalue(kind)
    assert tokenizer.convert_tokens_to_ids(list(SPECIAL_TOKENS)) == [0, 1, 2, 3, 4]
    one = tokenizer("cat")["input_ids"]
    assert one[0] == 0 and one[-1] == 2
    pair = tokenizer("cat", "rain")["input_ids"]
    assert pair.count(2) == 3 and pair.count(0) == 1
    masked = tokenizer("the <mask> sleeps")["input_ids"]
    assert masked.count(4) == 1 and len(masked) == len(tokenizer("the sleeps")["input_ids"]) + 1


@pytest.mark.parametrize("kind", ["unigram", "bpe"])
def test_frequent_words_are_whole_pieces_and_text_comes_back(kind, request):
    tokenizer = request.getfixturevalue(kind)
    assert pieces_per_word(tokenizer, ["the cat sleeps on a warm sofa"]) == 1
    text = "the cat sleeps on a warm sofa."
    assert tokenizer.decode(tokenizer(text)["input_ids"], skip_special_tokens=True).strip() == text


@pytest.mark.parametrize("kind", ["unigram", "bpe"])
def test_it_opens_with_auto_tokenizer_and_gives_the_same_pieces(kind, request, tmp_path):
    tokenizer = request.getfixturevalue(kind)
    tokenizer.save_pretrained(tmp_path)
    again = AutoTokenizer.from_pretrained(tmp_path)
    text = "Rain falls, near 3 houses (old)!"
    assert again(text)["input_ids"] == tokenizer(text)["input_ids"]
    assert again.mask_token_id == 4 and again.pad_token_id == 1


def test_marks_and_digits_are_pieces_of_their_own():
    lines = [f"{line} (in 1998)" for line in corpus()]
    tokenizer = train_unigram(lines, 160)
    pieces = tokenizer.tokenize("sofa. (in 1998)")
    assert pieces == ["▁sofa", ".", "▁(", "in", "▁1", "9", "9", "8", ")"]


def test_compatibility_forms_and_double_spaces_are_normalised(unigram):
    assert unigram("the  ｃａｔ ")["input_ids"] == unigram("the cat")["input_ids"]


def test_rare_characters_become_unknown_and_do_not_fill_the_vocabulary():
    lines = [*corpus(), "ㄅ"]
    tokenizer = train_unigram(lines, 120, coverage=0.9995)
    assert tokenizer.unk_token_id in tokenizer("ㄅ")["input_ids"]


def test_rare_characters_are_the_tail_beyond_the_coverage():
    assert rare_characters(["aaaaaaab", "c"], 0.75) == {"b", "c"}
    assert rare_characters(["aaaaaaab", "c"], 1.0) == set()
    assert rare_characters([], 0.9) == set()


def test_bytes_cover_any_text(bpe):
    text = "Ελλάδα 你好"
    ids = bpe(text)["input_ids"]
    assert bpe.unk_token_id not in ids
    assert bpe.decode(ids, skip_special_tokens=True).strip() == text


def test_a_word_at_the_start_is_the_same_word_as_elsewhere(bpe):
    assert bpe.tokenize("cat") == bpe.tokenize("the cat")[1:]


def test_balanced_sample_gives_small_languages_more_than_their_share():
    texts = {"large": ["x" * 10] * 10_000, "small": ["y" * 10] * 100}
    sample = balanced_sample(texts, 11_000, balance=0.5)
    small = sum(line[0] == "y" for line in sample)
    # √100,000 : √1,000 = 10 : 1, so a tenth of the sample: all that the small language has.
    assert small == pytest.approx(100, abs=5)
    assert len(sample) == pytest.approx(1100, abs=100)
    assert balanced_sample(texts, 10**9) == texts["large"] + texts["small"]


def test_pruning_drops_what_the_text_misses_least():
    words = {"abab": 10, "ab": 5, "c": 1}
    scores = prune_pieces({"a": 1, "b": 1, "c": 1, "ab": 30, "abab": 5, "ba": 3}, words, 4)
    assert set(scores) == {"a", "b", "c", "ab"} or set(scores) == {"a", "b", "c", "abab"}
    assert sum(np.exp(list(scores.values()))) == pytest.approx(1)


def test_too_few_pieces_for_the_characters_is_an_error():
    with pytest.raises(BadInput, match="do not hold"):
        train_unigram(corpus(), 12)
    with pytest.raises(BadInput, match="256 bytes"):
        train_bpe(corpus(), 100)


def test_an_unknown_kind_names_the_nearest():
    with pytest.raises(BadInput, match="unigram"):
        TokenizerSettings(kind="unigramm")


def test_training_is_repeatable():
    texts = {"en": corpus(100), "xx": corpus(50, seed=1)}
    settings = TokenizerSettings(pieces=100)
    one, two = train_tokenizer(texts, settings, seed=3), train_tokenizer(texts, settings, seed=3)
    assert one.get_vocab() == two.get_vocab()
