"""One door for all data: a file, a name from the catalog, or a hub id."""

from __future__ import annotations

import glob
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import get_args

from crosslift.data import catalog
from crosslift.data.bitext import read_bitext
from crosslift.data.columns import table_examples
from crosslift.data.conll import read_conll
from crosslift.data.draft import UNKNOWN_LANGUAGE, Reading
from crosslift.data.examples import KINDS, Examples, Kind
from crosslift.data.files import format_suffix, read_lines
from crosslift.data.hub import read_hub
from crosslift.data.plain import read_plain
from crosslift.data.squad import read_squad
from crosslift.data.table import NAMES, Quoting, Table, read_delimited, read_jsonl, read_parquet
from crosslift.errors import BadFile, BadInput, nearest

FORMATS = ("csv", "tsv", "jsonl", "parquet", "conll", "squad", "bitext", "text")

_SUFFIXES = {
    ".csv": "csv",
    ".tsv": "tsv",
    ".tab": "tsv",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".json": "squad",
    ".parquet": "parquet",
    ".conll": "conll",
    ".conllu": "conll",
    ".bio": "conll",
    ".iob": "conll",
    ".txt": "text",
    ".tmx": "bitext",
}
_HUB_ID = re.compile(r"[\w.-]+/[\w.-]+", re.ASCII)


def load(
    path_or_name: str | Path | Sequence[str | Path],
    *,
    kind: Kind | None = None,
    language: str | None = None,
    split: str | None = None,
    columns: Mapping[str, str | int] | None = None,
    format: str | None = None,
    labels: Mapping[str, str] | None = None,
    header: bool | None = None,
    quoting: Quoting | None = None,
    strict: bool = False,
    skip_unknown: bool = False,
    allowed_labels: Sequence[str] | None = None,
    placeholders: Sequence[str] = (),
    unlabelled: bool = False,
    limit: int | None = None,
    pair_language: str | None = None,
    root: str | Path | None = None,
    config: str | None = None,
    revision: str | None = None,
) -> Examples:
    """Load examples of one language.

    Args:
        path_or_name: A file (plain, `.gz` or `.xz`), two files with a sentence a line each, a name from the
            catalog (`xnli`), or a hub id (`owner/name`).
        kind: The kind of task; by default what the file looks like.
        language: Which language to take from a file that holds several, or what to call the only one.
        split: Split of a catalog or hub set; a file is taken whole.
        columns: Our name of a column (id, text, pair, label, language, parallel_id, group, words, tags, annotated,
            answers) -> the file's name, or its number from 1 where there is no header.
        format: One of csv, tsv, jsonl, parquet, conll, squad, bitext, text; by default from the file's name.
        labels: Label in the file -> label to use instead.
        header: Whether the first line of a table names its columns; by default it is looked at.
        quoting: "none": quotation marks are text (default for TSV); "csv": they wrap fields (for CSV).
        strict: Refuse what would otherwise be left out and counted in `skipped`.
        skip_unknown: Leave out rows whose label is missing or not allowed.
        allowed_labels: The labels that may occur, after mapping.
        placeholders: Texts that mean "no sentence", left out and counted (`NS` in PAWS-X).
        unlabelled: Do not look at labels: for data to predict.
        limit: Stop after this many examples.
        pair_language: Language of the second side of sentence pairs.
        root: Folder of the catalog's files; by default `$CROSSLIFT_DATA`, then `./data`.
        config: Configuration of a hub set.
        revision: Revision of a hub set.

    Raises:
        BadFile: With the file, the line, what is wrong there and what to do.
        BadInput: A name or an option that cannot work.
    """
    _check(kind, format, quoting, limit)
    reading = Reading(
        kind=kind,
        language=language,
        columns=dict(columns or {}),
        labels=dict(labels or {}),
        allowed_labels=tuple(allowed_labels or ()),
        skip_unknown=skip_unknown,
        strict=strict,
        limit=limit,
        placeholders=tuple(placeholders),
        pair_language=pair_language,
        unlabelled=unlabelled,
    )
    if not isinstance(path_or_name, str | Path):
        return _bitext(path_or_name, reading)
    name = str(path_or_name)
    path = Path(path_or_name)
    if _is(Path.is_file, path):
        return _read_file(path, reading, format, header, quoting)
    if isinstance(path_or_name, str) and catalog.is_known(name):
        return catalog.load(name, language, split, root=root, reading=reading)
    if _is(Path.is_dir, path):
        raise BadFile(path, None, "is a folder, not a file.", "Name a file in it.")
    if isinstance(path_or_name, str) and _HUB_ID.fullmatch(name) and format_suffix(path) not in _SUFFIXES:
        table = read_hub(name, config, split or "train", revision)
        return table_examples(table, reading)
    if "/" in name or isinstance(path_or_name, Path) or format_suffix(path) in _SUFFIXES:
        read_lines(path)  # says that it is missing, and what is there instead
    known = sorted(catalog.CATALOG)
    raise BadInput(
        f'"{name}" is neither a file, nor a set of the catalog, nor a hub id.{nearest(name, known)}',
        f"The catalog has {', '.join(known)}.",
    )


