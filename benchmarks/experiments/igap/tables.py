"""Markdown from the results of `measure.py`, with the paper's claims checked against them.

python benchmarks/experiments/igap/tables.py benchmarks/results/igap.json > igap.md
"""

from __future__ import annotations

import argparse
import json
from itertools import pairwise
from pathlib import Path
from statistics import fmean
from typing import Any

from crosslift.measure.ranking import SIMILARITIES, rank_correlations, tdr_accuracy


def by_target(entry: dict[str, Any], spans: dict[str, Any] | None = None) -> str:
    """One row per system: IGAP of the first band by target (expected), mean ± sd, pooled minimum, checkpoints."""
    scores = entry["igap"]
    targets = list(next(iter(scores.values()))[0]["targets"])
    lines = [f"| | {' | '.join(targets)} | mean ± sd | min | checkpoints |", "| --- |" + " --- |" * (len(targets) + 3)]
    for name, bands in scores.items():
        found, mean = bands[0]["targets"], bands[0]["mean"]
        cells = [_point(found[target]["expected"]) for target in targets]
        sd = f" ± {mean['sd']:.1f}" if mean["sd"] is not None else ""
        used = ", ".join(f"{mean['used'][s]}/{mean['qualifying'][s]}" for s in mean["used"])
        lines.append(
            f"| {name} | {' | '.join(cells)} | {_point(mean['expected'])}{sd} | {_point(mean['minimum'])} | {used} |"
        )
        if spans and spans.get(name):
            ends = [f"{spans[name][t][0]:.0f}–{spans[name][t][1]:.0f}" if t in spans[name] else "" for t in targets]
            lines.append(f"| 95 % | {' | '.join(ends)} | | | |")
    return "\n".join(lines)


def curves(entry: dict[str, Any]) -> str:
    """Mean IGAP over targets along E′, for systems that have more than one band."""
    bands = next(iter(entry["igap"].values()))
    if len(bands) < 2:
        return ""
    heads = [f"{band['mean']['error']:g}+{band['mean']['epsilon']:g}" for band in bands]
    lines = [f"| E′+ε | {' | '.join(heads)} |", "| --- |" + " --- |" * len(heads)]
    for name, rows in entry["igap"].items():
        lines.append(f"| {name} | {' | '.join(_point(row['mean']['expected']) for row in rows)} |")
    return "\n".join(lines)


def decomposition(entry: dict[str, Any]) -> str:
    """Mean over targets of the parts of the transfer error at the end of the runs."""
    rows = {name: parts for name, parts in entry["decomposition"].items() if parts}
    if not rows:
        return ""
    heads = ["error", "interlingual", "intralingual", "training", "transfer_gap"]
    lines = [f"| | {' | '.join(heads)} |".replace("_", " "), "| --- |" + " --- |" * len(heads)]
    for name, parts in rows.items():
        means = [fmean(part[head] for part in parts.values()) for head in heads]
        lines.append(f"| {name} | {' | '.join(f'{mean:.1f}' for mean in means)} |")
    return "\n".join(lines)


def matrix(values: dict[str, dict[str, float | None]]) -> str:
    """One transfer matrix."""
    targets = list(next(iter(values.values())))
    lines = [f"| from \\ to | {' | '.join(targets)} |", "| --- |" + " --- |" * len(targets)]
    for source, row in values.items():
        cells = ["–" if target == source and row[target] is None else _point(row[target]) for target in targets]
        lines.append(f"| {source} | {' | '.join(cells)} |")
    return "\n".join(lines)


def ranking(results: dict[str, Any], gold_part: str) -> str:
    """TDR accuracy and Spearman's rho of random-label IGAP and of similarities, per source language."""
    parts, lines = results["parts"], []
    for name, matrices in parts[gold_part]["matrices"].items():
        random = parts.get("matrix-random", {}).get("matrices", {}).get(name)
        alike = results["alignment"].get(name)
        if not random or not alike or "score" not in matrices:
            continue
        found: dict[str, list[tuple[float, float]]] = {}
        for source, row in matrices["score"].items():
            gold = {target: score for target, score in row.items() if target != source and score is not None}
            forecasts = {"igap": {t: -gap for t, gap in random["igap"].get(source, {}).items() if gap is not None}}
            directions = alike["directions"].get(source, {})
            forecasts |= {kind: {t: s[kind] for t, s in directions.items()} for kind in SIMILARITIES}
            shared = [t for t in gold if all(t in forecast for forecast in forecasts.values())]
            if len(shared) < 3:
                continue
            gold = {target: gold[target] for target in shared}
            for kind, forecast in forecasts.items():
                found.setdefault(kind, []).append(
                    (tdr_accuracy(forecast, gold), rank_correlations(forecast, gold)["spearman"])
                )
        if found:
            lines += [
                f"{name}, gold: {gold_part}",
                "",
                "| forecast | TDR | Spearman | sources |",
                "| --- | --- | --- | --- |",
            ]
            for kind, pairs in found.items():
                tdr, rho = (fmean(values) for values in zip(*pairs, strict=True))
                lines.append(f"| {kind} | {tdr:.1f} | {rho:.2f} | {len(pairs)} |")
            lines.append("")
    return "\n".join(lines)


