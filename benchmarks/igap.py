"""Forward passes of the gated evaluator against the exhaustive one: the same runs, the same numbers.

    python benchmarks/igap.py --model mini-x --data xnli --out benchmarks/results/igap-passes.json
    python benchmarks/igap.py --model FOLDER --dry          # random labels on a few NTREX sentences, on a CPU

The paper's setting by default: XNLI dev, English to 14 languages, 40 epochs of batches of 32 at a constant rate, a
checkpoint every 10 steps, IGAP at E' = 0 with epsilon 0.001. Each run is done twice, once gated and once with every
checkpoint evaluated wholly; scores must be equal. The other settings are replayed on what the exhaustive run recorded
(and so is the first one, which must spend what the real gated run did). With --one-run only the exhaustive run is done,
and all gates are replayed on what it recorded: on a GPU two runs never have the same weights. Texts that go through the
model to measure errors are counted; training is not. Needs CROSSLIFT_DATA.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from torch import nn

from crosslift.measure.igap import Band, Checkpoint, Errors, bands, igaps, mean_igap
from crosslift.runs.gated import Gate, Passes
from crosslift.runs.igap import igap
from crosslift.runs.progress import Lines

DRY: dict[str, object] = {
    "data": "ntrex", "split": "test", "labels": "random", "limit": 128, "max_length": 24, "epochs": 40, "every": 5,
    "targets": ["de", "es", "fr", "ru", "zh", "sw", "hi", "ar"],
}  # fmt: skip
PAPER: dict[str, object] = {"split": "dev", "epochs": 40, "every": 10}
SETTINGS = {
    "E' = 0, epsilon 0.001 (the tables)": ([0.0], 0.001, None),
    "the same, 10 candidates": ([0.0], 0.001, 10),
    "curve 0.2 to 0 (figure 1)": ([0.2, 0.175, 0.15, 0.125, 0.1, 0.075, 0.05, 0.025, 0.0], 0.025, None),
    "the curve, 10 candidates": ([0.2, 0.175, 0.15, 0.125, 0.1, 0.075, 0.05, 0.025, 0.0], 0.025, 10),
}


Looks = list[dict[str, tuple[np.ndarray, np.ndarray]]]
"""For each checkpoint: language -> which items are wrong, and by how much they are right."""


class Recorded:
    """Stands for a tokenised set whose answers at every checkpoint are known."""

    def __init__(self, language: str, looks: Looks) -> None:
        self.looks, self.language = looks, language
        self.examples = SimpleNamespace(language=language)

    def __len__(self) -> int:
        return len(self.looks[0][self.language][0])

    def run(self, model: SimpleNamespace, items: np.ndarray, passes: Passes) -> tuple[np.ndarray, np.ndarray]:
        """Return what the model of this number said."""
        wrong, lead = self.looks[model.number][self.language]
        passes.texts += len(items)
        passes.calls += 1
        return wrong[items], lead[items]


def record(looks: Looks) -> None:
    """Let every gate keep what a model says about all items of all languages."""
    plain = Gate.look

    def look(self: Gate, model: nn.Module, step: int) -> Checkpoint:
        found = plain(self, model, step)
        searches = {self.language: self.source, **self.targets}
        looks.append({language: (s.flags.copy(), s.lead.copy()) for language, s in searches.items()})
        return found

    Gate.look = look  # type: ignore[method-assign]


def replay(
    looks: Looks, rows: Sequence[Checkpoint], asked: Sequence[Band], candidates: int | None
) -> tuple[list[Checkpoint], int]:
    """Return the checkpoints that gates would make of recorded runs, and the texts they would run."""
    source, *targets = looks[0]
    seeds = list(dict.fromkeys(row.seed for row in rows))
    found, texts = [], 0
    for seed in seeds:
        own = [look for look, row in zip(looks, rows, strict=True) if row.seed == seed]
        sets = {language: Recorded(language, own) for language in targets}
        gate = Gate(Recorded(source, own), sets, asked, candidates=candidates, seed=seed)
        for number in range(len(own)):
            model = SimpleNamespace(number=number, eval=lambda: None)
            gate.look(model, number + 1)
            if gate.full:
                break
        gate.last(model, number + 1)
        found += gate.checkpoints
        texts += gate.passes.texts
    return found, texts


def main() -> None:
    """Measure both ways and write what each spent."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", required=True)
    parser.add_argument("--data", default="xnli")
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--rate", type=float)
    parser.add_argument("--dry", action="store_true")
    parser.add_argument("--one-run", action="store_true", help="train once, and replay the gates")
    parser.add_argument("--limit", type=int)
    parser.add_argument("--epochs", type=float)
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    options = dict(DRY) if arguments.dry else {"data": arguments.data, **PAPER}
    options |= {name: value for name in ("limit", "epochs") if (value := getattr(arguments, name))}
    common: dict[str, Any] = {"seeds": list(range(1, arguments.seeds + 1)), "watch": Lines()}
    common |= {"rates": [arguments.rate]} if arguments.rate else {}
    (first, (errors, epsilon, _)), *_ = SETTINGS.items()
    spent: dict[str, Any] = {}
    torch.set_float32_matmul_precision("high")
    began = time.monotonic()
    gated = None
    if not arguments.one_run:
        gated = igap(arguments.model, errors=errors, epsilon=epsilon, candidates=None, **options, **common)
        spent["gated, really run"] = {"texts": gated.texts, "calls": gated.calls, "seconds": _since(began)}
        print(spent, flush=True)
    looks: Looks = []
    record(looks)
    began = time.monotonic()
    whole = igap(arguments.model, errors=errors, epsilon=epsilon, candidates=None, whole=True, **options, **common)
    (everything,) = whole.systems.values()
    spent["exhaustive"] = {"texts": whole.texts, "calls": whole.calls, "seconds": _since(began)}
    if gated:
        require_equal(next(iter(gated.systems.values())), everything, whole.bands, None)
    print(whole, spent, sep="\n", flush=True)
    recorded = list(looks)
    for name, (errors, epsilon, candidates) in SETTINGS.items():
        asked = bands(errors, epsilon)
        rows, texts = replay(recorded, everything.checkpoints, asked, candidates)
        found = replace(everything, checkpoints=tuple(rows), ends=(), asked=asked, candidates=candidates)
        require_equal(found, everything, asked, candidates)
        if gated and name == first:
            assert abs(texts - gated.texts) <= 0.05 * gated.texts, "a replay spends what the real run did"
        # Runs that have all their candidates stop: the exhaustive way would have evaluated as many checkpoints.
        plain = whole.texts * len(rows) / len(everything.checkpoints)
        spent[name] = {
            "texts": texts,
            "checkpoints": len(rows),
            "in the lowest band": {str(s): len(c) for s, c in found.qualifying(asked[-1]).items()},
            "times fewer": round(plain / texts, 1),
            "times fewer, with runs that stop": round(whole.texts / texts, 1),
            "mean igap by E'": {f"{band.error:g}": str(mean_igap(igaps(found, band))) for band in asked},
        }
        print(name, spent[name], flush=True)
    content = {"model": Path(arguments.model).name, "settings": {k: str(v) for k, v in options.items()}, "spent": spent}
    if arguments.out:
        arguments.out.write_text(json.dumps(content, indent=1, ensure_ascii=False))


def require_equal(gated: Errors, whole: Errors, asked: Sequence[Band], candidates: int | None) -> None:
    """Stop where a gated table says anything else than the exhaustive one."""
    for band in asked:
        ours, theirs = igaps(gated, band), igaps(whole, band, candidates)
        for target, score in ours.items():
            assert score.by_seed == theirs[target].by_seed, (band, target)
            assert score.minimum == theirs[target].minimum
            if candidates is None:
                assert score.qualifying == theirs[target].qualifying


def _since(began: float) -> float:
    return round(time.monotonic() - began, 1)


if __name__ == "__main__":
    main()
