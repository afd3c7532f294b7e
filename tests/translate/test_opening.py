"""Translators by name, existing translations in a file, and names of languages."""

import pytest

from crosslift.errors import BadFile, BadInput
from crosslift.translate import open_translator, translate_all
from crosslift.translate.languages import find_code, short_code, spellings


def test_an_unknown_kind_gets_the_nearest_one():
    with pytest.raises(BadInput, match=r'no kind of translator "dictionnary".*mean "dictionary"'):
        open_translator("dictionnary:x.tsv", "en", "es")


def test_what_cannot_draw_says_so(tmp_path):
    with pytest.raises(BadInput, match="file always says the same"):
        open_translator(f"file:{tmp_path / 'a.tsv'}", "en", "es", sample=1)


def test_existing_translations_are_looked_up_whatever_their_spacing(tmp_path):
    (tmp_path / "a.tsv").write_text("good  morning\tbuenos días\nyes\tsí\nyes\tvale\n", encoding="utf-8")
    translator = open_translator(f"file:{tmp_path / 'a.tsv'}", "en", "es")
    assert translate_all(translator, ["yes", "good morning", ""]) == ["sí", "buenos días", ""]


def test_a_text_without_a_translation_is_an_error_that_shows_it(tmp_path):
    (tmp_path / "a.tsv").write_text("yes\tsí\n", encoding="utf-8")
    with pytest.raises(BadFile, match=r"a\.tsv: has no translation of 2 of 3 texts \(first: 'maybe'\)"):
        translate_all(open_translator(f"file:{tmp_path / 'a.tsv'}", "en", "es"), ["yes", "no", "maybe"])


def test_the_language_in_a_name_is_the_one_that_is_not_english(tmp_path):
    (tmp_path / "es.tsv").write_text("a\tb\n", encoding="utf-8")
    for source, target in (("en", "es"), ("es", "en")):
        name = open_translator(f"file:{tmp_path}/{{lang}}.tsv", source, target).name
        assert name == "translations in es.tsv"


@pytest.mark.parametrize(
    ("given", "short"),
    [("es", "es"), ("es-ES", "es"), ("spa_Latn", "es"), ("spa", "es"), ("gsw", "gsw"), ("arb", "ar")],
)
def test_codes_are_shortened(given, short):
    assert short_code(given) == short


def test_a_language_is_found_under_any_spelling():
    assert spellings("es") == ["es", "spa_Latn", "spa"]
    assert find_code("sw", {"swh", "en"}) == "swh"
    assert find_code("sw", {"es"}) is None
