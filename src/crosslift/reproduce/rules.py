"""The rules by which a claim is decided from the rows of one record.

| rule | holds if |
| --- | --- |
| `better: [A, B, …]` | row A is above B on average over the target columns, p < 0.05; above every one of several |
| `worse: [A, B, …]` | row A is below B, p < 0.05 |
| `better_in: {column: [A, B]}` | `better` in every named column |
| `mostly_better: [A, B]` | A is above B in at least `share` (0.8) of the columns (below where lower is better), and \
on average by more than the larger spread |
| `no_better: [A, B]` | A is not certainly above B on average, and the 95% interval ends below `within` (1) points |
| `alike: [A, B, …]` | the 95% intervals of A's differences from each of the others lie within ± `within` (1) points |
| `gains_more: [A, B]` | A is further above B in `columns` than in the columns `than` |
| `ordered: [A, B, …]` | the rows' means fall in this order, each step by more than the largest spread |
| `rising: [A, B, …]` | Spearman's ρ between this order and the rows' means is at least `rho` (0.8), and the last is \
certainly above the first |
| `rising_along: [A, …]` | the same of the cells of a row, from its first column to its last; of every row named |
| `falling_along: [A, …]` | the same, falling |
| `above: [A, …, number]` | the rows' means are above a number, by more than their spread |
| `below: [A, …, number]` | the rows' means are below a number, by more than their spread |
| `related: [[A, B], …]` | over the columns (of all pairs of rows), Spearman's ρ is at least `rho` (0.5); at most, if \
`rho` is negative |

"Certainly" and p < 0.05 mean: by the record's paired test, and with every seed the same way; where there is none, by
more than the spread over seeds (the sum of both), which then also stands for the interval. A claim does not hold if the
opposite is found by the same rule; where it has several parts, of which one is enough for that, at 0.05 divided by
their number. Else it is undecided.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from statistics import fmean
from typing import Any, Literal, cast

from crosslift.data.storage import Json
from crosslift.measure.significance import format_p
from crosslift.reproduce.comparison import Compared, Tested, spearman
from crosslift.reproduce.entries import Entry, Number

Answer = Literal["holds", "does not hold", "undecided"]
Rows = Mapping[str, Compared]
Found = tuple[Answer, str]
LEVEL = 0.05


class Unknown(Exception):
    """A number that a rule needs is not there."""


def named(value: object) -> list[str]:
    """Return the rows that a rule names, in their order."""
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, list):
        return [name for one in value for name in named(one)]
    return [] if isinstance(value, int | float) else [str(value)]


def together(answers: Sequence[Answer]) -> Answer:
    """Return what several answers say of a claim that asks for all of them; one that goes against it is enough."""
    if "does not hold" in answers:
        return "does not hold"
    return "holds" if all(one == "holds" for one in answers) else "undecided"


def _mean(row: Compared) -> float:
    values = _there(row.ours)
    if not values:
        raise Unknown(f"{row.name} was not run")
    return row.mean if row.mean is not None else fmean(values)


def _there(values: Sequence[Number]) -> list[float]:
    return [value for value in values if value is not None]


def _spread(*rows: Compared) -> float:
    """Return the rows' mean spread over seeds, summed; infinite where one seed says nothing about it."""
    found = [_there(row.sd) for row in rows]
    return sum(fmean(values) if values else math.inf for values in found)


def _against(one: Compared, other: Compared) -> tuple[float, Tested | None]:
    """Return the mean difference of two rows, and its test, where there is one."""
    both = [(a, b) for a, b in zip(one.ours, other.ours, strict=True) if a is not None and b is not None]
    if not both:
        raise Unknown(f"{one.name} or {other.name} was not run")
    test = one.against(other)
    if test is None:
        back = other.against(one)
        test = back.reversed if back else None
    return fmean(a - b for a, b in both), test


