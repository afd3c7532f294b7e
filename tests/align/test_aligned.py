from dataclasses import replace

import numpy as np
import pytest

import crosslift as xl
from crosslift.align import Alignment, align_words, explain, write_pharaoh
from crosslift.align.aligned import word_spans
from crosslift.data.examples import Examples
from crosslift.errors import BadFile, BadInput
from tests.align.test_statistical import assert_nearly, toy

SOURCE = ["The cat, Anna!", "a b"]
TARGET = ["Anna, die Katze!", "b"]


def bitext(source=SOURCE, target=TARGET, languages=("en", "de")):
    ids = [str(i + 1) for i in range(len(source))]
    return Examples("bitext", languages[0], ids, source, pairs=target, pair_language=languages[1], name="a.tsv")


def test_words_are_those_of_the_segmenter_or_of_spaces():
    found = align_words(bitext())
    assert found.words("source")[0] == ["The", "cat", ",", "Anna", "!"]
    assert align_words(bitext(), words="spaces").words("target")[0] == ["Anna,", "die", "Katze!"]
    assert [part.tolist() for part in word_spans(["", " ab  c "], "en", "spaces")] == [[], [[1, 3], [5, 6]]]
    with pytest.raises(BadInput, match='Did you mean "spaces"'):
        align_words(bitext(), words="space")


def test_identical_words_are_known():
    source, target, _ = toy(30)
    found = align_words(bitext([" ".join(s) for s in source] + SOURCE, [" ".join(t) for t in target] + TARGET))
    same = found.identical()
    words = (found.words("source"), found.words("target"))
    for pair, i, j, equal in zip(found.alignment.pairs(), found.alignment.source, found.alignment.target, same, strict=True):  # fmt: skip  # noqa: E501
        assert equal == (words[0][pair][i].lower() == words[1][pair][j].lower())
    assert same.any() and not same.all()


def test_a_file_of_links_is_taken_and_checked(tmp_path):
    write_pharaoh(tmp_path / "links", Alignment.from_pairs([[(0, 1)], [(1, 0)]]))
    found = align_words(bitext(), aligner=tmp_path / "links", words="spaces")
    assert [found.alignment.links(p) for p in range(2)] == [[(0, 1)], [(1, 0)]]
    write_pharaoh(tmp_path / "links", Alignment.from_pairs([[(0, 1)], [(1, 1)]]))
    with pytest.raises(BadFile, match=r"links, line 2: link 1-1 points past the end: the target has 1 words"):
        align_words(bitext(), aligner=tmp_path / "links", words="spaces")


def test_links_of_every_line_are_taken_where_pairs_were_left_out(tmp_path):
    kept = replace(bitext(), ids=["1", "4"], skipped={"empty text": 2})
    write_pharaoh(tmp_path / "links", Alignment.from_pairs([[(0, 1)], [(9, 9)], [], [(1, 0)]]))
    found = align_words(kept, aligner=tmp_path / "links", words="spaces")
    assert [found.alignment.links(p) for p in range(2)] == [[(0, 1)], [(1, 0)]]
    write_pharaoh(tmp_path / "links", Alignment.from_pairs([[(0, 1)], [], [], [(1, 1)]]))
    with pytest.raises(BadFile, match=r"links, line 4: link 1-1 points past the end: the target has 1 words"):
        align_words(kept, aligner=tmp_path / "links", words="spaces")
    write_pharaoh(tmp_path / "links", Alignment.from_pairs([[(0, 1)], [], []]))
    with pytest.raises(BadFile, match="has 3 lines for 2 sentence pairs"):
        align_words(kept, aligner=tmp_path / "links", words="spaces")


def test_a_saved_aligner_is_taken_by_its_file(tmp_path):
    source, target, links = toy(200)
    pairs = bitext([" ".join(s) for s in source], [" ".join(t) for t in target])
    trained = align_words(pairs)
    trained.aligner.save(tmp_path / "a.safetensors")
    new = align_words(pairs.select(range(10)), aligner=tmp_path / "a.safetensors")
    assert_nearly([new.alignment.links(p) for p in range(10)], links[:10])


def test_selected_pairs_keep_their_links():
    source, target, _ = toy(50)
    found = align_words(bitext([" ".join(s) for s in source], [" ".join(t) for t in target]))
    part = found.select([7, 3])
    assert [part.alignment.links(p) for p in range(2)] == [found.alignment.links(7), found.alignment.links(3)]
    assert part.words("source") == [source[7], source[3]]
    assert part.bitext.ids == ["8", "4"]


def test_every_word_is_explained():
    source, target, _ = toy(100)
    source[0], target[0] = [*source[0], "extra"], target[0]
    found = align_words(bitext([" ".join(s) for s in source], [" ".join(t) for t in target]), scores=True)
    rows = [row for row in explain(found) if row["pair"] == "1"]
    assert [row["word"] for row in rows] == source[0] + target[0]
    extra = rows[len(source[0]) - 1]
    assert extra["linked"] == "" and extra["likeliest"] in target[0]
    assert all(0 <= row["score"] <= 1 and 0 <= row["none"] <= 1 for row in rows)
    with pytest.raises(BadInput, match="says nothing about its choices"):
        list(explain(align_words(bitext())))


def test_a_side_in_another_script_is_refused_with_a_line():
    russian = ["Кошка спит.", "Дом стоит."]
    with pytest.raises(BadFile, match=r"a\.tsv, line 1: this is not de: 100% of its letters are Cyrillic") as error:
        align_words(bitext(SOURCE, russian))
    assert "right file" in str(error.value)
    with pytest.raises(BadFile, match="swapped"):
        align_words(bitext(russian, SOURCE, ("en", "ru")))
    assert len(align_words(bitext(russian, SOURCE, ("ru", "en")))) == 2


def test_settings_of_another_aligner_are_refused():
    with pytest.raises(BadInput, match=r'has no setting "rouns"\. Did you mean "rounds"'):
        align_words(bitext(), rouns=3)
    with pytest.raises(BadInput, match='has no setting "rounds"'):
        align_words(bitext(), aligner="eflomal", rounds=3)
    with pytest.raises(BadInput, match="holds no sentence pairs"):
        align_words(Examples("text", "en", ["1"], ["a"]))


def test_eflomal_is_an_extra():
    found = None
    try:
        import eflomal  # noqa: F401
    except ImportError:
        with pytest.raises(xl.CrossliftError, match=r"crosslift\[align\]"):
            align_words(bitext(), aligner="eflomal")
        return
    source, target, links = toy(400)
    source[2], target[3] = [], []
    pairs = bitext([" ".join(s) for s in source], [" ".join(t) for t in target])
    found = align_words(pairs, aligner="eflomal")
    assert found.alignment.links(2) == found.alignment.links(3) == []
    right = np.mean([found.alignment.links(p) == links[p] for p in range(4, 400)])
    assert right > 0.7


def test_the_public_name_aligns_files(tmp_path):
    source, target, links = toy(200)
    (tmp_path / "a.en").write_text("\n".join(" ".join(s) for s in source) + "\n")
    (tmp_path / "a.de").write_text("\n".join(" ".join(t) for t in target) + "\n")
    found = xl.align_words([tmp_path / "a.en", tmp_path / "a.de"], language="en", pair_language="de")
    assert_nearly([found.alignment.links(p) for p in range(200)], links)