def from_english(results: dict[str, Any], gold_part: str) -> str:
    """The same for English alone: who foretells the order of the targets' accuracies on held-out data?"""
    lines = []
    for name, parts in results["parts"][gold_part]["models"]["decomposition"].items():
        gold = {target: 100 - part["error"] for target, part in parts.items()}
        forecasts = {}
        for part in ("random-ntrex", "random-flores"):
            if part in results["parts"]:
                bands = results["parts"][part]["models"]["igap"][name]
                forecasts[f"IGAP, {part}"] = {t: -s["expected"] for t, s in bands[0]["targets"].items()}
        directions = results["alignment"].get(name, {}).get("directions", {}).get("en", {})
        for kind in SIMILARITIES if directions else ():
            forecasts[kind] = {target: directions[target][kind] for target in gold}
        for kind, forecast in forecasts.items():
            rho = rank_correlations(forecast, gold)["spearman"]
            lines.append(f"| {name} | {kind} | {tdr_accuracy(forecast, gold):.1f} | {rho:.2f} |")
    head = f"From English, gold: accuracy on the test set of {gold_part}, {len(gold)} targets"
    return "\n".join([head, "", "| encoder | forecast | TDR | Spearman |", "| --- | --- | --- | --- |", *lines, ""])


def claims(results: dict[str, Any]) -> list[str]:
    """The properties that the paper states, as found here."""
    found = []
    for part, content in results["parts"].items():
        if "models" not in content:
            continue
        scores = content["models"]["igap"]
        values = [
            target["expected"] for bands in scores.values() for band in bands for target in band["targets"].values()
            if target["expected"] is not None
        ]  # fmt: skip
        if values:
            positive = sum(value > 0 for value in values)
            found.append(f"{part}: {positive} of {len(values)} scores are positive.")
        for name, bands in scores.items():
            wide = [band for band in bands if band["mean"]["epsilon"] == 0.025]
            points = [band["mean"]["expected"] for band in wide if band["mean"]["expected"] is not None]
            if len(points) > 1:
                rises = sum(b > a for a, b in pairwise(points))
                found.append(f"{part}, {name}: the curve rises in {rises} of {len(points) - 1} steps of falling E′.")
        order = {name: bands[0]["mean"]["expected"] for name, bands in scores.items()}
        known = [name for name, value in order.items() if value is not None and name in results["alignment"]]
        if len(known) > 1:
            retrieval = {name: fmean(results["alignment"][name]["retrieval"].values()) for name in known}
            said = ", ".join(
                f"{n}: IGAP {order[n]:.1f}, retrieval {retrieval[n]:.1f} %" for n in sorted(known, key=order.get)
            )
            found.append(f"{part}: {said}.")
    return found


def main() -> None:
    """Print the markdown."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("results", type=Path)
    results = json.loads(parser.parse_args().results.read_text())
    print("# IGAP\n")
    print(f"Settings: {results['settings']}. IGAP in points; undefined: no checkpoint in the band.\n")
    for part, content in results["parts"].items():
        print(f"## {part}\n")
        for kind in ("models", "methods"):
            if kind in content:
                for text in (
                    by_target(content[kind], content.get("intervals") if kind == "models" else None),
                    curves(content[kind]),
                    decomposition(content[kind]),
                ):
                    print(f"{text}\n" if text else "", end="\n" if text else "")
        for noise, entry in content.get("noise", {}).items():
            mean = next(iter(entry["igap"].values()))[0]["mean"]
            print(f"- noise {noise}: IGAP {_point(mean['expected'])}, target accuracy about {_accuracy(mean)}")
        for name, tables in content.get("matrices", {}).items():
            for what, values in tables.items():
                print(f"\n{name}: {what}\n\n{matrix(values)}\n")
    for part in ("matrix-xnli", "matrix-pawsx", "matrix-sib200"):
        if part in results["parts"] and (text := ranking(results, part)):
            print(f"## Transfer direction ranking\n\n{text}")
    for part in ("sib200", "pawsx", "xnli"):
        if part in results["parts"]:
            print(f"## Transfer direction ranking from English\n\n{from_english(results, part)}")
    print("## Claims of the paper\n")
    print("\n".join(f"- {claim}" for claim in claims(results)))


def _point(value: float | None) -> str:
    return "undefined" if value is None else f"{value:.1f}"


def _accuracy(mean: dict[str, Any]) -> str:
    return "undefined" if mean["expected"] is None else f"{100 - mean['expected'] - 100 * mean['error']:.1f} %"


if __name__ == "__main__":
    main()
