import json

import pytest

from crosslift.data import Answer, load
from crosslift.errors import BadFile
from tests.refusals import message


@pytest.fixture
def write(tmp_path):
    def write(name, text):
        path = tmp_path / name
        path.write_text(text, encoding="utf-8", newline="")
        return path

    return write


def test_tsv_with_header_is_understood_by_its_column_names(write):
    path = write("a.tsv", "id\tlabel\tpremise\thypothesis\nx1\tneutral\tA man.\tA dog.\nx2\tentailment\tB\tC\n")
    examples = load(path, language="en")
    assert examples.kind == "classification"
    assert (examples.ids, examples.texts, examples.pairs) == (["x1", "x2"], ["A man.", "B"], ["A dog.", "C"])
    assert examples.labels == ["neutral", "entailment"]
    assert examples.language == "en"
    assert examples.parallel_ids is None


def test_tsv_without_header_is_text_label_or_text_pair_label(write):
    two = load(write("a.tsv", "good\tpos\nbad\tneg\n"))
    assert (two.texts, two.pairs, two.labels) == (["good", "bad"], None, ["pos", "neg"])
    three = load(write("b.tsv", "a\tb\t0\nc\td\t1\n"))
    assert (three.texts, three.pairs, three.labels) == (["a", "c"], ["b", "d"], ["0", "1"])
    assert three.ids == ["1", "2"]
    assert three.language == "und"


def test_two_unlabelled_columns_are_two_texts(write):
    examples = load(write("a.tsv", "a\tb\nc\td\n"), unlabelled=True, kind="classification")
    assert (examples.texts, examples.pairs, examples.labels) == (["a", "c"], ["b", "d"], None)


def test_sentences_mistaken_for_labels_are_noticed(write):
    rows = "".join(f"first {i}\tsecond {i}\n" for i in range(30))
    assert "column 2 was taken for the label, but has 30 different values" in message(write("a.tsv", rows))


def test_columns_can_be_named_or_numbered(write):
    path = write("a.tsv", "lang\tx\ty\tgold\tn\nde\tA\tB\t1\t7\n")
    named = load(path, columns={"text": "x", "text2": "y", "label": "gold", "id": "n", "parallel_id": "n"})
    assert (named.texts, named.pairs, named.labels, named.ids) == (["A"], ["B"], ["1"], ["7"])
    assert (named.parallel_ids, named.language) == (["7"], "de")
    numbered = load(write("b.tsv", "1\tA\tx\n0\tB\ty\n"), columns={"label": 1, "text": "2"})
    assert (numbered.texts, numbered.labels) == (["A", "B"], ["1", "0"])


def test_quotes_are_text_in_tsv_and_wrap_fields_behind_the_option(write):
    path = write("a.tsv", 'text\tlabel\n"He said ""no"""\tx\n')
    assert load(path).texts == ['"He said ""no"""']
    assert load(path, quoting="csv").texts == ['He said "no"']


def test_csv_fields_may_hold_commas_and_line_feeds(write):
    path = write("a.csv", 'text,label\n"a, b",x\n"two\nlines",y\nlast,\n')
    assert load(path, skip_unknown=True).texts == ["a, b", "two\nlines"]
    assert message(path).startswith("a.csv, line 5: has no label, though other rows have one.")


def test_languages_of_one_file_are_picked_by_code_or_by_its_beginning(write):
    path = write("a.tsv", "text\tlang\tlabel\nHallo\tde-DE\tx\nHello\ten-US\tx\n")
    assert load(path, language="de").texts == ["Hallo"]
    assert load(path, language="en-US").texts == ["Hello"]
    assert "a.tsv: holds 2 languages: de-DE, en-US." in message(path)
    assert 'no row is in "fr"; the languages are de-DE, en-US.' in message(path, language="fr")


def test_json_lines_give_classes_words_and_answers(write):
    rows = [{"text": "a", "label": 3}, {"text": "b", "label": 0}]
    assert load(write("a.jsonl", "\n".join(map(json.dumps, rows)))).labels == ["3", "0"]
    tagged = load(write("b.jsonl", json.dumps({"tokens": ["Ann", "ran"], "tags": ["B-PER", "O"]})))
    assert (tagged.kind, tagged.words(0), tagged.labels) == ("tagging", ["Ann", "ran"], [["B-PER", "O"]])
    answers = {"text": ["now"], "answer_start": [3]}
    asked = load(write("c.jsonl", json.dumps({"question": "When?", "context": "So now.", "answers": answers})))
    assert (asked.kind, asked.labels) == ("qa", [[Answer("now", 3)]])


def test_parquet_rows_are_read(tmp_path):
    pyarrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    path = tmp_path / "a.parquet"
    parquet.write_table(pyarrow.table({"text": ["a", "b"], "label": [0, 1]}), path)
    examples = load(path, language="en")
    assert (examples.texts, examples.labels) == (["a", "b"], ["0", "1"])


