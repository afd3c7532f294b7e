"""The docs section about the papers, made from records: never by hand."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean
from typing import Any, cast

from crosslift.data.storage import Json, write_text
from crosslift.reproduce.charts import chart
from crosslift.reproduce.claims import Verdict, decide, read_record
from crosslift.reproduce.comparison import Compared, apart, decimals, rows_of
from crosslift.reproduce.entries import SCALES, Entry, Paper, entries, paper, papers
from crosslift.reproduce.records import lacks_runs, missing_cells

MADE = "<!-- Made by `crosslift reproduce --docs` from the records; do not edit. -->"
SHOWN = ("small", "paper")
"""Scales whose results are shown: smoke says only that everything runs."""

CAPTIONS = {
    "histogram": "Drawn from the runs of the first seed.",
    "words": "Drawn from the runs of the first seed; the numbers below are of all seeds and of more words.",
    "heat": "A grey cell is empty; each map has colours of its own, white at the lowest value or at zero.",
}
"""What a reader must know about a kind of figure."""

INTRODUCTION = """\
One question per table: does a method help here as it helped there? Each entry is a short file of settings and of the
paper's numbers; `crosslift reproduce` runs it at the scale that a machine allows and puts ours beside theirs.

```sh
crosslift reproduce --list
crosslift reproduce ear.table1 --scale small
crosslift reproduce ear.table1 --scale paper --model bert-base-multilingual-cased
```

| scale | what runs |
| --- | --- |
| `smoke` | two steps on the embedded corpus, three columns of each table: seconds, to see that it works |
| `small` | the embedded encoders on the public sets of the data folder, three seeds (FreeTransfer-X: two) |
| `paper` | the paper's own settings and encoders, for those who have weights, data and a GPU |

Runs that several tables share are done once. Everything goes through [sweep](../sweep.md), so it can be stopped and
started again, runs in parallel (`--workers`, `--gpus`) and on a Ray cluster (`--engine ray`). `--model` takes any
folder in the hub's format; a further encoder takes a place by name (`--model xlm-r=FOLDER`). Sentence pairs, plain text
and translated sets that the catalog does not hold come from `--resources`, translations from `--translator`. With
`--light` a run's weights go as soon as no other run needs them; scores and predictions stay. With `--minutes 20` no run
begins after so long, and the same command goes on another day; `--minutes 0` runs nothing and writes the records of
what is there. A record is not replaced by one that has fewer cells only because its runs lie elsewhere.

*avg* is taken over the same columns as the paper's average, and the paper's is the printed one. What is compared, row
by row: the difference from the table's baseline row, in the paper and here (Δ), and how far the two lie apart; in how
many languages they have the same sign, counted only where the task was learnt: in English the lower end of the 95%
interval lies above the most frequent class, or, in answering, above a guess; Spearman's ρ between the paper's scores
and ours over the languages; and a paired permutation test of ours over all target languages. Where the text of a paper
lost numbers, Δ paper and *apart* go over the columns that are left. A cell that stays empty says why.

p speaks of other examples, not of other runs: training is repeated with three seeds, and their spread stands beside
each mean. On a GPU runs compute in bf16 (`--precision auto`), in training and in scoring, and a seed does not fix them.

The records lie in `benchmarks/results/reproduce`; these pages are made from them with `--docs`. Whether the
[claims](claims.md) of the papers hold is decided by rules over the same records, and by studies where there is none.
"""
CLAIMS = """\
{number} claims of the five papers in our words, decided at scale `{scale}`: {holds} hold, {not_} do not hold, {open}
are undecided, {missing} of these because nothing was run. A small encoder on small data is not the paper's setting: a
claim that does not hold here may well hold there, and the other way round.

A claim is decided by a rule over the table or figure that stands beside it. A difference counts with p < 0.05 of a
paired test (not corrected for the number of claims) if every seed points the same way, or, where there is no test,
beyond the spread over seeds. A claim is undecided where neither it nor its opposite is found, and where the task was
not learnt: in English the lower end of the 95% interval does not lie above the most frequent class (in answering: a
guess).

