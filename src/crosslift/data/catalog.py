"""Public data sets by name.

Files are looked for below a data folder: the argument `root`, else `$CROSSLIFT_DATA`, else `./data`. What is
not there is fetched from the Hugging Face hub where the set has a counterpart. The `demo-` sets are part of
crosslift.
"""

from __future__ import annotations

import importlib
import os
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import cast

from crosslift.data.columns import table_examples
from crosslift.data.draft import Reading
from crosslift.data.examples import Examples, Kind
from crosslift.data.files import find_file
from crosslift.data.hub import read_hub
from crosslift.data.public_sets import ALIASES, CATALOG, Dataset, Hub
from crosslift.data.table import Table
from crosslift.data.wordalign import GoldAlignment, read_gold
from crosslift.errors import BadInput, CrossliftError, nearest

__all__ = [
    "CATALOG",
    "Dataset",
    "Hub",
    "available",
    "find",
    "is_known",
    "languages_of",
    "load",
    "load_gold",
    "splits_of",
]

DATA_VARIABLE = "CROSSLIFT_DATA"
DEMO_PREFIX = "demo-"
_SPLIT_ALIASES = {"valid": "dev", "validation": "dev", "val": "dev"}


def is_known(name: str) -> bool:
    """Return whether the catalog has a set of this name."""
    return name in CATALOG or name in ALIASES


def find(name: str) -> Dataset:
    """Return the set of this name; a name that is not known is an error with the nearest one."""
    if not is_known(name):
        raise BadInput(
            f'The catalog has no set "{name}".{nearest(name, [*CATALOG, *ALIASES])}',
            f"It has {', '.join(CATALOG)}.",
        )
    return CATALOG[ALIASES.get(name, name)]


def load(
    name: str,
    language: str | None = None,
    split: str | None = None,
    root: str | Path | None = None,
    reading: Reading | None = None,
) -> Examples:
    """Load one language and split of a set.

    Args:
        name: A name of the catalog.
        language: ISO code ("de"), or the set's own ("deu_Latn", "de-DE"). For `bitext` it is the language
            beside English.
        split: "train", "dev", "test", or another that the set has.
        root: Data folder; by default `$CROSSLIFT_DATA`, then `./data`.
        reading: Further wishes: limit, strict, label mapping.
    """
    dataset = find(name)
    if dataset.name.startswith(DEMO_PREFIX):
        return _demo(dataset, language, split, reading or Reading())
    if dataset.read is None:
        raise BadInput(f"{dataset.name} holds gold alignments, not examples.", "Use load_gold(pair, split).")
    reading = _settled(dataset, reading or Reading())
    language = _language(dataset, language)
    split = _split(dataset, split)
    reading = replace(reading, language=language)
    path = _local(dataset, language, split, _root(root))
    local = dataset.read(path, reading) if path else None
    found = local or _from_hub(dataset, language, split, _root(root), reading)
    if dataset.finish is not None:
        found = dataset.finish(found)
    return replace(found, name=dataset.name)


def load_gold(pair: str, split: str = "test", root: str | Path | None = None) -> list[GoldAlignment]:
    """Load gold word alignments of a language pair, such as "en-fr" (source-target)."""
    dataset = CATALOG["wordalign"]
    pair, split = _language(dataset, pair), _split(dataset, split)
    path = _local(dataset, pair, split, _root(root))
    if path is None:
        raise _nowhere(dataset, pair, split, _root(root))
    return read_gold(path)


def available(root: str | Path | None = None) -> list[dict[str, str]]:
    """List every set: name, kind, languages, splits, and where it would be loaded from.

    `where` is the folder, the hub id, or "inside crosslift"; it is empty if the set is nowhere.
    """
    folder = _root(root)
    return [
        {
            "name": dataset.name,
            "kind": dataset.kind,
            "languages": " ".join(languages_of(dataset.name, root=root)),
            "splits": " ".join(splits_of(dataset.name, root=root)),
            "where": _where(dataset, folder),
        }
        for dataset in CATALOG.values()
    ]


def languages_of(name: str, split: str | None = None, root: str | Path | None = None) -> list[str]:
    """Return the languages of a set that can be loaded, in a split or in any."""
    dataset, folder = find(name), _root(root)
    if dataset.name.startswith(DEMO_PREFIX):
        demo = _demo_module()
        return [x for x in demo.languages(dataset.name) if not split or split in demo.splits(dataset.name, x)]
    splits = [_split(dataset, split)] if split else list(dataset.files)
    here = [code for code in dataset.languages if any(_local(dataset, code, s, folder) for s in splits)]
    return here or list(dataset.languages if dataset.hub else ())


def splits_of(name: str, language: str | None = None, root: str | Path | None = None) -> list[str]:
    """Return the splits of a set that can be loaded, in a language or in any."""
    dataset, folder = find(name), _root(root)
    if dataset.name.startswith(DEMO_PREFIX):
        return list(_demo_module().splits(dataset.name, language))
    languages = [_language(dataset, language)] if language else list(dataset.languages)
    here = [split for split in dataset.files if any(_local(dataset, code, split, folder) for code in languages)]
    return here or list(dataset.hub.splits if dataset.hub else ())


