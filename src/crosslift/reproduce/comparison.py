"""Ours beside the paper's: does a method help here as it helped there?

For every row the difference from its baseline row, in the paper and here, column by column; how far the two
differences lie apart; in how many columns they have one sign (only where the task was learnt at all: English beats the
most frequent class); Spearman's ρ between the paper's scores and ours over the columns; and a paired test of ours.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cache
from pathlib import Path
from statistics import fmean
from typing import Any, cast

from crosslift.data.storage import Json
from crosslift.errors import BadInput
from crosslift.measure.ranking import rank_correlations
from crosslift.measure.scores import SeedPairs
from crosslift.measure.scores import compare as compare_metrics
from crosslift.reproduce.collect import ANSWERING, Cell
from crosslift.reproduce.entries import NONE, Column, Entry, Number, Row
from crosslift.runs.predictions import read_predictions, rescore
from crosslift.tasks.metrics import Metric

Cells = Mapping[tuple[str, str], Cell]
TAGGING = ("ner", "slots-a", "slots-b")
PERMUTATIONS = 10_000
"""Of a mean over columns, by which claims are decided: at p = 0.05 the error of p is then 0.002."""


@dataclass(frozen=True)
class Compared:
    """One row of a table.

    Attributes:
        name: The row.
        paper: The paper's numbers, by column.
        ours: Our means over seeds.
        sd: Standard deviations over seeds.
        missing: Column -> why it is empty.
        baseline: Row that it is compared with; empty for the baseline itself.
        paper_difference: Row minus baseline in the paper.
        difference: The same here.
        of_differences: Ours minus the paper's difference.
        agree: Columns in which both differences have one sign.
        judged: Columns in which that can be said.
        unlearnt: Columns left out of it because English does not certainly beat the most frequent class.
        spearman: Correlation of the paper's scores with ours over target columns; `None` for fewer than three.
        p: Column -> p-value of our difference.
        mean: Our mean over target columns.
        mean_difference: Mean of our differences over target columns.
        paper_mean_difference: That of the paper over the same columns.
        p_mean: p-value of the mean over target columns, all languages tested together; `None` if there is no such test.
        tests: What claims ask for: `against` another row, over the mean of some `columns`: `p`, the 95% interval of the
            difference from `low` to `high`, and the difference with each of the `seeds`.
    """

    name: str
    paper: list[Number]
    ours: list[Number]
    sd: list[Number]
    missing: dict[str, str] = field(default_factory=dict)
    baseline: str = ""
    paper_difference: list[Number] = field(default_factory=list)
    difference: list[Number] = field(default_factory=list)
    of_differences: list[Number] = field(default_factory=list)
    agree: int = 0
    judged: int = 0
    unlearnt: int = 0
    spearman: float | None = None
    p: dict[str, float] = field(default_factory=dict)
    mean: float | None = None
    mean_difference: float | None = None
    paper_mean_difference: float | None = None
    p_mean: float | None = None
    tests: list[Json] = field(default_factory=list)

    def to_dict(self) -> Json:
        """Return everything as plain data, rounded; p-values less, so that none crosses 0.05."""
        found = cast("Json", _rounded(asdict(self)))
        found["p_mean"] = None if self.p_mean is None else round(self.p_mean, 6)
        for one, kept in zip(self.tests, cast("list[Json]", found["tests"]), strict=True):
            kept["p"] = round(float(cast("float", one["p"])), 6)
        return {name: value for name, value in found.items() if name != "tests" or value}

    def against(self, other: Compared) -> Tested | None:
        """Return what is known of the difference from another row: by a test of the two, or as its baseline."""
        for one in self.tests:
            if one["against"] == other.name:
                p, low, high = (float(cast("float", one[name])) for name in ("p", "low", "high"))
                return Tested(p, low, high, tuple(cast("list[float]", one["seeds"])))
        if self.baseline == other.name and self.p_mean is not None:
            return Tested(self.p_mean)
        return None


@dataclass(frozen=True)
class Tested:
    """A paired test of a difference: its p-value and, where they were kept, its 95% interval and what seeds say."""

    p: float
    low: float = -math.inf
    high: float = math.inf
    seeds: tuple[float, ...] = ()

    @property
    def reversed(self) -> Tested:
        """The same of the other row minus this one."""
        return Tested(self.p, -self.high, -self.low, tuple(-one for one in self.seeds))


def compare_entry(entry: Entry, cells: Cells) -> list[Compared]:
    """Return every row of an entry compared with its baseline and with the paper."""
    return [_row(entry, row, cells) for row in entry.rows]


def _row(entry: Entry, row: Row, cells: Cells) -> Compared:
    columns = entry.columns
    own = [cells[row.name, column.name] for column in columns]
    ours = [cell.mean for cell in own]
    missing = {column.name: cell.missing for column, cell in zip(columns, own, strict=True) if cell.missing}
    targets = [place for place, column in enumerate(columns) if not column.source]
    paper = list(row.paper)
    # Columns of several metrics have no mean, and those of several tasks no order.
    alike = len({_metric(columns[i]) for i in targets}) == 1
    one_task = alike and len({(columns[i].task, str(columns[i].evaluate)) for i in targets}) == 1
    found: dict[str, object] = {
        "spearman": spearman([paper[i] for i in targets], [ours[i] for i in targets]) if one_task else None,
        "mean": _mean([ours[i] for i in targets]) if alike else None,
    }
    base = row.baseline or entry.baseline
    if base not in ("", NONE, row.name):
        other = entry.row(base)
        rivals = [cells[base, column.name] for column in columns]
        theirs: list[Number] = paper if entry.paper_gains else _minus(paper, list(other.paper))
        here = [_difference(one, other) for one, other in zip(own, rivals, strict=True)]
        guard = [cells[entry.english or base, column.name] for column in columns]
        judged = [i for i in targets if theirs[i] not in (None, 0) and here[i] is not None]
        learnt = [i for i in judged if guard[i].learnt is not False]
        both = [i for i in targets if theirs[i] is not None and here[i] is not None]
        p, mean = _tests([columns[i].name for i in targets], [own[i] for i in targets], [rivals[i] for i in targets])
        found |= {
            "baseline": base,
            "paper_difference": theirs,
            "difference": here,
            "of_differences": _minus(here, theirs),
            "agree": sum(cast("float", theirs[i]) * cast("float", here[i]) > 0 for i in learnt),
            "judged": len(learnt),
            "unlearnt": len(judged) - len(learnt),
            "p": p,
            "p_mean": mean.p if mean else None,
            "mean_difference": _mean([here[i] for i in targets]) if alike else None,
            "paper_mean_difference": _mean([theirs[i] for i in both]) if alike else None,
        }
    return Compared(row.name, paper, ours, [cell.sd for cell in own], missing, **found)  # type: ignore[arg-type]


def _metric(column: Column) -> str:
    """Return what a column measures: its own metric, or that of its task."""
    return column.metric or ("answers" if column.task in ANSWERING else "tags" if column.task in TAGGING else "classes")


def rows_of(found: Json) -> list[Compared]:
    """Return the rows of a record."""
    return [Compared(**row) for row in cast("list[dict[str, Any]]", found["rows"])]


def paired_test(cells: Cells, one: str, other: str, columns: Sequence[str]) -> Tested | None:
    """Test the difference of two rows' means over some columns; `None` where nothing can be paired."""
    own, rivals = ([cells[row, name] for name in columns] for row in (one, other))
    _, found = _tests(columns, own, rivals)
    if found is None:
        return None
    filled = [(a.values, b.values) for a, b in zip(own, rivals, strict=True) if a.values and b.values]
    shared = sorted(set.intersection(*(a.keys() & b.keys() for a, b in filled)))
    return replace(found, seeds=tuple(fmean(a[seed] - b[seed] for a, b in filled) for seed in shared))


