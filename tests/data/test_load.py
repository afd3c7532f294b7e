import json

import pytest

from crosslift.data import languages_of, load, splits_of
from crosslift.errors import BadFile, BadInput, MissingExtra


def message(*arguments, **options):
    with pytest.raises(BadInput) as error:
        load(*arguments, **options)
    return str(error.value)


@pytest.fixture
def text_file(tmp_path):
    path = tmp_path / "a.txt"
    path.write_text("Hello there.\n\nGood bye.\n")
    return path


def test_plain_text_is_one_example_a_line(text_file):
    examples = load(text_file, language="en")
    assert (examples.kind, examples.ids) == ("text", ["1", "3"])
    assert examples.texts == ["Hello there.", "Good bye."]
    assert examples.skipped == {"empty text": 1}


def test_plain_text_to_predict_becomes_examples_of_the_task(text_file):
    assert load(text_file, kind="classification", unlabelled=True).kind == "classification"
    tagged = load(text_file, kind="tagging", language="en", unlabelled=True)
    assert tagged.words(0) == ["Hello", "there", "."]
    assert "holds no classification examples" in message(text_file, kind="classification")


def test_a_file_is_taken_whole_whatever_the_split(text_file):
    assert len(load(str(text_file), split="test")) == 2


def test_a_name_is_looked_up_in_the_catalog(tmp_path):
    folder = tmp_path / "xquad"
    folder.mkdir()
    asked = {"id": "q", "question": "When?", "answers": [{"text": "now", "answer_start": 3}]}
    tree = {"data": [{"paragraphs": [{"context": "So now.", "qas": [asked]}]}]}
    (folder / "xquad.de.json").write_text(json.dumps(tree))
    examples = load("xquad", language="de", root=tmp_path)
    assert (examples.name, examples.parallel_ids) == ("xquad", ["q"])


def test_the_wrong_name_gets_the_nearest_of_the_catalog():
    text = message("xnlii", language="de", split="test")
    assert text.startswith('"xnlii" is neither a file, nor a set of the catalog, nor a hub id. Did you mean "xnli"?')


def test_a_missing_file_is_named_with_its_neighbour(text_file):
    assert 'there is no such file. Did you mean "a.txt"?' in message(text_file.with_name("b.txt"))
    assert "there is no folder" in message("no-such-folder/x.tsv")
    assert "there is no such file" in message("nothing.tsv")


def test_a_folder_is_no_file_and_does_not_hide_a_set(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "xnli").mkdir()
    (tmp_path / "own" / "set").mkdir(parents=True)
    assert "own/set: is a folder, not a file." in message("own/set")
    assert "Did you mean" in message("xnli", language="dee", split="test")


def test_the_hub_out_of_reach_is_one_clear_error():
    pytest.importorskip("datasets")
    text = message("nobody/nothing", split="train")
    assert text.startswith('"nobody/nothing" cannot be read from the hub: ')
    assert text.count("\n") == 1


def test_without_datasets_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "datasets", None)
    with pytest.raises(MissingExtra, match=r'pip install "crosslift\[data\]"'):
        load("nobody/nothing")


def test_without_pyarrow_the_extra_is_named(tmp_path, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "pyarrow", None)
    (tmp_path / "a.parquet").write_bytes(b"PAR1")
    with pytest.raises(MissingExtra, match=r'pip install "crosslift\[data\]"'):
        load(tmp_path / "a.parquet")


def test_unknown_options_get_the_nearest_match(text_file):
    assert 'There is no kind "clasification". Did you mean "classification"?' in message(
        text_file, kind="clasification"
    )
    assert 'There is no format "jsonlines".' in message(text_file, format="jsonlines")
    assert "The limit must be at least 1, not 0." in message(text_file, limit=0)


def test_a_name_that_says_nothing_asks_for_the_format(tmp_path):
    path = tmp_path / "data.bin"
    path.write_text("a\tx\n")
    assert "its name does not say what kind of file it is.\n  Say what it is with --format: csv," in message(path)
    assert load(path, format="tsv").labels == ["x"]


def test_languages_and_splits_can_be_listed(tmp_path, text_file):
    table = tmp_path / "m.tsv"
    table.write_text("text\tlang\na\tde\nb\ten\nc\tde\n")
    assert languages_of(table) == ["de", "en"]
    assert languages_of(text_file) == ["und"]
    for code in ("de", "pt-BR"):
        (tmp_path / f"x.{code}.tsv").write_text("a\n")
    assert languages_of(tmp_path / "x.{lang}.tsv") == ["de", "pt-BR"]
    with pytest.raises(BadFile, match="no file fits this name"):
        languages_of(tmp_path / "y.{lang}.tsv")
    assert splits_of("xnli", root=tmp_path) == ["train", "dev", "test"]
    assert splits_of(text_file) == []
