"""A grid of runs: read from a file, checked as a whole before anything runs, and written out as single runs.

    shared: {model: mini-x, data: demo-intent, seeds: [1, 2, 3]}
    fit:
      - {method: finetune, learning_rate: [1e-4, 3e-4]}
      - {method: ear, alpha: [0.5, 1]}
    evaluate: {languages: [en, de, sw]}

A list is an axis: every combination is a run. A setting that is a list itself is written as a list in a list.
"""

from __future__ import annotations

import glob
import hashlib
import inspect
import itertools
import json
import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, fields
from functools import cache
from pathlib import Path
from typing import Any

import yaml  # type: ignore[import-untyped]

from crosslift.data import languages_of
from crosslift.data.storage import Json
from crosslift.errors import BadFile, BadInput, nearest
from crosslift.runs.evaluate import evaluate
from crosslift.runs.evaluation_data import evaluation_name
from crosslift.runs.settings import Execution
from crosslift.runs.sweep_methods import NO_TASK, check, refuse_unknown

PARTS = ("out", "shared", "fit", "evaluate")
EVALUATE = tuple(
    name for name in inspect.signature(evaluate).parameters if name not in {"model", "out", "only_missing", "watch"}
)
OWN = ("seeds", "evaluate")
"""What a block of `fit` may have beside its axes; `evaluate` takes the place of the grid's for its runs."""
_FILES = ("data", "dev")
_LONGEST = 160


@dataclass(frozen=True)
class Planned:
    """One run of a sweep: what to fit with one seed, and what to evaluate it on.

    Attributes:
        group: Folder of the runs that differ in their seed alone.
        seed: The seed.
        fit: Arguments of `crosslift.fit`, without seed and folder.
        evaluations: Arguments of `crosslift.evaluate`, one mapping per data set, languages listed.
        names: Under which name each evaluation is found in `results.json`.
    """

    group: str
    seed: int
    fit: Json
    evaluations: Sequence[Json] = ()
    names: Sequence[str] = field(default=())

    @property
    def name(self) -> str:
        """The run's folder, below that of the sweep."""
        return f"{self.group}/seed-{self.seed}"

    def to_dict(self) -> Json:
        """Return everything as plain data."""
        return asdict(self)

    @classmethod
    def from_dict(cls, content: Mapping[str, Any]) -> Planned:
        """Return what `to_dict` gave."""
        return cls(**content)


def read_grid(path: str | Path) -> Json:
    """Read a grid file: YAML, TOML or JSON, by its ending."""
    path = Path(path)
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise BadFile(
            path, None, f"cannot be read: {error.strerror}.", "Name a grid file (.yaml, .toml, .json)."
        ) from None
    except UnicodeDecodeError as error:
        line = error.object.count(b"\n", 0, error.start) + 1
        raise BadFile(path, line, "is not UTF-8 text.", "Save the grid as UTF-8.") from None
    try:
        match path.suffix.lower():
            case ".yaml" | ".yml":
                content = yaml.load(text, _Loader)
            case ".toml":
                content = tomllib.loads(text)
            case ".json":
                content = json.loads(text, object_pairs_hook=_each_once)
            case _:
                raise BadFile(path, None, f'"{path.suffix}" is no grid format.', "Use .yaml, .toml or .json.")
    except (yaml.YAMLError, ValueError) as error:
        raise BadFile(
            path, _line(error), f"cannot be read: {_first_line(error)}.", "Mend it there; docs/sweep.md shows a grid."
        ) from None
    if not isinstance(content, dict):
        raise BadFile(path, None, "holds no grid.", f"It has the parts {', '.join(PARTS)}.")
    return content


@contextmanager
def naming(grid: str | Path) -> Iterator[None]:
    """Put the name of the grid file before what is wrong in it; other files are named already."""
    try:
        yield
    except BadFile:
        raise
    except BadInput as error:
        raise BadFile(grid, None, error.seen, error.remedy) from None


class _Loader(yaml.SafeLoader):  # type: ignore[misc]
    """YAML that refuses a name written twice in one block: the first would be lost without a word."""

    def compose_mapping_node(self, anchor: str | None) -> yaml.MappingNode:
        """Read one block; names that `<<` brings in are not there yet, and may be written over."""
        node = super().compose_mapping_node(anchor)
        seen = set()
        for key, _ in node.value:
            if isinstance(key, yaml.ScalarNode) and key.value in seen:
                said = f'"{key.value}" is there twice in one block'
                raise yaml.constructor.ConstructorError(None, None, said, key.start_mark)
            if isinstance(key, yaml.ScalarNode):
                seen.add(key.value)
        return node