def test_placeholders_and_empty_texts_are_left_out_and_counted(write):
    path = write("a.tsv", "text\tpair\tlabel\na\tb\t1\nNS\tb\t0\na\t \t0\n")
    examples = load(path, placeholders=["NS"])
    assert len(examples) == 1
    assert examples.skipped == {"placeholder instead of a sentence": 1, "empty text": 1}
    assert message(path, placeholders=["NS"], strict=True) == (
        "a.tsv, line 3: placeholder instead of a sentence.\n  Without --strict such rows are left out and counted."
    )


def test_limit_stops_after_so_many_examples(write):
    assert load(write("a.tsv", "text\tlabel\n" + "a\tx\n" * 9), limit=4).ids == ["1", "2", "3", "4"]


def test_a_column_of_empty_labels_is_an_unlabelled_set(write):
    assert load(write("a.tsv", "text\tlabel\na\t\nb\t\n")).labels is None


def test_unknown_label_names_line_nearest_and_remedy(write):
    path = write("xnli-de.tsv", "text\tlabel\na\tneutral\nb\tneutrall\n")
    known = ("contradiction", "entailment", "neutral")
    assert message(path, allowed_labels=known) == (
        'xnli-de.tsv, line 3: label "neutrall" is not one of contradiction, entailment, neutral.\n'
        '  Did you mean "neutral"?  Map it with --labels neutrall=neutral, '
        "or leave such rows out with --skip-unknown."
    )
    assert load(path, allowed_labels=known, labels={"neutrall": "neutral"}).labels == ["neutral", "neutral"]
    assert load(path, allowed_labels=known, skip_unknown=True).skipped == {"unknown label": 1}


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        ("a.tsv", "text\tlabel\na\tx\nb\n", "a.tsv, line 3: 1 column, but line 1 has 2."),
        ("a.tsv", "text\tlabel\n", "a.tsv: has a header but no rows."),
        ("a.tsv", "id\ttext\nx\ta\ny\tb\nx\tc\n", 'a.tsv, line 4: id "x" occurs twice (first on line 2).'),
        ("a.tsv", "id\tlabel\na\tb\n", "a.tsv, line 1: no column for the text was found."),
        ("a.tsv", "id\ttext\n\ta\n", "a.tsv, line 2: has no id."),
        ("a.tsv", "text\ttext\na\tb\n", 'a.tsv, line 1: column "text" occurs twice.'),
        ("a.tsv", "a\tb\tc\td\n", "a.tsv, line 1: 4 columns and no header that says what they are."),
        ("a.csv", 'text,label\n"open,x\n', "a.csv, line 2: bad quoting: unexpected end of data."),
        ("a.jsonl", '{"text": "a"}\n{"text": \n', "a.jsonl, line 2: malformed JSON at column"),
        ("a.jsonl", '{"text": "a"}\n[1]\n', "a.jsonl, line 2: is not a JSON object."),
        ("a.jsonl", '{"text": "a"}\n{"no": 1}\n', 'a.jsonl, line 2: "text" is missing.'),
        ("a.jsonl", '{"text": ["a"]}\n', "a.jsonl, line 1: \"text\" is not a text: ['a']."),
        ("a.jsonl", '{"text": "\\ud800"}\n', "a.jsonl, line 1: has half of a surrogate pair"),
        ("a.jsonl", '{"text": "a\\u0000"}\n', "a.jsonl, line 1: has a NUL character"),
        ("a.jsonl", "[" * 100_000 + "\n", "a.jsonl, line 1: "),
        ("a.jsonl", '{"tokens": ["a"], "tags": ["O", "O"]}\n', "a.jsonl, line 1: 1 words but 2 tags."),
        ("a.jsonl", '{"tokens": ["a", ""]}\n', "a.jsonl, line 1: word 2 is empty."),
        ("a.jsonl", '{"tokens": ["a"], "tags": ["PER"]}\n', 'a.jsonl, line 1: tag "PER" is bad.'),
        ("a.parquet", "no parquet", "a.parquet: is not a Parquet file"),
        ("a.parquet", "", "a.parquet: is empty."),
        ("a.tsv", "text\tlabel\n \tx\n", "a.tsv: no row is left (empty text: 1)."),
        (
            "a.jsonl",
            '{"question": "q", "context": "ab cd", "answers": {"text": ["cd"], "answer_start": [0]}}',
            'a.jsonl, line 1: answer "cd" does not stand at character 0 of its context; it stands at character 3.',
        ),
        (
            "a.jsonl",
            '{"question": "q", "context": "ab", "answers": [1]}',
            "a.jsonl, line 1: the answers cannot be read.",
        ),
    ],
)
def test_bad_rows_are_refused_with_file_line_and_reason(write, name, text, expected):
    assert message(write(name, text)).startswith(expected)


def test_unknown_columns_name_the_nearest(write):
    path = write("a.tsv", "text\tgold_lable\na\tx\n")
    assert 'there is no column "gold_label". Did you mean "gold_lable"?' in message(
        path, columns={"label": "gold_label"}
    )
    assert 'There is no column "lable" to name. Did you mean "label"?' in message(path, columns={"lable": "gold_lable"})


def test_tagging_kind_needs_words(write):
    path = write("a.tsv", "text\tlabel\na\tx\n")
    with pytest.raises(BadFile, match="a tagging table needs a column for words"):
        load(path, kind="tagging")
