"""`crosslift translate`: text from files and standard input, labelled sets, paraphrases, and what it refuses."""

import io
import json

import pytest

from crosslift.cli import run
from crosslift.data import load


@pytest.fixture
def spanish(tmp_path):
    """A small dictionary."""
    file = tmp_path / "lexicon-es.tsv"
    file.write_text("dog\tperro\nhouse\tcasa\nthe\tel\nberlin\tBerlín\n", encoding="utf-8")
    return ["--from", "en", "--to", "es", "--with", f"dictionary:{tmp_path}/lexicon-{{lang}}.tsv"]


def test_standard_input_goes_to_standard_output_line_by_line(spanish, monkeypatch, capsys):
    monkeypatch.setattr("sys.stdin", io.StringIO("The dog.\n\nthe house\n"))
    assert run(["translate", "-", *spanish]) == 0
    assert capsys.readouterr().out == "El perro.\n\nel casa\n"


def test_a_text_file_keeps_its_lines_blank_ones_too(spanish, tmp_path, capsys):
    (tmp_path / "a.txt").write_text("the dog\n\nthe house\n", encoding="utf-8")
    out = tmp_path / "new" / "b.txt"
    assert run(["translate", str(tmp_path / "a.txt"), *spanish, "-o", str(out), "--json"]) == 0
    assert out.read_text(encoding="utf-8") == "el perro\n\nel casa\n"
    facts = json.loads(capsys.readouterr().out)
    assert facts == {"translator": "dictionary lexicon-es.tsv", "rows": 3, "left_out": {}, "out": str(out)}


def test_a_table_keeps_its_columns_and_loads_again(spanish, tmp_path):
    (tmp_path / "a.tsv").write_text(
        "note\tsentence\tlabel\nx\tthe dog\tanimal\ny\tthe house\tthing\n", encoding="utf-8"
    )
    out = tmp_path / "b.tsv"
    assert run(["translate", str(tmp_path / "a.tsv"), *spanish, "-o", str(out), "-q"]) == 0
    assert out.read_text(encoding="utf-8") == "note\tsentence\tlabel\nx\tel perro\tanimal\ny\tel casa\tthing\n"
    assert load(out).labels == ["animal", "thing"]


def test_tags_are_carried_over(spanish, tmp_path):
    (tmp_path / "a.conll").write_text("the\tO\ndog\tO\nin\tO\nBerlin\tB-LOC\n", encoding="utf-8")
    out = tmp_path / "b.conll"
    assert run(["translate", str(tmp_path / "a.conll"), *spanish, "-o", str(out), "-q"]) == 0
    found = load(out, language="es")
    assert found.words(0) == ["el", "perro", "in", "Berlín"]
    assert found.labels == [["O", "O", "O", "B-LOC"]]


def test_a_catalog_set_is_translated_with_its_parallel_ids(spanish, tmp_path):
    out = tmp_path / "demo.jsonl"
    assert run(["translate", "demo-intent", "--split", "train", "--limit", "5", *spanish, "-o", str(out), "-q"]) == 0
    found, original = load(out), load("demo-intent", language="en", split="train", limit=5)
    assert (found.labels, found.parallel_ids) == (original.labels, original.parallel_ids)
    assert found.language == "es"


def test_a_language_into_itself_gives_paraphrases(tmp_path, capsys):
    (tmp_path / "a.txt").write_text("the quick brown fox jumps over the lazy dog\n\nyes\n", encoding="utf-8")
    out = tmp_path / "b.txt"
    words = ["translate", str(tmp_path / "a.txt"), "--from", "en", "--to", "en", "--with", "noise", "--samples", "3"]
    assert run([*words, "-o", str(out), "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    lines = out.read_text(encoding="utf-8").splitlines()
    assert lines[:2] == ["the quick brown fox jumps over the lazy dog", "yes"]
    assert len(lines) == 2 + facts["paraphrases"] == facts["rows"]
    assert facts["left_out"]["copy"] >= 3  # a text of one word cannot be disturbed


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["a.tsv"], "Where should the translation of a.tsv go?\n  Say it with --out."),
        (["-", "--json"], "With --json the translations need a file of their own."),
        (["a.tsv", "-o", "b.xlsx"], "b.xlsx: a table is written as .tsv, .csv or .jsonl."),
        (["-", "--to", "en", "--label-with", "x"], "Paraphrases carry no labels"),
        (["-", "--with", "noise"], "noise disturbs a text; it does not translate."),
        (["-", "--with", "dictionary:none.tsv"], "none.tsv: there is no such file."),
        (["missing.txt"], "missing.txt: there is no such file."),
    ],
)
def test_what_cannot_work_is_said_in_a_line(spanish, tmp_path, monkeypatch, capsys, words, message):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.stdin", io.StringIO("the dog\n"))
    (tmp_path / "a.tsv").write_text("text\tlabel\nthe dog\tanimal\n", encoding="utf-8")
    assert run(["translate", *spanish, *words]) == 2
    assert message in capsys.readouterr().err
