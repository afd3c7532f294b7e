"""Paired tests, markdown and heat maps of `run.py`'s results.

    python benchmarks/experiments/distill/table.py benchmarks/results/distill-table.json [--pictures DIR] > distill.md

Where the per-example statistics lie beside the JSON, the tests are made and written into it ("comparisons"); everything
else comes from the JSON alone. Two systems are compared over the languages and seeds that both have: examples are the
units, an example's seeds and translations stay together, p by permutation, adjusted by Holm's method within a set.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

from jobs import ARCHITECTURES, GRID, MAIN, SETS, SHARED
from paired import compared
from systems import (
    NAMES,
    Rows,
    System,
    bridge_of,
    by_system,
    drop,
    languages_of,
    mean_by_seed,
    scores,
    seeds_of,
    sets_of,
    step,
    student_of,
    title,
)
from work import statistics

from crosslift.measure.significance import format_p
from crosslift.reproduce.charts.heat import heat_panel
from crosslift.reproduce.charts.sheet import sheet

TITLES = {
    "massive-intent": "MASSIVE intents",
    "massive-slots": "MASSIVE slots",
    "sib200": "SIB-200 topics",
    "xsid-intent": "xSID intents",
    "xsid-slots": "xSID slots",
    "panx": "PAN-X",
}
METRICS = {"accuracy": "accuracy", "entity_f1": "entity F1"}
ORDER = ("source", "bridge", "student", "translate-test", "translate-train", "gold")
KINDS = [student_of(x) for x in ARCHITECTURES]


def table(head: list[str], lines: list[list[str]], words: int = 1) -> list[str]:
    """Return a table in markdown: so many columns of words, the others of numbers."""
    rule = [*["---"] * words, *["---:"] * (len(head) - words)]
    return [f"| {' | '.join(cells)} |" for cells in (head, rule, *lines)]


def shown(values: list[float]) -> str:
    """Return mean ± standard deviation over seeds."""
    if not values:
        return "–"
    return f"{fmean(values):.1f}" + (f" ± {stdev(values):.1f}" if len(values) > 1 else "")


def signed(value: float) -> str:
    """Return a difference; one that rounds to zero has no minus."""
    return f"{round(value, 1) + 0.0:+.1f}"


def in_order(systems: Rows) -> list[System]:
    """Return the systems as a reader meets them: by role, the usual source first, the plain way first."""
    teaching = ("", "plain", "balanced", "human")
    place = {"": 0, **{x: i for i, x in enumerate(ARCHITECTURES)}}
    return sorted(
        systems,
        key=lambda x: (ORDER.index(x[0]), place.get(x[1], 9), x[2], teaching.index(x[3]), x[5], place.get(x[4], 9)),
    )


def overview(sets: dict[str, Rows]) -> list[str]:
    """Return the mean over target languages of every system with the usual source, a column per set."""
    # A source model, and a bridge before its step into other languages, is measured in English.
    wanted = {f"{title(x)}, English": (x, True) for x in [("source", MAIN, "", "", "", False), bridge_of()]}
    systems = in_order({x: rows[x] for rows in sets.values() for x in rows if x[0] != "source" or x[1] == SHARED})
    shared = ("source", SHARED, "", "", "", False)
    last = [x for x in systems if x[1] == SHARED and x != shared]
    # What is done to one student only in most sets is left to the table by language.
    usual = [x for x in systems if x[1] in ("", MAIN) and (x[4] in ("", MAIN) or x in KINDS)]
    wanted |= {title(x): (x, False) for x in [*usual, shared, *last]}
    lines = []
    for said, (system, english) in wanted.items():
        cells = []
        for name, rows in sets.items():
            there = mean_by_seed(rows, system, ["en"] if english else list(SETS[name].targets))
            cells.append(f"{fmean(there.values()):.1f}" if there else "–")
        lines.append([said, *cells])
    return table(["", *(TITLES[name] for name in sets)], lines)


def steps_table(sets: dict[str, Rows]) -> list[str]:
    """Return what each step costs: into the bridge, into other languages, into the students."""
    lines = []
    for name, rows in sets.items():
        first, english = drop(rows, bridge_of(), name), mean_by_seed(rows, bridge_of(), ["en"])
        abroad = mean_by_seed(rows, bridge_of(), list(SETS[name].targets))
        cells = [signed(first[0]) if first else "–", signed(fmean(abroad[x] - english[x] for x in abroad))]
        for student in KINDS:
            cost = drop(rows, student, name)
            cells.append(f"{signed(cost[0])} ({cost[1]:.0f}%)" if cost else "–")
        lines.append([TITLES[name], *cells])
    head = ["", "source → bridge", "English → targets", *(f"bridge → {NAMES[x]}" for x in ARCHITECTURES)]
    return table(head, lines)


def kept_table(rows: Rows, name: str) -> list[str]:
    """Return how much of its bridge each student keeps in each language (%), from the means over seeds."""
    targets, lines = list(SETS[name].targets), []
    for system in [x for x in in_order(rows) if x[0] == "student" and x[1] == MAIN]:
        found = [step(rows, system, [x]) for x in targets] + [step(rows, system, targets)]
        lines.append([title(system), *(f"{100 * pair[1] / pair[0]:.1f}" if pair else "–" for pair in found)])
    return table(["kept of the bridge, %", *targets, "mean"], lines)


def main_table(rows: Rows, name: str) -> list[str]:
    """Return one line per system: scores by language, their mean, and what its step costs."""
    targets, lines = list(SETS[name].targets), []
    several = len(targets) > 1
    for system in in_order(rows):
        if system[0] == "student" and system[1] != MAIN:
            continue  # in the grid
        mean = list(mean_by_seed(rows, system, targets).values())
        cost = drop(rows, system, name)
        costs = [signed(cost[0]), f"{cost[1]:.0f}%"] if cost else ["", ""]
        cells = [shown(scores(rows, system, language)) for language in ("en", *targets)]
        lines.append([title(system), *cells, *([shown(mean)] if several else []), *costs, seeds_of(rows, system)])
    return table(["system", "en", *targets, *(["mean"] if several else []), "drop", "kept", "seeds"], lines)


def bridges_table(rows: Rows, name: str) -> list[str]:
    """Return the bridges in the languages that have no text for a student."""
    languages = list(SETS[name].bridge_only)
    systems = [x for x in in_order(rows) if x[0] == "bridge"]
    lines = [[title(x), *(shown(scores(rows, x, language)) for language in languages)] for x in systems]
    return table(["system", *languages], lines)


def tests_table(entries: list[dict[str, Any]], name: str) -> list[str]:
    """Return the paired tests of a set."""
    lines = []
    for e in entries:
        sure = "**" if e["p_holm"] < 0.05 else ""
        tested = [x for x in SETS[name].targets if x in e["seeds"]]
        few = "" if len(tested) == len(SETS[name].targets) else f" ({', '.join(tested)})"
        numbers = sorted({min(e["seeds"].values()), max(e["seeds"].values())})
        cells = [e["system"] + few, e["against"], f"{sure}{e['difference']:+.2f}{sure}"]
        cells += [f"{e['low']:+.2f} to {e['high']:+.2f}", format_p(e["p_holm"]), "–".join(map(str, numbers))]
        lines.append(cells)
    return table(["system", "against", "difference", "95% interval", "p (Holm)", "seeds"], lines, words=2)


def grid(rows: Rows, drops: bool) -> list[list[float | None]]:
    """Return the grid source (rows) × student (columns): mean over its languages, or what is lost from the bridge."""

    def cell(system: System) -> float | None:
        found = step(rows, system, list(GRID[1]))
        return None if found is None else found[0] - found[1] if drops else found[1]

    return [[cell(student_of(student, source=source)) for student in ARCHITECTURES] for source in ARCHITECTURES]


def grid_table(values: list[list[float | None]]) -> list[str]:
    """Return a grid as markdown."""
    names = [NAMES[x] for x in ARCHITECTURES]
    lines = [[x, *("–" if y is None else f"{y:.1f}" for y in some)] for x, some in zip(names, values, strict=True)]
    return table(["source \\ student", *names], lines)


def heat_maps(both: list[list[list[float | None]]], name: str, measured: str, seeds: int) -> str:
    """Return accuracy and drop side by side as one SVG."""
    names = [NAMES[x] for x in ARCHITECTURES]
    titles = (measured, "points lost from the bridge (below zero: gained)")
    panels = [heat_panel(t, names, names, values) for t, values in zip(titles, both, strict=True)]
    said = f"bridge mini-x, mean over {', '.join(GRID[1])} and {seeds} seeds"
    return sheet(f"{TITLES[name]}: source model (rows) × student (columns)", panels, said=said)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("results", type=Path)
    parser.add_argument("--pictures", type=Path, help="also write heat maps (SVG) to this folder")
    arguments = parser.parse_args()
    results = json.loads(arguments.results.read_text(encoding="utf-8"))
    jobs, folder = results["jobs"], statistics(arguments.results)
    if folder.is_dir():
        results["comparisons"] = compared(jobs, folder)
        arguments.results.write_text(json.dumps(results, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    sets = {name: by_system(jobs, name) for name in sets_of(jobs)}
    parts = {"Mean over target languages": overview(sets), "What each step costs": steps_table(sets)}
    for name, rows in sets.items():
        measured = METRICS[next(row["metric"] for row in jobs if row["set"] == name)]
        parts[f"{TITLES[name]} ({measured}, mean ± standard deviation over seeds)"] = main_table(rows, name)
        if len(SETS[name].targets) > 1:
            parts[f"{TITLES[name]}, what students keep"] = kept_table(rows, name)
        if SETS[name].bridge_only:
            parts[f"{TITLES[name]}, bridges elsewhere"] = bridges_table(rows, name)
        tests = [entry for entry in results.get("comparisons", []) if entry["set"] == name]
        if tests:
            parts[f"{TITLES[name]}, paired tests over target languages"] = tests_table(tests, name)
        if name == GRID[0]:
            both = [grid(rows, drops) for drops in (False, True)]
            parts[f"{TITLES[name]}, source × student"] = [*grid_table(both[0]), "", *grid_table(both[1])]
            if arguments.pictures:
                seeds = len(mean_by_seed(rows, student_of(MAIN), languages_of(rows, student_of(MAIN), name)))
                arguments.pictures.mkdir(parents=True, exist_ok=True)
                picture = heat_maps(both, name, measured, seeds)
                (arguments.pictures / f"distill-{name}.svg").write_text(picture, encoding="utf-8")
    print("\n\n".join("\n".join([f"### {said}", "", *lines]) for said, lines in parts.items()))


if __name__ == "__main__":
    main()
