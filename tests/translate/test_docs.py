"""What docs/translate.md shows works: its Python runs, its commands are ones there are."""

import re
import shlex
from pathlib import Path

import pytest

from crosslift import cli

PAGE = (Path(__file__).parents[2] / "docs" / "translate.md").read_text(encoding="utf-8")


def snippets(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)


class Reached(Exception):
    """The command was understood; its work need not be done."""


@pytest.mark.parametrize(
    "words", [shlex.split(line) for text in snippets("") for line in text.splitlines()], ids=" ".join
)
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


@pytest.mark.parametrize("snippet", snippets("python"))
def test_the_python_runs(snippet, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    Path("lexicon-es.tsv").write_text("the\tel\nalarm\talarma\n", encoding="utf-8")
    exec(compile(snippet, "translate.md", "exec"), {})
    assert "Examples(demo-intent" in capsys.readouterr().out
