import gzip

import pytest

from crosslift.data import load, read_bitext
from crosslift.errors import BadFile

TMX = """<?xml version="1.0" encoding="UTF-8"?>
<!DOCTYPE tmx SYSTEM "tmx14.dtd">
<tmx version="1.4"><header srclang="en"/><body>
<tu><tuv xml:lang="en-GB"><seg>The <bpt i="1">&lt;b&gt;</bpt>red<ept i="1">&lt;/b&gt;</ept> cat &amp; I</seg></tuv>
    <tuv xml:lang="de"><seg>Die <hi>rote</hi> Katze
    und ich</seg></tuv></tu>
<tu><tuv xml:lang="en"><seg>Only here</seg></tuv></tu>
<tu><tuv xml:lang="EN"><seg>Yes</seg></tuv><tuv xml:lang="DE-AT"><seg>Ja</seg></tuv></tu>
<tu><tuv xml:lang="en"><seg>Empty</seg></tuv><tuv xml:lang="de"><seg> </seg></tuv></tu>
</body></tmx>
"""


@pytest.fixture
def write(tmp_path):
    def write(text, name="a.tmx"):
        path = tmp_path / name
        path.write_bytes(gzip.compress(text.encode()) if name.endswith(".gz") else text.encode())
        return path

    return write


@pytest.mark.parametrize("name", ["a.tmx", "a.tmx.gz"])
def test_units_become_pairs_without_inline_codes(write, name):
    found = read_bitext(write(TMX, name))
    assert (found.language, found.pair_language) == ("en", "de")
    assert found.texts == ["The red cat & I", "Yes"]
    assert found.pairs == ["Die rote Katze und ich", "Ja"]
    assert found.ids == ["1", "3"]
    assert found.skipped == {"no translation": 1, "empty text": 1}


def test_the_order_of_languages_can_be_chosen(write):
    found = load(write(TMX), kind="bitext", language="de", pair_language="en")
    assert found.texts[0] == "Die rote Katze und ich"
    found = read_bitext(write(TMX), pair_language="en")
    assert (found.language, found.pair_language) == ("de", "en")


def test_languages_that_are_not_there_are_refused(write):
    with pytest.raises(BadFile, match='has no sentences in "fr"') as error:
        read_bitext(write(TMX), language="fr", pair_language="en")
    assert "It has de, en." in str(error.value)
    third = TMX.replace('xml:lang="EN"', 'xml:lang="fr"')
    with pytest.raises(BadFile, match="has several languages: de, en, fr"):
        read_bitext(write(third))
    assert read_bitext(write(third), language="fr", pair_language="de").texts == ["Yes"]


def test_broken_files_are_refused_with_their_line(write):
    with pytest.raises(BadFile, match=r"a\.tmx, line 10: is not well-formed XML"):
        read_bitext(write(TMX.replace("</tu>\n</body>", "\n</body>")))
    with pytest.raises(BadFile, match="holds sentences in 0 languages"):
        read_bitext(write("<tmx/>"))


def test_strict_reading_refuses_units_without_translation(write):
    with pytest.raises(BadFile, match="line 7: no translation"):
        read_bitext(write(TMX), strict=True)
    assert read_bitext(write(TMX)).ids[1] == "3", "an id is the number of the unit, wherever it stands"
