"""Answers of a question cut into comparable tokens: three normalisers, named in every score they make.

| name | punctuation deleted | articles deleted | tokens |
| --- | --- | --- | --- |
| `squad` | ASCII | English a, an, the | words between white space |
| `mlqa` | ASCII and Unicode category P | those of the language | words; Chinese: each character |
| `unicode` | ASCII and Unicode category P | none | words; scripts without spaces: each character |

`squad` is the English rule of SQuAD, which most published tables use for every language. `mlqa` follows the
rules of MLQA (Lewis et al., 2020), which exist for seven languages only. `unicode` is ours, for all others.
Scores of two normalisers are different metrics; nothing here falls back from one to another by itself.
"""

import re
import string
import unicodedata
from collections.abc import Callable

from crosslift.errors import BadInput, nearest

Tokens = tuple[str, ...]

NORMALISERS = ("squad", "mlqa", "unicode")

_ARTICLES = {
    "en": r"\b(?:a|an|the)\b",
    "es": r"\b(?:un|una|unos|unas|el|la|los|las)\b",
    "de": r"\b(?:ein|eine|einen|einem|eines|einer|der|die|das|den|dem|des)\b",
    "vi": r"\b(?:của|là|cái|chiếc|những)\b",
    # As released: alef-lam becomes a space wherever it stands, inside words too.
    "ar": "ال",
    "hi": None,
    "zh": None,
}
MLQA_LANGUAGES = tuple(sorted(_ARTICLES))

_CHINESE = re.compile(r"[\u4e00-\u9fa5]|[^\s\u4e00-\u9fa5]+")

_NO_SPACES = (
    r"\u3005\u3007\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U000323af"  # Han
    r"\u3041-\u30ff\u31f0-\u31ff\uff66-\uff9f"  # kana
    r"\u0e01-\u0eff"  # Thai, Lao
    r"\u0f00-\u0fff"  # Tibetan
    r"\u1000-\u109f\ua9e0-\ua9ff\uaa60-\uaa7f"  # Myanmar
    r"\u1780-\u17ff"  # Khmer
)
_UNICODE = re.compile(rf"[{_NO_SPACES}]|[^\s{_NO_SPACES}]+")


class _DeletePunctuation(dict[int, int | None]):
    """A table for `str.translate` that learns each character when it first meets it."""

    def __missing__(self, code: int) -> int | None:
        character = chr(code)
        gone = character in string.punctuation or unicodedata.category(character).startswith("P")
        self[code] = None if gone else code
        return self[code]


_ASCII_PUNCTUATION = str.maketrans("", "", string.punctuation)
_ANY_PUNCTUATION = _DeletePunctuation()


def squad(text: str) -> Tokens:
    """Return the tokens of an answer by SQuAD's English rule: the same for every language."""
    bare = text.lower().translate(_ASCII_PUNCTUATION)
    return tuple(re.sub(r"\b(?:a|an|the)\b", " ", bare).split())


def mlqa(text: str, language: str) -> Tokens:
    """Return the tokens of an answer by MLQA's rule for `language`, the language of the answer.

    Lower case; punctuation deleted; articles of the language replaced by a space; then split at white space,
    in Chinese also around each character. In Arabic every alef-lam goes, as in the published scores.

    Raises:
        BadInput: MLQA has no rule for the language.
    """
    base = base_language(language)
    if base not in _ARTICLES:
        raise BadInput(
            f'MLQA has no rule for answers in "{language}" (it has {", ".join(MLQA_LANGUAGES)}).',
            'Use the normaliser "unicode" (or "squad", to compare with published tables).',
        )
    bare = text.lower().translate(_ANY_PUNCTUATION)
    articles = _ARTICLES[base]
    if articles is not None:
        bare = re.sub(articles, " ", bare)
    return tuple(_CHINESE.findall(bare) if base == "zh" else bare.split())


def unicode(text: str) -> Tokens:
    """Return the tokens of an answer by a rule that needs no knowledge of its language.

    Lower case; punctuation deleted; no articles; split at white space. Characters of scripts written without
    spaces (Han, kana, Thai, Lao, Khmer, Myanmar, Tibetan) are tokens of their own, code point by code point;
    Latin letters and digits between them stay together as words.
    """
    return tuple(_UNICODE.findall(text.lower().translate(_ANY_PUNCTUATION)))


def normaliser_for(language: str) -> str:
    """Return the name of the normaliser for a language: `mlqa` where MLQA has a rule, else `unicode`."""
    return "mlqa" if base_language(language) in _ARTICLES else "unicode"


def normaliser(name: str, language: str) -> Callable[[str], Tokens]:
    """Return the function text -> tokens of a named normaliser, set to the language of the answers.

    Raises:
        BadInput: The name is unknown, or MLQA has no rule for the language.
    """
    if name == "squad":
        return squad
    if name == "unicode":
        return unicode
    if name == "mlqa":
        mlqa("", language)
        return lambda text: mlqa(text, language)
    raise BadInput(
        f'Unknown answer normaliser "{name}".{nearest(name, NORMALISERS)}',
        f"Known: {', '.join(NORMALISERS)}.",
    )


def base_language(language: str) -> str:
    """Return the language of a code without script or region: `zh` for `zh-Hant` and `zh_CN`."""
    return re.split(r"[-_]", language, maxsplit=1)[0].lower()
