"""Whole sets in another language: labels kept or carried over, text for distillation, paraphrases, tables."""

import csv
import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from crosslift.data import load
from crosslift.data.draft import Reading
from crosslift.data.examples import Examples
from crosslift.data.halves import halves
from crosslift.data.load import read_table
from crosslift.errors import BadInput
from crosslift.translate import open_translator, translate_examples
from crosslift.translate.augment import noise, paraphrase
from crosslift.translate.balanced import balanced
from crosslift.translate.table import translate_table, write_table
from tests import tiny_data


class Capitals:
    """Translates into capitals; a text with `silence` in it comes out empty."""

    name, source, target, fingerprint, chunk = "capitals", "en", "xx", "capitals", 4

    def translate(self, texts):
        return ["" if "silence" in text else text.upper() for text in texts]


class Turned(Capitals):
    """Says the words of a text backwards."""

    name, fingerprint = "turned", "turned"

    def translate(self, texts):
        return [" ".join(reversed(text.split())) for text in texts]


def plain(*texts, language="en", **columns):
    return Examples("text", language, [f"t{i}" for i in range(len(texts))], list(texts), name="plain", **columns)


def test_classification_keeps_its_labels_ids_and_both_texts():
    source = tiny_data.classification(12, pairs=True)
    found = translate_examples(source, Capitals())
    assert found.texts == [text.upper() for text in source.texts]
    assert found.pairs == [text.upper() for text in source.pairs]
    assert (found.ids, found.labels, found.parallel_ids) == (source.ids, source.labels, source.parallel_ids)
    assert found.language == "xx"


def test_rows_of_which_nothing_comes_out_are_left_out_and_counted():
    found = translate_examples(plain("one", "silence", "two"), Capitals())
    assert (found.texts, found.ids) == (["ONE", "TWO"], ["t0", "t2"])
    assert found.skipped == {"nothing came out of the translator": 1}


def test_answers_are_not_translated():
    with pytest.raises(BadInput, match="tiny-qa is qa data: answers cannot be found again"):
        translate_examples(tiny_data.qa(3), Capitals())


def test_a_dictionary_carries_tags_by_its_own_links(tmp_path):
    (tmp_path / "d.tsv").write_text("New York\tNueva York\nin\ten\n", encoding="utf-8")
    spans = np.array([[0, 4], [5, 7], [8, 11], [12, 16], [16, 17]], np.int32)
    tags = ["O", "O", "B-LOC", "I-LOC", "O"]
    source = Examples("tagging", "en", ["a"], ["rain in New York."], spans=[spans], labels=[tags], name="x")
    found = translate_examples(source, open_translator(f"dictionary:{tmp_path / 'd.tsv'}", "en", "es"))
    assert found.texts == ["rain en Nueva York."]
    assert found.words(0) == ["rain", "en", "Nueva York", "."]
    assert found.labels == [["O", "O", "B-LOC", "O"]]


def test_tags_follow_an_alignment_and_lost_ones_are_counted(tmp_path):
    pytest.importorskip("crosslift.align")
    source = Examples(
        "tagging",
        "en",
        ["a", "b"],
        ["wake me tomorrow", "hello Berlin"],
        spans=[np.array([[0, 4], [5, 7], [8, 16]], np.int32), np.array([[0, 5], [6, 12]], np.int32)],
        labels=[["O", "O", "B-date"], ["O", "B-place"]],
        name="x",
    )
    (tmp_path / "links.pharaoh").write_text("0-2 1-1 2-0\n0-1\n", encoding="utf-8")
    found = translate_examples(source, Turned(), aligner=str(tmp_path / "links.pharaoh"))
    assert (found.texts, found.labels) == (["tomorrow me wake"], [["B-date", "O", "O"]])
    assert found.skipped == {"a label could not be carried over": 1}


def test_balanced_text_is_tied_to_its_originals():
    source = plain("one", "silence", "two", parallel_ids=["p1", "p2", "p3"])
    human = plain("drei", "eins", language="de", parallel_ids=["p9", "p1"])
    found = balanced(source, {"xx": Capitals(), "de": human})
    assert found["xx"].texts == ["ONE", "TWO"]
    assert found["xx"].parallel_ids == ["p1", "p3"]
    assert (found["de"].texts, found["de"].parallel_ids) == (["eins"], ["p1"])
    assert found["de"].skipped == {"no original in the source text": 1}


def test_balanced_text_has_no_labels_and_the_ids_of_its_originals_where_there_is_nothing_else():
    source = tiny_data.classification(5)
    found = balanced(source, {"xx": Capitals(), "de": tiny_data.classification(3, language="de")})
    assert found["xx"].labels is None and found["de"].labels is None
    assert balanced(plain("one"), {"xx": Capitals()})["xx"].parallel_ids == ["t0"]
    with pytest.raises(BadInput, match=r"plain \(de\) shares no parallel id with plain"):
        balanced(plain("one"), {"de": plain("eins", language="de", parallel_ids=["z"])})


