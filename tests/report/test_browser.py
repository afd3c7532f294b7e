"""The page in a real browser: drawn, sortable, silent on the network, and deaf to hostile data.

Screenshots are left in `build/screenshots` (or where CROSSLIFT_ARTEFACTS says), to be looked at.
"""

import os
import re
import shutil
from itertools import pairwise
from pathlib import Path

import pytest

from crosslift.report.content import gather
from crosslift.report.page import render, report
from tests.report.reported import HOSTILE, make_hostile_runs, make_runs

pytestmark = pytest.mark.browser
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--no-first-run"]
ARTEFACTS = Path(os.environ.get("CROSSLIFT_ARTEFACTS", Path(__file__).parents[2] / "build" / "screenshots"))
LOOKS = {
    "light": {"viewport": {"width": 1000, "height": 800}, "color_scheme": "light"},
    "dark": {"viewport": {"width": 1000, "height": 800}, "color_scheme": "dark"},
    "phone": {"viewport": {"width": 380, "height": 800}, "color_scheme": "light", "device_scale_factor": 2},
}


@pytest.fixture(scope="module")
def browser():
    sync_api = pytest.importorskip("playwright.sync_api")
    if CHROMIUM is None:
        pytest.skip("needs chromium")
    with sync_api.sync_playwright() as playwright:
        opened = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield opened
        opened.close()


@pytest.fixture(scope="module")
def page_file(tmp_path_factory) -> Path:
    runs = make_runs(tmp_path_factory.mktemp("runs"))
    return report([runs / "finetune", runs / "robust"], runs / "report.html")


class Visit:
    """One opened page with everything it said and asked for."""

    def __init__(self, browser, file: Path, **look) -> None:
        self.context = browser.new_context(**look)
        self.page = self.context.new_page()
        self.said, self.asked = [], []
        self.page.on("console", lambda message: self.said.append(message.text))
        self.page.on("pageerror", lambda error: self.said.append(str(error)))
        self.page.on("dialog", lambda dialog: (self.said.append(dialog.message), dialog.dismiss()))
        self.page.on("request", lambda request: self.asked.append(request.url))
        self.page.goto(file.as_uri())

    def close(self) -> None:
        self.context.close()


@pytest.fixture
def visit(browser, page_file):
    opened = Visit(browser, page_file, **LOOKS["light"])
    yield opened
    opened.close()


@pytest.mark.parametrize("look", LOOKS)
def test_the_page_opens_with_no_error_and_no_request_and_fits_the_screen(browser, page_file, look):
    opened = Visit(browser, page_file, **LOOKS[look])
    for details in opened.page.locator("details").all():
        details.evaluate("one => one.open = true")
    ARTEFACTS.mkdir(parents=True, exist_ok=True)
    opened.page.screenshot(path=ARTEFACTS / f"report-{look}.png", full_page=True)
    wide = opened.page.evaluate("document.documentElement.scrollWidth")
    colours = opened.page.evaluate(
        "[getComputedStyle(document.body).backgroundColor, getComputedStyle(document.body).color]"
    )
    opened.close()
    assert opened.said == []
    assert opened.asked == [page_file.as_uri()]
    assert wide <= LOOKS[look]["viewport"]["width"]
    paper, ink = (sum(map(int, c.removeprefix("rgb(").removesuffix(")").split(","))) for c in colours)
    assert (paper < ink) == (look == "dark")


def test_charts_are_drawn(visit):
    boxes = [chart.bounding_box() for chart in visit.page.locator("svg.chart").all()]
    assert len(boxes) >= 4
    assert all(box["width"] > 200 and box["height"] > 80 for box in boxes)
    marks = visit.page.locator("svg.chart .mark").all()
    assert len(marks) >= 12
    assert all(mark.bounding_box()["width"] > 3 for mark in marks)
    curves = visit.page.locator("svg.chart polyline").all()
    assert len(curves) == 8  # two methods, two seeds, loss and dev
    strokes = {curve.evaluate("one => getComputedStyle(one).stroke") for curve in curves}
    assert len(strokes) == 2


@pytest.mark.parametrize("language", ["ar", "th", "zh"])
def test_other_scripts_are_shown_with_real_glyphs(visit, language):
    """Text that no font has is drawn as boxes: it would look like characters that no font has."""
    text = visit.page.locator(f"p.text[lang={language}]").first
    text.evaluate("one => one.closest('details').open = true")
    assert text.bounding_box()["height"] > 10
    words = text.inner_text()
    shots = []
    for shown in (words, re.sub(r"\S", chr(0x10FFFD), words)):
        text.evaluate("(one, shown) => one.textContent = shown", shown)
        shots.append(text.screenshot())
    assert shots[0] != shots[1]
    text.evaluate("(one, shown) => one.textContent = shown", words)
    direction = text.evaluate("one => getComputedStyle(one).direction")
    assert direction == ("rtl" if language == "ar" else "ltr")


