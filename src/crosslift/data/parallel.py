"""The same items in several languages, row by row, and labels that translations share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from crosslift.data.examples import Examples
from crosslift.errors import BadInput, BadLabels

LEFT_OUT = "no translation in every language"


def align(sets: Mapping[str, Examples]) -> dict[str, Examples]:
    """Keep the items that every language has, in the order of the first; row i then means the same everywhere.

    Rows are paired by parallel id (by id where there is none), never by their place. Of rows with one id the first
    counts, and a row whose label is unknown does not. What is left out is counted in `skipped`.

    Args:
        sets: language -> examples.
    """
    if len(sets) < 2:
        raise BadInput("A transfer needs two languages or more.")
    places = {language: _rows_by_key(examples) for language, examples in sets.items()}
    first = next(iter(places.values()))
    shared = [key for key in first if all(key in rows for rows in places.values())]
    if not shared:
        raise BadInput(
            f"No item occurs in all of {', '.join(sets)}.",
            "The sets must be translations of each other, tied by a parallel id.",
        )
    aligned = {}
    for language, examples in sets.items():
        part = examples.select(places[language][key] for key in shared)
        lost = len(examples) - len(part)
        aligned[language] = replace(part, skipped={**part.skipped, LEFT_OUT: lost} if lost else part.skipped)
    return aligned


def _rows_by_key(examples: Examples) -> dict[str, int]:
    keys = examples.parallel_ids or examples.ids
    known = range(len(keys)) if examples.labels is None else [i for i, x in enumerate(examples.labels) if x is not None]
    rows: dict[str, int] = {}
    for row in known:
        rows.setdefault(keys[row], row)
    return rows


def require_shared_labels(sets: Mapping[str, Examples]) -> None:
    """Refuse classification sets in which a translation has another label than its source."""
    named = [(language, examples) for language, examples in sets.items() if examples.kind == "classification"]
    for language, examples in named[1:]:
        for row, (ours, theirs) in enumerate(zip(named[0][1].labels or (), examples.labels or (), strict=True)):
            if ours != theirs:
                raise BadLabels(
                    f'Item "{(examples.parallel_ids or examples.ids)[row]}" is "{ours}" in {named[0][0]} and '
                    f'"{theirs}" in {language}; translations share their label.'
                )


def random_labels(sets: Mapping[str, Examples], seed: int) -> dict[str, Examples]:
    """Give aligned sets labels that no encoder can know: "0" or "1" by a fair coin, one throw per item.

    Args:
        sets: language -> examples, aligned; any kind with texts.
        seed: Another seed, other labels.
    """
    rows = len(next(iter(sets.values())))
    labels = np.random.default_rng(seed).integers(0, 2, rows).astype(str).tolist()
    return {
        language: replace(examples, kind="classification", labels=labels, spans=None)
        for language, examples in sets.items()
    }


def require_share(ratio: float) -> None:
    """Refuse a share of noise that is none."""
    if not 0 <= ratio <= 1:
        raise BadInput(f"The noise ratio lies between 0 and 1, not at {ratio:g}.")


def corrupt_labels(sets: Mapping[str, Examples], ratio: float, labels: Sequence[str], seed: int) -> dict[str, Examples]:
    """Replace labels by noise: each item, with probability `ratio`, gets a class drawn uniformly (maybe its own).

    Translations share the draw, and the items that a smaller ratio corrupts are among those of a larger one.

    Args:
        sets: language -> labelled classification examples, aligned.
        ratio: From 0, nothing, to 1, all labels are random.
        labels: The classes.
        seed: Another seed, other items and labels.
    """
    require_share(ratio)
    if any(examples.kind != "classification" for examples in sets.values()):
        raise BadInput("Label noise is for classification.")
    draw = np.random.default_rng(seed)
    rows = len(next(iter(sets.values())))
    hit = draw.random(rows) < ratio
    drawn = draw.integers(0, len(labels), rows)
    noisy = {}
    for language, examples in sets.items():
        kept = examples.labels or ()
        noisy[language] = replace(
            examples, labels=[labels[drawn[i]] if hit[i] else label for i, label in enumerate(kept)]
        )
    return noisy