def _where(dataset: Dataset, folder: Path) -> str:
    if dataset.name.startswith(DEMO_PREFIX):
        return "inside crosslift"
    if any(_local(dataset, code, split, folder) for code in dataset.languages for split in dataset.files):
        return str(folder)
    return f"hub: {dataset.hub.id}" if dataset.hub else ""


def _settled(dataset: Dataset, reading: Reading) -> Reading:
    if reading.kind not in (None, dataset.kind):
        raise BadInput(f"{dataset.name} is a {dataset.kind} set, not {reading.kind}.")
    if reading.columns:
        raise BadInput(f"The columns of {dataset.name} are known.", "Leave out --columns.")
    return replace(
        reading,
        kind=cast("Kind", dataset.kind),
        columns=dataset.columns,
        allowed_labels=reading.allowed_labels or dataset.labels,
        placeholders=reading.placeholders or dataset.placeholders,
    )


def _language(dataset: Dataset, language: str | None) -> str:
    if language is None and len(dataset.languages) == 1:
        return next(iter(dataset.languages))
    known = ", ".join(dataset.languages)
    if language is None:
        raise BadInput(f"{dataset.name} has {len(dataset.languages)} languages: {known}.", "Say which one.")
    for code, own in dataset.languages.items():
        if language.casefold() in (code.casefold(), own.casefold()):
            return code
    choices = [*dataset.languages, *dataset.languages.values()]
    raise BadInput(f'{dataset.name} has no language "{language}".{nearest(language, choices)}', f"It has {known}.")


def _split(dataset: Dataset, split: str | None) -> str:
    if split is None and len(dataset.files) == 1:
        return next(iter(dataset.files))
    known = list(dict.fromkeys([*dataset.files, *(dataset.hub.splits if dataset.hub else ())]))
    if split is None:
        raise BadInput(f"{dataset.name} has several splits: {', '.join(known)}.", "Say which one.")
    split = _SPLIT_ALIASES.get(split, split)
    if split not in known:
        raise BadInput(f'{dataset.name} has no split "{split}".{nearest(split, known)}', f"It has {', '.join(known)}.")
    return split


def _root(root: str | Path | None) -> Path:
    if root is not None and not Path(root).is_dir():
        raise BadInput(f"There is no data folder {root}.")
    return Path(root or os.environ.get(DATA_VARIABLE) or "data")


def _local(dataset: Dataset, language: str, split: str, root: Path) -> Path | None:
    pattern = dataset.files.get(split)
    return find_file(root / pattern.format(code=dataset.languages[language])) if pattern else None


def _from_hub(dataset: Dataset, language: str, split: str, root: Path, reading: Reading) -> Examples:
    hub = dataset.hub
    if hub is None or split not in hub.splits:
        raise _nowhere(dataset, language, split, root)
    code = dataset.languages[language]
    try:
        table = read_hub(hub.id, hub.config.format(code=code) or None, hub.splits[split], hub.revision)
    except CrossliftError as error:
        raise _nowhere(dataset, language, split, root, error) from None
    if hub.id_prefix:
        table = _with_prefix(table, hub.id_prefix.format(code=code))
    return table_examples(table, replace(reading, columns=hub.columns))


def _with_prefix(table: Table, prefix: str) -> Table:
    rows = [row for row, id_ in enumerate(table.columns["id"]) if str(id_).startswith(prefix)]
    columns = {name: [values[row] for row in rows] for name, values in table.columns.items()}
    return Table(table.path, columns, [table.lines[row] for row in rows])


def _nowhere(
    dataset: Dataset, language: str, split: str, root: Path, hub_error: CrossliftError | None = None
) -> BadInput:
    here = [other for other in dataset.files if _local(dataset, language, other, root)]
    also = f" (there are {', '.join(here)})" if here else ""
    hub = f" {hub_error.seen}" if hub_error else ""
    return BadInput(
        f"{dataset.name} has no {split} split in {language} below {root}{also}.{hub}",
        f"Set {DATA_VARIABLE} to the folder that holds {next(iter(dataset.files.values())).split('/')[0]}/.",
    )


def _demo_module() -> ModuleType:
    # Loaded when it is asked for: the embedded corpus is built from examples, so it imports from here.
    return importlib.import_module("crosslift.demo")


def _demo(dataset: Dataset, language: str | None, split: str | None, reading: Reading) -> Examples:
    demo, name = _demo_module(), dataset.name
    if language is None or split is None:
        raise BadInput(f"Which language and split of {name}?", f"Languages: {', '.join(demo.languages(name))}.")
    if reading.labels:
        raise BadInput(f"The labels of {name} are fixed.", "Leave out --labels.")
    if split == "parallel":
        found = cast("Examples", demo.load_translations(name, language))
    else:
        _settled(dataset, reading)
        part = "train" if split == "unlabelled" else _SPLIT_ALIASES.get(split, split)
        found = cast("Examples", demo.load(name, language, part))
    if reading.limit is not None:
        found = found.select(range(min(reading.limit, len(found))))
    return found.unlabelled() if reading.unlabelled or split == "unlabelled" else found