Where that table has not been run, a *study* may decide: an experiment of ours that tested the same at settings of its
own, which are named each time; its data are often others than the paper's. It gives differences with their 95%
intervals, and p after Holm's method over the tests of its own table. {studies} answers are a study's; {unsettled} of
these are "undecided", too. Where a table has been run, the table decides, and the study stands beside it.
"""


def write_pages(results: str | Path, docs: str | Path) -> list[Path]:
    """Write the index, one page per paper and the page of claims; return the files.

    Args:
        results: Folder of the records.
        docs: Folder of the pages.
    """
    docs = Path(docs)
    files = [docs / "index.md", docs / "claims.md", *(docs / f"{name}.md" for name in papers())]
    write_text(files[0], _index(results))
    write_text(files[1], _claims(results))
    for name, file in zip(papers(), files[2:], strict=True):
        pictures = docs / "pictures"
        write_text(file, _paper(name, results, pictures))
    return files


def _scale(results: str | Path, entry: str) -> tuple[str, Json] | None:
    """Return the largest scale at which an entry was run, with its record; an empty one only if alone."""
    known = {scale: read_record(results, entry, scale) for scale in reversed(SCALES) if scale in SHOWN}
    there = [(scale, found) for scale, found in known.items() if found is not None]
    return next((one for one in there if _filled(one[1])[0]), there[0] if there else None)


def _index(results: str | Path) -> str:
    lines = ["# Every table and figure of the five papers", "", MADE, "", INTRODUCTION]
    for name in papers():
        lines += [f"## {paper(name).name}", "", _cited(paper(name)), ""]
        lines += ["| | shows | run at | cells |", "| --- | --- | --- | --- |"]
        for entry in entries().values():
            if entry.paper == name:
                found = _scale(results, entry.id)
                where = f"[{entry.place}]({name}.md#{_anchor(entry)})"
                filled, whole = _filled(found[1]) if found else (0, 0)
                at, cells = (found[0], f"{filled} of {whole}") if found and filled else ("not yet", "–")
                lines.append(f"| {where} | {entry.shows} | {at} | {cells} |")
        lines.append("")
    return "\n".join(lines)


def _claims(results: str | Path) -> str:
    by_scale = {scale: decide(results, scale) for scale in SHOWN}
    # Each claim at the largest scale at which its table was run: one table at the paper's scale hides no other.
    own = {name: (_scale(results, name) or (SHOWN[0], {}))[0] for name in entries()}
    verdicts = [by_scale[own[one.claim.entry]][place] for place, one in enumerate(by_scale[SHOWN[0]])]
    scales = [scale for scale in SHOWN if scale in own.values()]
    counts = Counter(one.answer for one in verdicts)
    said = CLAIMS.format(
        number=len(verdicts),
        scale="` or `".join(scales),
        holds=counts["holds"],
        not_=counts["does not hold"],
        open=counts["undecided"],
        missing=sum("not run" in one.why for one in verdicts),
        studies=sum(one.by_study for one in verdicts),
        unsettled=sum(one.by_study and one.answer == "undecided" for one in verdicts),
    )
    lines = ["# Do the papers' claims hold?", "", MADE, "", said]
    for name in papers():
        lines += [f"## {paper(name).name}", "", "| claim | said in | here | why |", "| --- | --- | --- | --- |"]
        lines += [
            _claim(one, own[one.claim.entry] if len(scales) > 1 else "") for one in verdicts if one.claim.paper == name
        ]
        lines.append("")
    return "\n".join(lines)


def _claim(one: Verdict, scale: str) -> str:
    entry = entries()[one.claim.entry]
    link = f"[{entry.place}]({entry.paper}.md#{_anchor(entry)}){f' at scale `{scale}`' if scale else ''}"
    why = f"{link}: {'not run' if one.by_study else _escaped(one.why)}"
    if one.claim.study is not None and one.beside is not None:
        answer, numbers = one.beside
        study = f"[study](../{one.claim.study.page}) ({one.claim.study.at})"
        why += f"; instead a {study}: " if one.by_study else f"; a {study} says *{answer}*: "
        why += _escaped(numbers)
    return f"| {one.claim.claim} | {one.claim.place} | **{one.answer}** | {why} |"


def _cited(about: Paper) -> str:
    return f"{about.title}{'' if about.title.endswith('?') else '.'} {about.citation}."


def _paper(name: str, results: str | Path, pictures: Path) -> str:
    about = paper(name)
    lines = [f"# {about.name}, table by table", "", MADE, "", _cited(about), ""]
    for entry in entries().values():
        if entry.paper == name:
            lines += _entry(entry, _scale(results, entry.id), pictures)
    return "\n".join(lines)


def _entry(entry: Entry, found: tuple[str, Json] | None, pictures: Path) -> list[str]:
    lines = [f"## {_heading(entry)}", "", f"{entry.shows} Metric: {entry.metric}. (`{entry.id}`)", ""]
    if found is None or (not _filled(found[1])[0] and lacks_runs(found[1])):
        found = None
        lines += ["Not run yet.", ""]
        width = len(entry.columns)
        quoted = [Compared(row.name, list(row.paper), [None] * width, [None] * width) for row in entry.rows]
        if any(value is not None for row in quoted for value in row.paper):
            lines += _table(entry, quoted)
    else:
        scale, record = found
        models = ", ".join(f"{place} = {name}" for place, name in _encoders(entry, scale, record).items())
        seeds = ", ".join(map(str, cast("list[int]", record["seeds"])))
        runs = f"{record['runs']} runs{', of which some are still to be made' if lacks_runs(record) else ''}"
        lines += [f"Scale `{scale}`, {models}; seeds {seeds}; {runs}.", ""]
        drawn = chart(entry, record)
        if drawn:
            file = pictures / f"{entry.id}.svg"
            write_text(file, drawn)
            lines += [f"![{entry.title}](pictures/{file.name})", ""]
            if entry.chart in CAPTIONS:
                lines += [CAPTIONS[entry.chart], ""]
        elif entry.chart:
            lines += ["There is no figure: the runs kept nothing that it could show.", ""]
        rows = rows_of(record)
        lines += [*_table(entry, rows), *_summary(entry, rows), *_empty(entry, rows)]
    if entry.substitute:
        lines += [f"Substitute: {entry.substitute}", ""]
    if entry.lost:
        lines += [f"Lost: {entry.lost}", ""]
    departures = cast("dict[str, list[str]]", entry.departures)
    for part in ("all", found[0] if found else "small"):
        said = departures.get(part, [])
        if said:
            lines += [
                f"Departures{'' if part == 'all' else f' at scale {part}'}:",
                "",
                *(f"- {one}" for one in said),
                "",
            ]
    if entry.notes:
        lines += ["About the paper's numbers:", "", *(f"- {note}" for note in entry.notes), ""]
    return lines


def _encoders(entry: Entry, scale: str, record: Json) -> dict[str, str]:
    """Return place -> name of the encoders that an entry's rows take."""
    about = paper(entry.paper)
    known = {place: by_scale.get(scale) for place, by_scale in about.encoders.items()}
    known |= cast("Json", record["models"])
    runs = str([about.runs.get(row.run) for row in entry.rows])
    used = [p for p in known if p == "main" or f"{{{p}}}" in runs or any(row.encoder == p for row in entry.rows)]
    if all(row.encoder for row in entry.rows):
        used.remove("main")
    return {place: Path(str(known[place])).name for place in used if known[place]}


