"""Text in another script than its language's is noticed."""

import pytest

from crosslift.data.scripts import wrong_script

SAMPLES = {
    "en": "Where was Marie Curie born?",
    "de": "Der schnelle braune Fuchs springt über den faulen Hund.",
    "ru": "Быстрая коричневая лиса прыгает через ленивую собаку.",
    "el": "Η γρήγορη καφέ αλεπού πηδάει.",
    "ar": "الثعلب البني السريع يقفز فوق الكلب الكسول",
    "hi": "तेज भूरी लोमड़ी आलसी कुत्ते के ऊपर कूदती है।",
    "zh": "我爱北京天安门。北京是中国的首都。",
    "ja": "吾輩は猫である。名前はまだ無い。",
    "th": "สวัสดีครับ วันนี้อากาศดีมาก",
    "ko": "나는 오늘 학교에 갔다.",
}


@pytest.mark.parametrize("language", SAMPLES)
def test_text_in_its_own_script_passes(language):
    assert wrong_script([SAMPLES[language]] * 3, language) is None
    assert wrong_script([SAMPLES[language]], f"{language}-XX") is None


@pytest.mark.parametrize(
    ("text_of", "said", "message"),
    [
        ("de", "ru", "Latin"),
        ("ru", "de", "Cyrillic"),
        ("th", "zh", "Thai"),
        ("ja", "zh", "Japanese kana"),
        ("zh", "ja", "hardly any kana"),
    ],
)
def test_text_in_another_script_is_described(text_of, said, message):
    assert message in (wrong_script([SAMPLES[text_of]] * 5, said) or "")


def test_a_few_foreign_names_numbers_and_unknown_languages_pass():
    assert wrong_script(["Купил iPhone 15 и AirPods вчера вечером в магазине"], "ru") is None
    assert wrong_script(["123 456", "!!"], "ru") is None
    assert wrong_script(["whatever"], "tlh") is None
