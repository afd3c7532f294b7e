"""What the README shows works: its Python runs, its commands are ones there are."""

import re
from pathlib import Path

import pytest

import crosslift as xl
from crosslift import cli
from crosslift.models import load
from tests.snippets import commands, snippets
from tests.tiny_models import save_encoder

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")


class Reached(Exception):
    """The command was understood; its work need not be done."""


@pytest.fixture
def minis(tmp_path, monkeypatch):
    """The embedded encoders; tiny random ones stand in for those that this copy lacks."""
    if {"mini-x", "mini-en"} - set(load.embedded_names()):
        for name in ("mini-x", "mini-en"):
            save_encoder(tmp_path / "minis" / name)
        monkeypatch.setattr(load, "EMBEDDED", tmp_path / "minis")


@pytest.mark.parametrize("snippet", [one.text for one in snippets(README, "python")])
def test_the_python_of_the_readme_runs(snippet, minis, tmp_path, monkeypatch, capsys):
    """With a few steps and examples instead of whole runs: what is shown is how to call it."""
    real_fit, real_evaluate = xl.fit, xl.evaluate
    short = {"steps": 2, "evaluations": 1, "batch_size": 4, "limit": 40}
    monkeypatch.setattr(xl, "fit", lambda *a, **k: real_fit(*a, **k, **short), raising=False)
    monkeypatch.setattr(xl, "evaluate", lambda *a, **k: real_evaluate(*a, **k, limit=8), raising=False)
    monkeypatch.chdir(tmp_path)
    exec(compile(snippet, "README.md", "exec"), {})
    assert "±" in capsys.readouterr().out


@pytest.mark.parametrize("words", [words for words in commands(README) if words[0] == "crosslift"], ids=" ".join)
def test_the_commands_of_the_readme_are_understood(words, monkeypatch):
    """Every verb and option is known, and the verb's work is called."""

    def reached(*_, **__):
        raise Reached

    for name in (
        "fit.fit",
        "evaluate.evaluate",
        "evaluate.predict",
        "compare.compare",
        "demo.demo",
        "pretrain.pretrain",
    ):
        monkeypatch.setattr(f"crosslift.runs.{name}", reached)
    with pytest.raises(Reached):
        cli.run(words[1:])


@pytest.mark.parametrize("words", [words for words in commands(README) if words[0] == "make"], ids=" ".join)
def test_the_make_targets_of_the_readme_exist(words):
    targets = re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert set(words[1:]) <= set(targets)


def test_every_file_that_the_readme_links_to_exists():
    links = re.findall(r"\]\((?!http)([^)#]+)", README)
    assert links
    assert [link for link in links if not (ROOT / link).exists()] == []


def test_the_methods_of_the_readme_are_the_ones_there_are():
    from crosslift.cli.fit import OTHER_VERBS
    from crosslift.methods import METHODS

    rows = [line.split("|") for line in README.splitlines() if line.startswith("|") and "](docs/" in line]
    named = {name for row in rows for name in re.findall(r"`([a-z]+)`", row[2])}
    assert named == {*METHODS, *OTHER_VERBS, "measure"}


def test_every_page_that_the_readme_names_is_there():
    pages = re.findall(r"\]\(([^)#]+\.md)\)", README)
    assert len(pages) > 10 and [page for page in pages if not (ROOT / page).exists()] == []