def column(page, number: int) -> list[str]:
    return page.evaluate(
        "n => [...document.querySelector('table.sortable').tBodies[0].rows].map(row => row.cells[n].dataset.value)",
        number,
    )


def test_a_click_and_the_keyboard_sort_the_table(visit):
    heading = visit.page.locator("table.sortable").first.locator("th[scope=col]")
    heading.nth(1).locator("button").click()
    scores = [float(value) for value in column(visit.page, 1)]
    assert scores == sorted(scores, reverse=True)
    assert heading.nth(1).get_attribute("aria-sort") == "descending"
    heading.nth(1).locator("button").click()
    assert [float(value) for value in column(visit.page, 1)] == sorted(scores)
    heading.nth(0).locator("button").focus()
    visit.page.keyboard.press("Enter")
    assert column(visit.page, 0) == ["Arabic", "Chinese", "English", "Thai"]
    assert heading.nth(0).get_attribute("aria-sort") == "ascending"
    assert heading.nth(1).get_attribute("aria-sort") is None


def test_everything_can_be_reached_with_the_keyboard_and_is_named_for_screen_readers(visit):
    visit.page.keyboard.press("Tab")
    assert visit.page.evaluate("document.activeElement.className") == "skip"
    reached = set()
    for _ in range(60):
        visit.page.keyboard.press("Tab")
        reached.add(visit.page.evaluate("document.activeElement.tagName"))
    assert {"BUTTON", "SUMMARY", "PRE", "DIV"} <= reached
    unnamed = visit.page.evaluate(
        "[...document.querySelectorAll('svg[role=img]')].filter(one => !one.querySelector('title').textContent).length"
    )
    assert unnamed == 0
    assert visit.page.evaluate("document.documentElement.lang") == "en"
    levels = visit.page.evaluate("[...document.querySelectorAll('h1,h2,h3')].map(one => Number(one.tagName[1]))")
    assert levels[0] == 1
    assert levels.count(1) == 1
    assert all(b - a <= 1 for a, b in pairwise(levels))


@pytest.mark.parametrize("look", ["light", "dark"])
def test_text_stands_out_from_its_background(browser, page_file, look):
    """WCAG AA: 4.5 to 1 for ink, notes and series colours (3 to 1 for marks)."""
    opened = Visit(browser, page_file, **LOOKS[look])
    names = ["--paper", "--panel", "--ink", "--soft", "--link", "--good", "--bad", *(f"--s{i}" for i in range(8))]
    found = opened.page.evaluate(
        "names => names.map(name => getComputedStyle(document.documentElement).getPropertyValue(name).trim())", names
    )
    opened.close()
    colours = dict(zip(names, found, strict=True))

    def light(colour: str) -> float:
        parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
        red, green, blue = (p / 12.92 if p <= 0.03928 else ((p + 0.055) / 1.055) ** 2.4 for p in parts)
        return 0.2126 * red + 0.7152 * green + 0.0722 * blue

    def contrast(a: str, b: str) -> float:
        high, low = sorted((light(colours[a]), light(colours[b])), reverse=True)
        return (high + 0.05) / (low + 0.05)

    for name in names[2:]:
        needed = 3 if name.startswith("--s") and name != "--soft" else 4.5
        assert contrast(name, "--paper") >= needed, name
    assert contrast("--ink", "--panel") >= 4.5


def test_hostile_strings_are_inert_everywhere(browser, tmp_path):
    folder = make_hostile_runs(tmp_path)
    systems = [path for path in folder.iterdir() if (path / "results.json").exists()]
    (tmp_path / "hostile.html").write_text(render(gather(systems, title=HOSTILE)))
    opened = Visit(browser, tmp_path / "hostile.html", **LOOKS["light"])
    opened.page.screenshot(path=ARTEFACTS / "report-hostile.png", full_page=True)
    hacked = opened.page.evaluate("window.hacked")
    title, images = opened.page.title(), opened.page.locator("img").count()
    charts = opened.page.locator("svg.chart title").all_text_contents()
    opened.close()
    assert hacked is None
    assert images == 0
    assert title == HOSTILE
    assert any("onerror" in text for text in charts)
    assert opened.said == []
    assert len(opened.asked) == 1