def _each_once(pairs: list[tuple[str, object]]) -> Json:
    """Return a JSON object, or refuse a name that is there twice."""
    found: Json = {}
    for name, value in pairs:
        if name in found:
            raise ValueError(f'"{name}" is there twice in one block')
        found[name] = value
    return found


def _line(error: Exception) -> int | None:
    mark = getattr(error, "problem_mark", None)
    return mark.line + 1 if mark else getattr(error, "lineno", None)


def _first_line(error: Exception) -> str:
    said = getattr(error, "problem", None) or getattr(error, "msg", None) or str(error)
    return str(said).splitlines()[0].rstrip(".")


def plan(grid: Mapping[str, object], known: Iterable[str] = (), out: Path | None = None) -> list[Planned]:
    """Check a grid and write it out as runs, in the order of the file; nothing runs and nothing is written.

    Args:
        grid: What `read_grid` returned.
        known: Groups that are there already; a run that belongs to one keeps its name, whatever the grid adds.
        out: Folder of the sweep; runs that build on others of it keep their names when the folder moves.
    """
    refuse_unknown(grid, PARTS, "The grid")
    if not isinstance(grid.get("out") or "", str):
        raise BadInput(f"out in the grid is the name of a folder, not {grid['out']!r}.")
    shared = _mapping(grid.get("shared") or {}, "shared")
    blocks = [{**shared, **_mapping(block, "fit")} for block in _blocks(grid.get("fit", {}), "fit")]
    evaluations = [_mapping(block, "evaluate") for block in _blocks(grid.get("evaluate", []), "evaluate")]
    for block in evaluations:
        refuse_unknown(block, EVALUATE, "evaluate")
    kinds: dict[str, str] = {}
    there: dict[tuple[str, str], list[str]] = {}
    chosen: dict[str, tuple[Json, list[int], list[Json]]] = {}
    for block in blocks:
        axes = {name: value if isinstance(value, list) else [value] for name, value in block.items() if name not in OWN}
        for name, values in axes.items():
            if not values:
                raise BadInput(f"{name} in the grid is an empty list.", "Leave it out, or write at least one value.")
        seeds = _seeds(block.get("seeds", 1))
        scored_on = [_mapping(part, "evaluate") for part in _blocks(block.get("evaluate", evaluations), "evaluate")]
        for part in scored_on:
            refuse_unknown(part, EVALUATE, "evaluate")
        for choice in itertools.product(*axes.values()):
            one = check(dict(zip(axes, choice, strict=True)), kinds)
            _, all_seeds, all_parts = chosen.setdefault(_digest(one, out), (one, [], []))
            all_seeds.extend(seeds)
            all_parts += [part for part in scored_on if part not in all_parts]
    if not blocks or not chosen:
        raise BadInput("The grid has no runs.", "Write what to train under fit: method, model, data, seeds, settings.")
    named = {name.rpartition("-")[2]: name for name in known}
    runs = []
    for digest, (one, seeds, scored_on) in chosen.items():
        alike = [other for other, *_ in chosen.values() if other["method"] == one["method"]]
        group = named.get(digest) or _readable(one, alike, digest)
        scored = [_evaluation(evaluation, one, there) for evaluation in scored_on if one["method"] not in NO_TASK]
        if len({name for _, name in scored}) < len(scored):
            raise BadInput(f"evaluate in the grid has two blocks on {scored[0][1]}.", "Join them into one.")
        for seed in dict.fromkeys(seeds):
            runs.append(Planned(group, seed, one, [block for block, _ in scored], [name for _, name in scored]))
    return runs


def _mapping(block: object, part: str) -> Json:
    if not isinstance(block, dict):
        raise BadInput(f"{part} in the grid holds names and values, not {block!r}.")
    return block


def _blocks(part: object, name: str) -> list[object]:
    if part is None:
        raise BadInput(f"{name} in the grid is empty.", "Write a block of names and values under it.")
    if not isinstance(part, (dict, list)):
        raise BadInput(f"{name} in the grid is one block or a list of blocks, not {part!r}.")
    return list(part) if isinstance(part, list) else [part]