def test_paraphrases_are_appended_without_copies_and_duplicates():
    text = plain("a b", "b a", "one", "x y z", "silence here")
    found, counts = paraphrase(text, [Turned(), Turned(), Capitals()])
    # a b <-> b a are duplicates of each other; "one" turned is a copy; the second Turned repeats the first
    assert found.texts == [*text.texts, "z y x", "here silence", "A B", "B A", "ONE", "X Y Z"]
    assert found.ids[5:] == ["t3~1", "t4~1", "t0~3", "t1~3", "t2~3", "t3~3"]
    assert counts == {"kept": 6, "empty": 1, "copy": 2, "duplicate": 6}


def test_noise_depends_on_the_text_alone_and_makes_up_no_word():
    text = plain("the quick brown fox jumps over the lazy dog", "hello there")
    found, counts = noise(text, samples=3, seed=7)
    alone, _ = noise(text.select([1]), samples=3, seed=7)
    assert alone.texts[1:] == [t for t, i in zip(found.texts, found.ids, strict=True) if i.startswith("t1~")]
    assert counts["kept"] == len(found) - 2
    assert sum(counts.values()) == 6
    for new in found.texts[2:]:
        assert set(new.split()) <= set(text.texts[0].split()) | set(text.texts[1].split())
    assert noise(text, samples=3, seed=8)[0].texts != found.texts


def test_noise_without_dropping_or_moving_leaves_only_copies():
    found, counts = noise(plain("one two three"), samples=4, drop=0.0, shift=1)
    assert len(found) == 1
    assert counts == {"kept": 0, "empty": 0, "copy": 4, "duplicate": 0}


@given(st.text(min_size=1).filter(str.strip), st.integers(1, 4))
def test_noise_never_empties_a_text(text, samples):
    found, counts = noise(plain(text), samples=samples, drop=1.0)
    assert counts["empty"] == 0
    assert all(found.texts)


def test_chinese_is_disturbed_word_by_word():
    pytest.importorskip("jieba")
    found, _ = noise(plain("我爱北京天安门，北京是中国的首都。", language="zh"), samples=3)
    assert len(found) > 1
    assert all(" " not in new for new in found.texts)


def test_halves_share_no_parallel_id_across_languages():
    english, german = (tiny_data.classification(200, language=language) for language in ("en", "de"))
    annotated, text = halves(english)
    _, german_text = halves(german.select(reversed(range(200))))
    assert 70 < len(annotated) < 130
    assert len(annotated) + len(text) == 200
    assert annotated.labels is not None and text.labels is None and german_text.labels is None
    assert not set(annotated.parallel_ids) & {*text.parallel_ids, *german_text.parallel_ids}
    assert sorted(text.parallel_ids) == sorted(german_text.parallel_ids)
    assert halves(english, seed=1)[0].ids != annotated.ids


def test_independent_halves_leak_as_the_released_code_does():
    english, german = (tiny_data.classification(200, language=language) for language in ("en", "de"))
    annotated, _ = halves(english, independent=True)
    _, text = halves(german, independent=True)
    assert set(annotated.parallel_ids) & set(text.parallel_ids)


@pytest.mark.parametrize("suffix", ["tsv", "csv", "jsonl"])
def test_a_table_keeps_its_other_columns(tmp_path, suffix):
    rows = [{"note": "n, 1", "sentence": 'say "hi"', "label": "a", "lang": "en"}]
    rows += [{"note": "2", "sentence": "bonjour", "label": "b", "lang": "fr"}]
    file = tmp_path / f"data.{suffix}"
    if suffix == "jsonl":
        file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    else:
        with file.open("w", newline="") as out:
            options = {"delimiter": "\t", "quoting": csv.QUOTE_NONE, "quotechar": None} if suffix == "tsv" else {}
            writer = csv.writer(out, **options)
            writer.writerow(rows[0])
            writer.writerows(row.values() for row in rows)
    made = translate_table(read_table(file, suffix), Reading(), Capitals())
    write_table(made, tmp_path / f"new.{suffix}")
    read = read_table(tmp_path / f"new.{suffix}", suffix)
    assert {name: list(values) for name, values in read.columns.items()} == {
        "note": ["n, 1"],
        "sentence": ['SAY "HI"'],
        "label": ["a"],
        "lang": ["xx"],
    }
    examples = load(tmp_path / f"new.{suffix}")
    assert (examples.texts, examples.labels, examples.language) == (['SAY "HI"'], ["a"], "xx")