def _table(entry: Entry, rows: Sequence[Compared]) -> list[str]:
    names = [column.name for column in entry.columns] + (["avg"] if entry.printed else [])
    lines = [f"| | | {' | '.join(names)} |", f"| --- | --- |{' ---: |' * len(names)}"]
    digits = max((_decimals(value) for row in entry.rows for value in row.paper if value is not None), default=1)
    printed = cast("dict[str, float]", entry.printed)
    averages = {row.name: _average(entry, row.ours) for row in rows}

    def add(start: str, cells: Sequence[str], average: str) -> None:
        lines.append(f"| {start} | {' | '.join([*cells, average][: len(names)])} |")

    for row in rows:
        some = any(value is not None for value in row.ours)
        if any(value is not None for value in row.paper):
            cells = [_fixed(value, digits) for value in row.paper]
            add(f"{_escaped(row.name)} | paper", cells, _fixed(printed.get(row.name), digits))
        if some:
            places = decimals(entry, row)
            cells = [_with(value, sd, to) for value, sd, to in zip(row.ours, row.sd, places, strict=True)]
            add(f"{_escaped(row.name)} | ours", cells, _fixed(averages[row.name], places[0]))
        if row.baseline and some and any(value is not None for value in row.difference):
            if not entry.paper_gains and any(value is not None for value in row.paper_difference):
                cells = [_signed(value, digits) for value in row.paper_difference]
                add("| Δ paper", cells, _signed(_minus(printed.get(row.name), printed.get(row.baseline)), digits))
            gain = _minus(averages[row.name], averages.get(row.baseline))
            cells = [_signed(value, to) for value, to in zip(row.difference, places, strict=True)]
            add("| Δ ours", cells, _signed(gain, places[0]))
    return [*lines, ""]


