"""eflomal (Östling & Tiedemann 2016), where it is installed: the extra `align`."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from crosslift.align.links import Alignment
from crosslift.align.pharaoh import read_pharaoh
from crosslift.errors import BadInput, CrossliftError, MissingExtra

_SPACE = re.compile(r"\s")
MOST_WORDS = 1024
"""eflomal itself passes over longer sentences without a word."""


def align_eflomal(source: Sequence[Sequence[str]], target: Sequence[Sequence[str]]) -> tuple[Alignment, Alignment]:
    """Align sentence pairs with eflomal's defaults (its third model).

    Args:
        source: Words of each source sentence; a sentence may be empty.
        target: Words of each target sentence.

    Returns:
        Links of the forward and of the backward direction, both as (source, target).
    """
    try:
        from eflomal import Aligner
    except ImportError:
        raise MissingExtra("eflomal", "align") from None
    if len(source) != len(target):
        raise BadInput(f"{len(source):,} source sentences, but {len(target):,} target sentences.")
    usable = [row for row, (a, b) in enumerate(zip(source, target, strict=True)) if len(a) and len(b)]
    usable = [row for row in usable if max(len(source[row]), len(target[row])) <= MOST_WORDS]
    with TemporaryDirectory(prefix="crosslift-") as folder:
        files = [Path(folder) / "forward", Path(folder) / "backward"]
        try:
            Aligner().align(
                _lines(source, usable),
                _lines(target, usable),
                links_filename_fwd=str(files[0]),
                links_filename_rev=str(files[1]),
            )
        except (OSError, RuntimeError, ValueError) as error:
            raise CrossliftError(
                f"eflomal failed: {error}.", "The statistical aligner needs nothing compiled."
            ) from error
        found = [
            read_pharaoh(file, [len(source[row]) for row in usable], [len(target[row]) for row in usable])
            for file in files
        ]
    return _spread(found[0], usable, len(source)), _spread(found[1], usable, len(source))


def _lines(sentences: Sequence[Sequence[str]], rows: Sequence[int]) -> list[str]:
    """Return sentences as eflomal reads them; a space within a word would make two of it."""
    return [" ".join(_SPACE.sub("_", word) or "_" for word in sentences[row]) + "\n" for row in rows]


def _spread(links: Alignment, rows: Sequence[int], count: int) -> Alignment:
    """Return links of some rows as links of all of them."""
    return Alignment.build(count, np.asarray(rows, dtype=np.int64)[links.pairs()], links.source, links.target)
