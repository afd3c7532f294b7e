"""What is kept of an entry: one JSON file with the paper's numbers, ours, and what the comparison says."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, cast

from crosslift.data import languages_of
from crosslift.data.storage import Json, read_json, write_json
from crosslift.measure.igap_result import text_table
from crosslift.reproduce.claims import read_record, tests_asked
from crosslift.reproduce.collect import NOT_YET, collect
from crosslift.reproduce.comparison import Compared, apart, compare_entry, decimals, paired_test, rows_of
from crosslift.reproduce.entries import Entry
from crosslift.reproduce.perform import Performed, perform
from crosslift.reproduce.plan import Choice, Plan, make_plan
from crosslift.runs.sweep import Progress

UNDEFINED = re.compile(r"^\S+: (not defined.*)$")
WHY_UNDEFINED = r"\1 (IGAP: no checkpoint has such a training error)"


def reproduce(
    chosen: Sequence[Entry],
    choice: Choice,
    out: str | Path,
    results: str | Path,
    *,
    show: Callable[[Sequence[Progress]], None] | None = None,
    say: Callable[[str], None] = lambda text: None,
    **engine: Any,  # noqa: ANN401  those of `sweep`
) -> list[Json]:
    """Run what some entries need and write one record each; started again, it goes on.

    A record made from runs that lie elsewhere now is not given up for one with fewer cells or seeds.

    Args:
        chosen: Entries.
        choice: Scale, encoders and what else there is.
        out: Folder of the runs, shared by all entries of a scale.
        results: Folder of the records.
        show: Called with the runs of the wave at work, a few times a second.
        say: Told where a wave begins.
        engine: Arguments of `perform`: `light`, and those of `sweep` that say where runs are performed.
    """
    plan = make_plan(chosen, choice, languages_of)
    done = perform(plan, out, show=show, say=say, **engine) if plan.steps else Performed()
    records = []
    for entry in chosen:
        found = record(entry, plan, done, choice)
        known = read_record(results, entry.id, choice.scale)
        if known is not None and _fuller(known, found):
            say(f"{entry.id}: {_filled(found)} cells with the runs that are here; the record of {_filled(known)} stays")
            found = known
        else:
            write_json(Path(results) / choice.scale / f"{entry.id}.json", found)
        records.append(found)
    return records


def _fuller(known: Json, found: Json) -> bool:
    """Say whether a record holds more than a new one of the same encoders that still lacks runs."""
    if not lacks_runs(found) or known["models"] != found["models"]:
        return False
    seeds, wanted = (set(cast("list[int]", one["seeds"])) for one in (known, found))
    # As many cells, but all of their seeds.
    whole = _filled(known) == _filled(found) and not lacks_runs(known) and seeds >= wanted
    return _filled(known) > _filled(found) or whole


def lacks_runs(found: Json) -> bool:
    """Say whether runs of a record are still to be made."""
    return any(reason.endswith(NOT_YET) for row in rows_of(found) for reason in row.missing.values())


def _filled(found: Json) -> int:
    return sum(value is not None for row in rows_of(found) for value in row.ours)


def record(entry: Entry, plan: Plan, done: Performed, choice: Choice) -> Json:
    """Return the record of one entry."""
    cells = collect(entry, plan, done)
    compared = compare_entry(entry, cells)
    steps = [step for step in plan.steps.values() if entry.id in step.tables]
    ended = [read_json(done.folders[step.key] / "finished.json") for step in steps if step.key in done.folders]
    # Not every kind of run notes its time: a sum over some of them would be no time of anything.
    timed = bool(ended) and all("seconds" in one for one in ended)
    found: Json = {
        "entry": entry.id,
        "scale": choice.scale,
        # A folder by its name: where it lay is nobody's business, and a page would show it.
        "models": {
            place: Path(model).name if Path(model).is_dir() else model for place, model in choice.models.items()
        },
        "seeds": sorted({step.seed for step in steps}),
        "runs": len(steps),
        "seconds": round(sum(float(cast("float", one["seconds"])) for one in ended), 1) if timed else None,
        "columns": [column.name for column in entry.columns],
        "languages": {
            column.name: list(cells[row.name, column.name].languages)
            for column in entry.columns
            for row in entry.rows
            if cells[row.name, column.name].values
        },
        "rows": [row.to_dict() for row in compared],
        "english": {
            f"{row} / {column}": {
                "english": round(cell.english, 2),
                "low": round(cell.english_low, 2),
                "majority": round(cell.majority, 2),
            }
            for (row, column), cell in cells.items()
            if cell.english is not None and cell.english_low is not None and cell.majority is not None
        },
        "histograms": _drawn("histogram", entry, plan, done),
        "pictures": _drawn("words", entry, plan, done),
    }
    for one, other, columns in tests_asked(entry, found):
        test = paired_test(cells, one, other, columns)
        if test is not None:
            row = next(row for row in compared if row.name == one)
            row.tests.append({"against": other, "columns": columns, **asdict(test)})
    return {**found, "rows": [row.to_dict() for row in compared]}


def _drawn(kind: str, entry: Entry, plan: Plan, done: Performed) -> Json:
    """Return row / column -> what a figure of this kind draws and no score says, of the first seed."""
    if entry.chart != kind:
        return {}
    found: Json = {}
    for row in entry.rows:
        for column in entry.columns:
            for source in plan.cells.get((entry.id, row.name, column.name), [])[:1]:
                if source.step in done.folders:
                    results = cast("dict[str, Any]", read_json(done.folders[source.step] / "results.json"))
                    cell = results[source.results][source.language]
                    part = cell.get("picture") if kind == "words" else _histogram(cell, source.metric)
                    found |= {f"{row.name} / {column.name}": part} if part else {}
    return found


def _histogram(cell: Mapping[str, Any], metric: str) -> Any:  # noqa: ANN401  as the measurement wrote it
    """Return the histogram of a cell: the only one, or the one of its metric."""
    return cell.get("histogram") or cell.get("histograms", {}).get(metric)


def as_text(entry: Entry, found: Json) -> str:
    """Return a record as a table for a terminal: paper, ours, and the differences from the baseline."""
    names = [column.name for column in entry.columns]
    grid = [["", "", *names]]
    for row in rows_of(found):
        grid.append([row.name, "paper", *map(_plain, row.paper)])
        digits = decimals(entry, row)
        grid.append(["", "ours", *(_plain(value, to) for value, to in zip(row.ours, digits, strict=True))])
        if row.baseline and any(value is not None for value in row.difference):
            if not entry.paper_gains:
                grid.append(["", "Δ paper", *map(_signed, row.paper_difference)])
            grid.append(["", "Δ ours", *(_signed(value, to) for value, to in zip(row.difference, digits, strict=True))])
    lines = [f"{entry.id}  {entry.title} ({entry.metric}, scale {found['scale']})", text_table(grid), ""]
    lines += [f"{row.name}: {verdict(entry, row)}" for row in rows_of(found) if row.baseline]
    whole = len(names) * len(entry.rows)
    lines += [
        f"{how}: {count} of {whole} cells: {why}" for (how, why), count in missing_cells(entry, rows_of(found)).items()
    ]
    return "\n".join(lines)


def missing_cells(entry: Entry, rows: Sequence[Compared]) -> Counter[tuple[str, str]]:
    """Return how many cells are empty, or a mean over only a part of their seeds or languages, for each reason."""
    found: Counter[tuple[str, str]] = Counter()
    for row in rows:
        values = dict(zip((column.name for column in entry.columns), row.ours, strict=True))
        for column, reason in row.missing.items():
            found["empty" if values[column] is None else "partly", UNDEFINED.sub(WHY_UNDEFINED, reason)] += 1
    return found


def verdict(entry: Entry, row: Compared) -> str:
    """Return one line: mean differences here and in the paper, signs, rank correlation, significance."""
    if all(value is None for value in row.difference):
        return "nothing to compare here"
    parts = [f"against {row.baseline}"]
    digits = max(2, *decimals(entry, row))
    if row.mean_difference is not None:
        parts = [f"{row.mean_difference:+.{digits}f} against {row.baseline}"]
    gap = apart(entry, row)
    if gap is not None:
        parts.append(f"{row.paper_mean_difference:+.{digits}f} in the paper, {gap:+.{digits}f} apart")
    if row.judged:
        parts.append(f"same sign in {row.agree} of {row.judged}")
    if row.unlearnt:
        parts.append(f"{row.unlearnt} not judged: English does not beat the most frequent class")
    if row.spearman is not None:
        parts.append(f"ρ = {row.spearman:.2f}")
    if row.p_mean is not None:
        parts.append(f"p = {row.p_mean:.3f}" if row.p_mean >= 0.001 else "p < 0.001")
    return "; ".join(parts)


def _plain(value: float | None, digits: int | None = None) -> str:
    shown = digits if digits is not None else 1 if value is None or abs(value) >= 1 else 2
    return "–" if value is None else f"{value:.{shown}f}"


def _signed(value: float | None, digits: int = 1) -> str:
    return "–" if value is None else f"{value:+.{digits}f}"