def _answer(difference: float, test: Tested | None, spread: float, parts: int = 1) -> Answer:
    """Say whether a difference is above 0 beyond doubt, below it (of several parts one is enough), or neither."""
    if difference == 0:
        return "undecided"
    level = LEVEL if difference > 0 else LEVEL / parts
    # The test speaks of other examples, seeds of other runs.
    certain = test.p < level and _one_way(test.seeds) if test else abs(difference) > spread
    return "undecided" if not certain else "holds" if difference > 0 else "does not hold"


def _one_way(differences: Sequence[float]) -> bool:
    return all(one > 0 for one in differences) or all(one < 0 for one in differences)


def _interval(difference: float, test: Tested | None, spread: float) -> tuple[float, float]:
    """Return where a difference may lie: its 95% interval, or as far to both sides as seeds spread."""
    if test is not None and math.isfinite(test.high - test.low):
        return test.low, test.high
    return difference - spread, difference + spread


def _said(a: Compared, b: Compared, difference: float, test: Tested | None) -> str:
    beside = f", {_written(test)}" if test else ", no paired test"
    return f"{a.name} − {b.name}: {difference:+.2f}{beside}"


def _written(test: Tested) -> str:
    # At the limit with a digit more: 0.0499 is below it.
    p = f"p = {test.p:.4f}" if abs(test.p - LEVEL) < 0.0005 else format_p(test.p)
    return p if test.p >= LEVEL or _one_way(test.seeds) else f"{p}, but not with every seed"


def _better(entry: Entry, rows: Rows, rule: Json, sign: int = 1) -> Found:
    first, *others = (rows[name] for name in named(rule["better" if sign == 1 else "worse"]))
    answers, said = [], []
    for other in others:
        difference, test = _against(first, other)
        answers.append(_answer(sign * difference, test, _spread(first, other), len(others)))
        said.append(_said(first, other, difference, test))
    return together(answers), "; ".join(said)


def _worse(entry: Entry, rows: Rows, rule: Json) -> Found:
    return _better(entry, rows, rule, -1)


def _better_in(entry: Entry, rows: Rows, rule: Json) -> Found:
    answers: list[Answer] = []
    said = []
    columns = cast("dict[str, list[str]]", rule["better_in"])
    for column, pair in columns.items():
        place = [one.name for one in entry.columns].index(column)
        a, b = rows[pair[0]], rows[pair[1]]
        one, other = a.ours[place], b.ours[place]
        if one is None or other is None:
            raise Unknown(f"{a.name} or {b.name} was not run in {column}")
        test = _test_in(column, a, b)
        ends = _there([a.sd[place], b.sd[place]])
        answers.append(_answer(one - other, test, sum(ends) if len(ends) == 2 else math.inf, len(columns)))
        said.append(f"{column}: {a.name} − {b.name} {one - other:+.2f}" + (f" ({_written(test)})" if test else ""))
    return together(answers), ", ".join(said)


def _test_in(column: str, a: Compared, b: Compared) -> Tested | None:
    for row, other in ((a, b), (b, a)):
        alone = replace(
            row, tests=[test for test in row.tests if test["columns"] == [column]], p_mean=row.p.get(column)
        )
        test = alone.against(other)
        if test:
            return test if row is a else test.reversed
    return None


def pairs(rule: Json) -> list[tuple[str, str, str | None]]:
    """Return which rows a rule compares with which, and in which column alone; `None`: in all that it looks at."""
    kind = next(name for name in rule if name in RULES)
    if kind == "better_in":
        return [(a, b, column) for column, (a, b) in cast("dict[str, list[str]]", rule[kind]).items()]
    rows = named(rule[kind])
    if kind in ("better", "worse", "alike", "mostly_better", "no_better"):
        return [(rows[0], other, None) for other in rows[1:]]
    return [(rows[-1], rows[0], None)] if kind == "rising" else []


