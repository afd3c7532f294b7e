"""Paired tests and the markdown tables of `run.py`'s results.

    python benchmarks/experiments/adjust/table.py adjust-transfer.json > adjust-transfer.md

Where the per-example statistics lie beside the JSON, the tests are made and written into it ("comparisons"); the tables
come from the JSON alone. Every system is compared with the original encoder, continual learning also with `adjusted`,
over the seeds that both have: examples are the units, an example's seeds stay together, p by permutation, adjusted by
Holm's method over the comparisons with one base in a table. A study has a table of its own. Where English is
not above the majority class, no gain is claimed.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

import numpy as np
from jobs import STUDIES, SYSTEMS
from run import statistics

from crosslift.measure.scores import over_languages, over_seeds
from crosslift.measure.significance import bootstrap_interval, format_p, holm, permutation_test
from crosslift.tasks.metrics import Metric, accuracy, entity_f1

Row = dict[str, Any]
Table = tuple[str, str, str, bool]
"""Encoder, task, source language, whether on dev data."""

MEAN, F1 = accuracy(["a"], ["a"]), entity_f1([["B-X"]], [["B-X"]])
DIRECTIONS = {"sentences": "mixed", "context": "q {}, p en", "question": "q en, p {}"}


def tables(results: Row) -> dict[Table, dict[str, list[Row]]]:
    """Return the tables: system -> its jobs, in the order of `SYSTEMS`."""
    found: dict[Table, dict[str, list[Row]]] = {}
    order = list(SYSTEMS)
    for row in sorted(results["jobs"], key=lambda row: (order.index(row["system"]), row["seed"])):
        found.setdefault(table_of(row), {}).setdefault(row["system"], []).append(row)
    return found


def study_of(system: str) -> str:
    """Return the study of a system, in whose table it stands; all start from the original and the adjusted encoder."""
    known = (study for study, systems in STUDIES.items() if system in systems)
    return "main" if system == "original" or "continual" in system else next(known)


def by_seed(rows: list[Row], name: str) -> dict[int, list[Row]]:
    """Return seed -> jobs with a score of this name."""
    found: dict[int, list[Row]] = {}
    for row in rows:
        if name in row["scores"]:
            found.setdefault(row["seed"], []).append(row)
    return found


def metric(rows: list[Row], name: str, folder: Path) -> Metric:
    """Rebuild the metric of a test set over all seeds."""
    parts = []
    for row in rows:
        like = F1 if row["metric"] == "entity_f1" else MEAN
        stats = np.load(folder / f"{row['key']}.npz")[name].astype(np.float64)
        parts.append(Metric(row["metric"], stats, like.combine, like.is_mean))
    return over_seeds(parts)


def compared(results: Row, folder: Path) -> list[Row]:
    """Test systems against their bases, set by set and over the target languages together."""
    found: list[Row] = []
    for table, systems in tables(results).items():
        for base in ("original", "adjusted"):
            entries: list[Row] = []
            for system, rows in systems.items():
                if system == base or base not in systems or (base == "adjusted" and "continual" not in system):
                    continue
                entries += against(table, rows, systems[base], folder, {"system": system, "against": base})
            for study in dict.fromkeys(study_of(e["system"]) for e in entries):
                own = [e for e in entries if study_of(e["system"]) == study]
                for entry, p in zip(own, holm([e["p"] for e in own]), strict=True):
                    entry["p_holm"] = round(p, 5)
            found += entries
    return found


def against(table: Table, rows: list[Row], base: list[Row], folder: Path, facts: Row) -> list[Row]:
    """Compare one system with a base on every test set that both have, and on the target languages together."""
    names = dict.fromkeys(name for row in rows for name in row["scores"])
    seeds = {name: complete(rows, name) & complete(base, name) for name in names}
    entries = [
        tested(table, name, paired(rows, base, name, seeds[name], folder), len(seeds[name]), facts)
        for name in names
        if seeds[name]
    ]
    for mix in dict.fromkeys(name.partition("+")[2] for name in names):
        targets = [name for name in names if name != table[2] and name.partition("+")[2] == mix]
        common = set.intersection(*(seeds[name] for name in targets)) if targets else set()
        if len(targets) > 1 and common:
            ids = [np.load(folder / f"ids.{table[1]}.{name}.npz")["ids"].tolist() for name in targets]
            pairs = [paired(rows, base, name, common, folder) for name in targets]
            both = [over_languages([pair[k] for pair in pairs], ids) for k in (0, 1)]
            entries.append(tested(table, f"targets+{mix}" if mix else "targets", both, len(common), facts))
    return entries


def complete(rows: list[Row], name: str) -> set[int]:
    """Return the seeds of which all jobs are there: English is scored by the encoders of all languages."""
    found = by_seed(rows, name)
    most = max(map(len, found.values()), default=0)
    return {seed for seed, of in found.items() if len(of) == most}


def paired(rows: list[Row], base: list[Row], name: str, seeds: set[int], folder: Path) -> list[Metric]:
    """Return a system and its base on one test set; an original that many are compared with counts as often."""
    mine, theirs = by_seed(rows, name), by_seed(base, name)
    times = {seed: len(mine[seed]) // len(theirs[seed]) for seed in seeds}
    return [
        metric([row for seed in sorted(seeds) for row in mine[seed]], name, folder),
        metric([row for seed in sorted(seeds) for row in theirs[seed] * times[seed]], name, folder),
    ]


def tested(table: Table, name: str, pair: list[Metric], seeds: int, facts: Row) -> Row:
    """Return one comparison."""
    test = permutation_test(*pair, samples=2000)
    entry = dict(zip(("encoder", "task", "source", "dev"), table, strict=True)) | facts | {"set": name, "seeds": seeds}
    entry |= {k: round(float(getattr(test, k)), 4) for k in ("difference", "low", "high")}
    return entry | {"p": round(test.p_value, 5)}


def trivial(results: Row, folder: Path) -> list[Row]:
    """Say which systems do not beat the majority class in the language they learnt in."""
    found = []
    for (encoder, task, source, dev), systems in tables(results).items():
        for system, rows in systems.items():
            known = [row for row in rows if "majority" in row and source in row["scores"]]
            if known and bootstrap_interval(metric(known, source, folder))[0] <= known[0]["majority"]:
                facts = {"encoder": encoder, "task": task, "source": source, "dev": dev, "system": system}
                found.append(facts | {"majority": known[0]["majority"]})
    return found


def markdown(results: Row) -> str:
    """Return a table of scores and one of differences per encoder, task, source language and study."""
    parts: list[str] = []
    for table, systems in tables(results).items():
        for study in dict.fromkeys(study_of(system) for system in systems):
            shown_too = ("original", "adjusted") if study != "rate" else ("original",)
            own = {name: of for name, of in systems.items() if study_of(name) == study or name in shown_too}
            parts += section(table, study, own, results)
    return "\n".join(parts + vectors(results))


def section(table: Table, study: str, systems: dict[str, list[Row]], results: Row) -> list[str]:
    """Return one study's systems on one task: scores, then differences from their bases."""
    encoder, task, source, dev = table
    useless = [e["system"] for e in results.get("not_above_majority", []) if table_of(e) == table]
    rows = [row for of in systems.values() for row in of]
    names = list(dict.fromkeys(name for row in rows for name in row["scores"]))
    majority = next((f"; majority class {row['majority']:.1f}" for row in rows if "majority" in row), "")
    where = ", English dev data" if dev else ""
    lines = [f"### {encoder}: {task} from {source}, {study}{where}", "", f"{rows[0]['metric']}{majority}", ""]
    lines += ["| system | " + " | ".join(map(shown_name, names)) + " | seeds |"]
    lines += ["| --- |" + " --- |" * (len(names) + 1)]
    for system, of in systems.items():
        cells = [shown([row["scores"][name] for row in of if name in row["scores"]]) for name in names]
        mark = " (not above majority)" if system in useless else ""
        lines.append(f"| {system}{mark} | " + " | ".join(cells) + f" | {len({row['seed'] for row in of})} |")
    lines.append("")
    tests = [e for e in results.get("comparisons", []) if table_of(e) == table and study_of(e["system"]) == study]
    tests = [e for e in tests if e["system"] not in useless]
    if tests:
        sets = list(dict.fromkeys(e["set"] for e in tests))
        lines += ["| difference | " + " | ".join(map(shown_name, sets)) + " |", "| --- |" + " --- |" * len(sets)]
        for pair in dict.fromkeys((e["system"], e["against"]) for e in tests):
            own = {e["set"]: e for e in tests if (e["system"], e["against"]) == pair}
            cells = [difference(own[name]) if name in own else "–" for name in sets]
            lines.append(f"| {pair[0]} − {pair[1]} | " + " | ".join(cells) + " |")
        lines.append("")
    return lines


