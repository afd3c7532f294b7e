"""The files of the tables and figures: read, checked, turned into plain objects."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

import yaml  # type: ignore[import-untyped]  # comes with transformers

from crosslift.data.storage import Json
from crosslift.errors import BadFile, BadInput, nearest

SCALES = ("smoke", "small", "paper")
HOME = Path(str(files("crosslift.reproduce")))
LOST = "lost"
"""Stands for a number that the text of the paper lost."""

NONE = "none"
"""As a row's baseline: it is compared with no other row."""

Number = float | None


@dataclass(frozen=True)
class Column:
    """One column of a table.

    Attributes:
        name: What the paper calls it.
        languages: Languages that its cells average over; a name that a row's `given` has stands for its language.
        task: Name of the task in tasks.yaml; default: the entry's.
        evaluate: Changes of the task's evaluation, such as `mix`.
        given: Names that runs may use in braces, such as `{student}`.
        source: Language that is no target: it stays out of means and tests.
        metric: Which score, where a column has another than the entry.
    """

    name: str
    languages: tuple[str, ...]
    task: str
    evaluate: Json = field(default_factory=dict)
    given: Json = field(default_factory=dict)
    source: bool = False
    metric: str = ""


@dataclass(frozen=True)
class Row:
    """One row of a table.

    Attributes:
        name: What the paper calls it.
        run: Name of a run of the paper's file; empty for a row that is only quoted.
        given: Names that the run may use in braces.
        paper: One number per column; `None` where the paper has none or the text lost it.
        encoder: Whose place the encoder takes (see paper.yaml, `encoders`); default: the one of `--model`.
        quoted: Why the paper itself did not run it, so that we do not either.
        planned: The option that the product lacks for it.
        needs: What else it needs: `translator`, `resources`, `encoder`.
        baseline: Row that it is compared with; default: the entry's; `none`: with no other.
        read: Where its cells are found in results: `results` (name) and `metric`.
        lost: Places of the numbers that the text lost.
        scales: At which scales it runs.
    """

    name: str
    run: str = ""
    given: Json = field(default_factory=dict)
    paper: tuple[Number, ...] = ()
    encoder: str = ""
    quoted: str = ""
    planned: str = ""
    needs: tuple[str, ...] = ()
    baseline: str = ""
    read: Json = field(default_factory=dict)
    lost: tuple[int, ...] = ()
    scales: tuple[str, ...] = SCALES


@dataclass(frozen=True)
class Entry:
    """One table or figure.

    Attributes:
        id: `paper.table1`.
        title: What it is about.
        place: Where it stands in the paper.
        shows: What it shows, in our words.
        columns: Its columns.
        rows: Its rows.
        metric: What its cells count.
        baseline: Row that the others are compared with.
        paper_gains: Whether the paper prints differences from the baseline.
        lower_is_better: Whether a lower number is a better one.
        english: Row whose English score says whether the task was learnt at all; default: the baseline.
        departures: How we differ from the paper, by scale; `all` for every scale.
        lost: What the text of the paper lost.
        notes: Errors of the paper and traps.
        chart: How the paper draws it: `lines`, `dots`, `heat`, `scatter`, `histogram`, `words`; empty: a table.
        panels: Ends of row names, each a panel of the figure; the rest of the name is a line or row of it.
        axis: What the figure's horizontal axis counts; of a heat map, how it is read.
        drops: Whether the figure shows what each row loses against its baseline, in the place of scores.
        planned: What the product lacks for the whole of it.
        substitute: Which data stands for data that cannot be had.
        average: What the paper's average column was taken over: `all`, `targets`, or empty where it has none.
        printed: Row -> the average that the paper prints.
        given: Names that all of its runs may use in braces.
    """

    id: str
    title: str
    place: str
    shows: str
    columns: tuple[Column, ...]
    rows: tuple[Row, ...]
    metric: str = "accuracy"
    baseline: str = ""
    paper_gains: bool = False
    lower_is_better: bool = False
    english: str = ""
    departures: Json = field(default_factory=dict)
    lost: str = ""
    notes: tuple[str, ...] = ()
    chart: str = ""
    panels: tuple[str, ...] = ()
    axis: str = ""
    drops: bool = False
    planned: str = ""
    substitute: str = ""
    average: str = ""
    printed: Json = field(default_factory=dict)
    given: Json = field(default_factory=dict)

    @property
    def paper(self) -> str:
        """Which paper it belongs to."""
        return self.id.partition(".")[0]

    def row(self, name: str) -> Row:
        """Return a row by its name."""
        for row in self.rows:
            if row.name == name:
                return row
        raise BadInput(f'{self.id} has no row "{name}".{nearest(name, [row.name for row in self.rows])}')


@dataclass(frozen=True)
class Paper:
    """One paper.

    Attributes:
        name: How we call it.
        title: Its title.
        citation: Who, where, when.
        seeds: Seeds at the paper's own scale.
        small_seeds: Seeds at scale small, where three would take too long.
        runs: Name -> what is run: arguments and settings of a sweep's `fit`. Before them come the settings of the
            column's task, or of the one that `task` names, unless `bare`; after them the changes of `at` this scale.
            `@name` stands for the folder of another run, `english: false` says that scoring in English means
            nothing, `cost` is how many times longer it takes than the task's plain run.
        tasks: Task -> settings at the paper's own scale, where they are not those of tasks.yaml.
        encoders: Place of an encoder (xlm-r, mbert, …) -> scale -> model; `null` = none at that scale.
        given: Names that runs may use in braces where neither row, column nor entry has them.
    """

    name: str
    title: str
    citation: str
    seeds: tuple[int, ...]
    runs: Mapping[str, Json]
    tasks: Mapping[str, Json] = field(default_factory=dict)
    encoders: Mapping[str, Json] = field(default_factory=dict)
    given: Mapping[str, Any] = field(default_factory=dict)
    small_seeds: tuple[int, ...] = (1, 2, 3)


