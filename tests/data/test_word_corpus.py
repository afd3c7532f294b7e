"""Text as word numbers, and rows cut from it."""

import gzip
import lzma
import os

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from crosslift.data import row_plan, word_corpus
from crosslift.data.row_plan import RowPlan
from crosslift.data.tokenise import Workers
from crosslift.data.word_corpus import DOCUMENT_END, LINE_END, block_words, write_word_corpus
from crosslift.errors import BadFile, BadInput

TEXT = "the dog sleeps\nthe cat  runs\n\nan old house\n"


def write(path, text=TEXT):
    data = text.encode()
    packed = {".gz": gzip.compress, ".xz": lzma.compress}.get(path.suffix, bytes)(data)
    path.write_bytes(packed)
    return path


@pytest.mark.parametrize("name", ["a.txt", "a.txt.gz", "a.txt.xz"])
def test_a_text_becomes_numbers_and_back(name, tmp_path):
    corpus = write_word_corpus([write(tmp_path / name)], tmp_path / "words")
    assert corpus.words[2:] == ["the", "dog", "sleeps", "cat", "runs", "an", "old", "house"]
    assert corpus.numbers.tolist() == [2, 3, 4, 0, 2, 5, 6, 0, 1, 7, 8, 9, 0, 1]
    assert corpus.text(0, 14).split("\n") == ["the dog sleeps", "the cat runs", "", "an old house"]


def test_a_byte_order_mark_is_no_part_of_the_first_word(tmp_path):
    (tmp_path / "a.txt").write_text("One line\nand another\n", encoding="utf-8-sig")
    assert write_word_corpus([tmp_path / "a.txt"], tmp_path / "words").text(0, 99) == "One line\nand another"
    # A line that is left out is found, too.
    corpus = write_word_corpus([tmp_path / "a.txt"], tmp_path / "fewer", exclude=["One line"])
    assert corpus.words[2:] == ["and", "another"]


def test_small_blocks_and_several_processes_give_the_same_numbers(tmp_path, monkeypatch):
    lines = [" ".join(f"w{(i * k) % 37}" for k in range(1 + i % 7)) + ("\n" if i % 5 == 0 else "") for i in range(300)]
    file = write(tmp_path / "a.txt", "\n".join(lines))
    whole = write_word_corpus([file], tmp_path / "whole")
    monkeypatch.setattr(word_corpus, "_BLOCK", 64)
    cut = write_word_corpus([file], tmp_path / "cut")
    with Workers(2) as workers:
        shared = write_word_corpus([file], tmp_path / "shared", workers)
    assert whole.words == cut.words == shared.words
    # A blank line that opens a block ends a document that the block before has closed already, or not: same text.
    assert whole.numbers[whole.numbers > 1].tolist() == cut.numbers[cut.numbers > 1].tolist()
    assert cut.numbers.tolist() == shared.numbers.tolist()


def test_documents_end_alike_however_the_file_is_read(tmp_path, monkeypatch):
    file = write(tmp_path / "a.txt", "a b\n\nc d\n\n\ne f\n")
    ends = []
    for size in (1 << 20, 6, 5, 4):
        monkeypatch.setattr(word_corpus, "_BLOCK", size)
        corpus = write_word_corpus([file], tmp_path / f"words{size}")
        ends.append(corpus.text(0, len(corpus.numbers)).split())
        assert (corpus.numbers == LINE_END).sum() == 3
    assert all(end == ["a", "b", "c", "d", "e", "f"] for end in ends)


def test_what_was_read_is_opened_again_and_read_anew_when_the_file_changes(tmp_path):
    file = write(tmp_path / "a.txt")
    write_word_corpus([file], tmp_path / "words")
    before = (tmp_path / "words" / "numbers.i32").stat().st_mtime_ns
    write_word_corpus([file], tmp_path / "words")
    assert (tmp_path / "words" / "numbers.i32").stat().st_mtime_ns == before
    write(file, TEXT + "more words\n")
    assert "more" in write_word_corpus([file], tmp_path / "words").words
    # As long as before, and written later.
    write(file, TEXT + "less words\n")
    os.utime(file, ns=(before + 10**9, before + 10**9))
    assert "less" in write_word_corpus([file], tmp_path / "words").words


def test_lines_can_be_left_out_whatever_their_spaces(tmp_path):
    corpus = write_word_corpus([write(tmp_path / "a.txt")], tmp_path / "words", exclude={"the cat runs"})
    assert "cat" not in corpus.words


def test_text_that_was_read_without_some_lines_is_not_taken_for_text_without_others(tmp_path):
    file = write(tmp_path / "a.txt")
    assert "cat" not in write_word_corpus([file], tmp_path / "words", exclude={"the cat runs"}).words
    other = write_word_corpus([file], tmp_path / "words", exclude={"the dog sleeps"})
    assert "cat" in other.words and "sleeps" not in other.words


