"""Is a text written in the script of the language it is said to be in?"""

from __future__ import annotations

import unicodedata
from collections import Counter
from collections.abc import Sequence

_LATIN = (
    "en de fr es it pt nl sv da no nb nn fi et lv lt pl cs sk sl hr ro hu tr az id ms vi tl sw so ha yo zu xh af sq eu "
    "ca gl is ga cy mt lb eo la oc br rw sn"
)
_CYRILLIC, _ARABIC, _DEVANAGARI = "ru uk bg be mk kk ky tg mn", "ar fa ur ps ug", "hi mr ne sa"
SCRIPTS = {
    **dict.fromkeys(_LATIN.split(), ("LATIN",)),
    **dict.fromkeys(_CYRILLIC.split(), ("CYRILLIC",)),
    "sr": ("CYRILLIC", "LATIN"),
    "uz": ("LATIN", "CYRILLIC"),
    "el": ("GREEK",),
    **dict.fromkeys(_ARABIC.split(), ("ARABIC",)),
    **dict.fromkeys(_DEVANAGARI.split(), ("DEVANAGARI",)),
    "zh": ("CJK",),
    "ja": ("HIRAGANA", "KATAKANA", "CJK"),
    "ko": ("HANGUL",),
    "th": ("THAI",),
    "lo": ("LAO",),
    "km": ("KHMER",),
    "my": ("MYANMAR",),
    "bn": ("BENGALI",),
    "ta": ("TAMIL",),
    "te": ("TELUGU",),
    "kn": ("KANNADA",),
    "ml": ("MALAYALAM",),
    "gu": ("GUJARATI",),
    "pa": ("GURMUKHI",),
    "si": ("SINHALA",),
    "am": ("ETHIOPIC",),
    "he": ("HEBREW",),
    "ka": ("GEORGIAN",),
    "hy": ("ARMENIAN",),
}
_SAMPLE = 300  # texts
_ENOUGH = 0.5  # share of letters
_KANA = 0.02  # Japanese has some of it in nearly every sentence, Chinese none


def wrong_script(texts: Sequence[str], language: str) -> str | None:
    """Return what is odd about the script of some texts, in words, or `None`.

    Languages whose script is not known here pass, and so does text without letters.

    Args:
        texts: Some lines are looked at, spread over all of them.
        language: Language code; a region changes nothing.
    """
    code = language.lower().replace("_", "-").split("-")[0]
    expected = SCRIPTS.get(code)
    step = max(1, len(texts) // _SAMPLE)
    found = Counter(script_of(letter) for text in texts[::step] for letter in text if letter.isalpha())
    total = sum(found.values())
    if expected is None or not total:
        return None
    share = sum(found[script] for script in expected) / total
    kana = (found["HIRAGANA"] + found["KATAKANA"]) / total
    if code == "zh" and kana > _KANA:
        return f"{kana:.0%} of its letters are Japanese kana"
    if share < _ENOUGH:
        most, count = found.most_common(1)[0]
        return f"{count / total:.0%} of its letters are {most.capitalize()}, {share:.0%} of the script of {language}"
    if code == "ja" and kana < _KANA:
        return "it has hardly any kana"
    return None


def script_of(letter: str) -> str:
    """Return the script of a letter as Unicode names it: `LATIN`, `CJK`, `HIRAGANA`."""
    return unicodedata.name(letter, "UNKNOWN").split()[0].split("-")[0]
