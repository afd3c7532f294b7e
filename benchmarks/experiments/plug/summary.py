"""Paired tests and the markdown tables of `table.py`'s results.

    python benchmarks/experiments/plug/summary.py plug-table.json > plug-table.md

Rows that lie beside the JSON are taken in first. Where the per-example statistics are there too, the tests are made and
written into the JSON ("comparisons"); the tables come from the JSON alone. Two systems are compared over the seeds that
both have: examples are the units, an example's seeds and translations stay together, p by permutation, adjusted by
Holm's method over the systems of a task. A transfer gap is the English score of the monolingual task model minus a
target score; one task model under several encoders makes gaps comparable.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

import numpy as np
from scipy.stats import spearmanr
from table import CHOSEN, FINETUNE, collected, statistics, write

from crosslift.measure.scores import over_languages, over_seeds
from crosslift.measure.significance import format_p, holm, permutation_test
from crosslift.tasks.metrics import Metric, accuracy, entity_f1

CEILING = "the task model"
BASELINES = ("emb-map", "emb-learn", "hmlm", "align", "mixed", *FINETUNE)
CHANCE = {"massive-intent": 100 / 60, "sib200": 100 / 7, "panx": 0.0, "xnli": 100 / 3, "xquad": 0.0}
"""Accuracy of guessing a class evenly; F1 of saying nothing."""

Rows = list[dict[str, Any]]


def by_system(results: dict[str, Any], task: str) -> dict[str, Rows]:
    """Return the rows of a task by system, seeds in order, one per seed."""
    found: dict[str, dict[int, dict[str, Any]]] = {}
    for row in sorted(results["jobs"], key=lambda row: row["seed"]):
        if row["task"] == task:
            found.setdefault(row["system"], {})[row["seed"]] = row
    return {system: list(rows.values()) for system, rows in found.items()}


def targets_of(row: dict[str, Any]) -> list[float]:
    """Return the scores of all languages but English."""
    return [value for language, value in row["scores"].items() if language != "en"]


def metric_of(name: str, stats: np.ndarray) -> Metric:
    """Rebuild a metric from its statistics."""
    like = entity_f1([["B-X"]], [["B-X"]]) if name == "entity_f1" else accuracy(["a"], ["a"])
    return Metric(name, stats.astype(np.float64), like.combine, like.is_mean)


def opened(rows: Rows, folder: Path) -> dict[str, Metric]:
    """Return language -> metric over all seeds of a system."""
    files = [np.load(folder / row["statistics"]) for row in rows]
    return {
        language: over_seeds([metric_of(rows[0]["metric"], file[language]) for file in files])
        for language in rows[0]["scores"]
        if language != "en"
    }


def compared(results: dict[str, Any], folder: Path) -> Rows:
    """Test every system against the baselines, in the mean over target languages."""
    found = []
    for task in CHOSEN:
        kept = {
            system: rows
            for system, all_rows in by_system(results, task).items()
            if system != CEILING and " @ " not in system
            if (rows := [row for row in all_rows if (folder / row.get("statistics", "none")).is_file()])
        }
        for against in (name for name in BASELINES if name in kept):
            entries = []
            for system, rows in kept.items():
                shared = {row["seed"] for row in rows} & {row["seed"] for row in kept[against]}
                if system == against or not shared:
                    continue
                ours, theirs = (
                    opened([row for row in of if row["seed"] in shared], folder) for of in (rows, kept[against])
                )
                ids = np.load(folder / rows[0]["ids"])
                groups = [ids[language].tolist() for language in ours]
                pair = [over_languages([side[x] for x in ours], groups) for side in (ours, theirs)]
                test = permutation_test(*pair, samples=2000)
                entry = {"task": task, "system": system, "against": against, "seeds": sorted(shared)}
                entry |= {name: round(float(getattr(test, name)), 3) for name in ("difference", "low", "high")}
                entries.append(entry | {"p": round(test.p_value, 5)})
            for entry, p in zip(entries, holm([entry["p"] for entry in entries]), strict=True):
                entry["p_holm"] = round(p, 5)
            found += entries
    return found


def transfer_and_alignment(results: dict[str, Any]) -> Rows:
    """Rank correlation of transfer gap and distance (L2), over languages of a connector and over connectors."""
    distances = {(row["system"], row["connector"]): row["alignment"] for row in results["alignment"]}
    found = []
    for task in CHOSEN:
        systems = by_system(results, task)
        ceiling = fmean(row["scores"]["en"] for row in systems[CEILING]) if CEILING in systems else 0.0
        points: list[tuple[float, float]] = []
        for system, rows in systems.items():
            near = distances.get((system, rows[0].get("connector")))
            if near is None:
                continue
            names = [x for x in rows[0]["scores"] if x != "en" and x in near]
            gaps = [ceiling - fmean(row["scores"][x] for row in rows) for x in names]
            l2 = [near[x]["l2"]["mean"] for x in names]
            points.append((fmean(gaps), fmean(l2)))
            rank = float(spearmanr(gaps, l2).statistic)
            found.append({"task": task, "over": f"languages of {system}", "n": len(names), "spearman": round(rank, 3)})
        if len(points) > 3:
            rank = float(spearmanr(*zip(*points, strict=True)).statistic)
            found.append({"task": task, "over": "connectors", "n": len(points), "spearman": round(rank, 3)})
    return found


def shown(values: list[float]) -> str:
    """Return mean ± standard deviation over seeds."""
    if not values:
        return "–"
    return f"{fmean(values):.1f}" + (f" ± {stdev(values):.1f}" if len(values) > 1 else "")


def share(values: list[float], of: Rows | None) -> str:
    """Return a mean as a percentage of another system's."""
    return f"{100 * fmean(values) / fmean(fmean(targets_of(row)) for row in of):.0f}%" if of else "–"