def test_bad_text_is_named_with_its_line(tmp_path):
    file = tmp_path / "a.txt"
    file.write_bytes(b"good\nstill good\nbad \xff line\n")
    with pytest.raises(BadFile, match=r"line 3: is not UTF-8 \(byte 0xff\)"):
        write_word_corpus([file], tmp_path / "words")
    with pytest.raises(BadFile, match="no such file"):
        write_word_corpus([tmp_path / "none.txt"], tmp_path / "other")
    (tmp_path / "empty.txt").write_text("\n\n")
    with pytest.raises(BadInput, match="no text"):
        write_word_corpus([tmp_path / "empty.txt"], tmp_path / "third")
    (tmp_path / "torn.txt.xz").write_bytes(lzma.compress(b"some words\n" * 1000)[:-20])
    with pytest.raises(BadFile, match="cannot be read to its end"):
        write_word_corpus([tmp_path / "torn.txt.xz"], tmp_path / "fourth")


@given(st.lists(st.sampled_from(["a", "b c", "", "  ", "d e f"]), max_size=12))
def test_a_block_has_a_mark_after_each_line_and_document(lines):
    words, numbers = block_words("\n".join(lines).encode(), True, frozenset())
    kept = [line for line in lines if line.strip()]
    assert (numbers == LINE_END).sum() == len(kept)
    assert [words[n - 2] for n in numbers if n > 1] == " ".join(kept).split()
    if kept:
        assert numbers[-1] == DOCUMENT_END


def plan(tmp_path, packing, room=10, numbers=None, longest=25):
    made = np.array([2, 3, 4, 0, 2, 5, 0, 1, 6, 0, 1] * 20 if numbers is None else numbers, dtype=np.int32)
    lengths = np.array([1, 0, 2, 1, 1, 3, longest], dtype=np.int64)
    return RowPlan(made, lengths, room, packing, tmp_path / "running"), made, lengths


def test_rows_over_the_corpus_leave_no_gap_and_are_long_enough(tmp_path):
    rows, numbers, lengths = plan(tmp_path, "corpus", longest=4)
    first, stop = rows.rows(seed=1, epoch=0)
    tokens = [lengths[numbers[a:b]].sum() for a, b in zip(first, stop, strict=True)]
    assert all(t >= 10 for t in tokens[:-1])
    assert all(a <= b for a, b in zip(first[1:], stop[:-1], strict=True))  # the next begins before this one ends
    assert not np.array_equal(first, rows.rows(seed=1, epoch=1)[0])


@pytest.mark.parametrize(("packing", "mark"), [("documents", DOCUMENT_END), ("lines", LINE_END)])
def test_rows_within_documents_and_lines_hold_every_word_once(packing, mark, tmp_path):
    rows, numbers, lengths = plan(tmp_path, packing)
    first, stop = rows.rows(0, 0)
    held = np.concatenate([np.arange(a, b) for a, b in zip(first, stop, strict=True)])
    counted = lengths[numbers] > 0
    if packing == "lines":  # a row that is a line closes by itself
        counted &= numbers != LINE_END
        assert not (numbers[held] == LINE_END).any()
    with_tokens = np.flatnonzero(counted)
    assert len(np.unique(held)) == len(held)
    assert set(with_tokens) <= set(held)
    for a, b in zip(first, stop, strict=True):
        assert (numbers[a : b - 1] != mark).all()  # no row runs over a mark


@pytest.mark.parametrize("packing", ["corpus", "documents", "lines"])
def test_a_steps_rows_depend_on_seed_and_step_alone(packing, tmp_path):
    one, *_ = plan(tmp_path, packing)
    two, *_ = plan(tmp_path / "other", packing)
    for step in (0, 3, 1, 40, 7):
        two.step(1, step + 1, 4)
        a, b = one.step(1, step, 4), two.step(1, step, 4)
        assert np.array_equal(a[0], b[0])
        assert np.array_equal(a[1], b[1])
    assert not np.array_equal(one.step(1, 0, 4)[0], one.step(2, 0, 4)[0])


@pytest.mark.parametrize("packing", ["documents", "lines"])
def test_a_pass_sees_no_row_twice(packing, tmp_path):
    rows, *_ = plan(tmp_path, packing)
    total = len(rows.rows(1, 0)[0])
    seen: list[int] = []
    step = 0
    while len(seen) + 4 <= total:
        new = rows.step(1, step, 4)[0].tolist()
        if len(seen) + len(new) > total:
            break
        seen += new
        step += 1
    assert len(set(seen)) == len(seen)
    assert len(seen) > total // 2


def test_a_text_without_words_is_refused(tmp_path):
    with pytest.raises(BadInput, match="too little text"):
        plan(tmp_path, "corpus", numbers=[1, 1, 1])


def test_passes_over_lines_are_cut_once_each(tmp_path, monkeypatch):
    rows, *_ = plan(tmp_path, "lines")
    made = []
    real = row_plan.training_batches

    def counted(*args, **named):
        made.append(args[3])
        return real(*args, **named)

    monkeypatch.setattr(row_plan, "training_batches", counted)
    for step in range(60):
        rows.step(1, step, 4)
    assert made == sorted(set(made))
    assert len(made) > 2
