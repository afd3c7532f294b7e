"""More text of a language out of what there is: paraphrases by translation, or disturbed copies.

A paraphrase is a translation of a language into itself, drawn, or through another language and back (Guo et al.,
*FreeTransfer-X*, NAACL 2022, section 2.3.2: five draws, duplicates removed). Where there is no translator, words are
dropped and moved a little (the noise of Lample et al., 2018).
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from crosslift.data.examples import Examples
from crosslift.data.segment import segment_all
from crosslift.data.switching import UNSPACED
from crosslift.errors import BadInput
from crosslift.translate.cache import Progress, translate_all
from crosslift.translate.languages import short_code

if TYPE_CHECKING:
    from crosslift.translate import Translator


def paraphrase(
    text: Examples,
    translators: Sequence[Translator],
    *,
    cache: str | Path | None = None,
    progress: Progress | None = None,
) -> tuple[Examples, dict[str, int]]:
    """Return text with paraphrases of it appended, and what became of them.

    Args:
        text: Plain text, or classification examples with one text; labels are not looked at.
        translators: One per paraphrase of each text, such as draws of one model from the language into itself.
        cache: Folder to keep paraphrases in.
        progress: Told about each translator in turn.

    Returns:
        The texts and, after them, the paraphrases (id `17~2`: the second one of `17`); and the counts: `kept`, and
        what was left out as `empty`, `copy` of its original, or `duplicate` of another text.
    """
    made = [translate_all(translator, text.texts, cache=cache, progress=progress) for translator in translators]
    return _appended(text, made)


def noise(
    text: Examples, *, samples: int = 5, drop: float = 0.1, shift: int = 3, seed: int = 0
) -> tuple[Examples, dict[str, int]]:
    """Return text with disturbed copies of it appended, and what became of them; no translator is needed.

    What is done to a text depends on (seed, sample, text) alone.

    Args:
        text: Plain text, or classification examples with one text; labels are not looked at.
        samples: Copies of each text.
        drop: Chance that a word is dropped; one word always stays.
        shift: A word moves by less than so many places; 1: none moves.
        seed: Another seed, other copies.

    Returns:
        As `paraphrase`.
    """
    if short_code(text.language) in UNSPACED:
        spans = segment_all(text.texts, text.language)
        words = [[t[a:b] for a, b in s.tolist()] for t, s in zip(text.texts, spans, strict=True)]
        gap = ""
    else:
        words, gap = [t.split() for t in text.texts], " "
    made = [[gap.join(_disturbed(w, drop, shift, f"{seed} {k}")) for w in words] for k in range(samples)]
    return _appended(text, made)


def _disturbed(words: Sequence[str], drop: float, shift: int, seed: str) -> list[str]:
    key = hashlib.blake2b("\x1f".join([seed, *words]).encode(), digest_size=8).digest()
    random = np.random.default_rng(int.from_bytes(key, "big"))
    places = np.arange(len(words)) + random.uniform(0, shift, len(words))
    stays = random.random(len(words)) >= drop
    if len(words) and not stays.any():
        stays[random.integers(len(words))] = True
    order = np.argsort(places, kind="stable")
    return [words[i] for i in order[stays[order]].tolist()]


def _appended(text: Examples, made: Iterable[Sequence[str]]) -> tuple[Examples, dict[str, int]]:
    if text.pairs is not None or text.spans is not None:
        raise BadInput(f"{text.name or 'The text'}: only single texts without labels of words can be paraphrased.")
    counts = {"kept": 0, "empty": 0, "copy": 0, "duplicate": 0}
    originals = [_plain(t) for t in text.texts]
    seen = set(originals)
    rows, ids, texts = [], [], []
    for number, column in enumerate(made, start=1):
        for row, new in enumerate(column):
            plain = _plain(new)
            fate = (
                "empty"
                if not plain
                else "copy"
                if plain == originals[row]
                else "duplicate"
                if plain in seen
                else "kept"
            )
            counts[fate] += 1
            if fate == "kept":
                seen.add(plain)
                rows.append(row)
                ids.append(f"{text.ids[row]}~{number}")
                texts.append(new)
    whole = text.unlabelled().select([*range(len(text)), *rows])
    return replace(whole, ids=[*text.ids, *ids], texts=[*text.texts, *texts]), counts


def _plain(text: str) -> str:
    return " ".join(text.split())
