"""Claims that a study of ours has tested, for as long as the table that should decide has not been run.

A study is a file of `benchmarks/results` with `comparisons`: `system`, `against`, their `difference` in points with its
95% interval (`low`, `high`), and `p_holm`, the p-value after Holm's method over the study's own family of tests.

| rule | holds if, in every comparison |
| --- | --- |
| `higher: [[A, B], …]` | A is above B, p < 0.05 after Holm |
| `lower: [[A, B], …]` | A is below B, p < 0.05 after Holm |
| `no_higher: [[A, B], …]` | A is not certainly above B, and the interval lies below `within` points (1) |
| `no_lower: [[A, B], …]` | A is not certainly below B, and the interval lies above minus `within` points |
| `alike: [[A, B], …]` | the interval lies within ± `within` points |

A claim does not hold if one comparison says the opposite: the other one certainly ahead; for `alike`, an interval
wholly outside ± `within`. Else it is undecided, and so it is where the file says that a system learnt nothing
(`not_above_majority`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields
from itertools import product
from pathlib import Path
from typing import Any, cast

from crosslift.data.storage import Json, read_json
from crosslift.errors import BadFile, nearest
from crosslift.reproduce.rules import LEVEL, Answer, together


@dataclass(frozen=True)
class Study:
    """Which comparisons of which study speak about a claim.

    Attributes:
        results: File in the folder of results.
        page: Page of the docs that tells the study, with its heading.
        at: Its settings in a few words, and what else must be known.
        rule: How it decides.
        pairs: What is compared: (system, against).
        where: What else finds a comparison, such as its task; several values of a key are several comparisons.
        part: Which part of a comparison counts, where it has several (`targets`, `near`, `far`).
        within: Points, where the rule has such a limit.
    """

    results: str
    page: str
    at: str
    rule: str
    pairs: tuple[tuple[str, str], ...]
    where: Json
    part: str = ""
    within: float = 1.0


def read_study(path: Path, given: Json) -> Study:
    """Return the study that a claim of this file names; an unknown name or a missing one is an error."""
    kinds = [name for name in given if name in RULES]
    if len(kinds) != 1:
        raise BadFile(path, None, f"a study has one rule of {', '.join(RULES)}, not {list(given)}.")
    known = [one.name for one in fields(Study)]
    for name in given:
        if name not in known and name not in kinds:
            raise BadFile(path, None, f'a study has no "{name}".{nearest(name, known)}')
    pairs = tuple((str(a), str(b)) for a, b in cast("list[list[str]]", given[kinds[0]]))
    rest = {name: value for name, value in given.items() if name not in kinds}
    return Study(rule=kinds[0], pairs=pairs, **rest)  # type: ignore[arg-type]


def decide_by(study: Study, results: Path) -> tuple[Answer, str] | None:
    """Return the answer and its numbers in words; `None` where the study's file is not in the folder of results."""
    file = results / study.results
    if not file.exists():
        return None
    content = cast("dict[str, Any]", read_json(file))
    answers: list[Answer] = []
    said = []
    for system, against in study.pairs:
        parts = []
        for values in product(*(one if isinstance(one, list) else [one] for one in study.where.values())):
            where = dict(zip(study.where, values, strict=True))
            found = _comparison(file, content, {**where, "system": system, "against": against})
            label = "".join(f"{where[key]} " for key, one in study.where.items() if isinstance(one, list))
            if any(_fits(one, where) and one["system"] in (system, against) for one in _unlearnt(content)):
                answers.append("undecided")
                parts.append(f"{label}not above the most frequent class in the source language")
                continue
            numbers = found[study.part] if study.part else found
            answers.append(RULES[study.rule](numbers, study.within))
            parts.append(label + _numbers(numbers))
        said.append(f"{system} − {against}: {'; '.join(parts)}")
    return together(answers), "; ".join(said)


def _comparison(file: Path, content: dict[str, Any], wanted: Json) -> dict[str, Any]:
    found = [one for one in content["comparisons"] if _fits(one, wanted)]
    if len(found) != 1:
        raise BadFile(file, None, f"{len(found)} comparisons fit {wanted}, where one should.")
    return cast("dict[str, Any]", found[0])


def _fits(one: Json, wanted: Json) -> bool:
    return all(one.get(key) == value for key, value in wanted.items())


def _unlearnt(content: dict[str, Any]) -> list[dict[str, Any]]:
    return cast("list[dict[str, Any]]", content.get("not_above_majority", []))


def _numbers(one: dict[str, Any]) -> str:
    p = "p < 0.001" if one["p_holm"] < 0.001 else f"p = {one['p_holm']:.3f}"
    return f"{one['difference']:+.2f} ({one['low']:+.2f} to {one['high']:+.2f}), {p}"


def _sign(one: dict[str, Any]) -> int:
    """Return 1 where the first is certainly ahead, -1 where the other is, 0 where nobody can say."""
    if one["p_holm"] >= LEVEL or one["difference"] == 0:
        return 0
    return 1 if one["difference"] > 0 else -1


def _higher(one: dict[str, Any], within: float) -> Answer:
    return BY_SIGN[_sign(one)]


def _lower(one: dict[str, Any], within: float) -> Answer:
    return BY_SIGN[-_sign(one)]


def _no_higher(one: dict[str, Any], within: float) -> Answer:
    if _sign(one) > 0:
        return "does not hold"
    return "holds" if one["high"] < within else "undecided"


def _no_lower(one: dict[str, Any], within: float) -> Answer:
    if _sign(one) < 0:
        return "does not hold"
    return "holds" if one["low"] > -within else "undecided"


def _alike(one: dict[str, Any], within: float) -> Answer:
    if -within < one["low"] and one["high"] < within:
        return "holds"
    return "does not hold" if one["low"] > within or one["high"] < -within else "undecided"


BY_SIGN: dict[int, Answer] = {1: "holds", 0: "undecided", -1: "does not hold"}
RULES: dict[str, Callable[[dict[str, Any], float], Answer]] = {
    "higher": _higher,
    "lower": _lower,
    "no_higher": _no_higher,
    "no_lower": _no_lower,
    "alike": _alike,
}
