"""Words as character spans: complete, in order, and where one would cut by hand."""

import builtins
import logging

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crosslift.data import segment as module
from crosslift.data.segment import segment, segment_all, segmenter_name
from crosslift.errors import MissingExtra


def words(text, language):
    return [text[start:end] for start, end in segment(text, language).tolist()]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("The dog, it's here.", ["The", "dog", ",", "it's", "here", "."]),
        ("(see example.com)", ["(", "see", "example.com", ")"]),
        ("1,000.5 at 10:30, no:1", ["1,000.5", "at", "10:30", ",", "no", ":", "1"]),
        ("well-known — “quoted”", ["well", "-", "known", "—", "“", "quoted", "”"]),
        ("$5 a+b", ["$", "5", "a", "+", "b"]),
        ("¿Qué?  ...", ["¿", "Qué", "?", ".", ".", "."]),
        ("वह घर है।", ["वह", "घर", "है", "।"]),
        ("", []),
        (" \t\n", []),
    ],
)
def test_other_languages_are_cut_at_spaces_and_punctuation(text, expected):
    assert words(text, "en") == expected


@pytest.mark.parametrize(
    ("language", "text", "expected"),
    [
        ("zh", "我爱北京。", ["我", "爱", "北京", "。"]),
        ("ja", "吾輩は猫である。", ["吾輩", "は", "猫", "で", "ある", "。"]),
        ("th", "วันนี้อากาศดี", ["วันนี้", "อากาศ", "ดี"]),
    ],
)
def test_languages_without_spaces_are_cut_by_dictionary(language, text, expected):
    assert words(text, language) == expected


@pytest.mark.parametrize("code", ["zh-CN", "zho_Hans", "zh_TW"])
def test_region_and_script_of_a_code_change_nothing(code):
    assert words("我爱北京", code) == ["我", "爱", "北京"]


@pytest.mark.parametrize("language", ["en", "zh", "ja", "th"])
@settings(max_examples=80, deadline=None)
@given(text=st.text(max_size=30) | st.text(alphabet="我爱北京天。, a.'1\u3000\u200b\n\0はある猫วันนี้อากาศ", max_size=30))
def test_every_character_but_white_space_is_in_exactly_one_word(language, text):
    spans = segment(text, language).tolist()
    covered = [place for start, end in spans for place in range(start, end)]
    assert covered == [place for place, character in enumerate(text) if not character.isspace()]
    assert all(start < end for start, end in spans)


@settings(max_examples=40, deadline=None)
@given(texts=st.lists(st.text(max_size=12), max_size=5), language=st.sampled_from(["de", "zh"]))
def test_many_texts_at_once_are_cut_like_one_by_one(texts, language):
    together = segment_all(texts, language)
    assert [spans.tolist() for spans in together] == [segment(text, language).tolist() for text in texts]


def test_the_segmenter_has_a_name():
    names = [segmenter_name(language) for language in ("zh-CN", "ja", "th", "de", "qu")]
    assert names == ["jieba", "mecab-ipadic", "newmm", "whitespace-punctuation", "whitespace-punctuation"]


@pytest.mark.parametrize(("language", "package"), [("zh", "jieba"), ("ja", "fugashi"), ("th", "pythainlp.tokenize")])
def test_a_missing_segmenter_names_the_extra(language, package, monkeypatch):
    found = builtins.__import__

    def without(name, *rest):
        if name == package:
            raise ImportError(name)
        return found(name, *rest)

    module._CUTTERS[language].cache_clear()
    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(MissingExtra, match=r"crosslift\[segment\]"):
        segment("a", language)


def test_jieba_is_silent(capfd, caplog):
    module._jieba.cache_clear()
    with caplog.at_level(logging.DEBUG):
        segment("我爱北京", "zh")
    assert not caplog.records
    assert capfd.readouterr() == ("", "")
