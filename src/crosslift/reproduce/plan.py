"""Tables as runs: every cell is traced to the run that fills it, and runs that several cells share are one.

Nothing is trained or written here. A step is one run with one seed; what it builds on are other steps. Two steps with
equal settings are one step, whichever tables ask for them, and are scored in the languages that either asks for.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, cast

from crosslift.data.catalog import DATA_VARIABLE, is_known
from crosslift.data.storage import Json
from crosslift.errors import BadInput, nearest
from crosslift.reproduce.entries import HOME, SCALES, Column, Entry, Row, paper, tasks

MAIN = "main"
"""The encoder of `--model`; other places have names of their own."""
FEW = 1
"""Languages that a mean goes over at scale smoke."""
SOME = 3
"""Columns of a row that are filled at scale smoke."""
NEEDS = {
    "translator": "a translator: --translator NAME",
    "resources": "plain text and dictionaries (text-, synonyms- and lexicon-LANGUAGE files): --resources FOLDER",
    "mono": "a monolingual model: --model mono=FOLDER",
}
Languages = Callable[[str, str], list[str] | None]
"""(data, split) -> the languages that are there; `None`: nobody looked."""


class Absent(Exception):
    """A cell cannot be filled at this scale; its text says why."""


@dataclass
class Step:
    """One run with one seed.

    Attributes:
        key: What tells it from others.
        seed: Its seed.
        config: Arguments of a sweep's `fit`; `@KEY` stands for the folder of another step.
        evaluations: Name of the evaluation -> its arguments, languages in the order they were asked for.
        seconds: What it costs, as tasks.yaml estimates.
        needs: Keys of the steps it builds on.
        tables: Entries that it serves.
    """

    key: str
    seed: int
    config: Json
    evaluations: dict[str, Json] = field(default_factory=dict)
    seconds: float = 0.0
    needs: list[str] = field(default_factory=list)
    tables: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Source:
    """Where one value of a cell comes from.

    Attributes:
        step: Key of the step.
        seed: Its seed.
        language: Language (or target) that is read.
        results: Name of the evaluation or measurement.
        metric: Which score; empty: the main one.
        english: Whether an English score lies beside it.
        against: For rankings, the step whose scores are the gold order.
        gold: Which score of it.
    """

    step: str
    seed: int
    language: str
    results: str
    metric: str = ""
    english: bool = False
    against: str = ""
    gold: str = ""


@dataclass
class Plan:
    """What a set of entries needs at a scale.

    Attributes:
        scale: `smoke`, `small` or `paper`.
        entries: The entries.
        steps: Key -> step, every step after those it builds on.
        cells: (entry, row, column) -> where its values come from.
        absent: (entry, row, column) -> why it stays empty.
        partly: (entry, row, column) -> which languages its mean goes without, and why.
        models: Place -> encoder.
    """

    scale: str
    entries: list[Entry]
    models: Mapping[str, str]
    steps: dict[str, Step] = field(default_factory=dict)
    cells: dict[tuple[str, str, str], list[Source]] = field(default_factory=dict)
    absent: dict[tuple[str, str, str], str] = field(default_factory=dict)
    partly: dict[tuple[str, str, str], str] = field(default_factory=dict)

    @property
    def seconds(self) -> float:
        """What all steps cost, one after another."""
        return sum(step.seconds for step in self.steps.values())


@dataclass(frozen=True)
class Choice:
    """What the user chose.

    Attributes:
        scale: `smoke`, `small` or `paper`.
        models: Place -> model; `main` is the one of `--model`.
        translator: Name of a translator.
        resources: Folder of plain text and dictionaries.
        seeds: In place of the scale's.
    """

    scale: str = "small"
    models: Mapping[str, str] = field(default_factory=dict)
    translator: str | None = None
    resources: str | None = None
    seeds: tuple[int, ...] | None = None

    def __post_init__(self) -> None:
        if self.scale not in SCALES:
            raise BadInput(
                f'There is no scale "{self.scale}".{nearest(self.scale, SCALES)}',
                f"It is {', '.join(SCALES[:-1])} or {SCALES[-1]}.",
            )

    def translator_for(self) -> str | None:
        """Return the translator: the one that was named, else dictionaries where there are some."""
        if self.translator or self.scale == "paper":
            return self.translator
        if self.scale == "smoke":
            return f"dictionary:{HOME / 'smoke-synonyms.tsv'}"
        return f"dictionary:{self.resources}/lexicon-{{lang}}.tsv.xz" if self.resources else None


def make_plan(chosen: Iterable[Entry], choice: Choice, languages: Languages = lambda data, split: None) -> Plan:
    """Write entries out as steps.

    Args:
        chosen: Entries.
        choice: Scale, encoders and what else the user has.
        languages: Which languages a set has; what it lacks stays empty in the table, with the reason.
    """
    plan = Plan(choice.scale, list(chosen), dict(choice.models))
    for entry in plan.entries:
        for row in entry.rows:
            filled = 0
            for column in entry.columns:
                key = (entry.id, row.name, column.name)
                try:
                    if choice.scale == "smoke" and filled == SOME:
                        raise Absent(f"smoke fills {SOME} columns")
                    plan.cells[key] = _cell(plan, entry, row, column, choice, languages)
                    filled += 1
                except Absent as reason:
                    plan.absent[key] = str(reason)
    _drop_unused(plan)
    return plan


def _drop_unused(plan: Plan) -> None:
    """Leave out steps that only absent cells would have built on."""
    wanted = [one for sources in plan.cells.values() for source in sources for one in (source.step, source.against)]
    used: set[str] = set()
    while wanted:
        one = wanted.pop()
        if one and one not in used:
            used.add(one)
            wanted += plan.steps[one].needs
    plan.steps = {key: step for key, step in plan.steps.items() if key in used}


def _cell(plan: Plan, entry: Entry, row: Row, column: Column, choice: Choice, languages: Languages) -> list[Source]:
    if row.quoted:
        raise Absent(f"quoted: {row.quoted}")
    if row.planned or entry.planned:
        raise Absent(f"planned: {row.planned or entry.planned}")
    if choice.scale not in row.scales:
        raise Absent(f"not at scale {choice.scale}")
    place = entry.columns.index(column)
    some = row.lost or any(number is not None for number in row.paper)
    if some and row.paper[place] is None and place not in row.lost:
        raise Absent("the paper has no such cell")
    own = paper(entry.paper)
    seeds = choice.seeds or {"smoke": (1,), "small": own.small_seeds, "paper": own.seeds}[choice.scale]
    found: list[Source] = []
    reasons: dict[str, str] = {}
    # A row may say itself which language a column means (`target`).
    for language in (str(row.given.get(language, language)) for language in column.languages):
        try:
            found += [_Run(plan, entry, row, column, language, seed, choice, languages).source() for seed in seeds]
        except Absent as reason:
            reasons[language] = str(reason)
        if choice.scale == "smoke" and len({source.language for source in found}) == FEW:
            break
    if not found:
        raise Absent(next(iter(reasons.values())))
    if reasons:
        plan.partly[entry.id, row.name, column.name] = f"without {', '.join(reasons)}: {next(iter(reasons.values()))}"
    return found


@dataclass(frozen=True)
class _Run:
    """One cell's run in one language with one seed, being written out."""

    plan: Plan
    entry: Entry
    row: Row
    column: Column
    language: str
    seed: int
    choice: Choice
    languages: Languages

    def source(self) -> Source:
        read = cast("Json", self._filled(dict(self.row.read)))
        run = self._run(self.row.run)
        evaluation = {} if read else self._evaluation(str(run.get("task", self.column.task)))
        step = self.step(self.row.run)
        if read:
            against = self.step(str(read["against"])).key if "against" in read else ""
            metric = self.column.metric or str(read.get("metric", ""))
            if "targets" in step.config and not against and self.language not in _targets(step.config):
                raise Absent(f"{self.language} is not in {step.config.get('data', 'the data')}")
            return Source(
                step.key, self.seed, self.language, str(read["results"]), metric, against=against,
                gold=str(read.get("gold", "")),
            )  # fmt: skip
        name = json.dumps({k: v for k, v in evaluation.items() if k != "languages"}, sort_keys=True)
        kept = step.evaluations.setdefault(name, {**evaluation, "languages": []})
        english = bool(run.get("english", True)) and "en" in (self._there(evaluation) or ["en"])
        wanted = cast("list[str]", kept["languages"])
        wanted += [x for x in dict.fromkeys([self.language, *(["en"] if english else [])]) if x not in wanted]
        return Source(step.key, self.seed, self.language, name, self.column.metric, english=english)

    def step(self, name: str) -> Step:
        """Return the step of a run, made or found."""
        run = self._run(name)
        task = str(run.pop("task", self.column.task))
        run.pop("english", None)
        cost = float(cast("float", run.pop("cost", 1)))
        bare = bool(run.pop("bare", False))
        changes = cast("dict[str, Json]", run.pop("at", {})).get(self.choice.scale) or {}
        at = self._task(task)
        learnt = {} if bare else {**cast("Json", at.get("fit") or {}), **self._own(task)}
        settings = {**learnt, **run, **changes}
        needs: list[str] = []
        config = cast("Json", self._filled({k: v for k, v in settings.items() if v is not None}, needs))
        if {"targets", "source"} <= config.keys() and str(config["source"]) not in _targets(config)[:-1]:
            raise Absent(f"{config['source']} is not in {config.get('data', 'the data')}")
        self._check_pairs(config)
        written = json.dumps([config, self.seed], sort_keys=True, ensure_ascii=False)
        key = hashlib.blake2b(written.encode(), digest_size=8).hexdigest()
        step = self.plan.steps.get(key)
        if step is None:
            seconds = cost * float(cast("float", at.get("seconds", 5)))
            step = self.plan.steps[key] = Step(key, self.seed, config, {}, seconds, list(dict.fromkeys(needs)))
        if self.entry.id not in step.tables:
            step.tables.append(self.entry.id)
        return step

    def _check_pairs(self, config: Json) -> None:
        """Stop where a set that is named has no sentence pairs of a language."""
        for name in ("bitext", "with_adjustment"):
            for language, data in cast("dict[str, str]", config.get(name) or {}).items():
                known = data.partition("/")[0]
                there = self.languages(known, "train") if is_known(known) else None
                if there is not None and language not in there:
                    raise Absent(f"{known} has no sentence pairs of {language}")

    def _run(self, name: str) -> Json:
        runs = paper(self.entry.paper).runs
        if name not in runs:
            raise BadInput(f'{self.entry.id}: there is no run "{name}".{nearest(name, runs)}')
        return dict(runs[name])

    def _task(self, name: str) -> Json:
        if name == "none":
            return {}
        if name not in tasks():
            raise BadInput(f'{self.entry.id}: there is no task "{name}".{nearest(name, tasks())}')
        at = tasks()[name].get(self.choice.scale)
        if at is None:
            raise Absent(str(tasks()[name].get("absent", f"{name} is not at scale {self.choice.scale}")))
        return dict(at)

    def _own(self, task: str) -> Json:
        """Return the paper's own settings of a task, at its own scale."""
        return dict(paper(self.entry.paper).tasks.get(task) or {}) if self.choice.scale == "paper" else {}

    def _evaluation(self, task: str) -> Json:
        given = {**cast("Json", self._task(task).get("evaluate") or {}), **self.column.evaluate}
        evaluation = cast("Json", self._filled(given))
        there = self._there(evaluation)
        if there is not None and self.language not in there:
            raise Absent(f"{evaluation['data']} has no {self.language}")
        return evaluation

    def _there(self, evaluation: Json) -> list[str] | None:
        return self.languages(str(evaluation["data"]), str(evaluation.get("split") or "test"))

    def _filled(self, value: object, needs: list[str] | None = None) -> object:
        """Fill in names in braces, and `@name` by the key of that run's step."""
        if isinstance(value, dict):
            return {str(self._filled(k)): self._filled(v, needs) for k, v in value.items()}
        if isinstance(value, list):
            return [self._filled(one, needs) for one in value]
        if not isinstance(value, str):
            return value
        whole = re.fullmatch(r"\{([\w-]+)\}", value)
        if whole:
            return self._filled(self._value(whole[1]), needs)
        filled = re.sub(r"\{([\w-]+)\}", lambda found: str(self._value(found[1])), value)
        if filled.startswith("@"):
            name, slash, rest = filled[1:].partition("/")
            key = self.step(name).key
            if needs is not None:
                needs.append(key)
            return f"@{key}{slash}{rest}"
        return filled

    def _value(self, name: str) -> Any:  # noqa: ANN401  whatever the entry says
        if name == "lang":
            return self.language
        if name in self.row.given:
            return self.row.given[name]
        if name in self.column.given:
            return self.column.given[name]
        if name == "to":  # what an encoder is adjusted to, where that is not the language it is scored in
            return self.language
        at = tasks().get(self.column.task, {}).get(self.choice.scale) or {}
        shared = {**paper(self.entry.paper).given, **at.get("given", {}), **self.entry.given}
        if name in shared:
            return shared[name]
        if name == "model":
            return self._encoder(self.row.encoder or MAIN)
        if name == "home":
            return str(HOME)
        if name == "data-folder":
            return os.environ.get(DATA_VARIABLE) or "data"
        if name in ("translator", "resources"):
            found = self.choice.translator_for() if name == "translator" else self.choice.resources
            if found is None:
                raise Absent(f"needs {NEEDS[name]}")
            return found
        return self._encoder(name)

    def _encoder(self, place: str) -> str:
        if place in self.choice.models:
            return self.choice.models[place]
        known = paper(self.entry.paper).encoders
        if place not in known and place != MAIN:
            raise BadInput(f'{self.entry.id}: nothing is called "{{{place}}}".{nearest(place, known)}')
        at = known.get(place, {})
        found = at.get(self.choice.scale) or (at.get("small") if self.choice.scale == "smoke" else None)
        if self.choice.scale == "smoke" and place not in ("mono",):
            found = self.choice.models.get(MAIN) or found or known[MAIN]["small"]
        if found is None:
            raise Absent(f"needs another encoder, in the place of {place}: --model {place}=FOLDER")
        return str(found)


def _targets(config: Json) -> list[str]:
    return [str(x) for x in cast("list[object]", config["targets"])] + [str(config.get("source", "en"))]