def _mostly(entry: Entry, rows: Rows, rule: Json) -> Found:
    a, b = (rows[name] for name in named(rule["mostly_better"]))
    pairs = [(x, y) for x, y in zip(a.ours, b.ours, strict=True) if x is not None and y is not None]
    if not pairs:
        raise Unknown(f"{a.name} or {b.name} was not run")
    sign = -1 if entry.lower_is_better else 1
    up, share = sum(sign * (x - y) > 0 for x, y in pairs), float(cast("float", rule.get("share", 0.8)))
    difference, test = _against(a, b)
    said = f"{a.name} is better than {b.name} in {up} of {len(pairs)} columns, on average {difference:+.2f}"
    # Columns of one run go up and down together: their signs alone say little.
    certain = _answer(sign * difference, test, max(_spread(a), _spread(b)))
    if up >= share * len(pairs) and certain == "holds":
        return "holds", said
    return ("does not hold" if up <= (1 - share) * len(pairs) and certain == "does not hold" else "undecided"), said


def _no_better(entry: Entry, rows: Rows, rule: Json) -> Found:
    a, b = (rows[name] for name in named(rule["no_better"]))
    difference, test = _against(a, b)
    said, spread = _said(a, b, difference, test), _spread(a, b)
    if _answer(difference, test, spread) == "holds":
        return "does not hold", said
    _, high = _interval(difference, test, spread)
    return ("holds" if high < _within(rule) else "undecided"), f"{said}{_to(difference, test, spread)}"


def _within(rule: Json) -> float:
    return float(cast("float", rule.get("within", 1.0)))


def _to(difference: float, test: Tested | None, spread: float) -> str:
    low, high = _interval(difference, test, spread)
    return f" ({low:+.2f} to {high:+.2f})" if math.isfinite(high - low) else ""


def _alike(entry: Entry, rows: Rows, rule: Json) -> Found:
    first, *others = (rows[name] for name in named(rule["alike"]))
    answers: list[Answer] = []
    said = []
    for other in others:
        difference, test = _against(first, other)
        spread = _spread(first, other)
        low, high = _interval(difference, test, spread)
        said.append(_said(first, other, difference, test) + _to(difference, test, spread))
        apart = _answer(-abs(difference), test, spread, len(others)) == "does not hold"
        if -_within(rule) < low and high < _within(rule):
            answers.append("holds")
        else:
            answers.append("does not hold" if apart and abs(difference) >= _within(rule) else "undecided")
    return together(answers), "; ".join(said)


def _gains_more(entry: Entry, rows: Rows, rule: Json) -> Found:
    a, b = (rows[name] for name in named(rule["gains_more"]))
    means, spread = [], 0.0
    for part in ("columns", "than"):
        names = cast("list[str]", rule[part])
        places = [place for place, column in enumerate(entry.columns) if column.name in names]
        pairs = [(a.ours[i], b.ours[i]) for i in places]
        gains = [x - y for x, y in pairs if x is not None and y is not None]
        if not gains:
            raise Unknown(f"{a.name} or {b.name} was not run")
        means.append(fmean(gains))
        for row in (a, b):
            ends = _there([row.sd[i] for i in places])
            spread += fmean(ends) if ends else math.inf
    here, there = cast("list[str]", rule["columns"]), cast("list[str]", rule["than"])
    said = f"{a.name} − {b.name}: {means[0]:+.2f} in {', '.join(here)}, {means[1]:+.2f} in {', '.join(there)}"
    return _answer(means[0] - means[1], None, spread), said


def _ordered(entry: Entry, rows: Rows, rule: Json) -> Found:
    chosen = [rows[name] for name in named(rule["ordered"])]
    means = [_mean(row) for row in chosen]
    gaps = [a - b for a, b in pairwise(means)]
    spread = max(_spread(row) for row in chosen)
    said = ", ".join(f"{row.name} {mean:.2f}" for row, mean in zip(chosen, means, strict=True))
    if all(gap > 0 for gap in gaps):
        return ("holds" if min(gaps) > spread else "undecided"), said
    return ("does not hold" if min(gaps) < -spread else "undecided"), said


