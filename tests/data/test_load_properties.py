"""Whatever is in a file, loading it gives examples or an error meant for the user; never anything else."""

import gzip
import json
import lzma
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from crosslift.data import load
from crosslift.data.load import FORMATS
from crosslift.data.wordalign import read_gold
from crosslift.errors import CrossliftError

QUICK = settings(deadline=None, max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
PACKED = {"": bytes, ".gz": gzip.compress, ".xz": lzma.compress}


def check(path: Path, **options) -> None:
    """Load a file; if that works, the examples are whole."""
    try:
        examples = load(path, **options)
    except CrossliftError as error:
        assert str(error)
        return
    assert len(examples) > 0
    assert len(set(examples.ids)) == len(examples)
    for text in (*examples.texts, *(examples.pairs or ())):
        assert text.strip()
        text.encode()
    for row, spans in enumerate(examples.spans or ()):
        assert spans.dtype == np.int32
        assert spans.shape[1] == 2
        assert (spans[:, 0] < spans[:, 1]).all()
        assert (spans[1:, 0] >= spans[:-1, 1]).all()
        assert spans.size == 0 or spans.max() <= len(examples.texts[row])
        if examples.labels is not None:
            assert len(examples.labels[row]) == len(spans)


def options_for(format):
    kinds = [None, "classification", "tagging", "qa", "text", "bitext"]
    return st.fixed_dictionaries(
        {
            "format": st.just(format),
            "kind": st.sampled_from(kinds),
            "language": st.sampled_from([None, "de", "zh"]),
            "strict": st.booleans(),
            "skip_unknown": st.booleans(),
            "unlabelled": st.booleans(),
            "allowed_labels": st.sampled_from([None, ["x", "O", "B-x"]]),
            "header": st.sampled_from([None, True, False]),
            "quoting": st.sampled_from([None, "none", "csv"]),
            "limit": st.sampled_from([None, 1]),
        }
    )


@pytest.mark.parametrize("format", FORMATS)
@QUICK
@given(st.data())
def test_arbitrary_bytes_never_crash_a_loader(tmp_path, format, data):
    raw = data.draw(st.binary(max_size=200))
    ending = data.draw(st.sampled_from(sorted(PACKED)))
    path = tmp_path / f"a{ending}"
    path.write_bytes(raw if data.draw(st.booleans()) else PACKED[ending](raw))
    check(path, **data.draw(options_for(format)))


CELL = st.sampled_from(
    [
        *("", " ", "a", "b c", "x", "O", "B-x", "I-x", "PER", '"', '""', '"a"', "de", "zh", "1", "2", "#"),
        *("# text = a", "# intent = x", "[x : a]", "[x a", "]", "|||", "a ||| b", "\u3000", "\u200b", "北"),
        *("\x1c", "-DOCSTART-", "\r"),
    ]
)
NAME = st.sampled_from(["id", "text", "label", "lang", "pair", "tokens", "tags", "annot_utt", "utt", "answers"])


def lines(separator):
    row = st.lists(CELL, min_size=1, max_size=4).map(separator.join)
    head = st.lists(NAME, min_size=1, max_size=4).map(separator.join)
    return st.tuples(st.one_of(head, row), st.lists(row, max_size=8)).map(lambda t: "\n".join([t[0], *t[1]]))


@pytest.mark.parametrize("format", [f for f in FORMATS if f not in ("parquet", "squad", "jsonl")])
@QUICK
@given(st.data())
def test_almost_valid_lines_never_crash_a_loader(tmp_path, format, data):
    path = tmp_path / "a"
    path.write_text(data.draw(lines("," if format == "csv" else "\t")), encoding="utf-8", newline="")
    check(path, **data.draw(options_for(format)))


VALUE = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(-2, 9), st.floats(allow_nan=False), CELL, st.text(max_size=3)),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.dictionaries(st.sampled_from(["text", "answer_start", "id"]), inner, max_size=2),
    ),
    max_leaves=5,
)
KEYS = st.one_of(NAME, st.sampled_from(["question", "context", "words", "parallel_id", "source", "target"]))


