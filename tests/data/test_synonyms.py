"""Synonym sources, and replacement that keeps words, case and punctuation in place."""

import lzma

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from crosslift.data.segment import segment_all
from crosslift.data.synonyms import (
    in_case_of,
    is_protected,
    neighbours,
    part_of,
    read_synonyms,
    replaceable,
    space_spans,
)
from crosslift.errors import BadFile, BadInput

ENTRIES = {"film": ("movie", "picture"), "good": ("fine",), "any": ("no",), "no": ("not",), "two": ("2",)}


def replaced(texts, entries=ENTRIES, rate=1.0, seed=0, step=0, spans=None, **options):
    spans = spans or segment_all(texts, "en")
    new, moved = replaceable(texts, spans, entries, **options).replace(np.arange(len(texts)), rate, seed, step)
    return new, moved


def test_json_plain_and_compressed_are_read_and_empty_lists_left_out(tmp_path):
    text = '{"film": ["movie", "film"], "br": [], "in": ["in front"]}'
    (tmp_path / "a.json").write_text(text)
    (tmp_path / "b.json.xz").write_bytes(lzma.compress(text.encode()))
    assert read_synonyms(tmp_path / "a.json") == read_synonyms(tmp_path / "b.json.xz") == {"film": ("movie",)}


def test_a_thesaurus_and_word_pairs_are_read_alike(tmp_path):
    (tmp_path / "a.tsv").write_text("film\tmovie | motion picture | picture\nabc\tx\n")
    (tmp_path / "b.tsv").write_text("film\tmovie\nfilm\tpicture\nabc\tx\n")
    (tmp_path / "c.tsv").write_text("film\tmovie|picture\nabc\tx|\n")
    wanted = {"film": ("movie", "picture"), "abc": ("x",)}
    assert all(read_synonyms(tmp_path / name) == wanted for name in ("a.tsv", "b.tsv", "c.tsv"))


def test_wordnet_data_files_are_read(tmp_path):
    (tmp_path / "data.noun").write_text(
        "  1 This is a licence\n00001740 03 n 02 car 0 auto 0 001 ~ 00001930 n 0000 | a vehicle\n"
        "00002000 03 n 01 motor_car 0 000 | alone\n"
    )
    (tmp_path / "data.adj").write_text("00003000 00 s 02 galore(ip) 0 plenty 0 000 | much\n")
    assert read_synonyms(tmp_path) == {
        "car": ("auto",), "auto": ("car",), "galore": ("plenty",), "plenty": ("galore",),
    }  # fmt: skip


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.tsv", "film\tmovie\nfilm movie\n", "line 2: is not `word TAB other`.*\n.*Mend or remove the line"),
        ("a.json", '{\n"film": [', "line 2: malformed JSON at column 10"),
        ("a.json", "[" * 100_000, "JSON that cannot be read"),
        ("a.json", '["film"]', "is not an object of word lists"),
        ("a.json", '{"car": ["auto"], "film": "movie"}', "the entry of 'film' is not a list of words"),
    ],
)
def test_a_broken_file_is_named_with_its_line(tmp_path, name, content, message):
    (tmp_path / name).write_text(content)
    with pytest.raises(BadFile, match=message):
        read_synonyms(tmp_path / name)


def test_a_folder_without_wordnet_says_so(tmp_path):
    with pytest.raises(BadFile, match=r"has none of data\.noun"):
        read_synonyms(tmp_path)


@pytest.mark.shared
def test_the_counterfitted_dictionary_has_its_known_size(shared):
    entries = read_synonyms(shared / "data" / "synonyms" / "counterfitted_neighbors.json.xz")
    assert len(entries) == 25_591
    assert max(map(len, entries.values())) == 8
    assert "film" in entries["movie"]


@pytest.mark.shared
def test_the_shared_thesauri_are_read(shared):
    entries = read_synonyms(shared / "pretraining" / "synonyms-de.tsv.xz")
    assert "abtragen" in entries["abbauen"]
    assert not any(" " in other for others in entries.values() for other in others)


def test_parts_of_a_dictionary_are_nested_and_of_the_right_size():
    entries = {f"w{i}": ("x",) for i in range(100)}
    parts = [set(part_of(entries, scale)) for scale in (0.25, 0.5, 0.75, 1.0)]
    assert [len(part) for part in parts] == [25, 50, 75, 100]
    assert parts[0] < parts[1] < parts[2] < parts[3]
    with pytest.raises(BadInput, match="0 < scale"):
        part_of(entries, 0)


