"""What the papers claim, and whether it holds here: each claim is decided by a rule over the records of one entry.

| rule | holds if |
| --- | --- |
| `better: [A, B]` | row A is above row B on average over the target columns, p < 0.05 |
| `worse: [A, B]` | row A is below row B, p < 0.05 |
| `mostly_better: [A, B]` | A is above B in at least `share` (0.8) of the columns; below it where lower is better |
| `alike: [A, B]` | on average the two differ by less than `within` points |
| `ordered: [A, B, …]` | the rows' means fall in this order |
| `rising: [A, B, …]` | Spearman's ρ between this order and the rows' means is at least `rho` (0.8) |
| `above: [A, number]` | row A's mean is above a number, by more than its spread over seeds |
| `below: [A, number]` | row A's mean is below a number, by more than its spread over seeds |
| `related: [A, B]` | over the columns, Spearman's ρ of rows A and B is at least `rho` (at most, if `rho` is negative) |
| `better_in: {column: [A, B]}` | `better` in every named column |

A rule looks at target columns, not at those of the source; with `columns` at these alone. Where there is no paired
test, a difference counts beyond the seeds' spread. A claim does not hold if the opposite is found by the same rule,
else it is undecided: also where nothing was run, with one seed and no test, and where English does not beat the most
frequent class, so that nothing was learnt that could be transferred.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal, cast

import yaml  # type: ignore[import-untyped]  # comes with transformers

from crosslift.data.storage import Json
from crosslift.errors import BadFile, nearest
from crosslift.reproduce.comparison import Compared, spearman
from crosslift.reproduce.entries import HOME, Entry, entries
from crosslift.reproduce.records import read_record, rows_of

Answer = Literal["holds", "does not hold", "undecided"]
LEVEL = 0.05


@dataclass(frozen=True)
class Claim:
    """One sentence of a paper, in our words.

    Attributes:
        claim: The sentence.
        place: Where the paper says so.
        entry: The table or figure that decides.
        rule: How it is decided.
    """

    claim: str
    place: str
    entry: str
    rule: Json

    @property
    def paper(self) -> str:
        """Which paper says so."""
        return self.entry.partition(".")[0]


@dataclass(frozen=True)
class Verdict:
    """What became of a claim: the answer, and the numbers behind it in words."""

    claim: Claim
    answer: Answer
    why: str


@cache
def claims() -> tuple[Claim, ...]:
    """Read the claims; a rule or a row that there is not is an error."""
    path = HOME / "claims.yaml"
    found = tuple(Claim(**one) for one in yaml.safe_load(path.read_text(encoding="utf-8")))
    for one in found:
        if one.entry not in entries():
            raise BadFile(path, None, f'there is no entry "{one.entry}".{nearest(one.entry, entries())}')
        kinds = [name for name in one.rule if name in RULES]
        if len(kinds) != 1:
            raise BadFile(path, None, f"a claim has one rule of {', '.join(RULES)}, not {list(one.rule)}.")
        for name in _rows(one.rule[kinds[0]]):
            entries()[one.entry].row(name)
        for column in cast("list[str]", one.rule.get("columns", [])):
            if column not in [known.name for known in entries()[one.entry].columns]:
                raise BadFile(path, None, f'{one.entry} has no column "{column}".')
    return found


def decide(results: str | Path, scale: str) -> list[Verdict]:
    """Decide every claim by the records of a scale."""
    return [_decided(claim, read_record(results, claim.entry, scale)) for claim in claims()]


def _decided(claim: Claim, record: Json | None) -> Verdict:
    if record is None:
        return Verdict(claim, "undecided", "not run")
    entry = entries()[claim.entry]
    kind = next(name for name in claim.rule if name in RULES)
    if not _learnt(record, [*_rows(claim.rule[kind]), entry.english or entry.baseline]):
        return Verdict(claim, "undecided", "English does not beat the most frequent class")
    found = {row.name: row for row in rows_of(record)}
    if "columns" in claim.rule:
        found = {name: _only(entry, row, cast("list[str]", claim.rule["columns"])) for name, row in found.items()}
    elif kind != "better_in":  # which names its columns itself
        found = {name: _targets(entry, row) for name, row in found.items()}
    try:
        answer, why = RULES[kind](entry, found, claim.rule)
    except _Unknown as missing:
        return Verdict(claim, "undecided", str(missing))
    return Verdict(claim, answer, why)


def _only(entry: Entry, row: Compared, columns: Sequence[str]) -> Compared:
    """Return a row with some of its columns."""
    places = [place for place, column in enumerate(entry.columns) if column.name in columns]
    ours = [row.ours[place] for place in places]
    there = [value for value in ours if value is not None]
    mean = sum(there) / len(there) if there else None
    return replace(row, ours=ours, sd=[row.sd[place] for place in places], mean=mean, p_mean=None)


def _targets(entry: Entry, row: Compared) -> Compared:
    """Return a row without its source columns; its mean and test are over targets as they are."""
    places = [place for place, column in enumerate(entry.columns) if not column.source]
    return replace(row, ours=[row.ours[place] for place in places], sd=[row.sd[place] for place in places])


class _Unknown(Exception):
    """A number that a rule needs is not there."""


def _learnt(record: Json, rows: Sequence[str]) -> bool:
    """Whether any scored run of these rows has learnt its task; measurements say nothing about it."""
    scores = cast("dict[str, dict[str, float]]", record.get("english") or {})
    known = [one for name, one in scores.items() if name.split(" / ")[0] in rows]
    return not known or any(one["english"] > one["majority"] for one in known)


def _rows(value: object) -> list[str]:
    if isinstance(value, dict):
        return [name for pair in value.values() for name in _rows(pair)]
    return [str(one) for one in cast("list[object]", value) if not isinstance(one, int | float)]


def _mean(row: Compared) -> float:
    values = [value for value in row.ours if value is not None]
    if not values:
        raise _Unknown(f"{row.name} was not run")
    return row.mean if row.mean is not None else sum(values) / len(values)


def _spread(*rows: Compared) -> float:
    """Return the rows' mean spread over seeds, summed; infinite where one seed says nothing about it."""
    found = [[value for value in row.sd if value is not None] for row in rows]
    return sum(sum(values) / len(values) if values else math.inf for values in found)