@QUICK
@given(st.data())
def test_almost_valid_json_lines_never_crash_the_loader(tmp_path, data):
    rows = data.draw(st.lists(st.dictionaries(KEYS, VALUE, max_size=4), min_size=1, max_size=4))
    path = tmp_path / "a"
    path.write_text("\n".join(map(json.dumps, rows)))
    check(path, **data.draw(options_for("jsonl")))


ANSWER = st.one_of(VALUE, st.fixed_dictionaries({"text": CELL, "answer_start": st.integers(-1, 3)}))
QUESTION = st.one_of(
    VALUE,
    st.fixed_dictionaries(
        {"id": CELL, "question": CELL},
        optional={"answers": st.lists(ANSWER, max_size=2), "is_impossible": VALUE},
    ),
)
PARAGRAPH = st.one_of(VALUE, st.fixed_dictionaries({"context": CELL, "qas": st.lists(QUESTION, max_size=3)}))


@QUICK
@given(st.data())
def test_almost_valid_squad_files_never_crash_the_loader(tmp_path, data):
    articles = data.draw(st.lists(st.fixed_dictionaries({"paragraphs": st.lists(PARAGRAPH, max_size=2)}), max_size=2))
    path = tmp_path / "a"
    path.write_text(json.dumps({"data": articles}))
    check(path, **data.draw(options_for("squad")))


@QUICK
@given(st.lists(st.lists(st.sampled_from(["a", "b c", "0-0", "0p1", "9-9", "-", ""]), max_size=4), min_size=1))
def test_almost_valid_gold_alignments_never_crash_the_reader(tmp_path, rows):
    path = tmp_path / "a.tsv"
    path.write_text("\n".join("\t".join(row) for row in rows))
    try:
        gold = read_gold(path)
    except CrossliftError:
        return
    for item in gold:
        for i, j in item.sure | item.possible:
            assert i < len(item.source)
            assert j < len(item.target)


@QUICK
@given(st.text(max_size=300))
def test_arbitrary_names_never_crash(name):
    if "/" in name or name in (".", ".."):
        return
    with pytest.raises(CrossliftError):
        load(name)


sentence = st.text(st.characters(codec="utf-8", exclude_characters="\t\n\r\0"), min_size=1).filter(str.strip)


@QUICK
@given(st.lists(st.tuples(sentence, sentence, st.sampled_from(["yes", "no"])), min_size=1, max_size=6))
def test_written_tables_are_read_back_exactly(tmp_path, rows):
    path = tmp_path / "a.tsv"
    body = "".join(f"{text}\t{pair}\t{label}\n" for text, pair, label in rows)
    path.write_text("text\tpair\tlabel\n" + body, encoding="utf-8", newline="")
    examples = load(path, language="en", kind="classification")
    assert list(zip(examples.texts, examples.pairs, examples.labels, strict=True)) == rows


word = st.text(st.characters(codec="utf-8", exclude_categories=["Z", "C"]), min_size=1, max_size=5)


@QUICK
@given(
    st.lists(
        st.lists(st.tuples(word, st.sampled_from(["O", "B-x", "I-x"])), min_size=1, max_size=5), min_size=1, max_size=4
    ),
    st.sampled_from(["en", "zh"]),
)
def test_written_conll_files_are_read_back_exactly(tmp_path, sentences, language):
    if any(words[0][0] == "-DOCSTART-" for words in sentences):
        return
    path = tmp_path / "a.conll"
    blocks = ("".join(f"{word}\t{tag}\n" for word, tag in words) for words in sentences)
    path.write_text("\n".join(blocks), encoding="utf-8", newline="")
    examples = load(path, language=language)
    assert [examples.words(row) for row in range(len(examples))] == [[w for w, _ in words] for words in sentences]
    assert [list(tags) for tags in examples.labels] == [[tag for _, tag in words] for words in sentences]
