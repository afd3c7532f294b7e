"""Paired tests, markdown and heat maps of `run.py`'s results.

    python benchmarks/experiments/distill/table.py distill.json [--pictures DIR] > distill.md

Where the per-example statistics lie beside the JSON, the tests are made and written into it ("comparisons"); everything
else comes from the JSON alone. Two systems are compared over the languages and seeds that both have: examples are the
units, an example's seeds and translations stay together, p by permutation, adjusted by Holm's method within a set.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

import numpy as np
from jobs import ARCHITECTURES, MAIN, SETS, SHARED
from run import row_key
from work import statistics

from crosslift.measure.scores import over_languages, over_seeds
from crosslift.measure.significance import format_p, holm, permutation_test
from crosslift.reproduce.charts.heat import heat_panel
from crosslift.reproduce.charts.sheet import sheet
from crosslift.tasks.metrics import Metric, accuracy, entity_f1

LIKE = {metric.name: metric for metric in (accuracy(["a"], ["a"]), entity_f1([["B-X"]], [["B-X"]]))}

System = tuple[str, str, str, str, str, bool]
"""Role, source, bridge, variant, student, augmented."""
Rows = dict[System, dict[tuple[str, int], dict[str, Any]]]
"""System -> (language, seed) -> row of the JSON; a model that is scored in many languages stands under each."""


def by_system(jobs: list[dict[str, Any]], name: str) -> Rows:
    """Return the rows of a set by system."""
    found: Rows = {}
    for row in jobs:
        job = row_key(row)
        if job.set == name:
            system = (job.role, job.source, job.bridge, job.variant, job.student, job.augmented)
            for language in row["scores"]:
                found.setdefault(system, {})[language, job.seed] = row
    return found


def scores(rows: Rows, system: System, language: str) -> list[float]:
    """Return one score per seed."""
    found = rows.get(system, {})
    return [row["scores"][x] for (x, _), row in sorted(found.items()) if x == language]


def mean_by_seed(rows: Rows, system: System, languages: list[str]) -> dict[int, float]:
    """Return the mean over languages of each seed that has all of them."""
    found = rows.get(system, {})
    seeds = sorted({seed for _, seed in found})
    whole = [seed for seed in seeds if languages and all((x, seed) in found for x in languages)]
    return {seed: fmean(found[x, seed]["scores"][x] for x in languages) for seed in whole}


def teacher(system: System) -> System | None:
    """Return the system that a step starts from."""
    role, source, bridge, variant, *_ = system
    if role == "student":
        return ("bridge", source, bridge, variant, "", False)
    return ("source", source, "", "", "", False) if role == "bridge" else None


def languages_of(rows: Rows, system: System, name: str) -> list[str]:
    """Return the target languages that a system has been scored in."""
    there = {language for language, _ in rows.get(system, {})}
    return [language for language in SETS[name].targets if language in there]


def title(system: System) -> str:
    """Return a system in words."""
    role, source, bridge, variant, student, augmented = system
    if role == "source":
        return f"labels shared: {source}" if source == SHARED else f"source: {source}"
    if role == "gold":
        return f"gold labels: {student}"
    extra = ", ".join(x for x in (variant if variant != "plain" else "", "augmented" if augmented else "") if x)
    if role in ("bridge", "student"):
        chain = " → ".join(x for x in (source, bridge, student) if x)
        return f"{role}: {chain}" + (f" ({extra})" if extra else "")
    return f"{role}: {' → '.join(x for x in (source, student) if x)}"


def drop(rows: Rows, system: System, name: str) -> tuple[float, float] | None:
    """Return what a step costs in points, and how much of its teacher's score is kept (%).

    A bridge is held against its source model in English, a student against its bridge in its language.
    """
    above = teacher(system)
    if above is None:
        return None
    languages = ["en"] if system[0] == "bridge" else languages_of(rows, system, name)
    ours, theirs = (mean_by_seed(rows, x, languages) for x in (system, above))
    shared = sorted(set(ours) & set(theirs))
    if not shared:
        return None
    after, before = fmean(ours[seed] for seed in shared), fmean(theirs[seed] for seed in shared)
    return after - before, 100 * after / before if before else 0.0


def main_table(rows: Rows, name: str) -> list[str]:
    """Return one line per system: scores by language, their mean, and what its step costs."""
    targets = list(SETS[name].targets)
    lines = [
        f"| system | en | {' | '.join(targets)} | mean | drop | kept | seeds |",
        f"| --- |{' ---: |' * (len(targets) + 5)}",
    ]
    order = ("source", "bridge", "student", "translate-test", "translate-train", "gold")
    for system in sorted(rows, key=lambda x: (order.index(x[0]), x[1] != MAIN, *x[1:])):
        mean = list(mean_by_seed(rows, system, targets).values())
        cost = drop(rows, system, name)
        costs = [f"{cost[0]:+.1f}", f"{cost[1]:.0f}%"] if cost else ["", ""]
        cells = [shown(scores(rows, system, language)) for language in ("en", *targets)]
        seeds = len({seed for _, seed in rows[system]})
        lines.append(f"| {' | '.join([title(system), *cells, shown(mean), *costs, str(seeds)])} |")
    return lines


def shown(values: list[float]) -> str:
    """Return mean ± standard deviation over seeds."""
    if not values:
        return "–"
    return f"{fmean(values):.1f}" + (f" ± {stdev(values):.1f}" if len(values) > 1 else "")


def pairs(rows: Rows) -> Iterator[tuple[System, System]]:
    """Return which systems are held against which: every way of teaching a student against the plain one."""
    first = next((x[2] for x in rows if x[0] == "student" and x[3] == "balanced"), None)
    first = first or next((x[2] for x in rows if x[0] == "student"), "")
    for student in ARCHITECTURES:
        plain: System = ("student", MAIN, first, "plain", student, False)
        if plain not in rows:
            continue
        others = [x for x in rows if x[0] == "student" and x[1] == MAIN and x[4] == student and x != plain]
        yield from ((other, plain) for other in sorted(others))
        yield plain, ("bridge", MAIN, first, "plain", "", False)
        if student == MAIN:
            for baseline in ("translate-test", "translate-train", "gold"):
                other = next((x for x in rows if x[0] == baseline and x[1] != SHARED), None)
                if other:
                    yield plain, other
    zero_shot: System = ("source", SHARED, "", "", "", False)
    yield from ((x, zero_shot) for x in sorted(rows) if x[0].startswith("translate") and x[1] == SHARED)


def compared(jobs: list[dict[str, Any]], folder: Path) -> list[dict[str, Any]]:
    """Test the pairs of every set; one entry each."""
    found = []
    for name in sets_of(jobs):
        rows = by_system(jobs, name)
        with np.load(folder / f"{name}.ids.npz") as file:
            ids = {language: file[language].tolist() for language in file.files}
        entries = []
        for ours, theirs in pairs(rows):
            seeds: dict[str, list[int]] = {}
            for language, seed in sorted(set(rows[ours]) & set(rows.get(theirs, {}))):
                if language in SETS[name].targets:
                    seeds.setdefault(language, []).append(seed)
            if not seeds:
                continue
            sides = [
                over_languages(
                    [
                        over_seeds([metric(rows[x][lang, seed], lang, folder) for seed in s])
                        for lang, s in seeds.items()
                    ],
                    [ids[language] for language in seeds],
                )
                for x in (ours, theirs)
            ]
            test = permutation_test(*sides, samples=2000)
            entry = {"set": name, "system": title(ours), "against": title(theirs), "languages": list(seeds)}
            entry |= {"seeds": max(map(len, seeds.values())), "p": round(test.p_value, 5)}
            entry |= {k: round(float(getattr(test, k)), 3) for k in ("difference", "low", "high")}
            entries.append(entry)
        for entry, p in zip(entries, holm([entry["p"] for entry in entries]), strict=True):
            entry["p_holm"] = round(p, 5)
        found += entries
    return found


def metric(row: dict[str, Any], language: str, folder: Path) -> Metric:
    """Rebuild a metric from its statistics."""
    like = LIKE[row["metric"]]
    with np.load(folder / row["statistics"]) as file:
        return Metric(like.name, file[language].astype(np.float64), like.combine, like.is_mean)


def sets_of(jobs: list[dict[str, Any]]) -> list[str]:
    """Return the sets that there are results of."""
    return [name for name in SETS if any(row["set"] == name for row in jobs)]


def tests_table(entries: list[dict[str, Any]]) -> list[str]:
    """Return the paired tests of a set."""
    lines = [
        "| system | against | difference | 95% interval | p (Holm) | seeds |",
        "| --- | --- | ---: | --- | --- | ---: |",
    ]
    for e in entries:
        sure = "**" if e["p_holm"] < 0.05 else ""
        cells = [
            e["system"],
            e["against"],
            f"{sure}{e['difference']:+.2f}{sure}",
            f"{e['low']:+.2f} to {e['high']:+.2f}",
        ]
        lines.append(f"| {' | '.join([*cells, format_p(e['p_holm']), str(e['seeds'])])} |")
    return lines


def grid(rows: Rows, name: str, drops: bool) -> list[list[float | None]]:
    """Return the grid source (rows) × student (columns): mean over its languages, or what is lost from the bridge."""
    first = next((x[2] for x in rows if x[0] == "student" and x[1] != MAIN), "")
    systems: list[list[System]] = [
        [("student", source, first, "plain", student, False) for student in ARCHITECTURES] for source in ARCHITECTURES
    ]
    # Only languages that every cell has: the main source model has been scored in more.
    there = [set(languages_of(rows, x, name)) for line in systems for x in line if x in rows]
    languages = [x for x in SETS[name].targets if there and all(x in some for some in there)]

    def cell(system: System) -> float | None:
        ours = mean_by_seed(rows, system, languages)
        above = teacher(system)
        theirs = mean_by_seed(rows, above, languages) if above else {}
        shared = sorted(set(ours) & set(theirs))
        if not shared:
            return None
        return fmean(theirs[s] - ours[s] for s in shared) if drops else fmean(ours[s] for s in shared)

    return [[cell(system) for system in line] for line in systems]


def grid_table(values: list[list[float | None]]) -> list[str]:
    """Return a grid as markdown."""
    lines = [f"| source \\ student | {' | '.join(ARCHITECTURES)} |", f"| --- |{' ---: |' * len(ARCHITECTURES)}"]
    for source, some in zip(ARCHITECTURES, values, strict=True):
        lines.append(f"| {source} | {' | '.join('–' if x is None else f'{x:.1f}' for x in some)} |")
    return lines


def heat_maps(both: list[list[list[float | None]]], name: str) -> str:
    """Return accuracy and drop side by side as one SVG."""
    titles = ("score", "lost from the bridge")
    panels = [heat_panel(t, ARCHITECTURES, ARCHITECTURES, values) for t, values in zip(titles, both, strict=True)]
    return sheet(f"{name}: source (rows) × student (columns)", panels, said="mean over target languages and seeds")


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
    for name in sets_of(jobs):
        rows = by_system(jobs, name)
        measured = next(row["metric"] for row in jobs if row["set"] == name)
        print(f"### {name}\n\n{measured}, mean ± standard deviation over seeds.\n")
        print("\n".join(main_table(rows, name)))
        tests = [entry for entry in results.get("comparisons", []) if entry["set"] == name]
        if tests:
            print("\nPaired tests over target languages:\n\n" + "\n".join(tests_table(tests)))
        both = [grid(rows, name, drops) for drops in (False, True)]
        if sum(value is not None for line in both[0] for value in line) > len(ARCHITECTURES):
            print("\nSource × student, mean over targets, and what is lost from the bridge:\n")
            print("\n".join([*grid_table(both[0]), "", *grid_table(both[1])]))
            if arguments.pictures:
                arguments.pictures.mkdir(parents=True, exist_ok=True)
                (arguments.pictures / f"distill-{name}.svg").write_text(heat_maps(both, name), encoding="utf-8")
        print()


if __name__ == "__main__":
    main()