def _rising(entry: Entry, rows: Rows, rule: Json) -> Found:
    chosen = [rows[name] for name in named(rule["rising"])]
    difference, test = _against(chosen[-1], chosen[0])
    certain = _answer(difference, test, _spread(chosen[0], chosen[-1]))
    return _climbs([_mean(row) for row in chosen], certain, rule)


def _climbs(values: Sequence[float], certain: Answer, rule: Json) -> Found:
    """Say whether values rise: in their order by ρ, and from the first to the last beyond doubt."""
    rho = spearman([float(place) for place in range(len(values))], values)
    if rho is None:
        return "undecided", "fewer than three, or all are equal"
    said = f"ρ = {rho:.2f}: " + ", ".join(f"{value:.2f}" for value in values)
    if certain == "holds" and rho < float(cast("float", rule.get("rho", 0.8))):
        return "undecided", said
    return certain, said


def _rising_along(entry: Entry, rows: Rows, rule: Json, sign: int = 1) -> Found:
    answers: list[Answer] = []
    said = []
    for name in named(rule["rising_along" if sign == 1 else "falling_along"]):
        row = rows[name]
        values = _there(row.ours)
        if len(values) < 3:
            raise Unknown(f"{name} was not run in three columns or more")
        filled = [place for place, value in enumerate(row.ours) if value is not None]
        ends = _there([row.sd[filled[0]], row.sd[filled[-1]]])
        certain = _answer(sign * (values[-1] - values[0]), None, sum(ends) if len(ends) == 2 else math.inf)
        answer, _ = _climbs([sign * value for value in values], certain, rule)
        answers.append(answer)
        said.append(f"{name}: " + ", ".join(f"{value:.2f}" for value in values))
    return together(answers), "; ".join(said)


def _falling_along(entry: Entry, rows: Rows, rule: Json) -> Found:
    return _rising_along(entry, rows, rule, -1)


def _above(entry: Entry, rows: Rows, rule: Json, sign: int = 1) -> Found:
    *names, number = cast("list[Any]", rule["above" if sign == 1 else "below"])
    answers, said = [], []
    for name in names:
        row = rows[str(name)]
        mean = _mean(row)
        answers.append(_answer(sign * (mean - float(number)), None, _spread(row)))
        said.append(f"{row.name} {mean:.2f}")
    return together(answers), f"{', '.join(said)}; the limit is {float(number):g}"


def _below(entry: Entry, rows: Rows, rule: Json) -> Found:
    return _above(entry, rows, rule, -1)


def _related(entry: Entry, rows: Rows, rule: Json) -> Found:
    pairs = cast("list[list[str]]", rule["related"])
    left = [value for a, _ in pairs for value in rows[a].ours]
    right = [value for _, b in pairs for value in rows[b].ours]
    rho = spearman(left, right)
    if rho is None:
        raise Unknown("fewer than three points, or all are equal")
    limit = float(cast("float", rule.get("rho", 0.5)))
    along = rho if limit > 0 else -rho
    answer: Answer = "holds" if along >= abs(limit) else "does not hold" if along <= -abs(limit) else "undecided"
    return answer, f"ρ = {rho:.2f} of {'; '.join(f'{a} and {b}' for a, b in pairs)}"


RULES: dict[str, Callable[[Entry, Rows, Json], Found]] = {
    "better": _better,
    "worse": _worse,
    "better_in": _better_in,
    "mostly_better": _mostly,
    "no_better": _no_better,
    "alike": _alike,
    "gains_more": _gains_more,
    "ordered": _ordered,
    "rising": _rising,
    "rising_along": _rising_along,
    "falling_along": _falling_along,
    "above": _above,
    "below": _below,
    "related": _related,
}
