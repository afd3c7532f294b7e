"""Paired tests and the markdown tables of `run.py`'s results.

    python benchmarks/experiments/adjust/table.py adjust-transfer.json > adjust-transfer.md

Where the per-example statistics lie beside the JSON, the tests are made and written into it ("comparisons"); the tables
come from the JSON alone. Every system is compared with the original encoder, continual learning also with `adjusted`,
over the seeds that both have. Tests as in the paper: an example's seeds count together; means of examples (accuracy,
answer F1) by a paired t-test, entity F1 and means over languages by permutation; then Holm's method over the
comparisons with one base in a table. A study has a table of its own.

A run that is not above a guess in the language it learnt in (the majority class; for answers, what `guess.py` wrote)
has learnt nothing: the tables say how many there are, and where there is one, no difference is tested.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

import numpy as np
from jobs import RATES, STUDIES, SYSTEMS, best_rate
from run import statistics

from crosslift.measure.scores import over_languages, over_seeds
from crosslift.measure.significance import bootstrap_interval, holm, paired_t_test, permutation_test
from crosslift.tasks.metrics import Metric, accuracy, entity_f1

Row = dict[str, Any]
Table = tuple[str, str, str, bool]
"""Encoder, task, source language, whether on dev data."""

MEAN, F1 = accuracy(["a"], ["a"]), entity_f1([["B-X"]], [["B-X"]])
MIXES = {
    "": "{}",
    "sentences": "{}, mixed",
    "context": "question {}, paragraph en",
    "question": "question en, paragraph {}",
}
TASK_NAMES = {"xnli": "XNLI", "panx": "PAN-X", "xquad": "XQuAD", "massive": "MASSIVE intents"}
METRIC_NAMES = {"entity_f1": "entity F1", "f1_squad": "answer F1, SQuAD's rule"}


def tables(results: Row) -> dict[Table, dict[str, list[Row]]]:
    """Return the tables: system -> its jobs, in the order of `SYSTEMS`."""
    found: dict[Table, dict[str, list[Row]]] = {}
    order = list(SYSTEMS)
    for row in sorted(results["jobs"], key=lambda row: (order.index(row["system"]), row["seed"])):
        table = row["encoder"], row["task"], row["source"], row["dev"]
        found.setdefault(table, {}).setdefault(row["system"], []).append(row)
    return found


def study_of(system: str) -> str:
    """Return the study of a system, in whose table it stands; all start from the original and the adjusted encoder."""
    known = (study for study, systems in STUDIES.items() if system in systems)
    return "main" if system == "original" else next(known)


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


def guessing(results: Row, folder: Path) -> list[str]:
    """Return the keys of the jobs whose 95% interval, in the language they learnt in, begins below a guess."""
    guesses = results.get("guesses", {})
    found = []
    for row in results["jobs"]:
        guess = row.get("majority", guesses.get(row["task"], {}).get(row["source"]))
        if guess is not None and bootstrap_interval(metric([row], row["source"], folder))[0] <= guess:
            found.append(row["key"])
    return found


def compared(results: Row, folder: Path) -> list[Row]:
    """Test systems against their bases, set by set and over the target languages together."""
    found: list[Row] = []
    for table, systems in tables(results).items():
        if any(row["key"] in results["not_above_guess"] for rows in systems.values() for row in rows):
            continue
        for base in ("original", "adjusted"):
            entries: list[Row] = []
            for system, rows in systems.items():
                if system == base or base not in systems or (base == "adjusted" and "continual" not in system):
                    continue
                entries += against(table, rows, systems[base], folder, {"system": system, "against": base})
            for study in dict.fromkeys(study_of(e["system"]) for e in entries):
                own = [e for e in entries if study_of(e["system"]) == study]
                for entry, p in zip(own, holm([e["p"] for e in own]), strict=True):
                    entry["p_holm"] = float(f"{p:.4g}")
            found += entries
    return found


def against(table: Table, rows: list[Row], base: list[Row], folder: Path, facts: Row) -> list[Row]:
    """Compare one system with a base on every test set that both have, and on the target languages together."""
    entries = []
    names = list(dict.fromkeys(name for row in rows for name in row["scores"]))
    for name, members in {**{name: [name] for name in names}, **means(names, table[2])}.items():
        seeds = set.intersection(*(complete(of, member) for of in (rows, base) for member in members))
        if not seeds:
            continue
        pairs = [paired(rows, base, member, seeds, folder) for member in members]
        if name in names:
            one, other = pairs[0]
        else:
            ids = [np.load(folder / f"ids.{table[1]}.{member}.npz")["ids"].tolist() for member in members]
            one, other = (over_languages([pair[k] for pair in pairs], ids) for k in (0, 1))
        test = paired_t_test(one, other) if one.is_mean else permutation_test(one, other, samples=2000)
        mine, theirs = (scores(of, members) for of in (rows, base))
        entry = dict(zip(("encoder", "task", "source", "dev"), table, strict=True)) | facts | {"set": name}
        entry |= {"seeds": len(seeds), "better_in": sum(mine[seed] > theirs[seed] for seed in seeds)}
        entry |= {k: round(float(getattr(test, k)), 4) for k in ("difference", "low", "high")}
        entries.append(entry | {"p": float(f"{test.p_value:.4g}")})
    return entries


def means(names: list[str], source: str) -> dict[str, list[str]]:
    """Return the means over target languages: "targets", or "targets+mix" -> test sets."""
    found: dict[str, list[str]] = {}
    for name in names:
        if name != source:
            found.setdefault("+".join(filter(None, ("targets", name.partition("+")[2]))), []).append(name)
    return {name: members for name, members in found.items() if len(members) > 1}


def complete(rows: list[Row], name: str) -> set[int]:
    """Return the seeds of which all jobs are there: English is scored by the encoders of all languages."""
    found = by_seed(rows, name)
    most = max(map(len, found.values()), default=0)
    return {seed for seed, of in found.items() if len(of) == most}


def scores(rows: list[Row], members: list[str]) -> dict[int, float]:
    """Return seed -> mean score over test sets (and in English over encoders), for seeds that have them all."""
    seeds = set.intersection(*(complete(rows, member) for member in members))
    return {
        seed: fmean(fmean(row["scores"][member] for row in by_seed(rows, member)[seed]) for member in members)
        for seed in sorted(seeds)
    }


def paired(rows: list[Row], base: list[Row], name: str, seeds: set[int], folder: Path) -> list[Metric]:
    """Return a system and its base on one test set; an original that many are compared with counts as often."""
    mine, theirs = by_seed(rows, name), by_seed(base, name)
    times = {seed: len(mine[seed]) // len(theirs[seed]) for seed in seeds}
    return [
        metric([row for seed in sorted(seeds) for row in mine[seed]], name, folder),
        metric([row for seed in sorted(seeds) for row in theirs[seed] * times[seed]], name, folder),
    ]


def markdown(results: Row) -> str:
    """Return a table per encoder, task, source language and study; then the rates, and what became of the vectors."""
    parts: list[str] = []
    for table, systems in tables(results).items():
        for study in dict.fromkeys(study_of(system) for system in systems if system != "original"):
            if study != "rate":
                own = {name: of for name, of in systems.items() if study_of(name) == study}
                first = {name: systems[name] for name in ("original", "adjusted") if name in systems}
                parts += section(table, study, first | own, results)
    return "\n".join(parts + rates(results) + vectors(results))


def section(table: Table, study: str, systems: dict[str, list[Row]], results: Row) -> list[str]:
    """Return one study's systems on one task: scores, and differences from their bases."""
    encoder, task, source, _ = table
    rows = [row for of in systems.values() for row in of]
    tests = {
        (e["system"], e["against"], e["set"]): e
        for e in results.get("comparisons", [])
        if (e["encoder"], e["task"], e["source"], e["dev"]) == table and study_of(e["system"]) == study
    }
    own = [of for system, of in systems.items() if system != "original" and study_of(system) == study]
    names = list(dict.fromkeys(name for of in own for row in of for name in row["scores"]))
    sets = {name: [name] for name in names} | means(names, source)
    mixes = list(MIXES)
    ranks = [*systems["original"][0]["scores"]] if "original" in systems else names
    order = sorted(sets, key=lambda name: (mixes.index(name.partition("+")[2]), [*ranks, name].index(name)))
    seeds = len({row["seed"] for row in rows})
    guessing = results.get("not_above_guess", [])
    hopeless = all(row["key"] in guessing for row in rows)
    lines = {
        system: [score(of, sets[name], seeds, [] if hopeless else guessing) for name in order]
        for system, of in systems.items()
    }
    for system, base in dict.fromkeys(key[:2] for key in tests):
        found = (tests.get((system, base, name)) for name in order)
        lines[f"{system} − {base}"] = [difference(test, seeds) if test else "–" for test in found]
    guess = next((f"; majority class {row['majority']:.1f}" for row in rows if "majority" in row), "")
    if source in results.get("guesses", {}).get(task, {}):
        guess = f"; guess in {source} {results['guesses'][task][source]:.1f}"
    if hopeless:
        guess += "; no run's interval lies above it"
    facts = f"{METRIC_NAMES.get(rows[0]['metric'], rows[0]['metric'])}{guess}; {seeds} seed{'s' * (seeds > 1)}"
    title = f"**{TASK_NAMES[task]} from {source}, {encoder}{'' if study == 'main' else f': {study}'}** ({facts})"
    return [title, "", *grid(lines, list(map(shown_name, order)), by_set=len(order) > len(systems)), ""]


