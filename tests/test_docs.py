"""The site of docs/: every page is reached, every link leads somewhere, every snippet is one that works."""

import ast
import inspect
import re
import shutil
import sys
from pathlib import Path
from types import ModuleType

import pytest
from transformers import AutoModelForMaskedLM

import crosslift as xl
from crosslift import cli, demo, methods
from crosslift.models import load
from tests.snippets import commands, options, parse, snippets, verbs
from tests.tiny_models import config_for, save_encoder, tokenizer_for

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
PAGES = {page.relative_to(DOCS).as_posix(): page.read_text(encoding="utf-8") for page in sorted(DOCS.rglob("*.md"))}
SITE = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")


def test_the_nav_holds_every_page_once_and_nothing_else():
    nav = re.findall(r"^ +- .*?([\w/-]+\.md)$", SITE.partition("\nnav:")[2], re.MULTILINE)
    assert sorted(nav) == sorted(PAGES)


def anchors(page: str) -> set[str]:
    """The anchors of a page's headings, as Python-Markdown makes them."""
    headings = re.findall(r"^#+ (.*)$", re.sub(r"^```.*?^```", "", page, flags=re.MULTILINE | re.DOTALL), re.MULTILINE)
    plain = [re.sub(r"[^\w\s-]", "", heading.replace("`", "")).strip().lower() for heading in headings]
    return {re.sub(r"[-\s]+", "-", heading) for heading in plain}


@pytest.mark.parametrize("name", PAGES)
def test_every_link_of_a_page_leads_somewhere(name):
    text = re.sub(r"^ *```.*?^ *```", "", PAGES[name], flags=re.MULTILINE | re.DOTALL)
    for link in re.findall(r"\]\(([^)\s]+)\)", text):
        assert not re.match(r"\w+:", link), f"{link}: the pages stand by themselves"
        path, _, anchor = link.partition("#")
        target = (DOCS / name).parent / path if path else DOCS / name
        assert target.exists(), link
        assert target.resolve().is_relative_to(DOCS), f"{link}: outside the site"
        if anchor:
            assert anchor in anchors(target.read_text(encoding="utf-8")), link


@pytest.mark.parametrize("name", PAGES)
def test_a_page_has_one_title_and_says_what_language_its_snippets_are_in(name):
    bare = re.sub(r"^ *```.*?^ *```", "", PAGES[name], flags=re.MULTILINE | re.DOTALL)
    assert len(re.findall(r"^# ", bare, re.MULTILINE)) == 1
    assert {one.language for one in snippets(PAGES[name])} <= {"sh", "python", "yaml", "text", "json"}


SHOWN = {f"{name}: {' '.join(words)}": words for name, page in PAGES.items() for words in commands(page)}


@pytest.mark.parametrize("words", SHOWN.values(), ids=SHOWN)
def test_a_command_of_the_docs_is_understood(words):
    if words[0] == "make":
        targets = re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
        assert set(words[1:]) <= set(targets)
    elif words[0] == "crosslift":
        parse(words[1:])
    else:
        assert words[0] in {"cd", "git", "pip", "apt-get", "mkdocs", "pytest", "python"}, "what is this?"


@pytest.mark.parametrize(
    ("words", "error"),
    [(["fitt"], KeyError), (["compare", "a", "b", "--tset", "t"], cli.UsageError), (["plug", "a"], cli.UsageError)],
)
def test_a_command_that_there_is_not_would_be_noticed(words, error):
    with pytest.raises(error):
        parse(words)


def test_every_option_that_a_page_names_is_one_of_some_verb():
    known = {"--help", *(option for words in verbs() for option in options(words))}
    others = {"methods/robust.md": {"--study"}}  # of a script in benchmarks/
    for name, page in PAGES.items():
        named = set(re.findall(r"(?<![\w-])--[a-z][\w-]*", page))
        assert named - others.get(name, set()) <= known, name


PYTHON = {f"{name}:{one.line}": one for name, page in PAGES.items() for one in snippets(page, "python")}


@pytest.mark.parametrize("snippet", PYTHON.values(), ids=PYTHON)
def test_the_calls_of_a_python_snippet_fit_what_is_called(snippet):
    """Also of those that are not run: each public name is there and takes the arguments."""
    for call in ast.walk(ast.parse(snippet.text)):
        if isinstance(call, ast.Call) and re.fullmatch(r"(xl|crosslift)\.\w+", ast.unparse(call.func)):
            called = getattr(xl, call.func.attr)
            named = {word.arg: None for word in call.keywords if word.arg}
            inspect.signature(called).bind(*call.args, **named)
        if isinstance(call, ast.ImportFrom) and call.module.startswith("crosslift"):
            exec(compile(ast.Module([call], []), "docs", "exec"), {})


def test_python_is_left_out_only_with_a_reason():
    marks = [mark for page in PAGES.values() for mark in re.findall(r"<!-- not run.*-->", page)]
    assert all(re.fullmatch(r"<!-- not run: .{10,} -->", mark) for mark in marks)
    assert len(marks) == sum(not one.run for one in PYTHON.values())


