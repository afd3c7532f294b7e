"""What the papers claim, and whether it holds here: each claim is decided by a rule over the record of one entry.

The rules are those of `rules`. A rule looks at target columns, not at those of the source; with `columns` at these
alone. Columns in which nothing was learnt that could be transferred are left out: there the 95% interval of English
does not lie above the most frequent class, or, in answering, above a guess. Where the entry has no cells for the rule's
rows, a study of ours may decide (`studies`), at settings of its own; else the claim is undecided.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import cast

import yaml  # type: ignore[import-untyped]  # comes with transformers

from crosslift.data.storage import Json, read_json
from crosslift.errors import BadFile, nearest
from crosslift.reproduce.collect import ANSWERING, GUESS
from crosslift.reproduce.comparison import Compared, rows_of
from crosslift.reproduce.entries import HOME, Entry, entries
from crosslift.reproduce.rules import RULES, Answer, Unknown, named, pairs
from crosslift.reproduce.studies import Study, decide_by, read_study

BY_COLUMN = ("better_in", "gains_more")
"""Rules that name their columns themselves."""

ALONG = ("rising_along", "falling_along")
"""Rules about a course: its beginning counts, also where nothing had been learnt yet."""

ALONE = (*ALONG, "above", "below")
"""Rules that look at each row by itself, whatever seeds another one lacks."""


@dataclass(frozen=True)
class Claim:
    """One sentence of a paper, in our words.

    Attributes:
        claim: The sentence.
        place: Where the paper says so.
        entry: The table or figure that decides.
        rule: How it is decided.
        study: The study that decides where the entry has not been run.
    """

    claim: str
    place: str
    entry: str
    rule: Json
    study: Study | None = None

    @property
    def paper(self) -> str:
        """Which paper says so."""
        return self.entry.partition(".")[0]

    @property
    def kind(self) -> str:
        """The name of its rule."""
        return next(name for name in self.rule if name in RULES)

    @property
    def rows(self) -> list[str]:
        """The rows that its rule names."""
        return named(self.rule[self.kind])


@dataclass(frozen=True)
class Verdict:
    """What became of a claim.

    Attributes:
        claim: The claim.
        answer: Whether it holds.
        why: The numbers behind it in words, or what is missing.
        beside: What the claim's study says and its numbers, where there are any.
        by_study: Whether that is the answer, because the entry has not been run.
    """

    claim: Claim
    answer: Answer
    why: str
    beside: tuple[Answer, str] | None = None
    by_study: bool = False


@cache
def claims() -> tuple[Claim, ...]:
    """Read the claims; a rule, a row or a column that there is not is an error."""
    path = HOME / "claims.yaml"
    found = []
    for given in yaml.safe_load(path.read_text(encoding="utf-8")):
        study = given.pop("study", None)
        one = Claim(**given, study=read_study(path, study) if study else None)
        if one.entry not in entries():
            raise BadFile(path, None, f'there is no entry "{one.entry}".{nearest(one.entry, entries())}')
        kinds = [name for name in one.rule if name in RULES]
        if len(kinds) != 1:
            raise BadFile(path, None, f"a claim has one rule of {', '.join(RULES)}, not {list(one.rule)}.")
        entry = entries()[one.entry]
        for name in one.rows:
            entry.row(name)
        for column in _read(entry, one):
            if column not in [known.name for known in entry.columns]:
                raise BadFile(path, None, f'{one.entry} has no column "{column}".')
        found.append(one)
    return tuple(found)


def decide(results: str | Path, scale: str) -> list[Verdict]:
    """Decide every claim by the records of a scale; the studies lie in the folder above that of the records."""
    found = []
    for claim in claims():
        record = read_record(results, claim.entry, scale)
        verdict = Verdict(claim, "undecided", "not run") if record is None else _decided(claim, record)
        beside = decide_by(claim.study, Path(results).parent) if claim.study else None
        if beside is not None and not _was_run(claim, record):
            verdict = Verdict(claim, *beside, by_study=True)
        found.append(replace(verdict, beside=beside))
    return found


def read_record(folder: str | Path, entry: str, scale: str) -> Json | None:
    """Return the record of an entry, if there is one."""
    path = Path(folder) / scale / f"{entry}.json"
    return read_json(path) if path.exists() else None


def tests_asked(entry: Entry, record: Json) -> list[tuple[str, str, list[str]]]:
    """Return which rows claims want tested against each other, and over which columns: (row, other row, columns)."""
    found: list[tuple[str, str, list[str]]] = []
    for claim in claims():
        if claim.entry != entry.id:
            continue
        kept = _columns(entry, claim, record)[2]
        for one, other, column in pairs(claim.rule):
            names = [known.name for known in entry.columns if known.name in ([column] if column else kept)]
            if names and (one, other, names) not in found and (other, one, names) not in found:
                found.append((one, other, names))
    return found


def _was_run(claim: Claim, record: Json | None) -> bool:
    """Whether every row that the rule names has a cell; then the record decides, whatever it says."""
    rows = {row.name: row for row in rows_of(record)} if record is not None else {}
    return all(name in rows and any(value is not None for value in rows[name].ours) for name in claim.rows)


def _decided(claim: Claim, record: Json) -> Verdict:
    entry = entries()[claim.entry]
    read = _read(entry, claim)
    poor, uneven, kept = _columns(entry, claim, record)
    found = {row.name: row for row in rows_of(record)}
    places = {column.name: place for place, column in enumerate(entry.columns)}
    there = [column for column in read if any(found[row].ours[places[column]] is not None for row in claim.rows)]
    if poor and (set(there) <= set(poor) or claim.kind in BY_COLUMN):
        said = f"English does not certainly beat the most frequent class or a guess in {', '.join(poor)}"
        return Verdict(claim, "undecided", said)
    if uneven and (len(uneven) + len(poor) == len(read) or claim.kind in BY_COLUMN):
        return Verdict(
            claim, "undecided", f"some languages or seeds are missing in {', '.join(uneven)}, not of all rows"
        )
    if claim.kind not in BY_COLUMN:
        found = {name: _only(entry, row, kept) for name, row in found.items()}
    try:
        answer, why = RULES[claim.kind](entry, found, claim.rule)
    except Unknown as missing:
        return Verdict(claim, "undecided", str(missing))
    left_out = f" (without {', '.join(poor)}: not learnt)" if poor and claim.kind not in ALONG else ""
    left_out += f" (without {', '.join(uneven)}: some languages or seeds are missing)" if uneven else ""
    return Verdict(claim, answer, why + left_out)


def _columns(entry: Entry, claim: Claim, record: Json) -> tuple[list[str], list[str], list[str]]:
    """Sort the columns that a rule looks at: not learnt, not of the same languages and seeds, and the rest."""
    read = _read(entry, claim)
    rows = {row.name: row for row in rows_of(record)}
    base = [entry.english or entry.baseline]
    poor = [column for column in read if _unlearnt(entry, record, [*claim.rows, *base], column)]
    among = [] if claim.kind in ALONE else [column for column in read if column not in poor]
    uneven = [column for column in among if _uneven(entry, rows, claim.rows, column)]
    left = uneven if claim.kind in ALONG else [*poor, *uneven]
    return poor, uneven, [column for column in read if column not in left]


def _uneven(entry: Entry, found: Mapping[str, Compared], rows: Sequence[str], column: str) -> bool:
    """Whether means of these rows go over different languages or seeds: what lacks some of them says why."""
    place = [one.name for one in entry.columns].index(column)
    filled = [found[row] for row in rows if found[row].ours[place] is not None]
    reasons = {row.missing.get(column, "") for row in filled}
    lacking = ("without ", "failed")
    return len(reasons) > 1 and any(reason.startswith(lacking) or ": not defined" in reason for reason in reasons)


def _read(entry: Entry, claim: Claim) -> list[str]:
    """Return the columns that a rule looks at."""
    if claim.kind == "better_in":
        return list(cast("Json", claim.rule["better_in"]))
    if claim.kind == "gains_more":
        return cast("list[str]", claim.rule["columns"]) + cast("list[str]", claim.rule["than"])
    return cast("list[str]", claim.rule.get("columns")) or [one.name for one in entry.columns if not one.source]


def _only(entry: Entry, row: Compared, columns: Sequence[str]) -> Compared:
    """Return a row with some of its columns, in the entry's order.

    The mean and the test over all targets say nothing about some of them; one column alone has a test of its own.
    """
    places = [place for place, column in enumerate(entry.columns) if column.name in columns]
    names = [entry.columns[place].name for place in places]
    kept = replace(
        row,
        ours=[row.ours[place] for place in places],
        sd=[row.sd[place] for place in places],
        tests=[one for one in row.tests if one["columns"] == names],
    )
    if names == [one.name for one in entry.columns if not one.source]:
        return kept
    return replace(kept, mean=None, p_mean=row.p.get(columns[0]) if len(columns) == 1 else None)


def _unlearnt(entry: Entry, record: Json, rows: Sequence[str], column: str) -> bool:
    """Whether none of these rows has learnt the task of a column; of measurements nobody can say."""
    scores = cast("dict[str, dict[str, float]]", record.get("english") or {})
    task = next(one.task for one in entry.columns if one.name == column)
    floor = GUESS if task in ANSWERING else 0.0
    known = [scores[f"{row} / {column}"] for row in rows if f"{row} / {column}" in scores]
    return bool(known) and not any(one.get("low", one["english"]) > max(one["majority"], floor) for one in known)