def grid(lines: dict[str, list[str]], sets: list[str], *, by_set: bool) -> list[str]:
    """Return a markdown table with a line per system, or one per test set."""
    cells: list[tuple[str, ...]] = [("", *sets), *((name, *line) for name, line in lines.items())]
    head, *body = zip(*cells, strict=True) if by_set else cells
    return [f"| {' | '.join(line)} |" for line in (head, ["---", *["---:"] * (len(head) - 1)], *body)]


def score(rows: list[Row], members: list[str], seeds: int, guessing: list[str]) -> str:
    """Return mean ± standard deviation over seeds; the number of seeds, if fewer; how many runs only guess."""
    if not all(by_seed(rows, member) for member in members) or not (found := list(scores(rows, members).values())):
        return "–"
    spread = f" ± {stdev(found):.1f}" if len(found) > 1 else ""
    fewer = f" ({len(found)} seed{'s' * (len(found) > 1)})" if len(found) < seeds else ""
    runs = [row["key"] in guessing for row in rows if any(member in row["scores"] for member in members)]
    return f"{fmean(found):.1f}{spread}{fewer}" + (f", {sum(runs)} of {len(runs)} at chance" if any(runs) else "")


def difference(test: Row, seeds: int) -> str:
    """Return a difference with its interval and seeds that agree: bold if Holm's p < 0.05, † if only its own p is."""
    text = f"{test['difference']:+.2f}"
    if test["p"] < 0.05:
        text = f"**{text}**" if test["p_holm"] < 0.05 else f"{text}†"
    up = f", {test['better_in']}/{test['seeds']}" if seeds > 1 else ""
    return f"{text} ({test['low']:+.2f} to {test['high']:+.2f}){up}".replace("-", "−")


