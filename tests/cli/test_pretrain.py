import json

import pytest
import typer
from typer.testing import CliRunner

from crosslift.cli.pretrain import command
from crosslift.errors import BadInput

SMALL = "--steps 1 --layers 1 --width 16 --heads 2 --feedforward 32 --pieces 60 --window 16 --window-tokens 64".split()  # noqa: SIM905


def run(*arguments):
    app = typer.Typer()
    app.command("pretrain")(command(["pretrain"]))
    return CliRunner().invoke(app, list(arguments), standalone_mode=False)


@pytest.fixture
def text(tmp_path):
    file = tmp_path / "en.txt"
    file.write_text("the small dog sleeps near the old house\n" * 200, encoding="utf-8")
    return file


def test_text_becomes_an_encoder(text, tmp_path):
    result = run("--out", str(tmp_path / "run"), "--text", f"en={text}", *SMALL, "--json")
    assert result.exception is None
    shown = json.loads(result.stdout)
    assert shown["stuck"] and set(shown["held_out"]) == {"en"}
    assert (tmp_path / "run" / "model" / "model.safetensors").exists()


def test_help_shows_the_defaults_of_pretraining():
    result = run("--help")
    assert "--learning-rate" in result.output and "0.0006" in result.output
    assert "--mask-rate" in result.output and "--teacher" in result.output


def test_a_file_without_a_language_is_an_error(text, tmp_path):
    result = run("--out", str(tmp_path / "run"), "--text", str(text))
    assert isinstance(result.exception, BadInput)
    assert "name=value" in str(result.exception)


def test_from_and_tokenizer_exclude_each_other(text, tmp_path):
    result = run("--out", str(tmp_path), "--text", f"en={text}", "--from", "x", "--tokenizer", "y")
    assert "--from keeps" in str(result.exception)


def test_the_light_form_has_the_same_description():
    assert command(["ls"]).__doc__ == command(["pretrain"]).__doc__
