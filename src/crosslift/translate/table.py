"""Tables in another language: the texts translated, every other column as it was."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from pathlib import Path

from crosslift.data.columns import column_names, rows_of_language
from crosslift.data.draft import Reading
from crosslift.data.storage import write_jsonl, write_text
from crosslift.data.table import Table
from crosslift.errors import BadFile, BadInput
from crosslift.translate import Translator
from crosslift.translate.cache import Progress, translate_all

FORMATS = ("csv", "tsv", "jsonl")


def translate_table(
    table: Table,
    reading: Reading,
    translator: Translator,
    *,
    limit: int | None = None,
    cache: str | Path | None = None,
    progress: Progress | None = None,
) -> Table:
    """Return a table with its one or two columns of text translated and all others kept.

    Of a table in several languages only the rows in the translator's source language are taken. A row whose text is
    empty, or comes out empty, stays: nothing is lost between the two tables.

    Args:
        table: The table.
        reading: Which columns are which.
        translator: Who translates.
        limit: At most so many rows.
        cache: Folder to keep translations in.
        progress: Told how many different texts are done.
    """
    where = column_names(table, reading)
    if "words" in where or "annotated" in where or "answers" in where:
        raise BadInput(f"{table.path} holds labels of words: a translation needs new ones.")
    rows = rows_of_language(table, where, translator.source)[0][:limit]
    columns = {name: [values[row] for row in rows] for name, values in table.columns.items()}
    texts = [where[ours] for ours in ("text", "pair") if ours in where]
    for name in texts:
        for row, value in zip(rows, columns[name], strict=True):
            if not isinstance(value, str):
                raise BadFile(table.path, table.lines[row], f'"{name}" is not a text: {str(value)[:40]}')
    both = [str(text) for name in texts for text in columns[name]]
    made = translate_all(translator, both, cache=cache, progress=progress)
    for number, name in enumerate(texts):
        columns[name] = [" ".join(text.split()) for text in made[number * len(rows) : (number + 1) * len(rows)]]
    if "language" in where:
        columns[where["language"]] = [translator.target] * len(rows)
    return Table(table.path, columns, [table.lines[row] for row in rows], table.named)


def write_table(table: Table, path: Path) -> None:
    """Write a table as its suffix says: .tsv (quotation marks are text), .csv, .jsonl."""
    rows: list[Sequence[object]] = list(zip(*table.columns.values(), strict=True))
    header = [list(table.columns)] if table.named else []
    if path.suffix == ".jsonl":
        write_jsonl(path, [dict(zip(table.columns, row, strict=True)) for row in rows])
    elif path.suffix == ".tsv":
        write_text(path, "".join("\t".join(map(_cell, row)) + "\n" for row in [*header, *rows]))
    elif path.suffix == ".csv":
        text = io.StringIO()
        csv.writer(text, lineterminator="\n").writerows([*header, *([_cell(cell) for cell in row] for row in rows)])
        write_text(path, text.getvalue())
    else:
        raise BadInput(f"{path}: a table is written as .tsv, .csv or .jsonl.", "Name it so.")


def _cell(value: object) -> str:
    return "" if value is None else str(value)