def languages_of(path_or_name: str | Path, split: str | None = None, root: str | Path | None = None) -> list[str]:
    """Return the languages of a catalog set or a file, in order.

    A file without a column for the language has one that is not known ("und"). A path with `{lang}` in its
    name stands for one file per language.
    """
    name = str(path_or_name)
    if "{lang}" not in Path(name).name:
        known = catalog.is_known(name) and not _is(Path.is_file, Path(name))
        return catalog.languages_of(name, split, root) if known else _languages_in(Path(name))
    before, _, after = Path(name).name.partition("{lang}")
    files = sorted(Path(name).parent.glob(f"{glob.escape(before)}*{glob.escape(after)}"))
    if not files:
        raise BadFile(name, None, "no file fits this name.")
    return [file.name.removeprefix(before).removesuffix(after) for file in files]


def splits_of(path_or_name: str | Path, root: str | Path | None = None) -> list[str]:
    """Return the splits of a catalog set; a file has none."""
    name = str(path_or_name)
    return catalog.splits_of(name, root=root) if catalog.is_known(name) else []


def _languages_in(path: Path) -> list[str]:
    format = _SUFFIXES.get(format_suffix(path))
    if format not in ("csv", "tsv", "jsonl", "parquet"):
        return [UNKNOWN_LANGUAGE]
    table = read_table(path, format)
    column = next((name for name in NAMES["language"] if name in table.columns), None)
    return list(dict.fromkeys(map(str, table.columns[column]))) if column else [UNKNOWN_LANGUAGE]


def read_table(path: Path, format: str, header: bool | None = None, quoting: Quoting | None = None) -> Table:
    """Read a table in one of the formats csv, tsv, jsonl and parquet."""
    if format == "jsonl":
        return read_jsonl(path)
    if format == "parquet":
        return read_parquet(path)
    if format == "csv":
        return read_delimited(path, ",", header, quoting or "csv")
    return read_delimited(path, "\t", header, quoting or "none")


def _read_file(
    path: Path, reading: Reading, format: str | None, header: bool | None, quoting: Quoting | None
) -> Examples:
    format = format or _format(path, reading)
    if format == "conll":
        return read_conll(path, reading)
    if format == "squad":
        return read_squad(path, reading)
    if format == "text":
        return read_plain(path, reading)
    if format == "bitext":
        return _bitext(path, reading)
    return table_examples(read_table(path, format, header, quoting), reading)


def _format(path: Path, reading: Reading) -> str:
    format = _SUFFIXES.get(format_suffix(path))
    if reading.kind == "bitext" and not reading.columns and format in (None, "tsv", "text"):
        return "bitext"
    if format is None:
        remedy = f"Say what it is with --format: {', '.join(FORMATS)}."
        raise BadFile(path, None, "its name does not say what kind of file it is.", remedy)
    return format


def _bitext(path: str | Path | Sequence[str | Path], reading: Reading) -> Examples:
    return read_bitext(
        path,
        language=reading.language,
        pair_language=reading.pair_language,
        strict=reading.strict,
        limit=reading.limit,
    )


def _check(kind: str | None, format: str | None, quoting: str | None, limit: int | None) -> None:
    for what, value, known in (
        ("kind", kind, KINDS),
        ("format", format, FORMATS),
        ("quoting", quoting, get_args(Quoting)),
    ):
        if value is not None and value not in known:
            raise BadInput(f'There is no {what} "{value}".{nearest(value, known)}', f"It is one of {', '.join(known)}.")
    if limit is not None and limit < 1:
        raise BadInput(f"The limit must be at least 1, not {limit}.")


def _is(test: Callable[[Path], bool], path: Path) -> bool:
    # A name that the system refuses (too long, say) is no file.
    try:
        return test(path)
    except (OSError, ValueError):
        return False
