"""Translations are made once, and a killed job goes on where it was."""

import signal
import sqlite3
import subprocess
import sys

import pytest

from crosslift.errors import BrokenRun, CrossliftError
from crosslift.translate import cache_folder, translate_all


class Shouting:
    """Translates into capitals and remembers what it was asked."""

    name, source, target, fingerprint, chunk = "shouting", "en", "xx", "shouting-1", 2

    def __init__(self, dies_at=None):
        self.asked = []
        self.dies_at = dies_at

    def translate(self, texts):
        if self.dies_at is not None and len(self.asked) == self.dies_at:
            raise KeyboardInterrupt
        self.asked.append(list(texts))
        return [text.upper() for text in texts]


TEXTS = ["a", "dddd", "", "bb", "a", "ccc", "  ", "eeeee"]
EXPECTED = ["A", "DDDD", "", "BB", "A", "CCC", "", "EEEEE"]


def test_order_is_kept_each_text_is_asked_once_and_the_longest_come_first():
    translator = Shouting()
    assert translate_all(translator, TEXTS) == EXPECTED
    assert translator.asked == [["eeeee", "dddd"], ["ccc", "bb"], ["a"]]


def test_what_is_known_is_not_asked_again(tmp_path):
    translate_all(Shouting(), TEXTS[:4], cache=tmp_path)
    again = Shouting()
    assert translate_all(again, TEXTS, cache=tmp_path) == EXPECTED
    assert sorted(text for chunk in again.asked for text in chunk) == ["ccc", "eeeee"]
    third = Shouting()
    assert translate_all(third, TEXTS, cache=tmp_path) == EXPECTED
    assert third.asked == []


@pytest.mark.parametrize("dies_at", [0, 1, 2])
def test_a_killed_job_keeps_its_finished_chunks(tmp_path, dies_at):
    with pytest.raises(KeyboardInterrupt):
        translate_all(Shouting(dies_at), TEXTS, cache=tmp_path)
    rest = Shouting()
    assert translate_all(rest, TEXTS, cache=tmp_path) == EXPECTED
    assert rest.asked == [["eeeee", "dddd"], ["ccc", "bb"], ["a"]][dies_at:]


KILLED = """
import os, signal, sys
from crosslift.translate import translate_all

class Fragile:
    name, source, target, fingerprint, chunk = "fragile", "en", "xx", "fragile", 10
    asked = 0
    def translate(self, texts):
        self.asked += 1
        if self.asked > int(sys.argv[2]):
            os.kill(os.getpid(), signal.SIGKILL)
        return [text.upper() for text in texts]

translator = Fragile()
made = translate_all(translator, [f"text {i:04d}" for i in range(95)], cache=sys.argv[1])
assert made == [f"TEXT {i:04d}" for i in range(95)]
print(translator.asked)
"""


def test_a_process_killed_outright_loses_one_chunk_at_most(tmp_path):
    def start(chunks):
        words = [sys.executable, "-c", KILLED, str(tmp_path), str(chunks)]
        return subprocess.run(words, capture_output=True, text=True, check=False)

    assert [start(3).returncode, start(4).returncode] == [-signal.SIGKILL] * 2
    assert start(99).stdout == "3\n"  # ten chunks, of which seven were saved before


def test_another_fingerprint_is_another_cache(tmp_path):
    translate_all(Shouting(), ["a"], cache=tmp_path)
    other = Shouting()
    other.fingerprint = "shouting-2"
    translate_all(other, ["a"], cache=tmp_path)
    assert other.asked == [["a"]]
    assert len(list(tmp_path.glob("*.sqlite"))) == 2


def test_a_translator_with_no_chunk_gets_everything_at_once_and_leaves_no_file(tmp_path):
    translator = Shouting()
    translator.chunk = 0
    assert translate_all(translator, TEXTS, cache=tmp_path) == EXPECTED
    assert len(translator.asked) == 1
    assert list(tmp_path.iterdir()) == []


def test_progress_counts_different_texts(tmp_path):
    seen = []
    translate_all(Shouting(), TEXTS, cache=tmp_path, progress=lambda done, total: seen.append((done, total)))
    assert seen == [(2, 5), (4, 5), (5, 5)]


def test_nothing_to_translate_is_no_error():
    translator = Shouting()
    assert translate_all(translator, ["", " "]) == ["", ""]
    assert translate_all(translator, []) == []
    assert translator.asked == []


def test_a_broken_cache_file_is_named(tmp_path):
    file = tmp_path / "en-xx-shouting-1.sqlite"
    file.write_bytes(b"this is no database, but it is long enough to be taken for one" * 10)
    with pytest.raises(BrokenRun, match=r"en-xx-shouting-1\.sqlite cannot be used: file is not a database"):
        translate_all(Shouting(), ["a"], cache=tmp_path)


def test_two_processes_may_write_the_same_file(tmp_path):
    translate_all(Shouting(), ["a"], cache=tmp_path)
    with sqlite3.connect(tmp_path / "en-xx-shouting-1.sqlite") as other:
        other.execute("INSERT OR REPLACE INTO translations VALUES ('bb', 'from elsewhere')")
    other.close()
    assert translate_all(Shouting(), ["bb", "a"], cache=tmp_path) == ["from elsewhere", "A"]


def test_a_translator_that_loses_texts_is_caught():
    translator = Shouting()
    translator.translate = lambda texts: ["only one"]
    with pytest.raises(CrossliftError, match="shouting gave 1 translations of 2 texts"):
        translate_all(translator, ["a", "b"])


def test_the_cache_is_where_the_environment_says(monkeypatch, tmp_path):
    monkeypatch.setenv("CROSSLIFT_CACHE", str(tmp_path))
    assert cache_folder() == tmp_path / "translations"
    monkeypatch.delenv("CROSSLIFT_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert cache_folder() == tmp_path / "xdg" / "crosslift" / "translations"
