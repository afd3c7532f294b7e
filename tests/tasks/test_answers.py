"""Answer normalisers, against hand-worked answers in nine languages."""

import pytest

from crosslift.errors import BadInput
from crosslift.tasks.answers import MLQA_LANGUAGES, mlqa, normaliser, normaliser_for, squad, unicode


@pytest.mark.parametrize(
    ("text", "tokens"),
    [
        ("The Quick, brown fox!", ("quick", "brown", "fox")),
        ("a.m. in an Ark", ("am", "in", "ark")),
        ("theatre  \n another", ("theatre", "another")),
        ("$1,000", ("1000",)),
        ("the", ()),
        ("«La casa»", ("«la", "casa»")),  # English rule: neither Spanish articles nor Unicode quotes
        ("北京大学。", ("北京大学。",)),
    ],
)
def test_squad_deletes_ascii_punctuation_and_english_articles(text, tokens):
    assert squad(text) == tokens


@pytest.mark.parametrize(
    ("language", "text", "tokens"),
    [
        ("en", "The “Iron” Lady’s an icon…", ("iron", "ladys", "icon")),
        ("es", "¿El río de la Plata, unos días?", ("río", "de", "plata", "días")),
        ("de", "die Straße des 17. Juni", ("straße", "17", "juni")),
        ("de", "Dieter der Einer", ("dieter",)),
        ("vi", "những chiếc xe của Hà Nội", ("xe", "hà", "nội")),
        ("hi", "भारत, की राजधानी।", ("भारत", "की", "राजधानी")),
        ("zh", "《北京》大学 in 1998年", ("北", "京", "大", "学", "in", "1998", "年")),
        ("zh", "a the 中", ("a", "the", "中")),
        ("zh-Hant", "臺灣", ("臺", "灣")),
        ("ar", "القاهرة، مصر", ("قاهرة", "مصر")),
        # alef-lam inside a word is cut out too: this is what the published scores rest on
        ("ar", "سالم", ("س", "م")),
    ],
)
def test_mlqa_follows_the_rule_of_the_language(language, text, tokens):
    assert mlqa(text, language) == tokens


def test_mlqa_refuses_languages_it_has_no_rule_for():
    with pytest.raises(BadInput, match=r'no rule for answers in "ru".*\n.*unicode'):
        mlqa("Москва", "ru")


@pytest.mark.parametrize(
    ("text", "tokens"),
    [
        ("В 1812 году, «Наполеон»", ("в", "1812", "году", "наполеон")),
        ("Η Αθήνα· the end", ("η", "αθήνα", "the", "end")),
        ("東京タワー、1958年 NHK", ("東", "京", "タ", "ワ", "ー", "1958", "年", "nhk")),
        ("ひらがな", ("ひ", "ら", "が", "な")),
        ("กรุงเทพ 2019", ("ก", "ร", "ุ", "ง", "เ", "ท", "พ", "2019")),
        ("ລາວ", ("ລ", "າ", "ວ")),
        ("ខ្មែរ។", ("ខ", "្", "ម", "ែ", "រ")),
        ("မြန်မာ၊", ("မ", "ြ", "န", "်", "မ", "ာ")),
        ("서울 특별시", ("서울", "특별시")),
        ("القاهرة", ("القاهرة",)),
        ("𠮷野家", ("𠮷", "野", "家")),
    ],
)
def test_unicode_cuts_scripts_without_spaces_into_characters_and_keeps_other_words(text, tokens):
    assert unicode(text) == tokens


@pytest.mark.parametrize("language", ["en", "ar", "de", "es", "hi", "vi", "zh", "zh-CN", "es_MX"])
def test_languages_of_mlqa_get_its_rule(language):
    assert normaliser_for(language) == "mlqa"


@pytest.mark.parametrize("language", ["ru", "el", "tr", "th", "ja", "ro"])
def test_other_languages_get_the_unicode_rule(language):
    assert normaliser_for(language) == "unicode"


def test_every_language_can_be_scored_with_the_normaliser_chosen_for_it():
    for language in (*MLQA_LANGUAGES, "ru", "th", "sw"):
        assert normaliser(normaliser_for(language), language)("2024") == ("2024",)


def test_unknown_normaliser_names_the_nearest():
    with pytest.raises(BadInput, match='Did you mean "squad"'):
        normaliser("sqad", "en")


def test_a_normaliser_refuses_its_language_before_any_answer_is_read():
    with pytest.raises(BadInput, match="no rule"):
        normaliser("mlqa", "tr")