def _against(one: Compared, other: Compared, column: int | None = None) -> tuple[float, float | None]:
    """Return the difference of two rows and its p-value, where they were compared with each other."""
    if column is not None:
        a, b = one.ours[column], other.ours[column]
        if a is None or b is None:
            raise _Unknown(f"{one.name} or {other.name} was not run there")
        difference = a - b
    else:
        both = [(a, b) for a, b in zip(one.ours, other.ours, strict=True) if a is not None and b is not None]
        if not both:
            raise _Unknown(f"{one.name} or {other.name} was not run")
        pair = (one.mean, other.mean)
        known = pair[0] is not None and pair[1] is not None and len(both) == len(one.ours)
        difference = (
            cast("float", pair[0]) - cast("float", pair[1]) if known else sum(a - b for a, b in both) / len(both)
        )
    p = one.p_mean if one.baseline == other.name else other.p_mean if other.baseline == one.name else None
    return difference, p


def _better(entry: Entry, rows: dict[str, Compared], rule: Json, sign: int = 1) -> tuple[Answer, str]:
    a, b = (rows[name] for name in _rows(rule["better" if sign == 1 else "worse"]))
    difference, p = _against(a, b)
    return _answer(sign * difference, p, _spread(a, b)), _said(a, b, difference, p)


def _worse(entry: Entry, rows: dict[str, Compared], rule: Json) -> tuple[Answer, str]:
    return _better(entry, rows, rule, -1)


def _answer(difference: float, p: float | None, spread: float) -> Answer:
    """Say whether a difference is above 0 beyond doubt, below it, or neither."""
    certain = p < LEVEL if p is not None else abs(difference) > spread
    if not certain or difference == 0:
        return "undecided"
    return "holds" if difference > 0 else "does not hold"


def _said(a: Compared, b: Compared, difference: float, p: float | None) -> str:
    beside = f", p = {p:.3f}" if p is not None else ", no paired test"
    return f"{a.name} − {b.name}: {difference:+.2f}{beside}"


def _mostly(entry: Entry, rows: dict[str, Compared], rule: Json) -> tuple[Answer, str]:
    a, b = (rows[name] for name in _rows(rule["mostly_better"]))
    pairs = [(x, y) for x, y in zip(a.ours, b.ours, strict=True) if x is not None and y is not None]
    if not pairs:
        raise _Unknown(f"{a.name} or {b.name} was not run")
    sign = -1 if entry.lower_is_better else 1
    up, share = sum(sign * (x - y) > 0 for x, y in pairs), float(cast("float", rule.get("share", 0.8)))
    said = f"{a.name} is better than {b.name} in {up} of {len(pairs)} columns"
    if up >= share * len(pairs):
        return "holds", said
    return ("does not hold" if up <= (1 - share) * len(pairs) else "undecided"), said