SHORT = {"steps": 2, "batch_size": 4}
BRIEF = {**SHORT, "evaluations": 1, "learning_rate": 1e-3}
STAND_INS = {
    "fit": {**SHORT, "evaluations": 1, "limit": 40},
    "evaluate": {"limit": 8},
    "adjust": SHORT,
    "transfer": {**SHORT, "evaluations": 1, "limit": 40},
    "distill_two_steps": {**BRIEF, "pieces": 400, "bridge_settings": BRIEF},
    "fit_connector": {**SHORT, "length": 32, "evaluations": 1, "processes": 1},
    "rank": {"sentences": 12, "seeds": [1], "epsilon": 1.0, "every": 1, "candidates": 1, "epochs": 2, "batch_size": 4},
}
"""What makes a shown call short: a few steps and examples instead of whole runs."""


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    """Tiny random encoders by the names of the embedded ones, and what the pages say that you have."""
    folder = tmp_path_factory.mktemp("docs")
    save_encoder(folder / "mini-x")
    english = tokenizer_for("roberta")
    english.save_pretrained(folder / "mini-en")
    AutoModelForMaskedLM.from_config(config_for("roberta", english)).save_pretrained(folder / "mini-en")
    return folder


@pytest.fixture
def here(models, tmp_path, monkeypatch):
    """A folder with the files that the pages name, and calls that are short."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(load, "EMBEDDED", models)
    for name, settings in STAND_INS.items():
        real = getattr(xl, name)
        monkeypatch.setattr(xl, name, lambda *a, _real=real, _short=settings, **k: _real(*a, **k, **_short), False)
    real_rank, sets = xl.rank, {x: demo.load("demo-intent", x, "train").take(12) for x in ("en", "de", "th", "sw")}
    monkeypatch.setattr(xl, "rank", lambda *a, **k: real_rank(*a, **{**k, "parallel": sets}), False)
    for language in ("de", "hi"):
        both = demo.load_parallel("en", language, "train").take(30)
        rows = [f"{text}\t{pair}\n" for text, pair in zip(both.texts, both.pairs, strict=True)]
        Path(f"en-{language}.tsv").write_text("".join(rows), encoding="utf-8")
    train = demo.load("demo-intent", "en", "train").take(60)
    rows = [f"{text}\t{label}\n" for text, label in zip(train.texts, train.labels, strict=True)]
    Path("train.tsv").write_text("text\tlabel\n" + "".join(rows), encoding="utf-8")
    for language in ("en", "de"):
        texts = demo.load("demo-intent", language, "train").texts[:60]
        Path(f"{language}.txt").write_text("\n".join(texts), encoding="utf-8")
    Path("synonyms.json").write_text('{"alarm": ["clock"], "seven": ["eight"]}', encoding="utf-8")
    Path("lexicon-es.tsv").write_text("the\tel\nalarm\talarma\n", encoding="utf-8")
    return tmp_path


def trained(out: str, model: str = "mini-x") -> xl.Run:
    return xl.fit("finetune", model=model, data="demo-intent", out=out)


def copy(run: xl.Run, to: str) -> None:
    shutil.copytree(run.model, to)


def evaluated(out: str) -> None:
    xl.evaluate(trained(out), "demo-intent", ["en", "de"])


BEFORE = {
    "methods/distill.md": lambda: copy(trained("runs/en-intents"), "runs/de/student-de/model"),
    "methods/plug.md": lambda: copy(trained("runs/english", "mini-en"), "my-english-model"),
    "report.md": lambda: (evaluated("runs/finetune"), evaluated("runs/ear")),
}
"""What must be there before a page's snippets can run."""

SAID = {
    "quickstart.md": "±",
    "translate.md": "Examples(demo-intent",
    "transfer.md": "finetune",
    "metrics.md": "accuracy",
    "measure/igap.md": "sw",
}
"""A part of what a page's snippets print."""


@pytest.mark.parametrize("name", [name for name in PAGES if any(one.run for one in snippets(PAGES[name], "python"))])
def test_the_python_of_a_page_runs_from_top_to_bottom(name, here, capsys):
    BEFORE.get(name, lambda: None)()
    names = {}
    for one in snippets(PAGES[name], "python"):
        if one.run:
            exec(compile("\n" * (one.line - 1) + one.text, name, "exec"), names)
    assert SAID.get(name, "") in capsys.readouterr().out


def test_the_method_that_the_page_on_extending_shows_trains(here, monkeypatch):
    (shown, *_) = snippets(PAGES["extending.md"], "python")
    module = ModuleType("smoothed")
    monkeypatch.setitem(sys.modules, "smoothed", module)
    exec(shown.text, vars(module))
    monkeypatch.setitem(methods.METHODS, "smoothed", "smoothed:Smoothed")
    run = xl.fit("smoothed", model="mini-x", data="demo-intent", out="runs/smoothed", smoothing=0.2)
    assert run.folders[0].config["settings"] == {"smoothing": 0.2}
    assert run.model.exists()
