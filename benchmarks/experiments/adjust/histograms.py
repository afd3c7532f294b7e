"""Draw what `crosslift measure alignment` found, small enough for a page: a column per encoder, a row per distance.

    python benchmarks/experiments/adjust/histograms.py benchmarks/results/adjust-alignment.json picture.svg

The encoders of docs/pictures/adjust-histograms.svg come from one CPU core. M is mini-x-mlm; `prepare.py` wrote the
pairs and their links (here unpacked), `crosslift align prose-ru.tsv -l en-ru --save ru.safetensors` the aligner:

    crosslift fit adjust -m M -b ru=prose-ru.tsv --aligner prose-ru.links --pairs 6400 --learning-rate 2e-4 -o adjusted
    F="--data panx --source en --learning-rate 3e-4 --steps 300 --select last --evaluations 1"
    A="--with-adjustment ru=prose-ru.tsv --aligner prose-ru.links --pairs 6400"
    crosslift fit finetune -m M $F -o fine-tuned
    crosslift fit finetune -m adjusted $F -o both
    crosslift fit finetune -m adjusted $F $A -o continual
    crosslift measure alignment -b ru=held-ru.tsv --aligner ru.safetensors -m original=M -m adjusted=adjusted \
        -m fine-tuned=fine-tuned -m both=both -m continual=continual -o alignment
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

WIDTH, HEIGHT, GAP, TOP = 140, 96, 14, 62
COLOURS = {"related": "#0b7a75", "unrelated": "#d1603d"}
MEASURES = {"l2": "L2 distance", "cosine": "cosine similarity"}
STYLE = "text{font:11px sans-serif;fill:#444}.title{font-size:13px;font-weight:600;fill:#222}.axis{stroke:#999}"


def outline(edges: Sequence[float], shares: Sequence[float], ends: tuple[float, float], most: float) -> str:
    """Return the outline of a histogram as a path, in points of its panel."""
    xs = [WIDTH * (edge - ends[0]) / (ends[1] - ends[0]) for edge in edges]
    parts = [f"M{xs[0]:.1f},{HEIGHT}"]
    for x, share in zip(xs[1:], shares, strict=True):
        parts.append(f"V{HEIGHT * (1 - share / most):.1f}H{x:.1f}")
    return "".join([*parts, f"V{HEIGHT}Z"])


def panel(found: dict[str, Any], ends: tuple[float, float], ticks: Sequence[float]) -> list[str]:
    """Return one encoder's two histograms by one distance, as high as the higher of them."""
    most = max(*found["related_share"], *found["unrelated_share"])
    lines = [f'<text y="-6">AUC {found["auc"]:.1f}, overlap {found["overlap"]:.1f}</text>']
    for kind, colour in COLOURS.items():
        path = outline(found["edges"], found[f"{kind}_share"], ends, most)
        lines.append(f'<path d="{path}" fill="{colour}" fill-opacity="0.45" stroke="{colour}"/>')
    lines.append(f'<path d="M0,{HEIGHT}H{WIDTH}" class="axis"/>')
    for tick in ticks:
        x = WIDTH * (tick - ends[0]) / (ends[1] - ends[0])
        lines.append(f'<path d="M{x:.1f},{HEIGHT}v4" class="axis"/>')
        lines.append(f'<text x="{x:.1f}" y="{HEIGHT + 16}" text-anchor="middle">{tick:g}</text>')
    return lines


def drawn(report: dict[str, Any]) -> str:
    """Return the picture."""
    encoders = report["encoders"]
    width, row = len(encoders) * (WIDTH + GAP) + GAP, HEIGHT + 66
    height = TOP + len(MEASURES) * row - 28
    title = f"{report['bitext']}: related and unrelated words, English and {report['language']}"
    size = f'viewBox="0 0 {width} {height}" width="{width}" height="{height}"'
    lines = [f'<svg xmlns="http://www.w3.org/2000/svg" role="img" {size}>', f"<title>{title}</title>"]
    lines += [f"<style>{STYLE}</style>", f'<rect width="{width}" height="{height}" fill="#fff"/>']
    for place, (kind, colour) in enumerate(COLOURS.items()):
        lines.append(f'<rect x="{GAP + 110 * place}" y="8" width="11" height="11" fill="{colour}" fill-opacity="0.6"/>')
        lines.append(f'<text x="{GAP + 110 * place + 16}" y="18">{kind} words</text>')
    for down, (measure, name) in enumerate(MEASURES.items()):
        shown = [found[measure] for found in encoders.values()]
        low, high = min(s["edges"][0] for s in shown), max(s["edges"][-1] for s in shown)
        ends, ticks = ((0.0, high), range(0, int(high) + 1, 5)) if low > 0 else ((low, 1.0), (0, 0.5, 1))
        for across, (encoder, found) in enumerate(encoders.items()):
            y = TOP + down * row
            lines.append(f'<g transform="translate({GAP + across * (WIDTH + GAP)},{y})">')
            lines += [f'<text y="-22" class="title">{encoder}</text>'] if down == 0 else []
            lines += panel(found[measure], ends, list(ticks))
            lines.append(f'<text x="{WIDTH}" y="{HEIGHT + 31}" text-anchor="end">{name}</text></g>')
    return "\n".join([*lines, "</svg>", ""])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("report", type=Path)
    parser.add_argument("out", type=Path)
    arguments = parser.parse_args()
    arguments.out.write_text(drawn(json.loads(arguments.report.read_text(encoding="utf-8"))), encoding="utf-8")


if __name__ == "__main__":
    main()
