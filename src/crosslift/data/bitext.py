"""Sentence pairs: two files side by side, tab-separated lines, `source ||| target` lines, or a translation memory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from crosslift.data.draft import UNKNOWN_LANGUAGE, Draft, Reading
from crosslift.data.examples import Examples
from crosslift.data.files import format_suffix, read_lines
from crosslift.data.tmx import read_tmx
from crosslift.errors import BadFile, BadInput

BARS = "|||"


def read_bitext(
    path: str | Path | Sequence[str | Path],
    *,
    language: str | None = None,
    pair_language: str | None = None,
    strict: bool = False,
    limit: int | None = None,
) -> Examples:
    """Read sentence pairs; the first side becomes `texts`, the second `pairs`.

    Args:
        path: One file with both sides on each line (a tab or `|||` between them; further columns are not
            read), two files with one sentence a line each (Moses), or a translation memory (.tmx).
        language: Language of the first side; in a translation memory, which language to take.
        pair_language: Language of the second side.
        strict: Refuse pairs with an empty side instead of leaving them out.
        limit: Stop after this many pairs.
    """
    reading = Reading(strict=strict, limit=limit, pair_language=pair_language or UNKNOWN_LANGUAGE)
    if isinstance(path, str | Path):
        source = Path(path)
        if format_suffix(source) == ".tmx":
            language, other, units, lines = read_tmx(source, language, pair_language)
            return _collect(Draft(source, "bitext", replace(reading, pair_language=other)), units, language, lines)
        pairs = _one_file(source)
    else:
        if len(path) != 2:
            raise BadInput(f"Sentence pairs come from one file or from two, not from {len(path)}.")
        source, pairs = Path(path[0]), _two_files(Path(path[0]), Path(path[1]))
    found = _collect(Draft(source, "bitext", reading), pairs, language)
    return found if isinstance(path, str | Path) else replace(found, name=" + ".join(Path(p).name for p in path))


def _collect(
    draft: Draft,
    pairs: Sequence[tuple[str, str] | None],
    language: str | None,
    lines: Sequence[int] | None = None,
) -> Examples:
    """Take in numbered pairs, by default one a line; `None` is a unit without one of the languages."""
    for number, (line, pair) in enumerate(zip(lines or range(1, len(pairs) + 1), pairs, strict=True), start=1):
        if draft.full:
            break
        if pair is None:
            draft.skip(line, "no translation")
        else:
            draft.add(line, str(number), *pair)
    return draft.examples(language or UNKNOWN_LANGUAGE)


def _two_files(first: Path, second: Path) -> list[tuple[str, str]]:
    left, right = read_lines(first), read_lines(second)
    if len(left) != len(right):
        raise BadFile(
            second,
            min(len(left), len(right)) + 1,
            f"the files part here: {second.name} has {len(right):,} lines, but {first.name} has {len(left):,}.",
            "Line n of one file must be the translation of line n of the other.",
        )
    return list(zip(left, right, strict=True))


def _one_file(path: Path) -> list[tuple[str, str]]:
    lines = read_lines(path)
    tabs = "\t" in lines[0]
    if not tabs and BARS not in lines[0]:
        raise BadFile(
            path,
            1,
            f"neither a tab nor {BARS} between two sentences.",
            "For two files with one sentence a line, give both.",
        )
    rows = [line.split("\t" if tabs else BARS) for line in lines]
    width = len(rows[0])
    for number, cells in enumerate(rows, start=1):
        if len(cells) != width:
            count = f"{len(cells)} column{'' if len(cells) == 1 else 's'}"
            raise BadFile(
                path,
                number,
                f"{count}, but line 1 has {width}.",
                f"Every line holds a sentence, {'a tab' if tabs else BARS}, and its translation.",
            )
    return [(cells[0], cells[1]) if tabs else (cells[0].strip(), cells[1].strip()) for cells in rows]
