"""`crosslift fit distill` from the shell's side."""

import json

import pytest

from crosslift import cli
from tests import tiny_data
from tests.tiny_models import save_encoder

QUICK = ["--steps", "2", "--batch-size", "16", "--evaluations", "1", "--learning-rate", "1e-3"]


@pytest.fixture
def files(tmp_path):
    """Text in two languages, a file of answers, an encoder."""
    examples = tiny_data.classification(80)
    (tmp_path / "en.txt").write_text("\n".join(examples.texts) + "\n")
    (tmp_path / "de.txt").write_text("\n".join(examples.texts) + "\n")
    rows = [{"text": t, "label": x} for t, x in zip(examples.texts, examples.labels, strict=True)]
    (tmp_path / "answers.jsonl").write_text("\n".join(map(json.dumps, rows)) + "\n")
    save_encoder(tmp_path / "encoder")
    return tmp_path


def test_two_steps_from_a_file_of_answers(files, capsys):
    code = cli.run(
        ["fit", "distill", "--teacher", str(files / "answers.jsonl"), "--text", f"en={files / 'en.txt'}",
         "--text", f"de={files / 'de.txt'}", "--bridge", str(files / "encoder"), "--student", str(files / "encoder"),
         "--out", str(files / "out"), "--json", *QUICK]
    )  # fmt: skip
    assert code == 0, capsys.readouterr().err
    found = json.loads(capsys.readouterr().out)
    assert list(found) == ["bridge", "de"]
    assert "no label was read" in found["de"]["seeds"][0]["selected_on"]
    assert cli.run(["predict", found["de"]["model"], "the tree is red today", "-q"]) == 0


def test_balanced_and_augmented_in_one_command(files, capsys):
    (files / "words-de.tsv").write_text("the\tdas\nred\trot\n")
    code = cli.run(
        ["fit", "distill", "--teacher", str(files / "answers.jsonl"), "--text", f"en={files / 'en.txt'}",
         "--text", f"de={files / 'de.txt'}", "--bridge", str(files / "encoder"), "--student", str(files / "encoder"),
         "--translator", f"dictionary:{files}/words-{{lang}}.tsv", "--augment", "noise", "--paraphrases", "2",
         "--out", str(files / "out"), *QUICK]
    )  # fmt: skip
    said = capsys.readouterr()
    assert code == 0, said.err
    assert "paraphrases (de)" in said.err, said.err
    bridge, student = (json.loads((files / "out" / x / "config.json").read_text()) for x in ("bridge", "student-de"))
    assert bridge["translations"] == ["de"]
    assert student["more_text"]["paraphrases"] == 2


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--text", "en=en.txt", "--bridge", "x"], "Two steps need text"),
        (["--text", "en.txt"], "--text takes name=value"),
        (["--text", "en=en.txt", "--temprature", "2"], "Did you mean --temperature"),
        (["--text", "en=en.txt", "--dev", "en.txt"], "--allow-target-dev"),
        (["--text", "en=en.txt", "--translator", "apertium"], "--into"),
        (["--text", "en=en.txt", "--augment", "noize:x"], "no kind of translator"),
    ],
)
def test_what_cannot_work_is_said_in_a_line(files, options, message, capsys, monkeypatch):
    monkeypatch.chdir(files)
    code = cli.run(["fit", "distill", "--teacher", "answers.jsonl", "--out", "out", *options])
    assert code == 2
    assert message in capsys.readouterr().err
