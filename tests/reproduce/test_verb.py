"""What the verb refuses before anything runs, and what it lists."""

import json
from pathlib import Path

import pytest

from crosslift.cli import run


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["ear.table1", "--model", "xlmr=x"], 'there is no place "xlmr". Did you mean "xlm-r"?'),
        (["ear.table1", "-m", "a", "-m", "b"], "two encoders for main: a and b"),
        (["ear.table1", "--resources", "nowhere"], "--resources: there is no folder nowhere."),
        (["ear.table1", "--seeds", "5-1"], '--seeds "5-1" names no seed.'),
        (["ear.table1", "--scale", "smal"], "It is smoke, small or paper."),
        (["ear.figure4", "--scale", "smoke", "--minutes", "-3"], "--minutes is 0 or more, not -3."),
        (["ear.table1", "--docs", "docs", "--results", "."], "--docs writes the pages of all records"),
        (["--docs", "docs", "--results", "nowhere"], "There is no folder of records nowhere."),
        ([], "Which table or figure?"),
    ],
)
def test_what_cannot_be_is_said_before_anything_runs(words, said, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert run(["reproduce", *words]) == 2
    assert said in " ".join(capsys.readouterr().err.split())
    assert not list(tmp_path.iterdir())


def test_a_place_that_no_chosen_table_has_is_named(tmp_path, capsys):
    assert run(["reproduce", "ear.table1", "--list", "--model", "mbert=x"]) == 0
    assert "in the place of mbert: it stays idle" in capsys.readouterr().err
    assert run(["reproduce", "ear.table1", "igap.table6", "--list", "--model", "mbert=x"]) == 0
    assert not capsys.readouterr().err


def test_a_folder_with_an_equals_sign_in_its_name_is_a_model(tmp_path, capsys):
    """As the folders of runs have."""
    folder = Path(tmp_path, "ear-push=noise")
    folder.mkdir()
    assert run(["reproduce", "ear.table1", "--list", "--json", "--model", str(folder)]) == 0
    (found,) = json.loads(capsys.readouterr().out)["entries"]
    assert found["entry"] == "ear.table1" and found["runs"] == 15 and found["why"]