def _seeds(given: object) -> list[int]:
    """Read 3, [1, 2, 3] or "1-5"."""
    parts = given if isinstance(given, list) else [given]
    found: list[int] = []
    for part in parts:
        ends = str(part).split("-")
        if isinstance(part, bool) or len(ends) > 2 or not all(end.strip().isdecimal() for end in ends):
            raise BadInput(f"seeds are whole numbers such as [1, 2, 3] or 1-5, not {given!r}.")
        if int(ends[0]) > int(ends[-1]):
            raise BadInput(f"seeds {part} end before they begin.", "Write the lower one first, as in 1-5.")
        found += range(int(ends[0]), int(ends[-1]) + 1)
    if not found:
        raise BadInput("seeds in the grid is an empty list.", "Leave it out, or write at least one value.")
    return found


def _digest(chosen: Json, out: Path | None = None) -> str:
    """Return ten digits for what a run learns from: settings and the content of data files.

    How the machine is used changes nothing that is learned, so it does not count; neither does where the sweep lies.
    """
    execution = {setting.name for setting in fields(Execution)}
    digest = hashlib.blake2b(digest_size=5)
    content = {name: value for name, value in chosen.items() if name not in execution and value is not None}
    written = json.dumps(content, sort_keys=True, default=str)
    here = json.dumps(f"{out}/")[1:-1]  # as it is written within a text
    digest.update((written.replace(here, "./") if out else written).encode())
    for file in _files(list(chosen.values())):
        digest.update(_content(file, file.stat().st_mtime_ns))
    return digest.hexdigest()


@cache
def _content(file: Path, changed: int) -> bytes:
    """Return the digest of a file; `changed` is when it was last written, so that it is read once."""
    with file.open("rb") as opened:
        return hashlib.file_digest(opened, "blake2b").digest()


def _files(value: object) -> Iterator[Path]:
    """Yield the files that a value names, however deep."""
    if isinstance(value, (dict, list, tuple)):
        for part in value.values() if isinstance(value, dict) else value:
            yield from _files(part)
    elif isinstance(value, str) and len(value) < 4096 and "\0" not in value:
        before, several, after = Path(value).name.partition("{lang}")  # one file per language
        named = f"{glob.escape(before)}*{glob.escape(after)}"
        yield from filter(Path.is_file, sorted(Path(value).parent.glob(named)) if several else [Path(value)])


def _readable(chosen: Json, alike: Sequence[Json], digest: str) -> str:
    """Return a group's name: method, the settings in which the grid's groups of this method differ, digest."""
    parts = [str(chosen["method"])]
    for name, value in chosen.items():
        if all(other.get(name) == value for other in alike):
            continue
        if name in ("model", *_FILES):
            parts.append(Path(str(value)).name)
        else:
            parts.append(f"{name}={'+'.join(map(str, value)) if isinstance(value, tuple) else value}")
    words = "-".join(re.sub(r"[^\w.+=-]", "_", part)[:40] for part in parts)
    return f"{words[:_LONGEST]}-{digest}"  # file systems end names at 255


def _evaluation(block: Json, chosen: Json, known: dict[tuple[str, str], list[str]]) -> tuple[Json, str]:
    """Return the arguments of one evaluation with its languages listed, and the name of its results.

    `known` is filled with the languages of each data set that was looked at.
    """
    data, split = block.get("data") or chosen.get("data"), str(block.get("split") or "test")
    if not isinstance(data, str):
        raise BadInput(f"evaluate in the grid needs data for fit {chosen['method']}: a catalog name or a file.")
    if (data, split) not in known:
        known[data, split] = languages_of(data, split)
    there = known[data, split]
    languages = block.get("languages") or there
    if languages == "all":
        languages = there
    if isinstance(languages, str):
        languages = [part.strip() for part in languages.split(",")]
    if not isinstance(languages, list):
        raise BadInput(f"languages in the grid is a list such as [de, sw], not {languages!r}.")
    # YAML reads the code of Norwegian as the answer "no".
    languages = ["no" if language is False else str(language) for language in languages]
    if there != ["und"]:
        for language in languages:
            if language not in there:
                raise BadInput(
                    f'{data} ({split}) has no language "{language}".{nearest(language, there)}',
                    f"It has {', '.join(there)}.",
                )
    source = str(chosen.get("source") or "en")
    mix, variant = block.get("mix"), block.get("variant")
    name = evaluation_name(data, split, mix=str(mix) if mix else None, source=source)
    return {**block, "data": data, "split": split, "languages": languages}, f"{name}@{variant}" if variant else name
