"""How to read the user's files: the options of `crosslift.load`, for every verb that takes data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any

from crosslift.cli.options import pairs

if TYPE_CHECKING:
    from crosslift.data.examples import Examples


@dataclass(frozen=True)
class FileOptions:
    """Needed only where a file does not speak for itself."""

    kind: str | None = field(default=None, metadata={"help": "classification, tagging, qa, text or bitext."})
    format: str | None = field(default=None, metadata={"help": "csv, tsv, jsonl, parquet, conll, squad, bitext, text."})
    columns: str | None = field(
        default=None, metadata={"help": "Our names for the file's: text=sentence,label=intent."}
    )
    labels: str | None = field(default=None, metadata={"help": "Other names for labels: neutrall=neutral."})
    quoting: str | None = field(
        default=None, metadata={"help": "none: quotation marks are text; csv: they wrap fields."}
    )
    skip_unknown: bool = field(default=False, metadata={"help": "Leave out rows with unknown or missing labels."})
    strict: bool = field(default=False, metadata={"help": "Stop instead of leaving anything out."})


def split_options(settings: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Part what is said about files from the rest."""
    own = {setting.name for setting in fields(FileOptions)}
    return {k: v for k, v in settings.items() if k in own}, {k: v for k, v in settings.items() if k not in own}


def read(data: str, language: str | None, split: str, reading: Mapping[str, Any]) -> Examples | str:
    """Load data as its options say; data that needs none is left to the verb."""
    from crosslift.data import load

    if not reading:
        return data
    return load(data, language=language, split=split, **load_options(reading))


def load_options(reading: Mapping[str, Any]) -> dict[str, Any]:
    """Return what was said about files as arguments of `crosslift.load`."""
    from crosslift.runs.settings import sort_settings

    (options,) = sort_settings([FileOptions], reading)
    for name in ("columns", "labels"):
        if name in options:
            options[name] = pairs(options[name].split(","), f"--{name}")
    return options