def papers() -> list[str]:
    """Return the names of the papers, in the order in which they are shown."""
    return ["ear", "adjustment", "plugin-x", "igap", "freetransfer-x"]


@cache
def paper(name: str) -> Paper:
    """Read what the tables of a paper share."""
    path = HOME / "entries" / name / "paper.yaml"
    content = _read(path)
    _refuse(path, content, [one.name for one in fields(Paper)])
    small = tuple(content.get("small_seeds", (1, 2, 3)))
    return Paper(**{**content, "seeds": tuple(content["seeds"]), "small_seeds": small})


@cache
def tasks() -> Mapping[str, Mapping[str, Any]]:
    """Read the tasks: name -> scale -> `fit` and `evaluate` settings, seconds that a run takes."""
    found: Mapping[str, Mapping[str, Any]] = _read(HOME / "tasks.yaml")
    return found


@cache
def entries() -> Mapping[str, Entry]:
    """Read every entry: id -> entry, paper by paper, tables before figures."""
    found = {}
    for name in papers():
        for path in sorted((HOME / "entries" / name).glob("*.yaml"), key=_order):
            if path.stem != "paper":
                entry = read_entry(path, name)
                found[entry.id] = entry
    return found


def find(name: str) -> list[Entry]:
    """Return the entry of this id, or all of a paper."""
    known = entries()
    if name in known:
        return [known[name]]
    if name in papers():
        return [entry for entry in known.values() if entry.paper == name]
    raise BadInput(f'There is no table or figure "{name}".{nearest(name, [*known, *papers()])}', "See --list.")


def read_entry(path: Path, paper_name: str) -> Entry:
    """Read one file; a name that nobody knows, or numbers that do not fill the columns, are errors."""
    content = dict(_read(path))
    _refuse(path, content, [one.name for one in fields(Entry) if one.name != "id"] + ["task"])
    task = str(content.pop("task", ""))
    columns = tuple(_column(path, one, task) for one in content.pop("columns"))
    rows = tuple(_row(path, one, len(columns)) for one in content.pop("rows"))
    content["notes"] = tuple(content.get("notes", ()))
    content["panels"] = tuple(content.get("panels", ()))
    departures = content.get("departures", {})
    content["departures"] = departures if isinstance(departures, dict) else {"all": departures}
    entry = Entry(id=f"{paper_name}.{path.stem}", columns=columns, rows=rows, **content)
    names = [row.name for row in rows]
    for named in (entry.baseline, entry.english, *(row.baseline for row in rows), *entry.printed):
        if named and named != NONE and named not in names:
            raise BadFile(path, None, f'there is no row "{named}".{nearest(named, names)}')
    if len(set(names)) < len(names):
        raise BadFile(path, None, "two rows have one name.")
    for name in names if entry.panels else ():
        if not any(name.endswith(f" {panel}") for panel in entry.panels):
            raise BadFile(path, None, f'the row "{name}" is in none of the panels {", ".join(entry.panels)}.')
    return entry


def _column(path: Path, given: object, task: str) -> Column:
    if isinstance(given, str):
        return Column(given, (given,), task, source=given == "en")
    if not isinstance(given, dict):
        raise BadFile(path, None, f"a column is a language or has a name, not {given!r}.")
    _refuse(path, given, [one.name for one in fields(Column)])
    content = {"task": task, **given}
    content["languages"] = tuple(content.get("languages") or (content["name"],))
    return Column(**content)


def _row(path: Path, given: object, columns: int) -> Row:
    if not isinstance(given, dict):
        raise BadFile(path, None, f"a row has a name and a run, not {given!r}.")
    _refuse(path, given, [one.name for one in fields(Row)])
    content = dict(given)
    numbers = content.get("paper") or [None] * columns
    if len(numbers) != columns:
        raise BadFile(path, None, f"{content['name']} has {len(numbers)} numbers for {columns} columns.")
    content["paper"] = tuple(None if number == LOST else number for number in numbers)
    content["lost"] = tuple(place for place, number in enumerate(numbers) if number == LOST)
    content["needs"] = tuple(content.get("needs", ()))
    content["scales"] = tuple(content.get("scales", SCALES))
    row = Row(**content)
    if sum(map(bool, (row.run, row.quoted, row.planned))) != 1:
        raise BadFile(path, None, f"{row.name} has either a run, or why it is only quoted, or what is missing for it.")
    return row


def _read(path: Path) -> Any:  # noqa: ANN401  whatever the file holds
    try:
        return yaml.safe_load(path.read_text(encoding="utf-8"))
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        raise BadFile(
            path, mark.line + 1 if mark else None, f"cannot be read: {getattr(error, 'problem', '')}."
        ) from None


def _refuse(path: Path, content: Mapping[str, object], known: Sequence[str]) -> None:
    for name in content:
        if name not in known:
            raise BadFile(path, None, f'there is no "{name}" here.{nearest(str(name), known)}')


def _order(path: Path) -> tuple[bool, bool, int]:
    """Tables by number, then appendix tables, then figures."""
    digits = "".join(letter for letter in path.stem if letter.isdigit())
    return "figure" in path.stem, "table-a" in path.stem, int(digits or 0)
