"""What is kept of an entry: one JSON file with the paper's numbers, ours, and what the comparison says."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, cast

from crosslift.data import languages_of
from crosslift.data.storage import Json, read_json, write_json
from crosslift.measure.igap_result import text_table
from crosslift.reproduce.collect import NOT_YET, collect
from crosslift.reproduce.comparison import Compared, compare_entry
from crosslift.reproduce.entries import Entry
from crosslift.reproduce.perform import Performed, perform
from crosslift.reproduce.plan import Choice, Plan, make_plan
from crosslift.runs.sweep import Progress


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

    A record made from runs that lie elsewhere now is not given up for one with fewer cells.

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
    lacking = any(reason.endswith(NOT_YET) for row in rows_of(found) for reason in row.missing.values())
    return lacking and known["models"] == found["models"] and _filled(known) > _filled(found)


def _filled(found: Json) -> int:
    return sum(value is not None for row in rows_of(found) for value in row.ours)


def record(entry: Entry, plan: Plan, done: Performed, choice: Choice) -> Json:
    """Return the record of one entry."""
    cells = collect(entry, plan, done)
    compared = compare_entry(entry, cells)
    steps = [step for step in plan.steps.values() if entry.id in step.tables]
    measured = [read_json(done.folders[step.key] / "finished.json") for step in steps if step.key in done.folders]
    return {
        "entry": entry.id,
        "scale": choice.scale,
        "models": dict(choice.models),
        "seeds": sorted({step.seed for step in steps}),
        "runs": len(steps),
        "seconds": round(sum(float(cast("float", one.get("seconds", 0))) for one in measured), 1),
        "columns": [column.name for column in entry.columns],
        "languages": {
            column.name: list(cells[row.name, column.name].languages)
            for column in entry.columns
            for row in entry.rows
            if cells[row.name, column.name].values
        },
        "rows": [row.to_dict() for row in compared],
        "english": {
            f"{row} / {column}": {"english": round(cell.english, 2), "majority": round(cell.majority, 2)}
            for (row, column), cell in cells.items()
            if cell.english is not None and cell.majority is not None
        },
        "histograms": _drawn("histogram", entry, plan, done),
        "pictures": _drawn("words", entry, plan, done),
    }


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


def read_record(folder: str | Path, entry: str, scale: str) -> Json | None:
    """Return the record of an entry, if there is one."""
    path = Path(folder) / scale / f"{entry}.json"
    return read_json(path) if path.exists() else None


def rows_of(found: Json) -> list[Compared]:
    """Return the rows of a record."""
    return [Compared(**row) for row in cast("list[dict[str, Any]]", found["rows"])]


def as_text(entry: Entry, found: Json) -> str:
    """Return a record as a table for a terminal: paper, ours, and the differences from the baseline."""
    names = [column.name for column in entry.columns]
    grid = [["", "", *names]]
    for row in rows_of(found):
        grid.append([row.name, "paper", *map(_plain, row.paper)])
        grid.append(["", "ours", *map(_plain, row.ours)])
        if row.baseline and any(value is not None for value in row.difference):
            if not entry.paper_gains:
                grid.append(["", "Δ paper", *map(_signed, row.paper_difference)])
            grid.append(["", "Δ ours", *map(_signed, row.difference)])
    lines = [f"{entry.id}  {entry.title} ({entry.metric}, scale {found['scale']})", text_table(grid), ""]
    lines += [f"{row.name}: {verdict(row)}" for row in rows_of(found) if row.baseline]
    reasons: dict[str, list[str]] = {}
    for row in rows_of(found):
        for column, reason in row.missing.items():
            reasons.setdefault(reason, []).append(f"{row.name} / {column}")
    whole = len(names) * len(entry.rows)
    lines += [f"{_how_empty(why)}: {len(cells)} of {whole} cells: {why}" for why, cells in reasons.items()]
    return "\n".join(lines)


def _how_empty(reason: str) -> str:
    return "partly" if reason.startswith("without ") else "empty"


def verdict(row: Compared) -> str:
    """Return one line: mean differences here and in the paper, signs, rank correlation, significance."""
    if all(value is None for value in row.difference):
        return "nothing to compare here"
    parts = [f"against {row.baseline}"]
    if row.mean_difference is not None:
        parts = [f"{row.mean_difference:+.2f} against {row.baseline}"]
    if row.mean_difference is not None and row.paper_mean_difference is not None:
        apart = row.mean_difference - row.paper_mean_difference
        parts.append(f"{row.paper_mean_difference:+.2f} in the paper, {apart:+.2f} apart")
    if row.judged:
        parts.append(f"same sign in {row.agree} of {row.judged}")
    if row.unlearnt:
        parts.append(f"{row.unlearnt} not judged: English does not beat the most frequent class")
    if row.spearman is not None:
        parts.append(f"ρ = {row.spearman:.2f}")
    if row.p_mean is not None:
        parts.append(f"p = {row.p_mean:.3f}" if row.p_mean >= 0.001 else "p < 0.001")
    return "; ".join(parts)


def _plain(value: float | None) -> str:
    return "–" if value is None else f"{value:.1f}" if abs(value) >= 1 else f"{value:.2f}"


def _signed(value: float | None) -> str:
    return "–" if value is None else f"{value:+.1f}"
