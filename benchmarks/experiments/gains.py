"""Collect what methods gained over plain fine-tuning with mini-x: the file that `crosslift advise` reads.

    python benchmarks/experiments/gains.py

Reads `robust.json` and `adjust-transfer.json` in benchmarks/results, and adds the gains of frozen layers that were
measured elsewhere. Sets on which nothing was learnt (PAWS-X) are left out.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).parents[1] / "results"
SETS = {
    "sib200": ("classification", "sib200", 701),
    "massive": ("classification", "massive-intent", 11_514),
    "panx": ("tagging", "panx", 5_000),
    "xnli": ("classification", "xnli", 15_000),
}
ROBUST = {"ear": ("ear", True), "ear, neighbours": ("ear", False), "xtune, synonyms": ("robust", True),
          "adv": ("robust", False)}  # fmt: skip
"""System -> the method of `advise`, and whether it needs a dictionary of synonyms."""

FROZEN = [
    {"method": "frozen", "kind": "classification", "model": "mini-x", "data": "massive-intent", "difference": 9.48,
     "low": 8.5, "high": 10.41, "languages": 3, "seeds": 1, "examples": 6000, "from": "docs/examples/massive.md"},
    {"method": "frozen", "kind": "classification", "model": "mini-x", "data": "demo-intent", "difference": 10.88,
     "low": 9.26, "high": 12.49, "languages": 13, "seeds": 1, "examples": 1771, "from": "crosslift demo"},
]  # fmt: skip


def gains() -> list[dict[str, Any]]:
    """Return the entries: points, mean over the target languages, 95% interval."""
    found = []
    robust = json.loads((RESULTS / "robust.json").read_text(encoding="utf-8"))
    languages = {row["task"]: len(row["scores"]) - 1 for row in robust["jobs"] if row["source"] == "en"}
    for test in robust["comparisons"]:
        if (
            test["against"] == "finetune"
            and test["source"] == "en"
            and test["task"] in SETS
            and test["system"] in ROBUST
        ):
            method, synonyms = ROBUST[test["system"]]
            counts = {"languages": languages[test["task"]], "seeds": test["seeds"], "synonyms": synonyms}
            found.append(
                entry(method, test["task"], test["targets"]) | counts | {"from": "benchmarks/experiments/robust"}
            )
    adjusted = json.loads((RESULTS / "adjust-transfer.json").read_text(encoding="utf-8"))
    for test in adjusted["comparisons"]:
        of = (test["encoder"], test["source"], test["system"], test["against"], test["set"], test["dev"])
        if of == ("mini-x", "en", "adjusted", "original", "targets", False) and test["task"] in SETS:
            counts = {"languages": 4, "seeds": test["seeds"]}
            found.append(entry("adjust", test["task"], test) | counts | {"from": "benchmarks/experiments/adjust"})
    return found + FROZEN


def entry(method: str, task: str, test: dict[str, Any]) -> dict[str, Any]:
    """Return one entry without its counts."""
    kind, data, examples = SETS[task]
    numbers = {name: round(test[name], 2) for name in ("difference", "low", "high")}
    return {"method": method, "kind": kind, "data": data, "model": "mini-x", **numbers, "examples": examples}


if __name__ == "__main__":
    text = json.dumps({"gains": gains()}, indent=1) + "\n"
    (RESULTS / "gains.json").write_text(text, encoding="utf-8")
