import gzip
import lzma

import pytest

from crosslift.data.files import find_file, format_suffix, read_lines
from crosslift.errors import BadFile


def write(folder, name, raw):
    path = folder / name
    path.write_bytes(raw)
    return path


@pytest.mark.parametrize(
    ("name", "pack"),
    [("a.txt", bytes), ("a.txt.gz", gzip.compress), ("a.txt.xz", lzma.compress)],
)
def test_plain_and_compressed_files_give_the_same_lines(tmp_path, name, pack):
    path = write(tmp_path, name, pack(b"eins\nzwei\n"))
    assert read_lines(path) == ["eins", "zwei"]


def test_byte_order_mark_and_crlf_are_dropped(tmp_path):
    path = write(tmp_path, "a.txt", b"\xef\xbb\xbfone\r\ntwo\r\n")
    assert read_lines(path) == ["one", "two"]


def test_only_a_line_feed_ends_a_line(tmp_path):
    odd = "a\x1cb\x1dc\x85d\u2028e\x0bf\rg"
    path = write(tmp_path, "a.txt", f"{odd}\nnext".encode())
    assert read_lines(path) == [odd, "next"]


def test_empty_lines_inside_are_kept(tmp_path):
    assert read_lines(write(tmp_path, "a.txt", b"a\n\nb\n\n")) == ["a", "", "b", ""]


@pytest.mark.parametrize(
    ("name", "raw", "message"),
    [
        ("a.txt", b"", "a.txt: is empty."),
        ("a.txt", b"\xef\xbb\xbf\n \n", "a.txt: is empty."),
        ("a.gz", b"", "a.gz: is empty."),
        ("a.txt", b"good\nb\xe9d\n", "a.txt, line 2: is not UTF-8 (byte 0xe9)."),
        ("a.txt", "a\nb".encode("utf-16"), "a.txt, line 1: is not UTF-8 (byte 0xff)."),
        ("a.txt", b"good\nb\0d\n", "a.txt, line 2: has a NUL character"),
        ("a.gz", gzip.compress(b"text" * 50, mtime=0)[:-12], "a.gz: is not a complete .gz file"),
        ("a.gz", b"plain", "a.gz: is not a .gz file.\n  If it is plain text, take .gz off its name."),
        ("a.xz", lzma.compress(b"text" * 50)[:-12], "a.xz: is not a complete .xz file"),
        ("a.xz", b"plain", "a.xz: is not a .xz file."),
        ("a.zip", b"PK", "a.zip: is an archive"),
        ("a.tar.gz", b"x", "a.tar.gz: is an archive"),
    ],
)
def test_unreadable_files_are_refused_with_file_line_and_reason(tmp_path, name, raw, message):
    with pytest.raises(BadFile) as error:
        read_lines(write(tmp_path, name, raw))
    assert message in str(error.value)


def test_missing_file_names_the_nearest_one(tmp_path):
    write(tmp_path, "train.tsv", b"x")
    with pytest.raises(BadFile, match=r'trian\.tsv: there is no such file\. Did you mean "train\.tsv"\?'):
        read_lines(tmp_path / "trian.tsv")


def test_missing_folder_and_folder_as_file_are_refused(tmp_path):
    with pytest.raises(BadFile, match="there is no folder"):
        read_lines(tmp_path / "no" / "a.txt")
    with pytest.raises(BadFile, match="is a folder, not a file"):
        read_lines(tmp_path)


def test_suffix_and_search_look_through_compression(tmp_path):
    path = write(tmp_path, "a.tsv.xz", lzma.compress(b"x"))
    assert format_suffix(path) == ".tsv"
    assert find_file(tmp_path / "a.tsv") == path
    assert find_file(tmp_path / "b.tsv") is None
