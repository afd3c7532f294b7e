"""One JSON and the tables of the docs out of what `run.sh` left.

    python summarise.py --scores scores-*.json --runs FOLDER --out ../../results/minis.json > tables.md

FOLDER holds NAME/results.json (held-out losses) of each encoder. A score is the mean over seeds of the mean over target
languages; the deviation is over seeds.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from statistics import mean, stdev

PROBE = {
    "retrieval": 76.1,
    "sib200": {"targets": 53.0, "english": 76.5, "random": 19.3},
    "massive-intent": {"targets": 40.2, "english": 83.8, "random": 12.3},
    "panx": {"targets": 31.6, "english": 59.8, "random": 14.5},
}
"""An earlier encoder of 10 layers × 256 (28.5 MB), same text, same protocol, three seeds: what mini-x had to beat."""
ORDER = ("sib200", "massive-intent", "xsid-intent", "xnli", "panx", "massive-slots", "xsid-slots", "xquad")
"""Of the tables."""
COLLAPSED = 0.5
"""A seed whose English score is below this share of the encoder's best one has collapsed."""


def of_seeds(values: list[float]) -> dict[str, float]:
    found = {"mean": round(mean(values), 2)}
    return found | ({"sd": round(stdev(values), 2)} if len(values) > 1 else {})


def summary(rows: list[dict]) -> dict[str, object]:
    """Return seeds, English, targets and languages of one encoder and task."""
    main = [{language: next(iter(scores.values())) for language, scores in row["scores"].items()} for row in rows]
    english = [row["en"] for row in main]
    languages = [language for language in main[0] if language != "en"]
    return {
        "seeds": [row["seed"] for row in rows],
        "metric": next(iter(rows[0]["scores"]["en"])),
        "english": of_seeds(english),
        "targets": of_seeds([mean(row[language] for language in languages) for row in main]),
        "by_language": {language: of_seeds([row[language] for row in main]) for language in languages},
        "collapsed": sum(score < COLLAPSED * max(english) for score in english),
    }


def merged(scores: list[Path], runs: Path) -> dict[str, dict[str, object]]:
    """Return encoder -> retrieval, tasks, held-out losses."""
    found: dict[str, dict[str, object]] = {}
    for file in scores:
        stored = json.loads(file.read_text(encoding="utf-8"))
        for name, table in stored["retrieval"].items():
            found.setdefault(name, {"tasks": {}})["retrieval"] = table
        frozen = stored.get("frozen_layers")
        for row in stored["jobs"]:
            task = row["task"] if frozen is None else f"{row['task']}, {frozen} layers frozen"
            found.setdefault(row["encoder"], {"tasks": {}})["tasks"].setdefault(task, []).append(row)
    for name, one in found.items():
        tasks = {task: sorted(rows, key=lambda row: row["seed"]) for task, rows in one["tasks"].items()}
        one["tasks"] = {task: summary(tasks[task]) for task in sorted(tasks, key=_rank)}
        results = runs / name / "results.json"
        if results.exists():
            one |= json.loads(results.read_text(encoding="utf-8"))
    return found


def _rank(task: str) -> tuple[int, str]:
    return ORDER.index(task.split(",")[0]), task


def cell(scores: dict[str, float]) -> str:
    return f"{scores['mean']:.1f}" + (f" ± {scores['sd']:.1f}" if "sd" in scores else "")


def markdown(encoders: dict[str, dict], probe: dict) -> str:
    names = list(encoders)
    lines = [f"| | {' | '.join(names)} | probe |", f"|{' --- |' * (len(names) + 2)}"]
    best = {name: max(one["retrieval"][p]["by_layer"][-1] for p in ("first", "mean")) for name, one in encoders.items()}
    lines.append(f"| NTREX retrieval | {' | '.join(f'{best[name]:.1f}' for name in names)} | {probe['retrieval']} |")
    for task in sorted({task for one in encoders.values() for task in one["tasks"]}, key=_rank):
        for kind in ("targets", "english"):
            found = [encoders[name]["tasks"].get(task) for name in names]
            cells = [f"{cell(one[kind])} ({len(one['seeds'])})" if one else "–" for one in found]
            lines.append(f"| {task}, {kind} | {' | '.join(cells)} | {probe.get(task, {}).get(kind, '–')} |")
    held = [name for name in names if "held_out" in encoders[name]]
    lines += ["", f"| held out | {' | '.join(held)} | frequencies |", f"|{' --- |' * (len(held) + 2)}"]
    for language in dict.fromkeys(language for name in held for language in encoders[name]["held_out"]):
        found = [encoders[name]["held_out"].get(language) for name in held]
        cells = [f"{one['loss']:.2f} ({one['accuracy']:.0f}%)" if one else "–" for one in found]
        known = next(one for one in found if one)
        base = f"{known['unigram_loss']:.2f} ({known['unigram_accuracy']:.0f}%)"
        lines.append(f"| {language} | {' | '.join(cells)} | {base} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scores", type=Path, nargs="+", required=True)
    parser.add_argument("--runs", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    arguments = parser.parse_args()
    encoders = merged(arguments.scores, arguments.runs)
    stored = {
        "protocol": "fine-tuning on English, rate 3e-4, last weights; all layers learn but where a task says otherwise",
        "probe": PROBE,
        "encoders": encoders,
    }
    arguments.out.write_text(json.dumps(stored, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    print(markdown(encoders, PROBE))


if __name__ == "__main__":
    main()
