import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from crosslift.data.switching import english_words, link, plain, read_lexicon, switch, translations
from crosslift.errors import BadFile

GERMAN = {"house": ["Haus", "Heim"], "dog": ["Hund"], "in": ["Zoll"], "sleep": ["schlafen"], "every time": ["jedesmal"]}


def spans(links, english, other):
    return [(english[slice(*one.left)], other[slice(*one.right)]) for one in links]


def test_words_keep_their_apostrophe():
    text = "It's 3.5 o'clock – isn’t it?"
    assert [text[a:b] for a, b in english_words(text)] == ["It's", "3", "5", "o'clock", "isn’t", "it"]


def test_plain_text_is_lower_case_without_marks_around_words():
    assert plain("“Well,” she said: It's 3.5 metres!") == "well she said it's 3.5 metres"
    assert plain("मुझे जगाओ।") == "मुझे जगाओ"
    assert plain("¿Qué hora es?") == "qué hora es"


@given(st.text(alphabet="abcXY '’.,-!?3 ", max_size=40))
def test_plain_text_keeps_the_words_in_number_and_order(text):
    def words(of):
        return [of[a:b].lower() for a, b in english_words(of)]

    assert words(plain(text)) == words(text)


def test_inflected_words_are_looked_up_by_their_base_form():
    assert translations("Houses", GERMAN) == ["Haus", "Heim"]
    assert translations("sleeping", GERMAN) == ["schlafen"]
    assert translations("in", GERMAN) == ()  # a function word: dictionaries give its rarest senses
    assert translations("cat", GERMAN) == ()


def test_switched_words_are_linked_where_they_stand():
    english = "The dog is in the house."
    mixed, links = switch(english, GERMAN, 1.0, np.random.default_rng(0))
    assert mixed in ("The Hund is in the Haus.", "The Hund is in the Heim.")
    assert spans(links, english, mixed)[0] == ("dog", "Hund")
    assert [one.word for one in links] == [1, 5]


def test_a_rate_of_zero_switches_nothing():
    assert switch("The dog sleeps.", GERMAN, 0.0, np.random.default_rng(0)) == ("The dog sleeps.", [])


def test_real_pairs_are_linked_by_lexicon_stem_and_spelling():
    english, german = "Tom's dog sleeps in 2 houses, says Kalenz.", "Der Hund schläft in 2 Häusern, sagt Kalenz."
    assert spans(link(english, german, GERMAN, True), english, german) == [
        ("dog", "Hund"),
        ("2", "2"),
        ("Kalenz", "Kalenz"),
    ]
    english, german = "He sleeps.", "Er will schlafend sein."
    assert spans(link(english, german, GERMAN, True), english, german) == [("sleeps", "schlafend")]


def test_a_word_that_fits_two_places_is_not_linked():
    assert link("a dog", "Hund und Hund", GERMAN, True) == []
    assert link("a dog sees a dog", "ein Hund", GERMAN, True) == []


def test_languages_without_spaces_are_searched_anywhere():
    english, chinese = "I want to protect people.", "我要保护人们。"
    links = link(english, chinese, {"protect": ["保护"], "people": ["人"]}, False)
    assert spans(links, english, chinese) == [("protect", "保护")]  # one character alone is no evidence


def test_a_lexicon_keeps_the_order_of_choices(tmp_path):
    file = tmp_path / "lexicon.tsv"
    file.write_text("House\tHaus\nhouse\tHeim\ndog\tHund\n", encoding="utf-8")
    assert read_lexicon(file) == {"house": ["Haus", "Heim"], "dog": ["Hund"]}


def test_a_broken_lexicon_line_is_named(tmp_path):
    file = tmp_path / "lexicon.tsv"
    file.write_text("house\tHaus\ndog Hund\n", encoding="utf-8")
    with pytest.raises(BadFile, match="line 2"):
        read_lexicon(file)
