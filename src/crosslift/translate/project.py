"""Labels of words carried to the words of a translation, through links between the two."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from crosslift.data.examples import Spans


def entities(tags: Sequence[str]) -> list[tuple[str, int, int]]:
    """Return the labelled stretches of a BIO sequence: (type, first word, last word + 1).

    An `I-` that continues nothing begins a stretch of its own, and a tag without a prefix is a stretch of one word.
    """
    found: list[tuple[str, int, int]] = []
    for place, tag in enumerate(tags):
        if tag == "O":
            continue
        mark, dash, kind = tag.partition("-")
        if not dash:
            kind = tag
        if mark == "I" and dash and found and found[-1][0] == kind and found[-1][2] == place:
            found[-1] = (kind, found[-1][1], place + 1)
        else:
            found.append((kind, place, place + 1))
    return found


def project(tags: Sequence[str], links: Sequence[tuple[int, int]], count: int) -> tuple[list[str], int]:
    """Carry BIO tags over word links.

    A stretch becomes the words from the first to the last that its own words are linked to. Words that two stretches
    claim go to the one that comes first; a stretch of which nothing is left, or that is linked to nothing, is lost.

    Args:
        tags: One per source word.
        links: (source word, target word).
        count: Number of target words.

    Returns:
        One tag per target word, and how many stretches were lost.
    """
    made = ["O"] * count
    lost = 0
    linked: dict[int, list[int]] = {}
    for source, target in links:
        linked.setdefault(source, []).append(target)
    for kind, first, last in entities(tags):
        places = [place for word in range(first, last) for place in linked.get(word, ())]
        free = [p for p in range(min(places), max(places) + 1) if made[p] == "O"] if places else []
        # The rest of a stretch that another one interrupts would be a second entity: only its first run stays.
        run = [p for i, p in enumerate(free) if p == free[0] + i]
        lost += not run
        for i, place in enumerate(run):
            made[place] = f"{'I' if i else 'B'}-{kind}"
    return made, lost


def overlaps(left: Spans, right: Spans) -> NDArray[np.bool_]:
    """Return which words share a character with which: (left words, right words)."""
    return (left[:, None, 0] < right[None, :, 1]) & (right[None, :, 0] < left[:, None, 1])


def relink(
    links: Sequence[tuple[int, int]], source: NDArray[np.bool_], target: NDArray[np.bool_]
) -> list[tuple[int, int]]:
    """Turn links between an aligner's words into links between the words of a data set.

    Args:
        links: (aligner's source word, aligner's target word).
        source: (set's words, aligner's words) which overlap, on the source side.
        target: The same on the target side.
    """
    if not links:
        return []
    first, second = np.array(links).T
    pairs = source[:, first].astype(np.int64) @ target[:, second].T.astype(np.int64)
    return [(int(i), int(j)) for i, j in np.argwhere(pairs)]
