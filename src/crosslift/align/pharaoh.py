"""Pharaoh files: one line a sentence pair, `0-0 1-2 3-1`, words counted from 0, source first."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from crosslift.align.links import Alignment
from crosslift.data.files import read_bytes
from crosslift.data.storage import write_text
from crosslift.errors import BadFile

SUFFIXES = (".pharaoh", ".align", ".links", ".txt", ".tsv", ".gz", ".xz")
"""How files of links end: with one of these, a name is never taken for that of a model."""
_SCORE = r"(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?"
_LINE = re.compile(rf"\s*([0-9]{{1,6}}-[0-9]{{1,6}}(:{_SCORE})?(\s+|$))*", re.ASCII)
_LINK = re.compile(rf"([0-9]+)-([0-9]+)(?::({_SCORE}))?", re.ASCII)
UNBOUNDED = 10**6
"""A length that no link is past: numbers have at most six digits."""


def read_pharaoh(
    path: str | Path,
    source_lengths: Sequence[int] | NDArray[np.int64] | None = None,
    target_lengths: Sequence[int] | NDArray[np.int64] | None = None,
) -> Alignment:
    """Read an alignment; `i-j` is a link, `i-j:0.93` one with its score, an empty line a pair without links.

    Args:
        path: The file.
        source_lengths: Words of each source sentence, to check the file against.
        target_lengths: Words of each target sentence.

    Raises:
        BadFile: Another number of lines than sentences, something that is no link, a word past the end.
    """
    path = Path(path)
    lines = link_lines(path)
    for lengths in (source_lengths, target_lengths):
        if lengths is not None and len(lengths) != len(lines):
            raise BadFile(
                path,
                None,
                f"has {len(lines):,} lines for {len(lengths):,} sentence pairs.",
                "Line n holds the links of pair n; a pair without links has an empty line.",
            )
    for number, line in enumerate(lines, start=1):
        if not _LINE.fullmatch(line):
            bad = next(word for word in line.split() if not _LINE.fullmatch(word))
            shown = bad if len(bad) <= 30 else bad[:27] + "…"
            raise BadFile(path, number, f'"{shown}" is not a link.', "A link is 3-4: source word 3, target word 4.")
    found = _LINK.findall("\n".join(lines))
    numbers = np.array([(i, j) for i, j, _ in found], dtype=np.int64).reshape(-1, 2)
    counts = [line.count("-") - line.count("e-") - line.count("E-") for line in lines]
    pair = np.repeat(np.arange(len(lines)), counts)
    for side, lengths in enumerate((source_lengths, target_lengths)):
        if lengths is None:
            continue
        words = np.asarray(lengths, dtype=np.int64)[pair]
        wrong = np.flatnonzero(numbers[:, side] >= words)
        if len(wrong):
            first = int(wrong[0])
            i, j = numbers[first].tolist()
            raise BadFile(
                path,
                int(pair[first]) + 1,
                f"link {i}-{j} points past the end: the {('source', 'target')[side]} has {words[first]} words.",
                "Words are counted from 0. Was the file made with the two languages swapped, or other words?",
            )
    scores = np.array([float(score or 1) for _, _, score in found]) if any(score for *_, score in found) else None
    return _unique(Alignment.build(len(lines), pair, numbers[:, 0], numbers[:, 1], scores))


def link_lines(path: Path) -> list[str]:
    """Return the lines of a file, without the empty one after the last line break."""
    lines = read_bytes(path).decode("utf-8", "replace").replace("\r\n", "\n").split("\n")
    return lines if lines[-1] else lines[:-1]


def _unique(links: Alignment) -> Alignment:
    """Return the links without repetitions."""
    pair = links.pairs()
    same = (np.diff(pair) == 0) & (np.diff(links.source) == 0) & (np.diff(links.target) == 0)
    return links.keep(np.append(True, ~same)) if same.any() else links


def write_pharaoh(path: str | Path, alignment: Alignment, *, scores: bool = False) -> None:
    """Write an alignment, one line a pair.

    Args:
        path: The file.
        alignment: The links.
        scores: Write `i-j:0.93` where the alignment has scores. Other programs may not read that.
    """
    write_text(Path(path), "".join(f"{line}\n" for line in pharaoh_lines(alignment, scores=scores)))


def pharaoh_lines(alignment: Alignment, *, scores: bool = False) -> list[str]:
    """Return the line of each pair."""
    ends = zip(alignment.source.tolist(), alignment.target.tolist(), strict=True)
    if scores and alignment.scores is not None:
        links = [f"{i}-{j}:{s:.3f}" for (i, j), s in zip(ends, alignment.scores.tolist(), strict=True)]
    else:
        links = [f"{i}-{j}" for i, j in ends]
    return [" ".join(links[a:b]) for a, b in pairwise(alignment.starts.tolist())]
