"""Files and catalog sets in another language, written to files: what `crosslift translate` does."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from crosslift.data import load
from crosslift.data.columns import column_names
from crosslift.data.draft import Reading
from crosslift.data.examples import Examples
from crosslift.data.files import format_suffix, read_lines
from crosslift.data.load import read_table
from crosslift.data.storage import write_text
from crosslift.errors import BadInput
from crosslift.runs.progress import Silent, Watch
from crosslift.translate import Translator, translate_all, translate_examples
from crosslift.translate.augment import noise, paraphrase
from crosslift.translate.cache import Progress
from crosslift.translate.table import FORMATS, translate_table, write_table

STDIN = "-"


def translate_data(
    data: str,
    translator: Translator,
    out: Path | None,
    *,
    split: str = "train",
    limit: int | None = None,
    reading: Mapping[str, Any] | None = None,
    label_with: str | None = None,
    aligner: str = "statistical",
    cache: Path | None = None,
    watch: Watch | None = None,
) -> dict[str, object]:
    """Translate data and write it: text line by line, a table with all its columns, anything else as examples.

    Args:
        data: A file, a catalog name, or `-` for lines of standard input.
        translator: Who translates.
        out: The file to write; `None`: plain text goes to standard output.
        split: Part of a catalog set.
        limit: At most so many rows.
        reading: Further arguments of `crosslift.load`.
        label_with: Source-language model whose predictions become the labels; labels of the data are not read.
        aligner: Tagging: who links words.
        cache: Folder to keep translations in.
        watch: Who is told about progress.

    Returns:
        What was done, as plain data: `translator`, `rows`, `left_out` (reason -> count), `out`.
    """
    watch, options = watch or Silent(), dict(reading or {})
    how: dict[str, Any] = {"cache": cache, "progress": progress_bar(watch, translator.name)}
    lines = None if label_with else _lines(data, options, limit)
    if lines is not None:
        made = [" ".join(text.split()) for text in translate_all(translator, lines, **how)]
        _write_lines(made, out)
        lost = sum(bool(line.strip()) and not text for line, text in zip(lines, made, strict=True))
        return _said(watch, translator.name, len(made), {"came out empty": lost}, out)
    if not label_with and (table := _plain_table(data, options, translator.source)):
        new = translate_table(*table, translator, limit=limit, **how)
        write_table(new, _named(out, data))
        return _said(watch, translator.name, len(new), {}, out)
    if label_with:
        options["unlabelled"] = True
    examples = load(data, language=translator.source, split=split, limit=limit, **options)
    if label_with:
        from crosslift.runs.translate_baselines import pseudo_label  # needs torch, which a dictionary does not

        examples = pseudo_label(label_with, examples, watch)
    found = translate_examples(examples, translator, aligner=aligner, **how)
    _write_examples(found, _named(out, data))
    return _said(watch, translator.name, len(found), found.skipped, out)


def paraphrase_data(
    data: str,
    language: str,
    translators: Sequence[Translator],
    out: Path | None,
    *,
    samples: int = 5,
    seed: int = 0,
    split: str = "train",
    limit: int | None = None,
    reading: Mapping[str, Any] | None = None,
    cache: Path | None = None,
    watch: Watch | None = None,
) -> dict[str, object]:
    """Write a text with paraphrases of it appended; blank lines are left out.

    Args:
        data: A file, a catalog name, or `-` for lines of standard input.
        language: Its language.
        translators: From the language into itself, one per paraphrase; none: words are dropped and moved instead.
        out: The file to write: .txt (lines) or .jsonl; `None`: lines go to standard output.
        samples: Without translators: copies of each text.
        seed: Without translators: another seed, other copies.
        split: Part of a catalog set.
        limit: At most so many texts.
        reading: Further arguments of `crosslift.load`.
        cache: Folder to keep paraphrases in.
        watch: Who is told about progress.

    Returns:
        As `translate_data`, and `paraphrases`: how many were kept.
    """
    watch, options = watch or Silent(), dict(reading or {})
    lines = _lines(data, options, limit)
    if lines is None:
        text = load(data, language=language, split=split, limit=limit, **options | {"unlabelled": True})
    else:
        kept = {str(number): line for number, line in enumerate(lines, start=1) if line.strip()}
        text = Examples("text", language, list(kept), list(kept.values()), name=Path(data).name)
    if translators:
        tell = progress_bar(watch, translators[0].name)
        found, counts = paraphrase(text, translators, cache=cache, progress=tell)
    else:
        found, counts = noise(text, samples=samples, seed=seed)
    if out is None or out.suffix == ".txt":
        _write_lines(found.texts, out)
    else:
        _write_examples(found, out)
    name = translators[0].name if translators else "noise"
    left = {reason: count for reason, count in counts.items() if reason != "kept"}
    return _said(watch, name, len(found), left, out) | {"paraphrases": counts["kept"]}


def _lines(data: str, options: Mapping[str, Any], limit: int | None) -> list[str] | None:
    """Return the lines of a plain text, blank ones included; `None` if the data is something else."""
    if data == STDIN:
        return [line.rstrip("\n") for line in sys.stdin][:limit]
    plain = options.get("format") == "text" or format_suffix(Path(data)) == ".txt"
    return read_lines(Path(data))[:limit] if plain and not options.get("kind") else None


def _plain_table(data: str, options: Mapping[str, Any], language: str) -> tuple[Any, Reading] | None:
    """Return a table and what its columns are; `None` if the data is none, or its labels belong to words."""
    path = Path(data)
    format = options.get("format") or format_suffix(path).removeprefix(".")
    if not path.is_file() or format not in FORMATS:
        return None
    table = read_table(path, format, quoting=options.get("quoting"))
    reading = Reading(kind=options.get("kind"), columns=dict(options.get("columns") or {}), language=language)
    return None if {"words", "annotated", "answers"} & set(column_names(table, reading)) else (table, reading)


def _write_lines(lines: Sequence[str], out: Path | None) -> None:
    text = "".join(f"{line}\n" for line in lines)
    if out is None:
        sys.stdout.write(text)
    else:
        write_text(out, text)


def _write_examples(examples: Examples, out: Path) -> None:
    from crosslift.data.augment import write_examples  # brings torch with it

    write_examples(examples, out)


def _named(out: Path | None, data: str) -> Path:
    if out is None:
        raise BadInput(f"Where should the translation of {data} go?", "Say it with --out.")
    return out


def progress_bar(watch: Watch, name: str) -> Progress:
    """Return a function that shows a translator's progress: a bar begins with the first news and ends with the last."""
    begun = False

    def tell(done: int, total: int) -> None:
        nonlocal begun
        if not begun:
            watch.start(name, total)
        begun = done < total
        watch.advance(done)
        if done == total:
            watch.finish(f"{total:,} different texts")

    return tell


def _said(watch: Watch, name: str, rows: int, left_out: Mapping[str, int], out: Path | None) -> dict[str, object]:
    left = {reason: count for reason, count in left_out.items() if count}
    for reason, count in left.items():
        watch.say(f"left out  {count:,}: {reason}")
    if out is not None:
        watch.say(f"{rows:,} rows in {out}")
    return {"translator": name, "rows": rows, "left_out": left, "out": str(out) if out else None}