def _alike(entry: Entry, rows: dict[str, Compared], rule: Json) -> tuple[Answer, str]:
    a, b = (rows[name] for name in _rows(rule["alike"]))
    difference, p = _against(a, b)
    within = float(cast("float", rule.get("within", 1.0)))
    said = _said(a, b, difference, p)
    if abs(difference) < within:
        return "holds", said
    return ("does not hold" if _answer(difference, p, _spread(a, b)) != "undecided" else "undecided"), said


def _ordered(entry: Entry, rows: dict[str, Compared], rule: Json) -> tuple[Answer, str]:
    chosen = [rows[name] for name in _rows(rule["ordered"])]
    means = [_mean(row) for row in chosen]
    gaps = [a - b for a, b in pairwise(means)]
    spread = max(_spread(row) for row in chosen)
    said = ", ".join(f"{row.name} {mean:.2f}" for row, mean in zip(chosen, means, strict=True))
    if all(gap > 0 for gap in gaps):
        return ("holds" if min(gaps) > spread else "undecided"), said
    return ("does not hold" if min(gaps) < -spread else "undecided"), said


def _rising(entry: Entry, rows: dict[str, Compared], rule: Json) -> tuple[Answer, str]:
    chosen = [rows[name] for name in _rows(rule["rising"])]
    means = [_mean(row) for row in chosen]
    rho = spearman([float(place) for place in range(len(means))], means)
    limit = float(cast("float", rule.get("rho", 0.8)))
    said = f"ρ = {rho:.2f}: " + ", ".join(f"{mean:.2f}" for mean in means) if rho is not None else "all are equal"
    if rho is None:
        return "undecided", said
    return ("holds" if rho >= limit else "does not hold" if rho <= 0 else "undecided"), said


def _above(entry: Entry, rows: dict[str, Compared], rule: Json, sign: int = 1) -> tuple[Answer, str]:
    name, number = cast("list[Any]", rule["above" if sign == 1 else "below"])
    row = rows[str(name)]
    mean = _mean(row)
    return _answer(sign * (mean - float(number)), None, _spread(row)), f"{row.name} {mean:.2f}, {float(number):g}"


def _below(entry: Entry, rows: dict[str, Compared], rule: Json) -> tuple[Answer, str]:
    return _above(entry, rows, rule, -1)


def _related(entry: Entry, rows: dict[str, Compared], rule: Json) -> tuple[Answer, str]:
    a, b = (rows[name] for name in _rows(rule["related"]))
    rho = spearman(a.ours, b.ours)
    if rho is None:
        raise _Unknown("too few columns")
    limit = float(cast("float", rule.get("rho", 0.5)))
    sign = 1 if limit > 0 else -1
    answer: Answer = "holds" if sign * rho >= abs(limit) else "does not hold" if sign * rho <= 0 else "undecided"
    return answer, f"ρ({a.name}, {b.name}) = {rho:.2f}"


def _better_in(entry: Entry, rows: dict[str, Compared], rule: Json) -> tuple[Answer, str]:
    answers: list[Answer] = []
    said = []
    for column, pair in cast("dict[str, list[str]]", rule["better_in"]).items():
        place = [one.name for one in entry.columns].index(column)
        a, b = rows[pair[0]], rows[pair[1]]
        difference, _ = _against(a, b, place)
        p = a.p.get(column) if a.baseline == b.name else b.p.get(column) if b.baseline == a.name else None
        ends = (a.sd[place], b.sd[place])
        spread = math.inf if None in ends else sum(cast("tuple[float, float]", ends))
        answers.append(_answer(difference, p, spread))
        said.append(f"{column} {difference:+.2f}" + (f" (p = {p:.3f})" if p is not None else ""))
    answer: Answer = "undecided"
    if all(one == "holds" for one in answers):
        answer = "holds"
    elif "does not hold" in answers:
        answer = "does not hold"
    return answer, ", ".join(said)


RULES: dict[str, Callable[[Entry, dict[str, Compared], Json], tuple[Answer, str]]] = {
    "better": _better,
    "worse": _worse,
    "mostly_better": _mostly,
    "alike": _alike,
    "ordered": _ordered,
    "rising": _rising,
    "above": _above,
    "below": _below,
    "related": _related,
    "better_in": _better_in,
}