def spearman(paper: Sequence[Number], ours: Sequence[Number]) -> float | None:
    """Return the rank correlation over the columns that both have; `None` for fewer than three, or all equal."""
    both = {str(i): (p, o) for i, (p, o) in enumerate(zip(paper, ours, strict=True)) if p is not None and o is not None}
    if len(both) < 3:
        return None
    left, right = ({i: float(pair[side]) for i, pair in both.items()} for side in (0, 1))
    if len(set(left.values())) == 1 or len(set(right.values())) == 1:
        return None
    return rank_correlations(left, right)["spearman"]


def _tests(names: Sequence[str], own: Sequence[Cell], rivals: Sequence[Cell]) -> tuple[dict[str, float], Tested | None]:
    """Return the p-value of each column, and a test of the mean over all of them where they have one metric."""
    p: dict[str, float] = {}
    pairs: dict[str, SeedPairs] = {}
    ids: dict[str, list[str]] = {}
    for name, one, other in zip(names, own, rivals, strict=True):
        here = {}
        shared = sorted(one.files.keys() & other.files.keys())
        for language in dict.fromkeys(language for language, _ in shared):
            files = [(one.files[key], other.files[key]) for key in shared if key[0] == language]
            if all(a == b for a, b in files):
                continue  # one run fills both rows
            key = f"{name} {language}"
            here[key] = [(_scored(a)[0], _scored(b)[0]) for a, b in files]
            ids[key] = _scored(files[0][0])[1]
        try:
            if here:
                p[name] = compare_metrics(here, groups=ids).pooled.p_value
                pairs |= here
        except BadInput:  # not the same examples, or other labels: nothing to pair
            continue
    if not pairs or len(p) < len([cell for cell in own if cell.values]):
        return p, None
    try:
        pooled = compare_metrics(pairs, groups=ids, permutations=PERMUTATIONS).pooled
        return p, Tested(pooled.p_value, pooled.low, pooled.high)
    except BadInput:  # columns of several metrics have no mean
        return p, None


