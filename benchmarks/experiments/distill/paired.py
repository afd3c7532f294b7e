"""Paired tests between the systems of the distillation table."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from jobs import ARCHITECTURES, MAIN, SETS, SHARED
from systems import Rows, System, bridge_of, by_system, sets_of, student_of, title

from crosslift.measure.scores import over_languages, over_seeds
from crosslift.measure.significance import holm, permutation_test
from crosslift.tasks.metrics import Metric, accuracy, entity_f1

LIKE = {metric.name: metric for metric in (accuracy(["a"], ["a"]), entity_f1([["B-X"]], [["B-X"]]))}


def pairs(rows: Rows) -> Iterator[tuple[System, System]]:
    """Return which systems are held against which: every way of teaching a model against the plain one."""
    plain = bridge_of()
    yield from ((x, plain) for x in sorted(rows) if x[0] == "bridge" and x[1] == MAIN and x != plain)
    for student in ARCHITECTURES:
        plain = student_of(student)
        yield plain, bridge_of()
        if student != MAIN:
            yield plain, student_of(MAIN)
        yield from ((x, plain) for x in sorted(rows) if x[0] == "student" and x[1] == MAIN and x[4] == student)
    for baseline in ("translate-test", "translate-train", "gold"):
        yield from ((student_of(MAIN), x) for x in rows if x[0] == baseline and x[1] != SHARED)
    zero_shot: System = ("source", SHARED, "", "", "", False)
    yield from ((x, zero_shot) for x in sorted(rows) if x[0].startswith("translate") and x[1] == SHARED)


def compared(jobs: list[dict[str, Any]], folder: Path) -> list[dict[str, Any]]:
    """Test the pairs of every set; one entry each."""
    found = []
    for name in sets_of(jobs):
        rows = by_system(jobs, name)
        with np.load(folder / f"{name}.ids.npz") as file:
            ids = {language: file[language].tolist() for language in file.files}
        entries: list[dict[str, Any]] = []
        for ours, theirs in pairs(rows):
            seeds: dict[str, list[int]] = {}
            for language, seed in sorted(set(rows.get(ours, {})) & set(rows.get(theirs, {}))):
                if language in SETS[name].targets:
                    seeds.setdefault(language, []).append(seed)
            if ours == theirs or not seeds:
                continue
            left, right = (
                over_languages(
                    [
                        over_seeds([metric(rows[x][lang, seed], lang, folder) for seed in s])
                        for lang, s in seeds.items()
                    ],
                    [ids[language] for language in seeds],
                )
                for x in (ours, theirs)
            )
            test = permutation_test(left, right, samples=2000)
            entry: dict[str, Any] = {"set": name, "system": title(ours), "against": title(theirs)}
            entry |= {"seeds": {language: len(some) for language, some in seeds.items()}, "p": round(test.p_value, 5)}
            entry |= {k: round(float(getattr(test, k)), 3) for k in ("difference", "low", "high")}
            entries.append(entry)
        for entry, p in zip(entries, holm([entry["p"] for entry in entries]), strict=True):
            entry["p_holm"] = round(p, 5)
        found += entries
    return found


def metric(row: dict[str, Any], language: str, folder: Path) -> Metric:
    """Rebuild a metric from its statistics."""
    like = LIKE[row["metric"]]
    with np.load(folder / row["statistics"]) as file:
        return Metric(like.name, file[language].astype(np.float64), like.combine, like.is_mean)
