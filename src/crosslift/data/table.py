"""Tables with named columns: CSV, TSV, JSON lines and Parquet."""

from __future__ import annotations

import csv
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Literal

from crosslift.data.files import read_lines
from crosslift.errors import BadFile, MissingExtra

Quoting = Literal["none", "csv"]

# What other people's files call the columns that we read; the first name found is taken.
NAMES: dict[str, tuple[str, ...]] = {
    "id": ("id", "index_id", "guid", "uid", "idx"),
    "text": ("text", "sentence", "utt", "utterance", "premise", "sentence1", "question", "source", "src"),
    "pair": ("pair", "text2", "hypothesis", "sentence2", "context", "target", "tgt"),
    "label": ("label", "category", "intent", "gold_label", "class"),
    "language": ("language", "lang", "locale"),
    "parallel_id": ("parallel_id",),
    "group": ("group_id",),
    "words": ("words", "tokens"),
    "tags": ("tags", "ner_tags", "slots"),
    "annotated": ("annotated", "annot_utt"),
    "answers": ("answers",),
}


@dataclass(frozen=True)
class Table:
    """Columns of equal length, read only.

    Attributes:
        path: The file, for messages.
        columns: Name -> one value per row.
        lines: The line of each row in the file.
        named: Whether the file itself names the columns; else they are "1", "2", …
    """

    path: Path
    columns: Mapping[str, Sequence[object]]
    lines: Sequence[int]
    named: bool = True

    def __len__(self) -> int:
        return len(self.lines)


def read_delimited(path: Path, delimiter: str, header: bool | None, quoting: Quoting) -> Table:
    """Read a file with one row a line and a fixed number of columns.

    Args:
        path: The file.
        delimiter: What stands between two columns.
        header: Whether the first line names the columns; `None` = look for known names in it.
        quoting: "none" takes quotation marks as they are; "csv" lets them wrap a field.
    """
    return _delimited(path, delimiter, header, quoting, _stamp(path))


def read_jsonl(path: Path) -> Table:
    """Read a file with one JSON object a line; a missing key is `None`."""
    return _jsonl(path, _stamp(path))


def read_parquet(path: Path) -> Table:
    """Read a Parquet file; `lines` counts its rows from 1."""
    try:
        import pyarrow as arrow
        import pyarrow.parquet
    except ImportError:
        raise MissingExtra("pyarrow, which reads Parquet,", "data") from None
    if not path.is_file() or not path.stat().st_size:
        read_lines(path)  # says what is wrong: missing, a folder, empty
    try:
        table = arrow.parquet.read_table(path)
        columns = {name: table.column(name).to_pylist() for name in table.column_names}
    except (arrow.ArrowException, OSError, ValueError, KeyError) as error:
        raise BadFile(path, None, f"is not a Parquet file that can be read ({_first_line(error)}).") from None
    return _filled(Table(path, columns, range(1, table.num_rows + 1)))


# A file of fifteen languages is asked for fifteen times in a row; two tables is what a run holds at once.
@lru_cache(maxsize=2)
def _delimited(path: Path, delimiter: str, header: bool | None, quoting: Quoting, stamp: object) -> Table:
    lines = read_lines(path)
    numbers: Sequence[int] = range(1, len(lines) + 1)
    if quoting == "csv":
        rows, numbers = _unquoted(path, lines, delimiter)
    else:
        rows = [line.split(delimiter) for line in lines]
    width = len(rows[0])
    if set(map(len, rows)) != {width}:
        row = next(i for i, cells in enumerate(rows) if len(cells) != width)
        raise BadFile(path, numbers[row], f"{_columns(len(rows[row]))}, but line 1 has {width}.")
    known = {name for names in NAMES.values() for name in names}
    if header is None:
        header = any(cell.strip().casefold() in known for cell in rows[0])
    names = [cell.strip() for cell in rows[0]] if header else [str(i + 1) for i in range(width)]
    if len(set(names)) < width:
        twice = next(name for name in names if names.count(name) > 1)
        raise BadFile(path, 1, f'column "{twice}" occurs twice.')
    skip = 1 if header else 0
    values = zip(*rows[skip:], strict=True)
    table = Table(path, dict(zip(names, values, strict=False)), numbers[skip:], named=header)
    return _filled(table)


@lru_cache(maxsize=2)
def _jsonl(path: Path, stamp: object) -> Table:
    lines = read_lines(path)
    rows = [parse_json(path, line, number) for number, line in enumerate(lines, start=1)]
    for number, row in enumerate(rows, start=1):
        if not isinstance(row, dict):
            raise BadFile(path, number, "is not a JSON object.", 'Each line is one object: {"text": …}.')
    names = dict.fromkeys(name for row in rows for name in row)  # type: ignore[attr-defined]
    columns = {name: [row.get(name) for row in rows] for name in names}  # type: ignore[attr-defined]
    return _filled(Table(path, columns, range(1, len(rows) + 1)))


def parse_json(path: Path, text: str, line: int | None = None) -> object:
    """Parse JSON; what is malformed, or cannot be written again as UTF-8, is a `BadFile`."""
    try:
        value: object = json.loads(text)
        # Escapes can smuggle in what a text file cannot hold: half a surrogate pair, or NUL.
        if "\\u" in text:
            written = json.dumps(value, ensure_ascii=False)
            written.encode()
            if "\\u0000" in written.replace("\\\\", ""):
                raise BadFile(path, line, "has a NUL character (\\u0000).")
    except json.JSONDecodeError as error:
        place = error.lineno if line is None else line
        raise BadFile(path, place, f"malformed JSON at column {error.colno}: {error.msg}.") from None
    except UnicodeEncodeError:
        raise BadFile(path, line, "has half of a surrogate pair, which is no character.") from None
    except (ValueError, RecursionError) as error:
        raise BadFile(path, line, f"JSON that cannot be read: {_first_line(error)}.") from None
    return value


def _unquoted(path: Path, lines: list[str], delimiter: str) -> tuple[list[list[str]], list[int]]:
    reader = csv.reader((line + "\n" for line in lines), delimiter=delimiter, strict=True)
    rows, numbers, start = [], [], 1
    try:
        for row in reader:
            rows.append(row)
            numbers.append(start)
            start = reader.line_num + 1
    except csv.Error as error:
        raise BadFile(path, start, f"bad quoting: {error}.", 'If quotes are plain text, use quoting="none".') from None
    return rows, numbers


def _filled(table: Table) -> Table:
    if not len(table):
        raise BadFile(table.path, None, "has a header but no rows.")
    return table


def _stamp(path: Path) -> object:
    try:
        status = path.stat()
    except (OSError, ValueError):
        return None
    return status.st_mtime_ns, status.st_size


def _columns(count: int) -> str:
    return f"{count} column{'' if count == 1 else 's'}"


def _first_line(error: BaseException) -> str:
    return str(error).split("\n")[0].rstrip(".")
