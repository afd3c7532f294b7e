"""How good is a choice that reads no target label? Second part: rules against gold labels.

    python benchmarks/experiments/selection/table.py FOLDER [--write benchmarks/results/selection.json]

A decision is a set and a seed, for all target languages together or for each alone. Gold labels would pick the
candidate with the best mean test accuracy; a rule picks by its signal. Reported are how often both are the same (ties
of the gold score count as right) and the regret: points of test accuracy by which the pick lies below the best.
Besides, for every two candidates, how often the rule puts them in the order of the gold scores.
"""

from __future__ import annotations

import argparse
import json
from collections import defaultdict
from collections.abc import Callable, Sequence
from itertools import combinations
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
from numpy.typing import NDArray

Kept = dict[str, NDArray[Any]]
BASELINE = "finetune"
GAPS: dict[str, dict[str, float]] = {}
"""Candidate -> language -> random-label IGAP, where it was measured."""
EXAMPLES = {"demo-intent": 400, "sib200": 350, "massive-intent": 1000}
"""Training examples of each set in `run.py`."""
ORDER = ("finetune", "ear", "robust", "adjust")


def items(rule: str, found: dict[str, Kept], name: str, targets: Sequence[str]) -> NDArray[np.floating]:
    """Return the signal of a candidate as values whose mean it is, so that two candidates can be paired."""
    one = found[name]
    signal, _, where = rule.partition(" on ")
    if signal == "random-label igap":
        known = [-GAPS[name][x] for x in targets if GAPS.get(name, {}).get(x) is not None]
        return np.array(known or [-100.0])
    if signal == "source dev":
        return (one["dev.probabilities"].argmax(1) == one["dev.gold"]).astype(float)
    values = []
    for language in targets:
        sides = [
            ("pairs." + language + ".source", "pairs." + language + ".target"),
            (f"{where}.en", f"{where}.{language}"),
        ]
        source, target = sides[0] if where == "pairs" else sides[1]
        ours, theirs = one[source], one[target]
        said = theirs.argmax(1)
        if signal == "consistency":
            values.append(ours.argmax(1) == said)
        elif signal == "carried":
            values.append((ours.argmax(1) == said) * items("source dev", found, name, targets).mean())
        elif signal == "soft":
            values.append((ours * theirs).sum(1) * items("source dev", found, name, targets).mean())
        elif signal == "reference":
            values.append(sum(x[source] for x in found.values()).argmax(1) == said)
        elif signal == "baseline's answers":
            values.append(found[BASELINE][source].argmax(1) == said)
        elif signal == "ensemble in the target":
            values.append(sum(x[target] for x in found.values()).argmax(1) == said)
        elif signal == "certainty":
            values.append(-(-theirs * np.log(theirs + 1e-9)).sum(1))
        elif signal == "prior":
            here, there = ours.mean(0) + 1e-3, theirs.mean(0) + 1e-3
            values.append(np.full(len(theirs), -float((there * np.log(there / here)).sum())))
        else:
            raise ValueError(rule)
    return np.concatenate([np.asarray(v, dtype=float) for v in values])


def pick(rule: str, found: dict[str, Kept], targets: Sequence[str], guard: bool) -> str:
    """Return the candidate with the best signal; with a guard the baseline unless it is beaten beyond the interval.

    `A and B` guards by both signals and goes by the first.
    """
    if rule == "always finetune":
        return BASELINE
    first, *others = rule.split(" and ")
    signals = {name: items(first, found, name, targets) for name in found}
    if not guard:
        return max(found, key=lambda name: (signals[name].mean(), -ORDER.index(name)))
    eligible = [n for n in found if n != BASELINE and all(ahead(x, found, n, targets) for x in (first, *others))]
    return max(eligible, key=lambda name: signals[name].mean()) if eligible else BASELINE


def ahead(rule: str, found: dict[str, Kept], name: str, targets: Sequence[str]) -> bool:
    """Say whether a candidate is ahead of the baseline beyond the 95 % interval of a paired bootstrap."""
    differences = items(rule, found, name, targets) - items(rule, found, BASELINE, targets)
    rows = np.random.default_rng(0).integers(0, len(differences), (1000, len(differences)))
    return bool(np.quantile(differences[rows].mean(1), 0.025) > 0)


def gold(found: dict[str, Kept], targets: Sequence[str]) -> dict[str, float]:
    """Return the mean test accuracy over some languages, in percent."""
    return {name: 100 * fmean(float(one[f"test.{x}"].mean()) for x in targets) for name, one in found.items()}