def _average(entry: Entry, values: Sequence[float | None]) -> float | None:
    """Return the mean over the columns of the paper's average; `None` where one is empty: it would be another mean."""
    kept = [
        value
        for column, value in zip(entry.columns, values, strict=True)
        if entry.average == "all" or not column.source
    ]
    return None if None in kept else fmean(cast("list[float]", kept))


def _minus(one: float | None, other: float | None) -> float | None:
    return None if one is None or other is None else one - other


def _decimals(value: float) -> int:
    return len(str(value).partition(".")[2])


def _summary(entry: Entry, rows: Sequence[Compared]) -> list[str]:
    compared = [row for row in rows if row.baseline and any(value is not None for value in row.difference)]
    if not compared:
        return []
    lines = [
        "| against its baseline | Δ ours | Δ paper | apart | same sign | ρ | p |",
        "| --- | ---: | ---: | ---: | --- | ---: | ---: |",
    ]
    for row in compared:
        digits = max(2, *decimals(entry, row))
        unlearnt = f" ({row.unlearnt} not learnt)" if row.unlearnt else ""
        signs = f"{row.agree} of {row.judged}{unlearnt}" if row.judged or row.unlearnt else "–"
        p = "–" if row.p_mean is None else "< 0.001" if row.p_mean < 0.001 else f"{row.p_mean:.3f}"
        lines.append(
            f"| {_escaped(row.name)} − {_escaped(row.baseline)} | {_signed(row.mean_difference, digits)} | "
            f"{_signed(row.paper_mean_difference, digits)} | {_signed(apart(entry, row), digits)} | {signs} | "
            f"{'–' if row.spearman is None else f'{row.spearman:.2f}'} | {p} |"
        )
    return [*lines, ""]


def _empty(entry: Entry, rows: Sequence[Compared]) -> list[str]:
    reasons = missing_cells(entry, rows)
    if not reasons:
        return []
    whole = len(entry.columns) * len(entry.rows)
    said = [f"- {how}: {count} of {whole}: {_escaped(why)}" for (how, why), count in reasons.most_common()]
    return ["Cells that are empty, or in part (a mean over fewer seeds or languages):", "", *said, ""]


def _heading(entry: Entry) -> str:
    return f"{entry.place}: {entry.title}"


def _anchor(entry: Entry) -> str:
    """Return the anchor of an entry's heading, as the site makes it."""
    plain = "".join(letter for letter in _heading(entry).lower() if letter.isalnum() or letter in " -_")
    return "-".join(plain.replace("-", " ").split())


def _filled(record: Json) -> tuple[int, int]:
    """Return how many cells have a number, and how many there are."""
    rows = cast("list[dict[str, Any]]", record["rows"])
    cells = [value for row in rows for value in row["ours"]]
    return sum(value is not None for value in cells), len(cells)


def _fixed(value: float | None, digits: int) -> str:
    return "–" if value is None else f"{value:.{digits}f}"


def _with(value: float | None, sd: float | None, digits: int) -> str:
    return _fixed(value, digits) if value is None or sd is None else f"{_fixed(value, digits)} ± {sd:.{digits}f}"


def _signed(value: float | None, digits: int = 1) -> str:
    return "–" if value is None else f"{value:+.{digits}f}"


def _escaped(text: str) -> str:
    return text.replace("|", "\\|").replace("<", "&lt;")
