"""What the README shows works: its Python runs, its commands are ones there are."""

import re
import shlex
from pathlib import Path

import pytest

import crosslift as xl
from crosslift import cli
from crosslift.models.load import embedded_names
from crosslift.runs import fit as fitting

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")


def snippets(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", README, re.MULTILINE | re.DOTALL)


def commands() -> list[list[str]]:
    lines = [line for snippet in snippets("sh") for line in snippet.splitlines()]
    return [words for line in lines if (words := shlex.split(line, comments=True))]


@pytest.mark.skipif("mini-x" not in embedded_names(), reason="needs the embedded encoder")
@pytest.mark.parametrize("snippet", snippets("python"))
def test_the_python_of_the_readme_runs(snippet, tmp_path, monkeypatch, capsys):
    """With a step or two instead of whole runs: what is shown is how to call it."""
    real_fit, real_evaluate = fitting.fit, xl.evaluate
    short = {"steps": 2, "evaluations": 1, "batch_size": 4, "limit": 40}
    monkeypatch.setattr(xl, "fit", lambda *a, **k: real_fit(*a, **k, **short), raising=False)
    monkeypatch.setattr(xl, "evaluate", lambda *a, **k: real_evaluate(*a, **k, limit=8), raising=False)
    monkeypatch.chdir(tmp_path)
    exec(compile(snippet, "README.md", "exec"), {})
    assert "±" in capsys.readouterr().out


@pytest.mark.parametrize("words", [words for words in commands() if words[0] == "crosslift"], ids=" ".join)
def test_the_commands_of_the_readme_are_understood(words, monkeypatch):
    """Every verb and option is known; the work itself is not done."""
    called = []
    for name in ("crosslift.runs.fit.fit", "crosslift.runs.evaluate.evaluate", "crosslift.runs.compare.compare"):
        monkeypatch.setattr(name, lambda *a, **k: called.append((a, k)) or pytest.skip.Exception)
    verb = words[1]
    try:
        code = cli.run(words[1:])
    except AttributeError:  # our stand-in has no table
        code = 0
    assert code == 0
    assert len(called) == 1, f"{verb} did not reach its work"


@pytest.mark.parametrize("words", [words for words in commands() if words[0] == "make"], ids=" ".join)
def test_the_make_targets_of_the_readme_exist(words):
    targets = re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert set(words[1:]) <= set(targets)


def test_every_file_that_the_readme_links_to_exists():
    links = re.findall(r"\]\((?!http)([^)#]+)", README)
    assert links
    assert [link for link in links if not (ROOT / link).exists()] == []


def test_the_methods_that_the_readme_calls_here_are_the_ones_there_are():
    from crosslift.methods import METHODS

    rows = [line for line in README.splitlines() if line.startswith("|") and line.rstrip().endswith("| here |")]
    named = {name for row in rows for name in re.findall(r"`([a-z]+)`", row.split("|")[2])}
    assert named == set(METHODS)
