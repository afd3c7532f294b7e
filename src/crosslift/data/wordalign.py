"""Gold word alignments: which word of one sentence translates which of the other."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from crosslift.data.files import read_lines
from crosslift.errors import BadFile

_LINK = re.compile(r"([0-9]{1,6})([-p])([0-9]{1,6})", re.ASCII)

Links = frozenset[tuple[int, int]]
"""Pairs (source word, target word), both counted from 0."""


@dataclass(frozen=True)
class GoldAlignment:
    """One sentence pair with its links.

    Attributes:
        source: Words of the source sentence.
        target: Words of the target sentence.
        sure: Links that a good aligner must find.
        possible: Links that it may find, besides the sure ones.
    """

    source: tuple[str, ...]
    target: tuple[str, ...]
    sure: Links
    possible: Links


def read_gold(path: Path) -> list[GoldAlignment]:
    """Read `source words<TAB>target words<TAB>links` lines; `i-j` is a sure link, `ipj` a possible one."""
    return [_pair(path, number, line) for number, line in enumerate(read_lines(path), start=1)]


def _pair(path: Path, number: int, line: str) -> GoldAlignment:
    cells = line.split("\t")
    if len(cells) != 3:
        raise BadFile(path, number, f"{len(cells)} columns, but source, target and links make 3.")
    source, target = tuple(cells[0].split(" ")), tuple(cells[1].split(" "))
    links: dict[str, set[tuple[int, int]]] = {"-": set(), "p": set()}
    for link in cells[2].split():
        match = _LINK.fullmatch(link)
        if not match:
            raise BadFile(path, number, f'"{link}" is not a link.', "A link is 3-4 (sure) or 3p4 (possible).")
        i, j = int(match[1]), int(match[3])
        if i >= len(source) or j >= len(target):
            seen = f"link {link} points past the end: {len(source)} source and {len(target)} target words."
            raise BadFile(path, number, seen, "Words are counted from 0.")
        links[match[2]].add((i, j))
    return GoldAlignment(source, target, frozenset(links["-"]), frozenset(links["p"]))
