import numpy as np
import pytest

from crosslift.data import load
from crosslift.data.conll import find_words
from tests.refusals import message

XSID = """# text = Is it raining?
# intent = weather/find
# slots: 6:13:weather/old
1\tIs\tweather/find\tO
2\tit\tweather/find\tO
3\training\tweather/find\tB-attribute
4\t?\tweather/find\tO

# id = 7
# intent = alarm/set
# text = Wake me
1\tWake\talarm/set\tO
2\tme\talarm/set\tO
"""


@pytest.fixture
def write(tmp_path):
    def write(text, name="a.conll"):
        path = tmp_path / name
        path.write_text(text, encoding="utf-8", newline="")
        return path

    return write


def test_natural_text_comes_from_the_comment_and_words_are_found_in_it(write):
    examples = load(write(XSID), language="en")
    assert examples.kind == "tagging"
    assert examples.texts == ["Is it raining?", "Wake me"]
    assert examples.words(0) == ["Is", "it", "raining", "?"]
    assert examples.spans[0].tolist() == [[0, 2], [3, 5], [6, 13], [13, 14]]
    assert examples.spans[0].dtype == np.int32
    assert [list(tags) for tags in examples.labels] == [["O", "O", "B-attribute", "O"], ["O", "O"]]


def test_intents_come_from_the_comments(write):
    examples = load(write(XSID), kind="classification")
    assert examples.labels == ["weather/find", "alarm/set"]
    assert examples.spans is None


def test_comment_for_label_and_id_can_be_named(write):
    text = "# who = a1\n# topic = x\nHi\tO\n\n# who = a2\n# topic = y\nHo\tO\n"
    examples = load(write(text), kind="classification", columns={"label": "topic", "id": "who"})
    assert (examples.ids, examples.labels) == (["a1", "a2"], ["x", "y"])
    assert 'no comment "# topics = …" before this sentence. Did you mean' in message(
        write(text), kind="classification", columns={"label": "topics"}
    )


def test_words_are_joined_by_spaces_or_by_nothing_where_the_language_has_none(write):
    path = write("北\tB-LOC\n京\tI-LOC\n")
    assert load(path, language="zh").texts == ["北京"]
    assert load(path, language="en").texts == ["北 京"]
    assert load(path, language="zh").spans[0].tolist() == [[0, 1], [1, 2]]
    assert load(path, language="en").spans[0].tolist() == [[0, 1], [2, 3]]


def test_words_that_are_not_in_the_text_are_joined_instead(write):
    assert load(write("# text = Other words\nA\tO\nB\tO\n")).texts == ["A B"]


def test_spaces_separate_columns_where_there_are_no_tabs(write):
    examples = load(write("-DOCSTART- -X- O\n\nAnn NNP B-PER\n# NN O\nran VB O\n"))
    assert examples.words(0) == ["Ann", "#", "ran"]
    assert [list(tags) for tags in examples.labels] == [["B-PER", "O", "O"]]


def test_a_hash_can_be_a_word(write):
    assert load(write("# 1\n#\tO\n#x\tB-TAG\n")).words(0) == ["#", "#x"]


def test_columns_can_be_numbered(write):
    examples = load(write("B-A\tx\tw\n"), columns={"words": 3, "tags": 1})
    assert (examples.words(0), list(examples.labels[0])) == (["w"], ["B-A"])
    assert "the words cannot be in column 4; columns are numbered 1 to 3" in message(
        write("B-A\tx\tw\n"), columns={"words": 4}
    )


def test_one_column_is_an_unlabelled_set(write):
    examples = load(write("Ann\nran\n\nB\n"))
    assert examples.labels is None
    assert examples.words(0) == ["Ann", "ran"]


def test_inside_tags_need_no_begin_tag(write):
    assert list(load(write("a\tI-PER\n")).labels[0]) == ["I-PER"]


def test_empty_words_are_left_out_and_counted(write):
    path = write("a\tO\n\tO\nb\tB-X\n\n\tO\n")
    examples = load(path)
    assert examples.words(0) == ["a", "b"]
    assert examples.skipped == {"empty word": 1, "empty text": 1}
    assert message(path, strict=True).startswith("a.conll, line 2: empty word.")
    assert message(write("a\tO\n\tB-X\n")).startswith('a.conll, line 2: tag "B-X" but no word.')


def test_several_empty_lines_and_crlf_change_nothing(write):
    assert len(load(write("\r\n\r\na\tO\r\n\r\n \r\n\r\nb\tO\r\n\r\n"))) == 2


def test_tag_names_are_mapped_with_and_without_prefix(write):
    path = write("a\tB-PERSON\nb\tI-PERSON\nc\tB-X\n")
    mapped = load(path, labels={"PERSON": "PER", "B-X": "O"})
    assert list(mapped.labels[0]) == ["B-PER", "I-PER", "O"]


@pytest.mark.parametrize(
    ("text", "options", "expected"),
    [
        ("a\tO\nb\n", {}, "a.conll, line 2: 1 column, but line 1 has 2."),
        ("# x = y\na\tO\n\nb\tPER\n", {}, 'a.conll, line 4: tag "PER" is bad.'),
        ("a\tB-\n", {}, 'a.conll, line 1: tag "B-" is bad.'),
        ("# x = y\n", {}, "a.conll: has comments but no words."),
        (
            "a\tO\nb\tB-PRE\n",
            {"allowed_labels": ["O", "B-PER"]},
            'a.conll, line 2: tag "B-PRE" is not one of O, B-PER.\n  Did you mean "B-PER"?',
        ),
        ("a\tO\n", {"kind": "qa"}, "a.conll is a CoNLL file, which holds no qa examples."),
        ("a\tO\n", {"columns": {"word": 1}}, 'A CoNLL file has no column "word" to name. Did you mean "words"?'),
    ],
)
def test_bad_files_are_refused_with_file_line_and_reason(write, text, options, expected):
    assert message(write(text), **options).startswith(expected)


def test_words_are_found_in_order_or_not_at_all():
    assert find_words(["a", "a"], "a ba").tolist() == [[0, 1], [3, 4]]
    assert find_words(["b", "a"], "ab") is None
