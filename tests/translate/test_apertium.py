"""Apertium, where it is installed."""

import shutil

import pytest

from crosslift.errors import BadInput
from crosslift.translate import apertium, open_translator, translate_all

installed = pytest.mark.skipif(shutil.which("apertium") is None, reason="needs Debian's apertium")


@pytest.fixture
def spanish():
    if "eng-spa" not in apertium.directions():
        pytest.skip("needs apertium-eng-spa")
    return open_translator("apertium", "en", "es")


@installed
def test_english_becomes_spanish(spanish):
    assert spanish.translate(["The house is big.", "I see a dog."]) == ["La casa es grande.", "Veo un perro."]
    assert open_translator("apertium", "es", "en").translate(["La casa es grande."]) == ["The house is big."]


@installed
def test_texts_in_one_call_do_not_touch_each_other(spanish):
    texts = [
        "Macedonians go to polls in referendum on changing country's name",
        'Voters will vote Sunday on whether to change their country\'s name to "North Macedonia"',
        "quiet",
        "pink is all we need",
        "two\nlines and\ttabs",
        "[^a/b$] {c} <d> @e #f ~g *h \\",
    ]
    assert spanish.translate(texts) == [spanish.translate([text])[0] for text in texts]
    assert translate_all(spanish, [*texts, "", texts[0]])[-2:] == ["", spanish.translate(texts[:1])[0]]


@installed
def test_any_name_of_a_language_will_do(spanish):
    assert open_translator("apertium", "en-US", "spa_Latn").mode == spanish.mode == "eng-spa"
    assert open_translator("apertium", "en-US", "spa_Latn").fingerprint == spanish.fingerprint


@installed
def test_a_direction_that_is_not_there_is_named():
    with pytest.raises(BadInput, match=r"no direction from th to sw here .*\n.*apt-cache search apertium-tha-swh"):
        open_translator("apertium", "th", "sw")


def test_without_the_program_the_package_is_named(monkeypatch):
    monkeypatch.setattr(shutil, "which", lambda name: None)
    with pytest.raises(BadInput, match=r"apertium is not installed\.\n.*apt-get install apertium apertium-eng-spa"):
        open_translator("apertium", "en", "es")