def shown_name(name: str) -> str:
    """Return a test set in words."""
    language, _, mix = name.partition("+")
    return MIXES[mix].format(language)


def rates(results: Row) -> list[str]:
    """Return what study `rate` saw: English dev scores and retrieval by rate; and which rate is chosen."""
    encoders = list(dict.fromkeys(row["encoder"] for row in results["jobs"] if row["dev"]))
    if not encoders:
        return []
    lines = ["**Rates**: before → after adjustment", ""]
    lines += ["| | rate | English dev − original | retrieval, % | pull | anchor |"]
    lines += ["| --- | ---: | ---: | ---: | ---: | ---: |"]
    tests = {(e["encoder"], e["system"]): e for e in results.get("comparisons", []) if e["dev"] and e["set"] == "en"}
    for encoder in encoders:
        for rate in RATES:
            name = f"rate {rate:g}"
            rows = [row for row in results["encoders"] if (row["encoder"], row["system"]) == (encoder, name)]
            own = difference(tests[encoder, name], 1) if (encoder, name) in tests else "–"
            cells = [encoder, f"{rate:g}", own, moved(rows, "retrieval", ".1f")]
            cells += [moved(rows, name, ".3f") for name in ("pull", "anchor")]
            lines.append(f"| {' | '.join(cells)} |")
    lines.append("")
    for chosen in dict.fromkeys((tuple(encoders), *((encoder,) for encoder in encoders))):
        seen = {part: [row for row in results[part] if row["encoder"] in chosen] for part in ("jobs", "encoders")}
        lines.append(f"- chosen by {' and '.join(chosen)}: {best_rate(seen, float('nan')):g}")
    return [*lines, ""]


def vectors(results: Row) -> list[str]:
    """Return what adjustment did to the vectors."""
    groups: dict[tuple[str, str, str], list[Row]] = {}
    for row in results["encoders"]:
        if "after" in row and study_of(row["system"]) != "rate":
            groups.setdefault((row["encoder"], row["system"], row["language"]), []).append(row)
    if not groups:
        return []
    lines = ["**Vectors before → after adjustment**", ""]
    lines += ["| | system | language | pairs | pull | anchor | retrieval of held-out pairs, % | seeds |"]
    lines += ["| --- | --- | --- | ---: | ---: | ---: | ---: | ---: |"]
    for (encoder, system, language), rows in sorted(groups.items()):
        cells = [f"{rows[0]['pairs']:,}", *(moved(rows, name, ".3f") for name in ("pull", "anchor"))]
        cells += [moved(rows, "retrieval", ".1f"), str(len(rows))]
        lines.append(f"| {encoder} | {system} | {language} | {' | '.join(cells)} |")
    return lines


def moved(rows: list[Row], name: str, form: str) -> str:
    """Return the mean of a number before and after adjustment."""
    return " → ".join(format(fmean(row[moment][name] for row in rows), form) for moment in ("before", "after"))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("results", type=Path)
    arguments = parser.parse_args()
    results = json.loads(arguments.results.read_text(encoding="utf-8"))
    folder = statistics(arguments.results)
    if folder.is_dir():
        results["not_above_guess"] = guessing(results, folder)
        results["comparisons"] = compared(results, folder)
        arguments.results.write_text(json.dumps(results, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    print(markdown(results))


if __name__ == "__main__":
    main()
