"""The report of real runs: its numbers are those of the run folders, and text from data stays text."""

import json
import shlex
import shutil
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import pytest

from crosslift.cli import run as cli
from crosslift.data import load
from crosslift.errors import BadInput
from crosslift.measure.alignment import AlignmentReport, EncoderAlignment, Separation
from crosslift.measure.igap import Band, Checkpoint, Errors
from crosslift.measure.igap_result import IgapResult
from crosslift.report.choice import Chosen
from crosslift.report.content import commands, gather
from crosslift.report.examples import mistakes
from crosslift.report.page import markdown_text, render, report
from crosslift.runs.compare import compare
from crosslift.runs.evaluate import evaluate
from crosslift.runs.fit import fit
from tests.report.reported import HOSTILE, LANGUAGES, MARKDOWN, make_hostile_runs, make_runs, write_run
from tests.tiny_models import save_encoder


class Page(HTMLParser):
    """Elements, texts and table cells of a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements, self.texts, self.cells, self.attributes = [], [], [], []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.elements.append(tag)
        self.attributes += [(tag, *pair) for pair in attrs]

    def handle_data(self, data):
        self.texts.append(data)


@pytest.fixture(scope="module")
def runs(tmp_path_factory) -> Path:
    return make_runs(tmp_path_factory.mktemp("runs"))


@pytest.fixture(scope="module")
def content(runs):
    return gather([runs / "finetune", runs / "robust"])


@pytest.fixture(scope="module")
def html(content) -> str:
    return render(content)


def test_the_scores_are_those_of_the_run_folders(runs, html):
    values = {float(value) for tag, name, value in Page(html).attributes
              if tag == "td" and name == "data-value" and value.replace(".", "").isdigit()}  # fmt: skip
    for method in ("finetune", "robust"):
        for language in LANGUAGES:
            entries = [
                json.loads((runs / method / f"seed-{seed}" / "results.json").read_text())["demo-intent/test"][language]
                for seed in (1, 2)
            ]
            mean = sum(entry["scores"]["accuracy"]["value"] for entry in entries) / 2
            assert any(abs(mean - value) < 1e-9 for value in values), (method, language)


def test_the_summary_says_in_words_what_the_numbers_say(content, html):
    (evaluation,) = content.evaluations
    best = evaluation.ranking[0]
    said = " ".join(Page(html).texts)
    assert "Trained in English, then measured in 3 other languages." in said
    assert f"{best} does best on average: {evaluation.mean(best):.1f} % of examples right" in said
    assert content.baseline == "finetune"


def test_marks_are_those_of_the_paired_test(tmp_path):
    """In German all of 40 right against none; in Swahili one of 40 more; in English no difference."""
    half = [True, False] * 20
    write_run(tmp_path / "a", "finetune", {"en": half, "de": [False] * 40, "sw": half})
    write_run(tmp_path / "b", "ear", {"en": half, "de": [True] * 40, "sw": [True, *half[1:-1], True]})
    content = gather([tmp_path / "a", tmp_path / "b"])
    html = render(content)
    found = compare(tmp_path / "b", tmp_path / "a")
    assert content.evaluations[0].compared["ear"].to_dict() == found.to_dict()
    assert html.count('aria-label="significantly better') == 2  # German, and the mean of the targets
    assert 'aria-label="significantly better: +100.0 points against finetune, p &lt; 0.001"' in html
    assert "significantly worse" not in html
    other = render(gather([tmp_path / "a", tmp_path / "b"], baseline="ear"))
    assert other.count('aria-label="significantly worse') == 2
    said = " ".join(Page(html).texts)
    assert "ear does best on average: 76.2 % of examples right" in said
    assert "That is +51.2 points against finetune (p < 0.001), more than chance explains." in said
    assert "It is strongest in German (100.0) and weakest in Swahili (52.5)." in said
    assert "In English itself it reaches 50.0, so -26.2 points are lost on the way." in said
    assert "The texts are not at hand, so no examples are shown" in said


def test_the_gap_is_the_source_score_less_the_language_score(content):
    (evaluation,) = content.evaluations
    scores = evaluation.scores["finetune"]
    for language in ("ar", "th", "zh"):
        lost = scores.of_language("en").mean - scores.of_language(language).mean
        assert evaluation.gap("finetune", language) == pytest.approx(lost)
    assert evaluation.targets == ["ar", "th", "zh"]


def test_errors_are_shown_with_their_text_the_source_sentence_and_both_labels(html):
    said = set(Page(html).texts)
    for language in ("ar", "th", "zh"):
        examples = load("demo-intent", language=language, split="test")
        english = load("demo-intent", language="en", split="test")
        sources = dict(zip(english.parallel_ids, english.texts, strict=True))
        shown = [row for row, text in enumerate(examples.texts) if text in said]
        assert 1 <= len(shown) <= 3, language
        assert all(sources[examples.parallel_ids[row]] in said for row in shown)
        assert all(examples.labels[row] in said for row in shown)
    assert 'lang="ar" dir="auto"' in html


def test_the_page_holds_all_its_parts_and_asks_for_nothing(html):
    page = Page(html)
    headings = (
        "How sure are we?",
        "What is lost on the way",
        "Language by method",
        "Where it fails",
        "How learning went",
        "What it cost",
        "Data, and how the models were chosen",
        "How to repeat it",
    )
    assert [heading for heading in headings if heading not in page.texts] == []
    assert page.elements.count("svg") >= 4
    links = [value for _, name, value in page.attributes if name in ("src", "href")]
    assert set(links) == {"#main", "data:,"}
    assert "url(" not in html and "@import" not in html
    assert page.elements.count("script") == 2
    assert "default-src 'none'" in html
    assert len(html) < 200_000


def test_the_numbers_can_be_read_back_from_the_page(html, content):
    inside = html.split('<script type="application/json" id="scores">')[1].split("</script>")[0]
    assert json.loads(inside) == [table.to_dict() for table in content.evaluations[0].scores.values()]


def test_the_command_that_is_shown_makes_the_same_run(content, runs, monkeypatch):
    """The words are parsed by the command line, and what would run has the settings of the run."""
    import crosslift.runs.fit as fitting

    told = {}
    monkeypatch.setattr(fitting, "fit", lambda method, **given: told.update(given, method=method) or 1 / 0)
    for system in content.systems:
        fit_line, evaluate_line = commands(system)
        with pytest.raises(ZeroDivisionError):
            cli(shlex.split(fit_line)[1:])
        assert (told["method"], told["data"], told["seeds"]) == (system.config["method"], "demo-intent", [1, 2])
        assert (told["limit"], int(told["steps"]), float(told["learning_rate"])) == (80, 10, 1e-2)
        words = shlex.split(evaluate_line)
        assert words[:2] == ["crosslift", "evaluate"]
        assert words[words.index("--languages") + 1] == ",".join(LANGUAGES)
        assert words[words.index("--limit") + 1] == "40"
    assert told["variant"] == "gaussian"


def test_markdown_has_the_same_scores(content, html):
    text = render(content, "md")
    (evaluation,) = content.evaluations
    rows = [line for line in text.splitlines() if line.startswith("| Arabic (ar) |")]
    score = evaluation.scores["finetune"].of_language("ar")
    assert rows[0].split("|")[2].strip().startswith(f"{score.mean:.1f} ± {score.sd:.1f}")
    table = [line for line in text.splitlines() if line.startswith("|")]
    assert table[1].startswith("| --- |")
    assert "## How to repeat it" in text


def test_one_run_alone_and_a_file_by_its_ending(runs, tmp_path, capsys):
    assert cli(["report", str(runs / "finetune" / "seed-1"), "-o", str(tmp_path / "a.html")]) == 0
    page = (tmp_path / "a.html").read_text()
    assert "Language by method" not in page
    assert "How sure are we?" not in page
    assert report([runs / "finetune"], tmp_path / "a.md").read_text().startswith("# demo-intent: finetune\n")
    capsys.readouterr()
    assert cli(["report", str(runs / "finetune"), str(runs / "robust"), "--json"]) == 0
    assert set(json.loads(capsys.readouterr().out)["systems"]) == {"finetune", "robust"}


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["nowhere"], "nowhere is not a run folder"),
        (["RUN", "--baseline", "finetun"], 'No system is called "finetun". Did you mean "finetune"?'),
        (["RUN", "--data", "demo-intents/test"], 'Did you mean "demo-intent/test"?'),
        (["RUN", "--format", "htm"], 'There is no format "htm". Did you mean "html"?'),
    ],
)
def test_bad_input_is_one_line_and_leaves_no_file(words, said, runs, tmp_path, capsys):
    words = [str(runs / "finetune") if word == "RUN" else word for word in words]
    assert cli(["report", *words, "-o", str(tmp_path / "r.html")]) == 2
    assert said in capsys.readouterr().err
    assert not (tmp_path / "r.html").exists()


def measured_igap():
    checkpoints = (Checkpoint(1, 1e-5, 10, 0, {"de": 12}), Checkpoint(2, 1e-5, 10, 0, {"de": 14}))
    return IgapResult({"mini": Errors("mini", "en", ("de",), 100, checkpoints)}, (Band(0.0, 0.01),)).to_dict()


def test_a_folder_of_measurements_alone_has_a_page(tmp_path):
    folder = tmp_path / "gaps"
    folder.mkdir()
    with pytest.raises(BadInput, match="gaps is not a run folder"):
        gather([folder])
    (folder / "igap.json").write_text(json.dumps(measured_igap()))
    page, text = (render(gather([folder]), format) for format in ("html", "md"))
    assert "<h1><bdi>Measured: gaps</bdi></h1>" in page
    assert "German, mini: 13.0 (11.6 to 14.4)" in page
    assert "## Interlingual transfer gap, training error 0 to 0.01" in text
    for lacking in ("What it cost", "Nothing has been evaluated", "scorer"):
        assert lacking not in page + text


def test_measurements_beside_the_runs_of_a_sweep_hide_none_of_them(runs, tmp_path):
    sweep = tmp_path / "sweep"
    shutil.copytree(runs, sweep)
    (sweep / "grid.json").write_text("{}")
    before = gather([sweep])
    assert before.systems
    assert not before.measured
    (sweep / "igap.json").write_text(json.dumps(measured_igap()))
    found = gather([sweep])
    assert [system.name for system in found.systems] == [system.name for system in before.systems]
    assert found.title == before.title
    assert list(found.measured) == [str(sweep)]
    assert "German, mini: 13.0 (11.6 to 14.4)" in render(found)


def test_measurements_in_the_run_folder_get_their_charts(runs, tmp_path):
    igap = measured_igap()
    cosine = Separation(91.5, 30.0, 0.8, 0.2, [0, 0.5, 1], [0.1, 0.9], [0.8, 0.2])
    encoder = EncoderAlignment(cosine, cosine, {1: 2.0}, 50.0, 10, 5)
    alignment = AlignmentReport({"mini": encoder}, "pairs.tsv", "de").to_dict()
    for name, found in (("igap", igap), ("alignment", alignment)):
        (runs / "finetune" / f"{name}.json").write_text(json.dumps(found))
    try:
        page = render(gather([runs / "finetune"]))
        assert "German, mini: 13.0 (11.6 to 14.4)" in page
        assert "Word vectors of mini, German" in page
        assert "91.5 % of pairs" in page
        (runs / "finetune" / "igap.json").write_text('{"igap": {"mini": [3]}}')
        with pytest.raises(BadInput, match=r"igap\.json of finetune does not hold"):
            render(gather([runs / "finetune"]))
    finally:
        for name in ("igap", "alignment"):
            (runs / "finetune" / f"{name}.json").unlink()


def test_hostile_data_is_shown_and_not_run(tmp_path):
    folder = make_hostile_runs(tmp_path)
    systems = [path for path in folder.iterdir() if (path / "results.json").exists()]
    assert len(systems) == 2
    found = gather(systems, title=HOSTILE)
    html = render(found)
    page = Page(html)
    assert page.elements.count("script") == 2
    assert "img" not in page.elements
    assert not [name for _, name, _ in page.attributes if name.startswith("on")]
    assert HOSTILE in "".join(page.texts)
    inside = html.split('id="scores">')[1].split("</script>")[0]
    assert "hacked" in inside
    assert not set("<>&") & set(inside)
    text = render(found, "md")
    assert "<script" not in text.split("## How to repeat it")[0]
    assert "<img" not in text.split("## How to repeat it")[0]


def test_markdown_text_shows_signs_as_they_are():
    shown = markdown_text(f"{MARKDOWN}\nnext")
    assert "|" not in shown and "<" not in shown and "\n" not in shown
    assert "\\[x\\]" in shown


@pytest.mark.parametrize(("data", "kind"), [("demo-slots", "tagging"), ("demo-qa", "qa"), ("demo-nli", "pairs")])
def test_errors_of_every_kind_of_task_are_shown(data, kind, tmp_path):
    save_encoder(tmp_path / "encoder")
    run = fit("finetune", model=tmp_path / "encoder", data=data, out=tmp_path / "run", steps=1, evaluations=1, limit=8)
    evaluate(run, data, ["en", "de"], limit=12)
    content = gather([tmp_path / "run"])
    found, note = mistakes(content.evaluations[0], content.systems[0])
    assert note == ""
    texts = load(data, language="de", split="test")
    english = load(data, language="en", split="test")
    for one in found["de"]:
        row = list(texts.ids).index(one.id)
        assert one.text == texts.texts[row]
        assert one.source_text == english.texts[list(english.parallel_ids).index(texts.parallel_ids[row])]
        assert one.gold != one.predicted
        assert bool(one.pair) == (kind != "tagging")
    assert found["de"][0].text.split()[0] in render(content)


def test_a_model_that_is_no_run_of_ours_can_be_reported(runs, tmp_path):
    model = tmp_path / "somebodys"
    shutil.copytree(runs / "finetune" / "seed-1" / "model", model)
    evaluate(model, "demo-intent", ["en", "de"], limit=8, out=tmp_path / "scored")
    content = gather([tmp_path / "scored", runs / "robust" / "seed-1"])
    assert content.evaluations[0].source == "en"
    assert [system.name for system in content.systems] == ["somebodys", "robust"]
    html, text = render(content), render(content, "md")
    assert "as it was given" in html
    assert "as it was given" in text


def test_systems_of_one_name_are_told_apart(tmp_path):
    for folder in ("x/run", "y/run", "z"):
        write_run(tmp_path / folder, "ear", {"en": [True] * 4, "de": [True, False] * 2})
    names = [system.name for system in gather([tmp_path / "x/run", tmp_path / "y/run", tmp_path / "z"]).systems]
    assert names == [str(tmp_path / "x/run"), str(tmp_path / "y/run"), "z"]


def test_runs_that_cannot_be_compared_are_shown_with_the_reason(tmp_path):
    write_run(tmp_path / "a", "finetune", {"en": [True] * 4, "de": [True] * 4})
    write_run(tmp_path / "b", "ear", {"en": [True] * 4, "de": [True] * 6})
    content = gather([tmp_path / "a", tmp_path / "b"])
    assert content.evaluations[0].compared == {}
    assert "ear and finetune cannot be compared" in render(content)
    assert "not evaluated on the same examples" in render(content)


def test_the_choice_of_a_transfer_is_shown_as_text_whatever_it_is_called(content):
    chosen = Chosen(Path("x"), f"a{HOSTILE}", f"rule {HOSTILE}", True, {f"a{HOSTILE}": {f"s{MARKDOWN}": 12.345}},
                    [f"note {HOSTILE}"], f"hindsight {HOSTILE}", f"crosslift transfer {HOSTILE}")  # fmt: skip
    page = render(replace(content, choice=chosen))
    seen = Page(page)
    assert seen.elements.count("script") == Page(render(content)).elements.count("script")
    assert "img" not in seen.elements
    said = " ".join(seen.texts)
    assert (
        f"Delivered: a{HOSTILE}, chosen without looking at any label of the other languages. hindsight {HOSTILE}"
        in said
    )
    assert "12.3" in said and f"crosslift transfer {HOSTILE}" in said
    assert "<script" not in render(replace(content, choice=chosen), "md")


def test_gold_target_labels_are_named_where_they_decided(content):
    chosen = Chosen(Path("x"), "ear", "GOLD TARGET DEV DATA", False, {}, [], "", "")
    page = render(replace(content, choice=chosen))
    assert "Delivered: ear, chosen WITH GOLD TARGET LABELS." in page and "a forecast and can be wrong" not in page