def table_of(row: Row) -> Table:
    """Return the table that a job or a comparison belongs to."""
    return row["encoder"], row["task"], row["source"], row["dev"]


def vectors(results: Row) -> list[str]:
    """Return what adjustment did to the vectors."""
    groups: dict[tuple[str, str, str], list[Row]] = {}
    for row in results["encoders"]:
        if "after" in row:
            groups.setdefault((row["encoder"], row["system"], row["language"]), []).append(row)
    if not groups:
        return []
    lines = ["### Vectors before → after adjustment", ""]
    lines += ["| encoder | system | language | pairs | pull | anchor | retrieval of held-out pairs, % | seeds |"]
    lines += ["| --- | --- | --- | --- | --- | --- | --- | --- |"]
    for (encoder, system, language), rows in sorted(groups.items()):
        cells = [f"{rows[0]['pairs']:,}"]
        for name, form in (("pull", ".3f"), ("anchor", ".3f"), ("retrieval", ".1f")):
            cells.append(" → ".join(format(fmean(row[m][name] for row in rows), form) for m in ("before", "after")))
        lines.append(f"| {encoder} | {system} | {language} | " + " | ".join(cells) + f" | {len(rows)} |")
    return lines


def shown_name(name: str) -> str:
    """Return a test set in words."""
    language, _, mix = name.partition("+")
    return f"{language} ({DIRECTIONS[mix].format(language)})" if mix else language


def difference(test: Row) -> str:
    """Return a difference with its interval and p-value."""
    sure = "**" if test["p_holm"] < 0.05 else ""
    interval = f"({test['low']:+.2f} to {test['high']:+.2f})"
    return f"{sure}{test['difference']:+.2f}{sure} {interval}, Holm {format_p(test['p_holm'])}"


def shown(values: list[float]) -> str:
    """Return mean ± standard deviation over seeds (in English also over the encoders of all languages)."""
    if not values:
        return "–"
    return f"{fmean(values):.1f}" + (f" ± {stdev(values):.1f}" if len(values) > 1 else "")


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
    print(markdown(results))


if __name__ == "__main__":
    main()
