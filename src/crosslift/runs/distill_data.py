"""The text of a distillation: read without labels, joined with translations and paraphrases, a part held out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
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
from crosslift.runs.translate_data import progress_bar
from crosslift.translate import cache_folder, open_paraphrasers, open_translator
from crosslift.translate.augment import noise, paraphrase
from crosslift.translate.balanced import balanced

NOISE = "noise"
"""Stands in for a translator where there is none: words are dropped and moved."""

Text = str | Path | Examples
"""A file with one text a line, a catalog name, or examples."""

_HELD_OUT = 0.1
_HELD_OUT_SEED = 1  # not that of other cuts: of a half made with it, a tenth would be all or nothing
_MOST_HELD_OUT = 2000


@dataclass(frozen=True)
class MoreText:
    """Text that is made out of the text there is."""

    translator: str | None = field(
        default=None,
        metadata={"help": "Balanced distillation: translate the source text with this (see crosslift translate)."},
    )
    into: tuple[str, ...] = field(
        default=(), metadata={"help": "With --translator: languages to translate into; with --bridge: the targets."}
    )
    augment: str | None = field(
        default=None,
        metadata={"help": "Add paraphrases by this translator, from a language into itself; or noise, without one."},
    )
    paraphrases: int = field(default=5, metadata={"help": "With --augment: so many of each text."})
    via: str | None = field(
        default=None, metadata={"help": "With --augment: translate into this language and back again."}
    )

    def __post_init__(self) -> None:
        if self.translator and not self.into:
            raise BadInput("--translator needs languages to translate into.", "Name them with --into de,th.")
        if self.into and not self.translator:
            raise BadInput("--into needs somebody who translates.", "Name one with --translator.")
        if self.via and self.augment in (None, NOISE):
            raise BadInput("--via is for paraphrases by a translator.", "Name one with --augment.")
        if self.paraphrases < 1:
            raise BadInput(f"--paraphrases must be at least 1, not {self.paraphrases}.")


@dataclass(frozen=True)
class Corpus:
    """What the student reads and whose answers go with it.

    Attributes:
        originals: What the teacher reads: the text, then paraphrases of it.
        examples: What the student reads: the originals, then their translations.
        original_of: (examples,) which original each example belongs to.
        train: Rows of `examples` to learn from.
        held_out: Rows of `examples` on which the student is compared with its teacher; never paraphrases.
    """

    originals: Examples
    examples: Examples
    original_of: NDArray[np.int64]
    train: NDArray[np.int64]
    held_out: NDArray[np.int64]


def read_text(text: Mapping[str, Text], kind: str, limit: int | None, watch: Watch) -> list[Examples]:
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
    return sets


def make_corpus(
    sets: Sequence[Examples],
    translations: Mapping[str, Examples],
    more: MoreText,
    watch: Watch,
    cache: str | Path | None = None,
) -> Corpus:
    """Put text, paraphrases and translations together; what was made of a held-out text is not learnt from.

    Args:
        sets: The text, by language.
        translations: Language -> translations, tied to the text by parallel id (or id).
        more: What else is to be made of the text.
        watch: Who is told about progress.
        cache: Folder whose `translations` keeps what translators say; default: the user's.
    """
    text, kind = _joined(sets), sets[0].kind
    if (translations or more.translator) and kind != "classification":
        raise BadInput(f"Translations are for classification: the words of {kind} data do not carry over.")
    apart = set(text.split({"train": 1 - _HELD_OUT, "held": _HELD_OUT}, seed=_HELD_OUT_SEED)["held"].ids)
    held = np.array([id_ in apart for id_ in text.ids])
    if held.all() or not held.any():
        raise BadInput(f"{len(text)} texts are too few to set a tenth apart.", "Give at least some fifty.")
    kept_in = Path(cache) / "translations" if cache else cache_folder()
    made, made_of = _paraphrases(sets, more, kept_in, watch)
    originals = _joined([text, *made])
    place = {key: row for row, key in enumerate(text.parallel_ids or text.ids)}
    parts, original_of = [originals], [np.arange(len(originals))]
    for language, found in {**_translations(sets, translations, more, kept_in, watch), **translations}.items():
        keys = found.parallel_ids or found.ids
        rows = [row for row, key in enumerate(keys) if key in place]
        if not rows:
            raise BadInput(
                f"No translation into {language} belongs to a text here (by parallel id, else id).",
                f'The first text is "{(text.parallel_ids or text.ids)[0]}", the first translation "{keys[0]}".',
            )
        if len(rows) < len(found):
            watch.say(f"left out  {len(found) - len(rows):,} translations into {language} of texts that are not here")
        parts.append(found.unlabelled().select(rows))
        original_of.append(np.array([place[keys[row]] for row in rows], dtype=np.int64))
    of = np.concatenate(original_of)
    apart_too = np.concatenate([held, held[made_of]])[of]
    held_out = np.flatnonzero(apart_too & (of < len(text)))
    if len(held_out) > _MOST_HELD_OUT:
        held_out = np.sort(np.random.default_rng(0).choice(held_out, _MOST_HELD_OUT, replace=False))
    return Corpus(originals, _joined(parts), of, np.flatnonzero(~apart_too), held_out)


def _joined(sets: Sequence[Examples]) -> Examples:
    return concatenate(sets) if len(sets) > 1 else sets[0]


def _paraphrases(
    sets: Sequence[Examples], more: MoreText, cache: Path, watch: Watch
) -> tuple[list[Examples], NDArray[np.int64]]:
    """Return paraphrases by language, and the row of the joined text that each was made of."""
    found: list[Examples] = []
    made_of: list[NDArray[np.int64]] = []
    before = 0
    for text in sets if more.augment else ():
        # Under numbers of our own each paraphrase tells which text it is of.
        numbered = replace(text, ids=[str(row) for row in range(len(text))])
        if more.augment == NOISE:
            whole, counts = noise(numbered, samples=more.paraphrases)
        else:
            drawn = open_paraphrasers(str(more.augment), text.language, samples=more.paraphrases, via=more.via)
            whole, counts = paraphrase(numbered, drawn, cache=cache, progress=progress_bar(watch, drawn[0].name))
        left = ", ".join(f"{count:,} {fate}" for fate, count in counts.items() if fate != "kept" and count)
        watch.say(
            f"augment   {counts['kept']:,} paraphrases ({text.language})" + (f"; left out: {left}" if left else "")
        )
        new = whole.select(range(len(text), len(whole)))
        rows = np.array([int(id_.partition("~")[0]) for id_ in new.ids], dtype=np.int64)
        ids = [f"{text.ids[row]}~{id_.partition('~')[2]}" for row, id_ in zip(rows.tolist(), new.ids, strict=True)]
        found.append(replace(new, ids=ids, skipped={}))
        made_of.append(rows + before)
        before += len(text)
    return found, np.concatenate(made_of) if made_of else np.zeros(0, dtype=np.int64)


def _translations(
    sets: Sequence[Examples], given: Mapping[str, Examples], more: MoreText, cache: Path, watch: Watch
) -> dict[str, Examples]:
    """Translate the text into the languages that are asked for and not given."""
    if more.translator is None:
        return {}
    if len(sets) > 1:
        raise BadInput(f"--translator is for text in one language, not in {', '.join(s.language for s in sets)}.")
    (text,) = sets
    there = {x: open_translator(more.translator, text.language, x) for x in more.into if x not in given}
    bars = {language: progress_bar(watch, translator.name) for language, translator in there.items()}
    found = balanced(text, there, cache=cache, progress=lambda language, done, total: bars[language](done, total))
    for language, made in found.items():
        for reason, count in made.skipped.items():
            if reason not in text.skipped:
                watch.say(f"left out  {count:,} translations into {language}: {reason}")
    return found


def vocabulary_texts(examples: Examples, further: Mapping[str, str | Path]) -> dict[str, list[str]]:
    """Return what the vocabulary of a new student is trained on."""
    own = [*examples.texts, *(examples.pairs or ())]
    return {"text": own, **{language: read_lines(Path(path)) for language, path in further.items()}}
