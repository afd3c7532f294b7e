"""Plain text: one sentence or document a line."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from crosslift.data.draft import UNKNOWN_LANGUAGE, Draft, Reading
from crosslift.data.examples import Examples
from crosslift.data.files import read_lines
from crosslift.data.scripts import wrong_script
from crosslift.data.segment import segment_all
from crosslift.errors import BadFile, BadInput


def read_plain(path: Path, reading: Reading, groups: Sequence[str] | None = None, parallel: bool = False) -> Examples:
    """Read one text a line; the id is the line number.

    Unlabelled, the texts can also be examples to classify, or to tag: then they are cut into words.

    Args:
        path: The file.
        reading: What the caller asked for.
        groups: One group per line, such as its document.
        parallel: Whether line n is the same sentence in every language.
    """
    kind = reading.kind or "text"
    if kind in ("qa", "bitext") or (kind != "text" and not reading.unlabelled):
        raise BadInput(f"{path} is read as plain text, which holds no {kind} examples.", "Say its format.")
    language = reading.language or UNKNOWN_LANGUAGE
    lines = read_lines(path)
    if groups is not None and len(groups) != len(lines):
        raise BadFile(path, None, f"has {len(lines):,} lines, but there are {len(groups):,} document ids.")
    spans = segment_all(lines, language) if kind == "tagging" else None
    draft = Draft(path, kind, reading)
    for row, line in enumerate(lines):
        if draft.full:
            break
        id_ = str(row + 1)
        words = spans[row] if spans else None
        group = groups[row] if groups else None
        draft.add(row + 1, id_, line, None, words, None, id_ if parallel else None, group)
    return draft.examples(language)


def read_language(paths: Sequence[str | Path], language: str) -> list[str]:
    """Read the lines of files in one language, without empty ones; a file in another script is refused."""
    found = []
    for path in map(Path, paths):
        numbered = [(number, line) for number, line in enumerate(read_lines(path), start=1) if line]
        lines = [line for _, line in numbered]
        odd = wrong_script(lines, language)
        if odd is not None:
            first = next((number for number, line in numbered if wrong_script([line], language)), 1)
            seen = f"this is not {language}: {odd} in the whole file."
            raise BadFile(path, first, seen, 'Is it the right file? If it is, call its language "und".')
        found += lines
    return found