def difference(tests: dict[tuple[str, str, str], dict[str, Any]], key: tuple[str, str, str]) -> str:
    """Return a difference with its interval and p-value."""
    if key not in tests:
        return ""
    test = tests[key]
    sure = "**" if test["p_holm"] < 0.05 else ""
    interval = f"({test['low']:+.1f} to {test['high']:+.1f})"
    return f"{sure}{test['difference']:+.1f}{sure} {interval}, Holm {format_p(test['p_holm'])}"


def main_table(results: dict[str, Any], task: str) -> list[str]:
    """Return what a task's systems score, beside chance, fine-tuning and the ceiling."""
    tests = {(e["task"], e["system"], e["against"]): e for e in results.get("comparisons", [])}
    systems = by_system(results, task)
    rows = next(iter(systems.values()))
    limits = {row["limit"] for some in systems.values() for row in some}
    ceiling = [row["scores"]["en"] for row in systems.get(CEILING, [])]
    majority = f"; majority class {rows[0]['majority']:.1f}" if "majority" in rows[0] else ""
    counts = ", ".join(map(str, sorted(x or 0 for x in limits)))
    limit = "" if limits == {None} else f"; {counts} examples of each language, drawn with a fixed seed"
    against = [name for name in ("emb-map", "finetune") if name in systems]
    parts = [f"### {task}", "", f"{rows[0]['metric']}; chance {CHANCE[task]:.1f}{majority}{limit}.", ""]
    heads = ["system", "en", "targets", "gap", *(f"of {name}" for name in FINETUNE), *(f"− {a}" for a in against)]
    parts += [f"| {' | '.join([*heads, 'seeds'])} |", "| --- |" + " ---: |" * len(heads)]
    parts.append(f"| {CEILING} | {shown(ceiling)} |" + " – |" * (len(heads) - 2) + f" {len(ceiling)} |")
    for system, rows in systems.items():
        means = [fmean(targets_of(row)) for row in rows if targets_of(row)]
        if not means or " @ " in system:
            continue
        cells = [system, shown([row["scores"]["en"] for row in rows]), shown(means)]
        cells.append(f"{fmean(ceiling) - fmean(means):.1f}" if ceiling else "–")
        cells += [share(means, systems.get(name)) for name in FINETUNE]
        cells += [difference(tests, (task, system, name)) for name in against]
        parts.append(f"| {' | '.join([*cells, str(len(rows))])} |")
    return [*parts, ""]


def languages_table(results: dict[str, Any], task: str) -> list[str]:
    """Return every language's mean over seeds."""
    systems = {k: v for k, v in by_system(results, task).items() if k != CEILING and " @ " not in k}
    if not systems:
        return []
    languages = list(next(iter(systems.values()))[0]["scores"])
    parts = [f"| {task} | {' | '.join(languages)} |", "| --- |" + " ---: |" * len(languages)]
    for system, rows in systems.items():
        cells = [f"{fmean(row['scores'][x] for row in rows):.1f}" for x in languages]
        parts.append(f"| {system} | {' | '.join(cells)} |")
    return [*parts, ""]


def steps_table(results: dict[str, Any]) -> list[str]:
    """Return target means over steps by arm (the paper's Fig. 4)."""
    parts = []
    for task in CHOSEN:
        cells: dict[str, dict[int, float]] = {}
        for system, rows in by_system(results, task).items():
            arm, _, step = system.partition(" @ ")
            if step:
                cells.setdefault(arm, {})[int(step)] = fmean(fmean(targets_of(row)) for row in rows)
        if cells:
            steps = sorted({step for by_step in cells.values() for step in by_step})
            parts += [f"| {task}, steps | {' | '.join(map(str, steps))} |", "| --- |" + " ---: |" * len(steps)]
            for arm, by_step in cells.items():
                line = (f"{by_step[step]:.1f}" if step in by_step else "–" for step in steps)
                parts.append(f"| {arm} | {' | '.join(line)} |")
            parts.append("")
    return parts


def alignment_table(results: dict[str, Any]) -> list[str]:
    """Return distances on NTREX by connector, and how they go with transfer (Table 4, Figs. 5 and 6)."""
    if not results["alignment"]:
        return []
    parts = ["### Connector and English model on NTREX", "", "| connector | L2, en | L2, targets | cosine, targets |"]
    parts.append("| --- | ---: | ---: | ---: |")
    for row in results["alignment"]:
        of = row["alignment"]
        l2, cosine = ([of[x][key]["mean"] for x in of if x != "en"] for key in ("l2", "cosine"))
        name = f"{row['system']} ({row['connector']})"
        parts.append(f"| {name} | {of['en']['l2']['mean']:.2f} | {fmean(l2):.2f} | {fmean(cosine):.3f} |")
    parts.append("")
    for row in results.get("transfer_and_alignment", []):
        parts.append(f"- {row['task']}: gap and L2 over {row['n']} {row['over']}: Spearman {row['spearman']:+.2f}")
    return [*parts, ""]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("results", type=Path)
    arguments = parser.parse_args()
    results = collected(arguments.results)
    folder = statistics(arguments.results)
    if folder.is_dir():
        results["comparisons"] = compared(results, folder)
    results["transfer_and_alignment"] = transfer_and_alignment(results)
    write(arguments.results, results)
    tasks = [task for task in CHOSEN if by_system(results, task)]
    lines = [line for task in tasks for line in main_table(results, task)]
    lines += [line for task in tasks for line in languages_table(results, task)]
    print("\n".join([*lines, *steps_table(results), *alignment_table(results)]))


if __name__ == "__main__":
    main()