def test_neighbours_are_the_nearest_by_cosine_the_nearest_first():
    vectors = np.array([[1, 0], [2, 0.2], [1, 1], [-1, 0]], dtype=np.float32)
    found = neighbours(["a", "b", "c", "d"], vectors, count=2)
    assert found["a"] == ("b", "c")
    assert found["c"] == ("b", "a")
    assert neighbours(["a"], vectors[:1]) == {}


@pytest.mark.parametrize(
    ("word", "model", "wanted"),
    [
        ("movie", "film", "movie"),
        ("movie", "Film", "Movie"),
        ("movie", "FILM", "MOVIE"),
        ("an", "A", "An"),
        ("DVD", "disc", "DVD"),
    ],
)
def test_case_is_kept(word, model, wanted):
    assert in_case_of(word, model) == wanted


def test_words_are_replaced_inside_punctuation_and_spans_follow():
    (text,), (spans,) = replaced(["Good, “GOOD” film!"], {"good": ("excellent",), "film": ("it",)})
    assert text == "Excellent, “EXCELLENT” it!"
    assert [text[a:b] for a, b in spans.tolist()] == ["Excellent", ",", "“", "EXCELLENT", "”", "it", "!"]


def test_negations_and_numbers_are_protected_unless_asked_otherwise():
    assert replaced(["no two any good"])[0] == ["no two any fine"]
    assert replaced(["no two any good"], protect=False)[0] == ["not 2 no fine"]
    assert all(map(is_protected, ["not", "Don't", "isn’t", "nicht", "mai", "senza", "12th", "Seven"]))
    assert all(map(is_protected, ["rarely", "didnt", "keinesfalls", "guère", "żaden", "никак"]))
    assert not is_protected("note")


def test_exact_lookup_on_space_split_words_is_the_released_behaviour():
    texts = ["Good good good, film"]
    assert replaced(texts, spans=space_spans(texts), exact=True, protect=False)[0][0].startswith("Good fine good, ")


def test_without_a_rate_a_word_stays_as_often_as_each_of_its_synonyms_comes():
    texts = ["film"] * 6000
    words, counts = np.unique(replaced(texts, rate=None)[0], return_counts=True)
    assert list(words) == ["film", "movie", "picture"]
    # 2000 expected; five standard deviations of a binomial are 183.
    assert abs(counts - 2000).max() < 183


def test_the_rate_is_kept():
    changed = sum(text != "good" for text in replaced(["good"] * 4000, rate=0.3)[0])
    assert abs(changed - 1200) < 145


def test_a_kept_range_is_left_alone():
    assert replaced(["good film good"], keep=[[(5, 9)]])[0] == ["fine film fine"]
    assert replaced(["good film good"], keep=[[(6, 7)]])[0] == ["fine film fine"]
    assert replaced(["good film good"], keep=[[(0, 2), (9, 12)]])[0] == ["good movie good"]
    assert replaced(["good film good"], keep=[[]])[0] != ["good film good"]


def test_draws_depend_on_seed_step_and_row_alone():
    texts = [f"film film film film {i}" for i in range(8)]
    whole = replaceable(texts, segment_all(texts, "en"), ENTRIES)
    rows = np.arange(8)
    first = whole.replace(rows, 0.5, 1, 2)[0]
    assert first == whole.replace(rows, 0.5, 1, 2)[0]
    assert whole.replace(np.array([5, 2]), 0.5, 1, 2)[0] == [first[5], first[2]]
    assert first != whole.replace(rows, 0.5, 1, 3)[0]
    assert first != whole.replace(rows, 0.5, 2, 2)[0]
    assert len({text[:-1] for text in first}) > 1


@given(
    st.lists(st.text(alphabet="abAB .,'1ß\u4e2d", max_size=30), min_size=1, max_size=4),
    st.dictionaries(st.sampled_from(["a", "b", "ab", "ba"]), st.just(("xyz", "q")), max_size=4),
    st.integers(0, 5),
)
def test_words_map_one_to_one_and_everything_else_stays(texts, entries, step):
    spans = segment_all(texts, "en")
    new, moved = replaced(texts, entries, rate=0.7, step=step, spans=spans)
    for text, words, other, others in zip(texts, spans, new, moved, strict=True):
        assert len(words) == len(others)
        for (a, b), (c, d) in zip(words.tolist(), others.tolist(), strict=True):
            choices = {in_case_of(choice, text[a:b]) for choice in entries.get(text[a:b].lower(), ())}
            assert other[c:d] in choices | {text[a:b]}
        gaps = [
            [string[i:j] for i, j in zip([0, *part[:, 1]], [*part[:, 0], len(string)], strict=True)]
            for string, part in ((text, words), (other, others))
        ]
        assert gaps[0] == gaps[1]
