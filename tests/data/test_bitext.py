import gzip

import pytest

from crosslift.data import load, read_bitext
from crosslift.data.wordalign import GoldAlignment, read_gold
from crosslift.errors import BadFile, BadInput


@pytest.fixture
def write(tmp_path):
    def write(name, text):
        path = tmp_path / name
        path.write_bytes(gzip.compress(text.encode()) if name.endswith(".gz") else text.encode())
        return path

    return write


@pytest.mark.parametrize("text", ["Hi\tHallo\tsource\nBye\tTschüss\tsource\n", "Hi ||| Hallo\nBye ||| Tschüss\n"])
def test_tabs_or_bars_separate_the_two_sides(write, text):
    pairs = read_bitext(write("a.tsv", text), language="en", pair_language="de")
    assert (pairs.kind, pairs.language, pairs.pair_language) == ("bitext", "en", "de")
    assert (pairs.texts, pairs.pairs) == (["Hi", "Bye"], ["Hallo", "Tschüss"])


def test_two_files_are_read_side_by_side(write):
    files = (write("a.en", "Hi\nBye\n"), write("a.de.gz", "Hallo\nTschüss\n"))
    pairs = load(files, language="en", pair_language="de")
    assert (pairs.texts, pairs.pairs) == (["Hi", "Bye"], ["Hallo", "Tschüss"])
    assert pairs.name == "a.en + a.de.gz"


def test_unequal_files_are_refused_with_both_counts(write):
    with pytest.raises(BadFile, match=r"a\.de, line 2: the files part here: a\.de has 1 lines, but a\.en has 2"):
        read_bitext((write("a.en", "Hi\nBye\n"), write("a.de", "Hallo\n")))


def test_pairs_with_an_empty_side_are_left_out_and_counted(write):
    path = write("a.tsv", "Hi\tHallo\nBye\t\n\tJa\n")
    pairs = read_bitext(path)
    assert (pairs.ids, pairs.skipped) == (["1"], {"empty text": 2})
    with pytest.raises(BadFile, match="line 2: empty text"):
        read_bitext(path, strict=True)


def test_limit_stops_early(write):
    assert len(read_bitext(write("a.tsv", "a\tb\n" * 5), limit=2)) == 2


def test_bad_pairs_are_refused_with_line_and_reason(write):
    with pytest.raises(BadFile, match=r"line 2: 1 column, but line 1 has 2\.\n  Every line holds"):
        read_bitext(write("a.tsv", "a\tb\nc\n"))
    with pytest.raises(BadFile, match=r"line 1: neither a tab nor \|\|\| between two sentences"):
        read_bitext(write("a.tsv", "a b\n"))
    with pytest.raises(BadInput, match="from one file or from two, not from 3"):
        read_bitext(["a", "b", "c"])


def test_load_reads_bitext_by_kind(write):
    assert load(write("a.txt", "a ||| b\n"), kind="bitext").pairs == ["b"]
    assert load(write("a.jsonl", '{"source": "a", "target": "b"}'), pair_language="de").pair_language == "de"


def test_gold_alignments_tell_sure_from_possible_links(write):
    found = read_gold(write("a.tsv", "the cat\tdie Katze da\t0-0 1-1 1p2\n"))
    expected = GoldAlignment(("the", "cat"), ("die", "Katze", "da"), frozenset({(0, 0), (1, 1)}), frozenset({(1, 2)}))
    assert found == [expected]


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("a\tb", "line 2: 2 columns, but source, target and links make 3"),
        ("a\tb\t0:0", 'line 2: "0:0" is not a link'),
        ("a\tb\t0-1", "line 2: link 0-1 points past the end: 1 source and 1 target words"),
    ],
)
def test_bad_gold_links_are_refused(write, line, expected):
    with pytest.raises(BadFile, match=expected):
        read_gold(write("a.tsv", f"a\tb\t0-0\n{line}\n"))
