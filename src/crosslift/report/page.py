"""The report: one page in a file of its own, or the same in Markdown.

The page works from a file, offline: style, script and charts are inside. Its content security policy forbids every
request and every script but the one that sorts tables, whose hash it names. All text from data goes through the
template's escaping.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from importlib import resources
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Any, cast

from crosslift.data.storage import Json, write_text
from crosslift.errors import BadInput, MissingExtra, nearest
from crosslift.measure.significance import format_p
from crosslift.report import charts
from crosslift.report.choice import MEANINGS
from crosslift.report.content import SURE, Content, Evaluation, System, commands, cost, gather, learning
from crosslift.report.examples import Mistake, mistakes
from crosslift.report.languages import language_name
from crosslift.report.measured import measured_charts
from crosslift.runs.progress import clock

if TYPE_CHECKING:
    from jinja2 import Environment

FORMATS = ("html", "md")


@dataclass(frozen=True)
class Cell:
    """One score in the table, in percent.

    Attributes:
        value: Mean over seeds.
        sd: Its standard deviation over seeds, where there are several.
        low: Lower end of the 95 % interval.
        high: Upper end.
        heat: Where the value is between the lowest (0) and the highest (1) of the table.
        mark: `better`, `worse` or nothing, against the baseline.
        said: The comparison in words.
    """

    value: float
    sd: float | None
    low: float
    high: float
    heat: float
    mark: str = ""
    said: str = ""


@dataclass(frozen=True)
class Section:
    """What the page shows of one evaluation."""

    evaluation: Evaluation
    rows: list[tuple[str, str, dict[str, Cell | None]]]
    means: dict[str, Cell | None]
    summary: list[str]
    gap_chart: str
    difference_chart: str
    best: str
    mistakes: dict[str, list[Mistake]]
    mistakes_note: str


def report(
    runs: Sequence[str | Path],
    out: str | Path = "report.html",
    *,
    format: str | None = None,
    baseline: str | None = None,
    data: str | None = None,
    title: str | None = None,
    examples: int = 3,
) -> Path:
    """Write the report of some runs: scores, how sure we are, where it fails, what it cost, how to repeat it.

    Args:
        runs: Evaluated run folders, groups of seeds, folders of sweeps and transfers, or of what `measure` wrote.
        out: The file.
        format: `html` or `md`; default: by the file's ending.
        baseline: Which system the others are compared with; default: the first `finetune`, else the first.
        data: Show this evaluation alone (`massive-intent/test`); default: all.
        title: Title of the page.
        examples: Errors shown per language.

    Returns:
        The file.
    """
    out = Path(out)
    chosen = format or ("md" if out.suffix.lower() in (".md", ".markdown") else "html")
    if chosen not in FORMATS:
        raise BadInput(f'There is no format "{chosen}".{nearest(chosen, FORMATS)}', "It is html or md.")
    if not runs:
        raise BadInput("Which runs?", "Name run folders; crosslift ls runs shows them.")
    write_text(out, render(gather(runs, baseline=baseline, data=data, title=title), chosen, examples=examples))
    return out


def render(content: Content, format: str = "html", *, examples: int = 3) -> str:
    """Return the text of a report."""
    script, style = _file("page.js"), _file("page.css")
    template = _environment().get_template(f"page.{format}")
    return template.render(
        content=content,
        sections=[_section(content, evaluation, examples) for evaluation in content.evaluations],
        measured=[shown for name, found in content.measured.items() for shown in measured_charts(name, found)],
        curves=_curves(content.systems),
        costs={system.name: cost(system) for system in content.systems},
        commands={system.name: commands(system) for system in content.systems},
        several=len(content.systems) > 1,
        script=script,
        style=style,
        script_hash=base64.b64encode(hashlib.sha256(script.encode()).digest()).decode(),
        numbers=_numbers(content),
        language=language_name,
        meanings=MEANINGS,
        legend_mark=charts.legend_mark,
        clock=clock,
        sure=SURE,
    )


@cache
def _file(name: str) -> str:
    return resources.files("crosslift.report").joinpath("templates", name).read_text(encoding="utf-8")


def _environment() -> Environment:
    try:
        from jinja2 import Environment, FunctionLoader, StrictUndefined
    except ImportError:
        raise MissingExtra("jinja2", "report") from None
    made = Environment(
        loader=FunctionLoader(_file),
        autoescape=lambda name: name is not None and name.endswith("html"),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters["md"] = markdown_text
    return made


def markdown_text(text: object) -> str:
    """Return text so that Markdown shows it as it is: no markup, no table cell, no line of its own."""
    plain = " ".join(str(text).split())
    for sign in "\\`*_{}[]<>|#~$":
        plain = plain.replace(sign, f"&#{ord(sign)};" if sign in "<>|" else f"\\{sign}")
    return plain


def _numbers(content: Content) -> str:
    """Return all scores as JSON that can stand inside a page: no `<` ends the element that holds it."""
    scores = [table.to_dict() for evaluation in content.evaluations for table in evaluation.scores.values()]
    text = json.dumps(scores, ensure_ascii=True)
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _section(content: Content, evaluation: Evaluation, examples: int) -> Section:
    values = [
        summary.mean
        for table in evaluation.scores.values()
        for language in table.rows
        if (summary := table.of_language(language))
    ]
    rows = []
    for language in evaluation.languages:
        cells = {system: _cell(content, evaluation, system, [language], values) for system in evaluation.scores}
        rows.append((language, language_name(language), cells))
    means = {
        system: _cell(content, evaluation, system, evaluation.targets, values) if evaluation.targets else None
        for system in evaluation.scores
    }
    ranking = evaluation.ranking
    best = ranking[0] if ranking else next(iter(evaluation.scores))
    by_name = {system.name: system for system in content.systems}
    shown, note = mistakes(evaluation, by_name[best], examples) if examples else ({}, "")
    return Section(
        evaluation=evaluation,
        rows=rows,
        means=means,
        summary=_summary(content, evaluation),
        gap_chart=_gap_chart(evaluation),
        difference_chart=_difference_chart(content, evaluation),
        best=best,
        mistakes=shown,
        mistakes_note=note,
    )


def _cell(
    content: Content, evaluation: Evaluation, system: str, languages: list[str], values: Sequence[float]
) -> Cell | None:
    table = evaluation.scores[system]
    if not all(language in table.rows for language in languages):
        return None
    mean, interval = table.mean(languages), table.interval(languages)
    if mean is None or interval is None:
        return None
    low, high = min(values), max(values)
    heat = (mean.mean - low) / (high - low) if high > low else 0.5
    compared = evaluation.compared.get(system)
    mark = said = ""
    if compared:
        pooled = len(languages) != 1
        found = compared.pooled if pooled else compared.languages.get(languages[0])
        if found:
            p = found.p_value if pooled else compared.adjusted[languages[0]]
            if p < SURE and found.difference:
                mark = "better" if found.difference > 0 else "worse"
            said = f"{found.difference:+.1f} points against {content.baseline}, {format_p(p)}"
    return Cell(mean.mean, mean.sd, *interval, heat, mark, said)


def _summary(content: Content, evaluation: Evaluation) -> list[str]:
    """Return what happened, in sentences that need no other knowledge."""
    metric = {"accuracy": "of examples right"}.get(evaluation.metric, f"{evaluation.metric.replace('_', ' ')}")
    source = language_name(evaluation.source) if evaluation.source else None
    count = len(evaluation.targets)
    others = f"{count} other language{'s' if count != 1 else ''}" if source else f"{count} languages"
    said = [content.choice.lead] if content.choice else []
    said.append(f"Trained in {source}, then measured in {others}." if source else f"Measured in {others}.")
    ranking = evaluation.ranking
    if not ranking:
        return said
    best = ranking[0]
    mean = cast("float", evaluation.mean(best))
    table = evaluation.scores[best]
    lead = f"{best} does best on average" if len(ranking) > 1 else f"{best}"
    over = "over those languages" if count > 1 else f"in {language_name(evaluation.targets[0])}"
    said.append(f"{lead}: {mean:.1f} % {metric} {over}.")
    if best != content.baseline and best in evaluation.compared:
        pooled = evaluation.compared[best].pooled
        verdict = "more than chance explains" if pooled.p_value < SURE else "which may be chance"
        p = format_p(pooled.p_value)
        said.append(f"That is {pooled.difference:+.1f} points against {content.baseline} ({p}), {verdict}.")
    elif best == content.baseline and evaluation.compared:
        said.append("Nothing that was tried beats this plain baseline on average.")
    by_score = sorted(evaluation.targets, key=lambda x: -(s.mean if (s := table.of_language(x)) else 0))
    if len(by_score) > 1:
        ends = [
            f"{language_name(x)} ({cast('Any', table.of_language(x)).mean:.1f})" for x in (by_score[0], by_score[-1])
        ]
        said.append(f"It is strongest in {ends[0]} and weakest in {ends[1]}.")
    gaps = [gap for x in evaluation.targets if (gap := evaluation.gap(best, x)) is not None]
    if gaps and source:
        here = cast("Any", table.of_language(str(evaluation.source))).mean
        said.append(f"In {source} itself it reaches {here:.1f}, so {fmean(gaps):.1f} points are lost on the way.")
    return said


def _gap_chart(evaluation: Evaluation) -> str:
    series = [
        charts.Dots(system, [evaluation.gap(system, language) for language in evaluation.targets])
        for system in evaluation.scores
    ]
    if not any(value is not None for one in series for value in one.values):
        return ""
    names = [language_name(language) for language in evaluation.targets]
    title = f"Points lost from {language_name(str(evaluation.source))}, by language ({evaluation.name})"
    return charts.dot_chart(title, names, series, "points lost (less is better)")


def _difference_chart(content: Content, evaluation: Evaluation) -> str:
    if not evaluation.compared:
        return ""
    series, order = [], list(evaluation.scores)
    for system, compared in evaluation.compared.items():
        found = [compared.languages.get(language) for language in evaluation.languages] + [compared.pooled]
        series.append(
            charts.Dots(
                system,
                [one.difference if one else None for one in found],
                [one.low if one else None for one in found],
                [one.high if one else None for one in found],
                order.index(system),
            )
        )
    names = [*(language_name(language) for language in evaluation.languages), "mean of targets"]
    title = f"Difference from {content.baseline} with 95 % intervals ({evaluation.name})"
    return charts.dot_chart(title, names, series, f"points against {content.baseline} (right is better)")


def _curves(systems: Sequence[System]) -> list[tuple[str, str]]:
    """Return (title, chart) of the loss and of the score on source dev data, where runs logged them."""
    losses, devs, metric = [], [], ""
    for number, system in enumerate(systems):
        loss, dev, name = learning(system)
        metric = metric or name
        for seed, one, other in zip(system.seeds, loss, dev, strict=True):
            losses.append(charts.Line(f"{system.name}, seed {seed}", one, number))
            devs.append(charts.Line(f"{system.name}, seed {seed}", other, number))
    shown = []
    for title, lines, unit in (
        ("Loss in training", losses, "loss"),
        ("Score on source-language dev data", devs, metric.replace("_", " ") + ", %"),
    ):
        kept = [line for line in lines if len(line.points) > 1]
        if kept:
            shown.append((title, charts.line_chart(title, kept, "step", unit)))
    return shown


def to_dict(content: Content) -> Json:
    """Return what the report holds, for machines."""
    return {
        "title": content.title,
        "baseline": content.baseline,
        "systems": {system.name: {"path": str(system.path), "seeds": system.seeds} for system in content.systems},
        "evaluations": {
            evaluation.name: {
                "scores": {name: table.to_dict() for name, table in evaluation.scores.items()},
                "compared": {name: found.to_dict() for name, found in evaluation.compared.items()},
                "summary": _summary(content, evaluation),
            }
            for evaluation in content.evaluations
        },
    }
