"""The text of a distillation: read without labels, joined with its translations, a part held out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import cast

import numpy as np
from numpy.typing import NDArray

from crosslift.data import load
from crosslift.data.examples import Examples, Kind, concatenate
from crosslift.data.files import read_lines
from crosslift.data.scripts import wrong_script
from crosslift.errors import BadInput
from crosslift.runs.progress import Watch

Text = str | Path | Examples
"""A file with one text a line, a catalog name, or examples."""

_HELD_OUT = 0.1
_HELD_OUT_SEED = 1  # not that of other cuts: of a half made with it, a tenth would be all or nothing
_MOST_HELD_OUT = 2000


@dataclass(frozen=True)
class Corpus:
    """What the student reads and whose answers go with it.

    Attributes:
        originals: What the teacher reads.
        examples: What the student reads: the originals, then their translations.
        original_of: (examples,) which original each example belongs to.
        train: Rows of `examples` to learn from.
        held_out: Rows of `examples` on which the student is compared with its teacher.
    """

    originals: Examples
    examples: Examples
    original_of: NDArray[np.int64]
    train: NDArray[np.int64]
    held_out: NDArray[np.int64]


def read_text(text: Mapping[str, Text], kind: str, limit: int | None, watch: Watch) -> Examples:
    """Load the text of every language without its labels; say what was left out or looks odd."""
    if not text:
        raise BadInput("There is no text to learn from.", "Give some with --text LANGUAGE=FILE.")
    sets = []
    for language, given in text.items():
        if isinstance(given, Examples):
            found = given.unlabelled()
        else:
            found = load(given, kind=cast("Kind", kind), language=language, split="train", unlabelled=True)
        if found.kind != kind:
            raise BadInput(f"{found.name or language} is {found.kind} data, but the teacher does {kind}.")
        for reason, count in found.skipped.items():
            watch.say(f"left out  {count:,} lines of {found.name}: {reason}")
        odd = wrong_script(found.texts, language)
        if odd:
            watch.say(f"warning   {found.name} does not look like {language}: {odd}")
        sets.append(found.take(limit) if limit else found)
    return concatenate(sets) if len(sets) > 1 else sets[0]


def make_corpus(originals: Examples, translations: Mapping[str, Examples], kind: str, watch: Watch) -> Corpus:
    """Put originals and translations together; a translation is held out where its original is."""
    if translations and kind != "classification":
        raise BadInput(f"Translations are for classification: the words of {kind} data do not carry over.")
    place = {key: row for row, key in enumerate(originals.parallel_ids or originals.ids)}
    parts, original_of = [originals], [np.arange(len(originals))]
    for language, found in translations.items():
        keys = found.parallel_ids or found.ids
        rows = [row for row, key in enumerate(keys) if key in place]
        if not rows:
            raise BadInput(
                f"No translation into {language} belongs to a text here (by parallel id, else id).",
                f'The first text is "{(originals.parallel_ids or originals.ids)[0]}", '
                f'the first translation "{keys[0]}".',
            )
        if len(rows) < len(found):
            watch.say(f"left out  {len(found) - len(rows):,} translations into {language} of texts that are not here")
        parts.append(found.unlabelled().select(rows))
        original_of.append(np.array([place[keys[row]] for row in rows], dtype=np.int64))
    examples = concatenate(parts) if len(parts) > 1 else originals
    of = np.concatenate(original_of)
    apart = set(originals.split({"train": 1 - _HELD_OUT, "held": _HELD_OUT}, seed=_HELD_OUT_SEED)["held"].ids)
    held = np.array([id_ in apart for id_ in originals.ids])[of]
    train, held_out = np.flatnonzero(~held), np.flatnonzero(held)
    if not len(train) or not len(held_out):
        raise BadInput(f"{len(originals)} texts are too few to set a tenth apart.", "Give at least some fifty.")
    if len(held_out) > _MOST_HELD_OUT:
        held_out = np.sort(np.random.default_rng(0).choice(held_out, _MOST_HELD_OUT, replace=False))
    return Corpus(originals, examples, of, train, held_out)


def vocabulary_texts(examples: Examples, further: Mapping[str, str | Path]) -> dict[str, list[str]]:
    """Return what the vocabulary of a new student is trained on."""
    own = [*examples.texts, *(examples.pairs or ())]
    return {"text": own, **{language: read_lines(Path(path)) for language, path in further.items()}}