def main() -> None:
    """Print the table, and write it where asked to."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--write", type=Path)
    parser.add_argument("--gains", type=Path, help="Also write what candidates gain over the baseline, for advise.")
    parser.add_argument("--model", default="mini-x", help="What gains call the encoder.")
    parser.add_argument("--least", type=int, default=len(ORDER), help="Candidates that a decision must have.")
    options = parser.parse_args()
    decisions: dict[tuple[str, str], dict[str, Kept]] = defaultdict(dict)
    for file in sorted(options.folder.glob("*/*.npz")):
        candidate, seed, _ = file.name.split(".")
        decisions[file.parent.name, seed][candidate] = dict(np.load(file))
    whole = {key: {n: found[n] for n in ORDER if n in found} for key, found in decisions.items()}
    whole = {key: found for key, found in whole.items() if len(found) >= options.least}
    signals = ["consistency", "carried", "soft", "reference", "baseline's answers", "ensemble in the target"]
    signals += ["certainty", "prior"]
    if (options.folder / "igap.json").exists():
        GAPS.update(json.loads((options.folder / "igap.json").read_text()))
    rules = [
        "always finetune",
        "source dev",
        *(["random-label igap"] if GAPS else []),
        *(f"{s} on {w}" for w in ("text", "pairs", "embedded") for s in signals),
    ]
    rules.append("carried on pairs and source dev")
    rows = []
    for rule in rules:
        for guard in (False,) if rule in ("always finetune", "random-label igap") else (False, True):
            rows.append(measured(rule, whole, lambda found, t, r=rule, g=guard: pick(r, found, t, g), guard))
    print(f"{len(whole)} decisions over all languages; candidates: {', '.join(next(iter(whole.values())))}")
    for row in rows:
        if row:
            print(f"{row['rule']:<42}{'guarded' if row['guarded'] else '':<9}"
                  f"all: {row['right']:5.0f} % right, regret {row['regret']:5.2f} (worst {row['worst']:5.2f})   "
                  f"one language: {row['right_single']:5.0f} %, {row['regret_single']:5.2f}"
                  f"   pairs {row['pairs_in_order'] or 0:5.1f} %")  # fmt: skip
    for key, found in whole.items():
        print(key, {n: round(v, 1) for n, v in gold(found, languages(found)).items()},
              {n: round(100 * items('source dev', found, n, ()).mean(), 1) for n in found})  # fmt: skip
    if options.gains:
        options.gains.write_text(json.dumps({"gains": gains(whole, options.model)}, indent=1) + "\n")
    if options.write:
        options.write.write_text(
            json.dumps({"decisions": len(whole), "rules": [r for r in rows if r]}, indent=1) + "\n"
        )


def gains(whole: dict[tuple[str, str], dict[str, Kept]], model: str) -> list[dict[str, Any]]:
    """Return what each candidate gains over the baseline on each set, with the interval of a paired bootstrap.

    Resampled are test examples, the same in every language and seed.
    """
    entries = []
    for name in dict.fromkeys(key for key, _ in whole):
        seeds = [found for (set_, _), found in whole.items() if set_ == name]
        for candidate in ORDER[1:]:
            each = [
                np.mean(
                    [found[candidate][f"test.{x}"] * 1.0 - found[BASELINE][f"test.{x}"] for x in languages(found)], 0
                )
                for found in seeds
                if candidate in found
            ]
            if not each:
                continue
            differences = 100 * np.mean(each, axis=0)
            rows = np.random.default_rng(0).integers(0, len(differences), (2000, len(differences)))
            low, high = np.quantile(differences[rows].mean(1), (0.025, 0.975))
            entries.append(
                {
                    "method": candidate,
                    "kind": "classification",
                    "data": name,
                    "model": model,
                    "difference": round(float(differences.mean()), 2),
                    "low": round(float(low), 2),
                    "high": round(float(high), 2),
                    "languages": len(languages(seeds[0])),
                    "seeds": len(each),
                    "examples": EXAMPLES[name],
                    "test_examples": len(differences),
                    "from": "benchmarks/experiments/selection",
                }
            )
    return entries


def languages(found: dict[str, Kept]) -> list[str]:
    """Return the target languages."""
    return [key[5:] for key in next(iter(found.values())) if key.startswith("test.") and key != "test.en"]


def measured(
    rule: str,
    whole: dict[tuple[str, str], dict[str, Kept]],
    pick_one: Callable[[dict[str, Kept], Sequence[str]], str],
    guard: bool,
) -> dict[str, Any]:
    """Return how often a rule picks the best, and its regret, over all decisions that have its text."""
    together, single, ordered = [], [], []
    for (name, _), found in whole.items():
        if rule.endswith("embedded") and name == "demo-intent":
            continue
        targets = languages(found)
        if rule == "random-label igap":
            targets = [x for x in targets if x in GAPS[BASELINE]]
        for group, kept in ((targets, together), *(([x], single) for x in targets)):
            scores = gold(found, group)
            kept.append(max(scores.values()) - scores[pick_one(found, group)])
            if group is targets and not guard and rule != "always finetune" and " and " not in rule:
                signals = {n: items(rule, found, n, group).mean() for n in found}
                for a, b in combinations(found, 2):
                    if scores[a] != scores[b]:
                        ordered.append(
                            (signals[a] > signals[b]) == (scores[a] > scores[b]) if signals[a] != signals[b] else 0.5
                        )
    if not together:
        return {}
    return {
        "rule": rule,
        "guarded": guard,
        "decisions": len(together),
        "right": 100 * fmean(x < 1e-9 for x in together),
        "regret": fmean(together),
        "worst": max(together),
        "right_single": 100 * fmean(x < 1e-9 for x in single),
        "regret_single": fmean(single),
        "pairs_in_order": 100 * fmean(map(float, ordered)) if ordered else None,
    }


if __name__ == "__main__":
    main()
