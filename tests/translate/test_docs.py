"""The commands of docs/translate.md reach the work that they name (its Python: tests/test_docs.py)."""

from pathlib import Path

import pytest

from crosslift import cli
from tests.snippets import commands

PAGE = (Path(__file__).parents[2] / "docs" / "translate.md").read_text(encoding="utf-8")


class Reached(Exception):
    """The command was understood; its work need not be done."""


@pytest.mark.parametrize("words", commands(PAGE), ids=" ".join)
def test_the_commands_are_understood(words, monkeypatch):
    def reached(*_, **__):
        raise Reached

    for name in (
        "runs.fit.fit",
        "runs.distill.distill",
        "runs.compare.compare",
        "runs.translate_baselines.translate_test",
        "runs.translate_data.translate_data",
        "runs.translate_data.paraphrase_data",
        "data.load",
    ):
        monkeypatch.setattr(f"crosslift.{name}", reached)
    monkeypatch.setattr("crosslift.translate.open_translator", lambda *_, **__: None)
    with pytest.raises(Reached):
        cli.run(words[1:])
