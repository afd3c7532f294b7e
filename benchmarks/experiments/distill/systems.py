"""The systems of the distillation table: the rows of the JSON that differ in language and seed only."""

from __future__ import annotations

from statistics import fmean
from typing import Any

from jobs import MAIN, SETS, SHARED
from run import row_key

System = tuple[str, str, str, str, str, bool]
"""Role, source, bridge, variant, student, augmented."""
Rows = dict[System, dict[tuple[str, int], dict[str, Any]]]
"""System -> (language, seed) -> row of the JSON; a model that is scored in many languages stands under each."""

FIRST = "mini-x"
"""The bridge wherever the table does not compare bridges."""
NAMES = {
    "cnn": "CNN",
    "transformer": "Transformer",
    "bilstm": "BiLSTM",
    "mini-x-all": "mini-x, all layers",
    "human": "human translations",
}


def bridge_of(bridge: str = FIRST, variant: str = "plain", source: str = MAIN) -> System:
    """Return a bridge."""
    return ("bridge", source, bridge, variant, "", False)


def student_of(
    student: str, variant: str = "plain", augmented: bool = False, bridge: str = FIRST, source: str = MAIN
) -> System:
    """Return a student."""
    return ("student", source, bridge, variant, student, augmented)


def by_system(jobs: list[dict[str, Any]], name: str) -> Rows:
    """Return the rows of a set by system."""
    found: Rows = {}
    for row in jobs:
        job = row_key(row)
        if job.set == name:
            system = (job.role, job.source, job.bridge, job.variant, job.student, job.augmented)
            for language in row["scores"]:
                found.setdefault(system, {})[language, job.seed] = row
    return found


def sets_of(jobs: list[dict[str, Any]]) -> list[str]:
    """Return the sets that there are results of."""
    return [name for name in SETS if any(row["set"] == name for row in jobs)]


def scores(rows: Rows, system: System, language: str) -> list[float]:
    """Return one score per seed."""
    found = rows.get(system, {})
    return [row["scores"][x] for (x, _), row in sorted(found.items()) if x == language]


def seeds_of(rows: Rows, system: System) -> str:
    """Return how many seeds there are; of the target languages, where not all have the same number."""
    languages = {language for language, _ in rows[system]}
    counts = {len(scores(rows, system, language)) for language in languages}
    return "–".join(map(str, sorted({min(counts), max(counts)})))


def mean_by_seed(rows: Rows, system: System, languages: list[str]) -> dict[int, float]:
    """Return the mean over languages of each seed that has all of them."""
    found = rows.get(system, {})
    seeds = sorted({seed for _, seed in found})
    whole = [seed for seed in seeds if languages and all((x, seed) in found for x in languages)]
    return {seed: fmean(found[x, seed]["scores"][x] for x in languages) for seed in whole}


def languages_of(rows: Rows, system: System, name: str) -> list[str]:
    """Return the target languages that a system has been scored in."""
    there = {language for language, _ in rows.get(system, {})}
    return [language for language in SETS[name].targets if language in there]


def teacher(system: System) -> System | None:
    """Return the system that a step starts from."""
    role, source, bridge, variant, *_ = system
    if role == "student":
        return bridge_of(bridge, variant, source)
    return ("source", source, "", "", "", False) if role == "bridge" else None


def step(rows: Rows, system: System, languages: list[str]) -> tuple[float, float] | None:
    """Return the means over languages and seeds of what a system learnt from and of itself."""
    above = teacher(system)
    if above is None:
        return None
    before, after = (mean_by_seed(rows, x, languages) for x in (above, system))
    shared = sorted(set(before) & set(after))
    return (fmean(before[seed] for seed in shared), fmean(after[seed] for seed in shared)) if shared else None


def drop(rows: Rows, system: System, name: str) -> tuple[float, float] | None:
    """Return what a step costs in points, and how much of its teacher's score is kept (%).

    A bridge is held against its source model in English, a student against its bridge in its language.
    """
    found = step(rows, system, ["en"] if system[0] == "bridge" else languages_of(rows, system, name))
    return (found[1] - found[0], 100 * found[1] / found[0]) if found else None


def title(system: System) -> str:
    """Return a system in words; what is not said is the usual: a CNN as source, the first bridge, English text."""
    role, source, bridge, variant, student, augmented = system
    said = NAMES.get(source, source)
    if role == "source":
        return f"labels shared: {said}" if source == SHARED else f"source: {said}"
    taught = NAMES.get(student, student)
    if role == "gold":
        return f"gold labels: {taught}"
    if role.startswith("translate"):
        return f"{role}: {taught or said}"
    extra = [NAMES.get(variant, variant)] if variant != "plain" else []
    extra += ["augmented"] if augmented else []
    extra += [f"bridge {NAMES[bridge]}"] if student and bridge != FIRST else []
    extra += [f"source {said}"] if source != MAIN else []
    return f"{role}: {taught or NAMES.get(bridge, bridge)}" + (f" ({'; '.join(extra)})" if extra else "")