@cache
def _scored(file: Path) -> tuple[Metric, list[str]]:
    """Return the main metric of predictions and the ids of their examples; a baseline's are asked for by every row."""
    return next(iter(rescore(file).values())), list(read_predictions(file)[0].ids)


def _difference(one: Cell, other: Cell) -> Number:
    """Return how far two cells differ; `None` where one lacks languages or seeds of the other: it is another mean."""
    if one.mean is None or other.mean is None:
        return None
    parts = [(set(cell.languages), set(cell.values)) for cell in (one, other)]
    return None if (one.missing or other.missing) and parts[0] != parts[1] else one.mean - other.mean


def apart(entry: Entry, row: Compared) -> Number:
    """Return how far our differences lie from the paper's, over the target columns in which both are known."""
    if row.mean_difference is None:  # columns of several metrics have no mean
        return None
    targets = [place for place, column in enumerate(entry.columns) if not column.source]
    return _mean([row.of_differences[place] for place in targets])


def decimals(entry: Entry, row: Compared) -> list[int]:
    """Return with how many decimals each of our cells is shown: few for percentages, more for shares and cosines.

    It goes by the largest value of the row with the same metric, so that a row is shown alike.
    """
    largest: dict[str, float] = {}
    for column, value in zip(entry.columns, row.ours, strict=True):
        largest[column.metric] = max(largest.get(column.metric, 0.0), abs(value or 0.0))
    tops = [largest[column.metric] for column in entry.columns]
    return [1 if top >= 10 else 2 if top >= 1 else 3 for top in tops]


def _minus(one: Sequence[Number], other: Sequence[Number]) -> list[Number]:
    return [None if a is None or b is None else a - b for a, b in zip(one, other, strict=True)]


def _mean(values: Sequence[Number]) -> Number:
    there = [value for value in values if value is not None]
    return fmean(there) if there else None


def _rounded(value: object) -> object:
    if isinstance(value, dict):
        return {key: _rounded(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [_rounded(one) for one in value]
    if isinstance(value, float):
        return None if math.isnan(value) else round(value, 4)
    return value
