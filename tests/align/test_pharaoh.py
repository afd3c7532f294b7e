import gzip

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crosslift.align import Alignment, read_pharaoh, write_pharaoh
from crosslift.errors import BadFile


@given(rows=st.lists(st.frozensets(st.tuples(st.integers(0, 99), st.integers(0, 99)), max_size=6), max_size=6))
def test_what_is_written_is_read_back(rows, tmp_path_factory):
    path = tmp_path_factory.mktemp("links") / "a.links"
    write_pharaoh(path, Alignment.from_pairs(rows))
    found = read_pharaoh(path)
    assert [found.links(p) for p in range(len(found))] == [sorted(row) for row in rows]


@pytest.fixture
def write(tmp_path):
    def write(text, name="a.links"):
        path = tmp_path / name
        path.write_bytes(gzip.compress(text.encode()) if name.endswith(".gz") else text.encode())
        return path

    return write


def test_empty_lines_are_pairs_without_links(write):
    found = read_pharaoh(write("\n1-0 0-2\n\n"), [1, 2, 0], [1, 3, 5])
    assert [found.links(p) for p in range(3)] == [[], [(0, 2), (1, 0)], []]


def test_scores_are_kept_and_repetitions_are_not(write):
    found = read_pharaoh(write("0-0:0.5 0-0:0.5 1-1:1e-05\n", "a.gz"))
    assert found.links(0) == [(0, 0), (1, 1)]
    assert found.scores.tolist() == pytest.approx([0.5, 1e-5])


def test_scores_are_written_on_request(tmp_path, write):
    found = read_pharaoh(write("0-0:0.25\n"))
    write_pharaoh(tmp_path / "b", found, scores=True)
    write_pharaoh(tmp_path / "c", found)
    assert (tmp_path / "b").read_text() == "0-0:0.250\n"
    assert (tmp_path / "c").read_text() == "0-0\n"


@pytest.mark.parametrize(
    ("text", "line", "expected"),
    [
        ("0-0\n0-0 1_1\n", 2, '"1_1" is not a link'),
        ("0-0\n0-3\n", 2, "link 0-3 points past the end: the target has 3 words"),
        ("2-0\n\n", 1, "link 2-0 points past the end: the source has 2 words"),
        ("0-0\n0:0-1\n", 2, '"0:0-1" is not a link'),
        ("0-0\n1-1-1\n", 2, '"1-1-1" is not a link'),
        ("0-0\n-1-1\n", 2, '"-1-1" is not a link'),
        ("0-0\nein Satz\n", 2, '"ein" is not a link'),
        ("0-0\n0-0:1.2.3\n", 2, '"0-0:1.2.3" is not a link'),
        ("0-0:1-1\n\n", 1, '"0-0:1-1" is not a link'),
        ("0-0:.\n\n", 1, '"0-0:." is not a link'),
    ],
)
def test_bad_links_are_refused_with_their_line(write, text, line, expected):
    with pytest.raises(BadFile) as error:
        read_pharaoh(write(text), [2, 2], [3, 3])
    assert error.value.line == line
    assert expected in str(error.value)


def test_another_number_of_lines_is_refused(write):
    with pytest.raises(BadFile, match="has 1 lines for 2 sentence pairs"):
        read_pharaoh(write("0-0\n"), [1, 1], [1, 1])
