"""Word by word: case, punctuation and writing systems, against glosses written by hand."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crosslift.data.segment import segment_all
from crosslift.errors import BadFile
from crosslift.translate import open_translator

SPANISH = "a few\talgunos\na few\tpocos\ndog\tperro\ncat\tgato\nsee\tver\nhouse\tcasa\nthe\tel\nnew york\tNueva York\n"
CHINESE = "dog\t狗\nlazy\t懒 的\nsee\t看\n"


@pytest.fixture
def spanish(tmp_path):
    (tmp_path / "lexicon-es.tsv").write_text(SPANISH, encoding="utf-8")
    return f"dictionary:{tmp_path / 'lexicon-{lang}.tsv'}"


def translate(name, source, target, *texts):
    return open_translator(name, source, target).translate(texts)


def test_case_punctuation_and_spacing_are_kept(spanish):
    assert translate(spanish, "en", "es", "Dog, CAT; “dog”!  (the cat)", "I see?") == [
        "Perro, GATO; “perro”!  (el gato)",
        "I ver?",
    ]


def test_the_longest_entry_wins_and_its_first_translation_counts(spanish):
    assert translate(spanish, "en", "es", "A few dogs in New York") == ["Algunos perro in Nueva York"]


def test_english_words_are_found_by_their_base_form_and_others_stay(spanish):
    assert translate(spanish, "en", "es", "houses barking cats") == ["casa barking gato"]


def test_backwards_a_word_means_the_entry_that_names_it_first(tmp_path):
    (tmp_path / "l.tsv").write_text("hound\tperro\nhound\tsabueso\ndog\tcan\ndog\tperro\n", encoding="utf-8")
    assert translate(f"dictionary-back:{tmp_path / 'l.tsv'}", "es", "en", "El perro y un can.") == [
        "El hound y un dog."
    ]


def test_chinese_is_written_without_spaces_but_latin_words_stay_apart(tmp_path):
    (tmp_path / "l.tsv").write_text(CHINESE, encoding="utf-8")
    name = f"dictionary:{tmp_path / 'l.tsv'}"
    assert translate(name, "en", "zh", "I see the big dog, lazy dog!") == ["I看the big狗,懒的狗!"]


def test_from_chinese_words_are_parted_by_spaces(tmp_path):
    pytest.importorskip("jieba")
    (tmp_path / "l.tsv").write_text("capital\t首都\nBeijing\t北京\nis\t是\n", encoding="utf-8")
    name = f"dictionary-back:{tmp_path / 'l.tsv'}"
    assert translate(name, "zh", "en", "北京是首都。") == ["beijing is capital。"]


def test_each_new_word_knows_the_words_it_stands_for(spanish):
    text = "A few dogs bark."
    (gloss,) = open_translator(spanish, "en", "es").glosses([text], segment_all([text], "en"))
    assert gloss.text == "Algunos perro bark."
    assert [gloss.text[a:b] for a, b in gloss.spans.tolist()] == ["Algunos", "perro", "bark", "."]
    assert gloss.origin.tolist() == [[0, 2], [2, 3], [3, 4], [4, 5]]


def test_coverage_counts_words_with_letters(spanish):
    translator = open_translator(spanish, "en", "es")
    assert translator.coverage(["the dog, 42 barks", "a few"]) == 4 / 5


def test_a_malformed_line_is_named(tmp_path):
    (tmp_path / "l.tsv").write_text("dog\tperro\ncat gato\n", encoding="utf-8")
    with pytest.raises(BadFile, match=r"l\.tsv, line 2: is not `english TAB word`"):
        translate(f"dictionary:{tmp_path / 'l.tsv'}", "en", "es", "dog")


@given(st.text(alphabet=st.characters(codec="utf-8", exclude_categories=["Cs", "Cc"]), min_size=1))
def test_any_text_with_no_known_word_comes_back_as_it_was(tmp_path_factory, text):
    file = tmp_path_factory.getbasetemp() / "nothing.tsv"
    file.write_text("qqqqqqqq\tzzz\n", encoding="utf-8")
    assert translate(f"dictionary:{file}", "en", "es", text) == [text]


@pytest.mark.shared
@pytest.mark.parametrize(
    ("language", "expected"),
    [("es", "Perro, gato y casa."), ("de", "Hund, Katze and Haus."), ("zh", "犬,猫and家.")],
)
def test_real_lexicons_are_read(shared, language, expected):
    name = f"dictionary:{shared / 'pretraining' / 'lexicon-{lang}.tsv.xz'}"
    assert translate(name, "en", language, "Dog, cat and house.") == [expected]
