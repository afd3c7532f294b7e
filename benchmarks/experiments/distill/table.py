"""Turn the results of `run.py` into markdown: means over seeds with standard deviations, and the drop of each step.

python benchmarks/experiments/distill/table.py DIR [--json FILE] [--pictures DIR] > table.md
"""

import argparse
import json
import statistics
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path

Key = tuple[str, ...]


def read(folder: Path) -> list[dict]:
    return [json.loads(file.read_text()) for file in sorted((folder / "results").glob("*.json"))]


def by_system(rows: Iterable[dict]) -> dict[Key, dict[str, list[float]]]:
    """Return (role, source, bridge, variant, student, augmented) -> language -> one score per seed."""
    found: dict[Key, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for row in sorted(rows, key=lambda row: row["seed"]):
        bridge, augmented = Path(row["bridge"]).name, "augmented" if row["augmented"] else ""
        key = (row["role"], row["source"], bridge, row["variant"], row["student"], augmented)
        for language, score in row["scores"].items():
            found[key][language].append(score)
    return found


def cell(scores: list[float] | None) -> str:
    if not scores:
        return "–"
    spread = f" ± {statistics.stdev(scores):.1f}" if len(scores) > 1 else ""
    return f"{statistics.mean(scores):.1f}{spread}"


def mean_by_seed(scores: dict[str, list[float]], languages: list[str]) -> list[float]:
    """Return the mean over languages of each seed; only where all of them are there."""
    seeds = min((len(scores.get(x, [])) for x in languages), default=0)
    return [statistics.mean(scores[x][seed] for x in languages) for seed in range(seeds)]


def title(key: Key) -> str:
    role, source, bridge, variant, student, augmented = key
    if role == "source":
        return f"source: {source}"
    if role == "bridge":
        return f"bridge: {source} → {bridge}" + ("" if variant == "plain" else f" ({variant})")
    if role == "gold":
        return f"gold labels: {student}"
    if role == "student":
        extra = ", ".join(x for x in (variant if variant != "plain" else "", augmented) if x)
        return f"student: {source} → {bridge} → {student}" + (f" ({extra})" if extra else "")
    return f"{role}: {source}"


def main_table(systems: dict[Key, dict[str, list[float]]]) -> list[str]:
    """One row per system: scores by language, and their mean over the target languages of the students."""
    students = [scores for key, scores in systems.items() if key[0] == "student"]
    targets = sorted({language for scores in students for language in scores})
    lines = [f"| system | en | {' | '.join(targets)} | mean | drop |", f"| --- |{' ---: |' * (len(targets) + 3)}"]
    order = ("source", "bridge", "student", "translate-test", "translate-train", "gold")
    for key in sorted(systems, key=lambda key: (order.index(key[0]), key[1:])):
        scores = systems[key]
        mean = mean_by_seed(scores, targets)
        drop = step_drop(key, systems, targets)
        cells = [cell(scores.get(x)) for x in ("en", *targets)]
        lines.append(f"| {title(key)} | {' | '.join(cells)} | {cell(mean)} | {drop} |")
    return lines


def step_drop(key: Key, systems: dict[Key, dict[str, list[float]]], targets: list[str]) -> str:
    """What a step costs: of a bridge in English against its source model, of a student against its bridge."""
    role, source, bridge, variant, *_ = key
    if role == "bridge":
        before, after = systems.get(("source", source, "", "", "", ""), {}).get("en"), systems[key].get("en")
    elif role == "student":
        above = systems.get(("bridge", source, bridge, variant, "", ""), {})
        before, after = mean_by_seed(above, targets), mean_by_seed(systems[key], targets)
    else:
        return ""
    if not before or not after:
        return "–"
    return f"{statistics.mean(after) - statistics.mean(before):+.1f}"


def grid(systems: dict[Key, dict[str, list[float]]], drops: bool) -> list[str]:
    """The grid source (rows) × student (columns): mean over targets, or its drop from the bridge."""
    found: dict[tuple[str, str], str] = {}
    for key, scores in systems.items():
        role, source, _, variant, student, augmented = key
        if role == "student" and variant == "plain" and not augmented and (source, student) not in found:
            targets = sorted(scores)
            found[source, student] = step_drop(key, systems, targets) if drops else cell(mean_by_seed(scores, targets))
    names = sorted({name for pair in found for name in pair})
    lines = [f"| source \\ student | {' | '.join(names)} |", f"| --- |{' ---: |' * len(names)}"]
    return lines + [f"| {a} | {' | '.join(found.get((a, b), '–') for b in names)} |" for a in names]


def heat_map(systems: dict[Key, dict[str, list[float]]], drops: bool, name: str) -> str:
    """Return the grid as an SVG: the darker, the better (or the larger the drop)."""
    lines = [line.strip("| ").split(" | ") for line in grid(systems, drops)]
    names, rows = lines[0][1:], lines[2:]
    numbers = [float(c.split(" ")[0]) for row in rows for c in row[1:] if c != "–"]
    low, high = min(numbers, default=0.0), max(numbers, default=1.0)
    what = "drop from the bridge" if drops else "score"
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {140 + 110 * len(names)} {70 + 50 * len(rows)}"',
        'font-family="sans-serif" font-size="13">',
        f'<text x="8" y="20">{name}: {what}, source (rows) × student</text>',
    ]
    parts += [f'<text x="{190 + 110 * c}" y="48" text-anchor="middle">{x}</text>' for c, x in enumerate(names)]
    for r, (source, *cells) in enumerate(rows):
        parts.append(f'<text x="8" y="{86 + 50 * r}">{source}</text>')
        for c, text in enumerate(cells):
            share = 0.0 if text == "–" else (float(text.split(" ")[0]) - low) / max(high - low, 1e-9)
            share = 1 - share if drops else share
            red, green, blue = (round(255 - share * (255 - x)) for x in ((190, 60, 40) if drops else (20, 130, 110)))
            ink = "white" if share > 0.6 else "black"
            parts.append(f'<rect x="{138 + 110 * c}" y="{58 + 50 * r}" width="104" height="44"')
            parts.append(f'fill="rgb({red},{green},{blue})"/>')
            parts.append(f'<text x="{190 + 110 * c}" y="{86 + 50 * r}" text-anchor="middle" fill="{ink}">{text}</text>')
    return "\n".join([*parts, "</svg>"]) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--json", type=Path, help="also write all scores there")
    parser.add_argument("--pictures", type=Path, help="also write heat maps (SVG) to this folder")
    arguments = parser.parse_args()
    rows = read(arguments.folder)
    for name in sorted({row["set"] for row in rows}):
        systems = by_system(row for row in rows if row["set"] == name)
        seeds = sorted({row["seed"] for row in rows if row["set"] == name})
        print(f"### {name}\n\nMean ± standard deviation over seeds {', '.join(map(str, seeds))}.\n")
        print("\n".join(main_table(systems)))
        print("\nSource × student, mean over targets:\n")
        print("\n".join(grid(systems, drops=False)))
        print("\nIts drop from the bridge:\n")
        print("\n".join(grid(systems, drops=True)) + "\n")
        if arguments.pictures:
            arguments.pictures.mkdir(parents=True, exist_ok=True)
            for drops in (False, True):
                file = arguments.pictures / f"distill-{name}-{'drop' if drops else 'score'}.svg"
                file.write_text(heat_map(systems, drops, name))
    if arguments.json:
        kept = ("set", "role", "source", "bridge", "variant", "student", "augmented", "language", "seed", "scores")
        slim = [{k: row[k] for k in kept} | {"bridge": Path(row["bridge"]).name} for row in rows]
        arguments.json.write_text("[\n" + ",\n".join(json.dumps(row) for row in slim) + "\n]\n")


if __name__ == "__main__":
    main()
