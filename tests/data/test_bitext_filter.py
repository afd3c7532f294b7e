import math

import numpy as np
import pytest

from crosslift.data.bitext import read_bitext
from crosslift.data.bitext_filter import BitextFilter, check_scripts, dropped_pairs, filter_bitext, script_shares
from crosslift.data.examples import Examples
from crosslift.errors import BadFile, BadInput


def bitext(rows, languages=("en", "ru")):
    source, target = zip(*rows, strict=True)
    ids = [str(i + 1) for i in range(len(rows))]
    return Examples("bitext", languages[0], ids, source, pairs=target, pair_language=languages[1], name="a.tsv")


GOOD = ("The cat sleeps", "Кошка спит")


def test_each_reason_drops_its_pairs_and_is_counted():
    rows = [
        GOOD,
        ("one two three " * 30, "раз два три " * 30),  # long
        ("yes", "да " * 12),  # ratio
        ("42 1:0", "42 1:0"),  # the same, and no letters
        ("The dog sleeps", "The dog is asleep"),  # the target is English
        ("the cat  sleeps", "кошка спит"),  # as the first, but for case and spaces
        ("The dog sleeps", "Собака спит"),
    ]
    dropped = dropped_pairs(bitext(rows))
    assert {reason: found.tolist() for reason, found in dropped.items()} == {
        "longer than 80 words": [1],
        "one side more than 3 times as long": [2],
        "both sides are the same": [3],
        "not in the script of ru": [4],
        "came before": [5],
    }
    kept = filter_bitext(bitext(rows))
    assert kept.ids == ["1", "7"]
    assert sum(kept.skipped.values()) == 5
    assert kept.skipped["both sides are the same"] == 1


def test_filters_can_be_switched_off():
    rows = [GOOD, GOOD, ("a", "a"), ("w " * 99, "w " * 9)]
    off = BitextFilter(max_words=0, ratio=0, script=0, copies=True, duplicates=True)
    assert dropped_pairs(bitext(rows), off) == {}
    assert dropped_pairs(bitext(rows), BitextFilter(min_words=3))["shorter than 3 words"].tolist() == [0, 1, 2]


def test_characters_count_where_words_are_not_spaced():
    rows = [("I am reading a very long book about old trains", "我正在读一本关于老火车的很长的书")]
    assert dropped_pairs(bitext(rows, ("en", "zh"))) == {}


def test_a_filter_that_leaves_nothing_says_why():
    with pytest.raises(BadFile, match=r"no pair is left \(both sides are the same: 1\)"):
        filter_bitext(bitext([("a", "a")]))


@pytest.mark.parametrize(
    "bad", [{"min_words": 9, "max_words": 3}, {"script": 2.0}, {"ratio": -1.0}, {"ratio": math.nan}, {"min_words": -1}]
)
def test_filters_that_cannot_work_are_refused(bad):
    with pytest.raises(BadInput):
        BitextFilter(**bad)
    with pytest.raises(BadInput, match="holds no sentence pairs"):
        dropped_pairs(Examples("text", "en", ["1"], ["a"]))


def test_script_shares_count_letters_alone():
    texts = ["abc 123", "abcгд", "123 !", "гд"]
    assert script_shares(texts, "en").tolist() == pytest.approx([1, 0.6, 1, 0])
    assert script_shares(texts, "ru-RU").tolist() == pytest.approx([0, 0.4, 1, 1])
    assert script_shares(texts, "und").tolist() == [1, 1, 1, 1]
    assert script_shares([], "en").tolist() == []


def test_a_whole_side_in_another_script_is_refused():
    check_scripts(bitext([GOOD] * 3))
    with pytest.raises(BadFile, match=r"a\.tsv, line 2: this is not hi: .* Cyrillic"):
        check_scripts(bitext([("yes", "हाँ"), GOOD, GOOD], ("en", "hi")))
    check_scripts(bitext([("Tokyo", "東京")], ("en", "ja")))
    with pytest.raises(BadFile, match="hardly any kana"):
        check_scripts(bitext([("Tokyo", "東京")] * 20, ("en", "ja")))


@pytest.mark.shared
@pytest.mark.parametrize("language", ["es", "ru", "hi", "vi", "zh", "th", "ar", "am"])
def test_the_filters_keep_nearly_all_of_clean_bitext(shared, language):
    pairs = read_bitext(shared / f"data/bitext/en-{language}.tsv.xz", language="en", pair_language=language, limit=1500)
    dropped = sum(map(len, dropped_pairs(pairs).values()))
    assert dropped < 0.05 * len(pairs)
    check_scripts(pairs)


def test_rows_have_one_reason_each():
    rows = [("w " * 99, "w " * 99)] * 2
    found = np.concatenate(list(dropped_pairs(bitext(rows)).values()))
    assert sorted(found.tolist()) == [0, 1]
