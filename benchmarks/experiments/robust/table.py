"""Paired tests and the markdown table of `run.py`'s results.

    python benchmarks/experiments/robust/table.py robust.json > robust.md

Where the per-example statistics lie beside the JSON, the tests are made and written into it ("comparisons"); the table
comes from the JSON alone. A system is compared with `finetune` and with `rs-da`, EAR also with itself without push and
pull, over the seeds that both have: examples are the units, an example's seeds and translations stay together, p by
permutation, adjusted by Holm's method over the systems of a table. Where the source language itself is not above the
majority class, no gain is claimed. First comes a summary: targets, and what a system adds to `finetune`.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

import numpy as np
from run import FAR, NEAR, SCALES, SYSTEMS, TASKS, statistics

from crosslift.measure.scores import over_languages, over_seeds
from crosslift.measure.significance import bootstrap_interval, format_p, holm, permutation_test
from crosslift.tasks.metrics import Metric, accuracy, entity_f1

BASELINES = ("finetune", "rs-da", "ear without both")
LIKE = {"accuracy": accuracy(["a"], ["a"]), "entity_f1": entity_f1([["B-X"]], [["B-X"]])}
GROUPS = {"targets": lambda language: True, "near": NEAR.__contains__, "far": FAR.__contains__}


def metric_of(name: str, stats: np.ndarray) -> Metric:
    """Rebuild a metric from its statistics."""
    like = next(metric for metric in LIKE.values() if metric.name == name)
    return Metric(name, stats.astype(np.float64), like.combine, like.is_mean)


def opened(rows: list[dict[str, Any]], folder: Path) -> dict[str, tuple[Metric, list[str]]]:
    """Return language -> metric over all seeds of a system, and the ids of its examples."""
    files = [np.load(folder / row["statistics"]) for row in rows]
    name = rows[0]["metric"]
    ids = np.load(folder / rows[0]["ids"])
    found = {}
    for language in rows[0]["scores"]:
        seeds = [metric_of(name, file[language]) for file in files]
        found[language] = (over_seeds(seeds), ids[language].tolist())
    return found


def compared(results: dict[str, Any], folder: Path) -> list[dict[str, Any]]:
    """Test every system against the baselines; one entry each."""
    found = []
    for task, source in tables(results):
        systems = rows_by_system(results, task, source)
        for against in BASELINES:
            entries = []
            for system, rows in systems.items():
                if system == against or against not in systems:
                    continue
                if against.startswith("ear") and not system.startswith("ear"):
                    continue
                shared = sorted({row["seed"] for row in rows} & {row["seed"] for row in systems[against]})
                if not shared:
                    continue
                ours, theirs = (
                    opened([row for row in of if row["seed"] in shared], folder) for of in (rows, systems[against])
                )
                entry: dict[str, Any] = {"task": task, "source": source, "system": system, "against": against}
                entry["seeds"] = len(shared)
                for group, belongs in GROUPS.items():
                    names = [x for x in ours if x != source and belongs(x)]
                    if names:
                        ids = [ours[x][1] for x in names]
                        pair = [over_languages([side[x][0] for x in names], ids) for side in (ours, theirs)]
                        test = permutation_test(*pair, samples=2000)
                        entry[group] = {k: round(float(getattr(test, k)), 4) for k in ("difference", "low", "high")}
                        entry[group]["p"] = round(test.p_value, 5)
                entries.append(entry)
            for group in GROUPS:
                with_group = [entry for entry in entries if group in entry]
                for entry, p in zip(with_group, holm([e[group]["p"] for e in with_group]), strict=True):
                    entry[group]["p_holm"] = round(p, 5)
            found += entries
    return found


def trivial(results: dict[str, Any], folder: Path) -> list[dict[str, Any]]:
    """Say which systems do not beat the majority class in their own source language."""
    found = []
    for task, source in tables(results):
        for system, rows in rows_by_system(results, task, source).items():
            if "majority" not in rows[0] or source not in rows[0]["scores"]:
                continue
            low, _ = bootstrap_interval(opened(rows, folder)[source][0])
            if low <= rows[0]["majority"]:
                found.append({"task": task, "source": source, "system": system, "majority": rows[0]["majority"]})
    return found


def tables(results: dict[str, Any]) -> list[tuple[str, str]]:
    """Return task and source language of every table."""
    known = {(row["task"], row["source"]) for row in results["jobs"] if "scores" in row}
    return [(task, source) for source in ("en", "de", "ru") for task in TASKS if (task, source) in known]


def rows_by_system(results: dict[str, Any], task: str, source: str) -> dict[str, list[dict[str, Any]]]:
    """Return the jobs of a table by system, seeds in order."""
    found: dict[str, list[dict[str, Any]]] = {}
    order = [*SYSTEMS, *SCALES]
    for row in sorted(results["jobs"], key=lambda row: (order.index(row["system"]), row["seed"])):
        if (row["task"], row["source"]) == (task, source) and "scores" in row:
            found.setdefault(row["system"], []).append(row)
    return found


def markdown(results: dict[str, Any]) -> str:
    """Return one table per task and source language."""
    tests = {(e["task"], e["source"], e["system"], e["against"]): e for e in results.get("comparisons", [])}
    useless = {(e["task"], e["source"], e["system"]) for e in results.get("not_above_majority", [])}
    parts = []
    for task, source in tables(results):
        systems = rows_by_system(results, task, source)
        first = next(iter(systems.values()))[0]
        targets = [language for language in first["scores"] if language != source]
        majority = f"; majority class {first['majority']:.1f}" if "majority" in first else ""
        near = " ".join(x for x in targets if x in NEAR)
        far = " ".join(x for x in targets if x in FAR)
        parts += [f"### {task} from {source}", ""]
        parts += [f"{first['metric']}{majority}. Near: {near}. Far: {far}.", ""]
        parts += [f"| system | {source} | targets | near | far | − finetune | − rs-da | − ear without both | seeds |"]
        parts += ["| --- | --- | --- | --- | --- | --- | --- | --- | --- |"]
        for system, rows in systems.items():
            cells = [system, shown([row["scores"].get(source) for row in rows])]
            for belongs in GROUPS.values():
                names = [x for x in targets if belongs(x)]
                cells.append(shown([fmean(row["scores"][x] for x in names) if names else None for row in rows]))
            for against in BASELINES:
                test = tests.get((task, source, system, against))
                cells.append("" if test is None else difference(test, (task, source, system) in useless))
            parts.append("| " + " | ".join([*cells, str(len(rows))]) + " |")
        parts.append("")
    return "\n".join(parts)


def summary(results: dict[str, Any], source: str) -> str:
    """Return one row per system: mean of the targets in every task, and the difference from `finetune`."""
    tests = {(e["task"], e["system"]): e for e in results.get("comparisons", [])
             if e["source"] == source and e["against"] == "finetune"}  # fmt: skip
    useless = {(e["task"], e["system"]) for e in results.get("not_above_majority", []) if e["source"] == source}
    shown_tasks = [task for task, of in tables(results) if of == source]
    systems = dict.fromkeys(x for task in shown_tasks for x in rows_by_system(results, task, source))
    lines = ["| | " + " | ".join(shown_tasks) + " |", "| --- |" + " --- |" * len(shown_tasks)]
    for system in systems:
        cells = []
        for task in shown_tasks:
            rows = rows_by_system(results, task, source).get(system)
            if rows is None:
                cells.append("–")
                continue
            means = [fmean(v for x, v in row["scores"].items() if x != source) for row in rows]
            test = tests.get((task, system), {}).get("targets")
            added = ""
            if test and (task, system) not in useless:
                sure = "**" if test["p_holm"] < 0.05 else ""
                added = f", {sure}{test['difference']:+.1f}{sure}"
            cells.append(shown(means) + added)
        lines.append(f"| {system} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def difference(test: dict[str, Any], useless: bool) -> str:
    """Return a difference with its interval and p-value, or that none is claimed."""
    if useless:
        return "source not above majority: no gain claimed"
    found = test["targets"]
    sure = "**" if found["p_holm"] < 0.05 else ""
    interval = f"({found['low']:+.2f} to {found['high']:+.2f})"
    return f"{sure}{found['difference']:+.2f}{sure} {interval}, Holm {format_p(found['p_holm'])}"


def shown(values: list[float | None]) -> str:
    """Return mean ± standard deviation over seeds."""
    known = [value for value in values if value is not None]
    if not known:
        return "–"
    return f"{fmean(known):.1f}" + (f" ± {stdev(known):.1f}" if len(known) > 1 else "")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("results", type=Path)
    arguments = parser.parse_args()
    results = json.loads(arguments.results.read_text(encoding="utf-8"))
    folder = statistics(arguments.results)
    if folder.is_dir():
        results["comparisons"] = compared(results, folder)
        results["not_above_majority"] = trivial(results, folder)
        arguments.results.write_text(json.dumps(results, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    print(summary(results, "en"), markdown(results), sep="\n\n")


if __name__ == "__main__":
    main()
