"""Examples of a task in another language: texts translated, labels kept or carried over."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, cast

from crosslift.data.examples import Examples, Label, Spans
from crosslift.data.segment import segment_all
from crosslift.errors import BadInput
from crosslift.translate.cache import Progress, translate_all
from crosslift.translate.project import overlaps, project, relink

if TYPE_CHECKING:
    from crosslift.translate import Translator

Links = list[tuple[int, int]]

EMPTY = "nothing came out of the translator"
LOST = "a label could not be carried over"


def translate_examples(
    examples: Examples,
    translator: Translator,
    *,
    aligner: str | Path = "statistical",
    cache: str | Path | None = None,
    progress: Progress | None = None,
) -> Examples:
    """Return examples in the translator's target language: same ids, same order, same labels.

    Rows of which nothing comes out are left out and counted in `skipped`. Tags of words are carried over links
    between words; a row that loses one of its labelled stretches on the way is left out and counted, too.

    Args:
        examples: Classification (one or two texts), tagging, or plain text.
        translator: Who translates.
        aligner: Tagging: who links words (see `crosslift.align`); a dictionary's own links are used as they are.
        cache: Folder to keep translations in.
        progress: Told how many different texts are done.
    """
    if examples.kind in ("qa", "bitext"):
        what = "answers cannot be found again in a translation" if examples.kind == "qa" else "it has two languages"
        raise BadInput(f"{examples.name or 'The data'} is {examples.kind} data: {what}.")
    if examples.kind == "tagging":
        texts, spans, links = translate_linked(examples, translator, aligner=aligner, cache=cache, progress=progress)
        return _tagged(examples, translator, texts, spans, links)
    count = len(examples)
    both = [*examples.texts, *(examples.pairs or ())]
    made = translate_all(translator, both, cache=cache, progress=progress)
    found = replace(
        examples,
        language=translator.target,
        texts=made[:count],
        pairs=made[count:] if examples.pairs is not None else None,
    )
    return _without(found, {row: EMPTY for row in range(count) if not all(text.strip() for text in made[row::count])})


def translate_linked(
    examples: Examples,
    translator: Translator,
    *,
    aligner: str | Path = "statistical",
    cache: str | Path | None = None,
    progress: Progress | None = None,
) -> tuple[list[str], list[Spans], list[Links]]:
    """Translate tagging examples and link their words to those of the translations.

    Returns:
        Per example: the translation, its words as character spans, and links (own word, translation's word).
    """
    spans = cast("Sequence[Spans]", examples.spans)
    glosses = getattr(translator, "glosses", None)
    if glosses is not None:  # a dictionary knows what it put in the place of what
        made = glosses(examples.texts, spans)
        links = [[(i, j) for j, (a, b) in enumerate(g.origin.tolist()) for i in range(a, b)] for g in made]
        return [g.text for g in made], [g.spans for g in made], links
    texts = translate_all(translator, examples.texts, cache=cache, progress=progress)
    words = segment_all(texts, translator.target)
    return texts, words, link_words(examples, texts, translator.target, words, aligner)


def link_words(
    examples: Examples, texts: Sequence[str], language: str, words: Sequence[Spans], aligner: str | Path
) -> list[Links]:
    """Link the words of tagging examples to those of their translations.

    Args:
        examples: Tagging examples.
        texts: Their translations.
        language: Language of the translations.
        words: Words of the translations, as character spans.
        aligner: Who links words (see `crosslift.align`).
    """
    from crosslift.align import align_words

    bitext = Examples(
        kind="bitext",
        language=examples.language,
        pair_language=language,
        ids=examples.ids,
        texts=examples.texts,
        pairs=texts,
        name=examples.name,
    )
    aligned = align_words(bitext, aligner=aligner, symmetrise="grow-diag-final-and")
    own = cast("Sequence[Spans]", examples.spans)
    return [
        relink(
            aligned.alignment.links(row),
            overlaps(own[row], aligned.source[row]),
            overlaps(words[row], aligned.target[row]),
        )
        for row in range(len(examples))
    ]


def _tagged(
    examples: Examples,
    translator: Translator,
    texts: Sequence[str],
    spans: Sequence[Spans],
    links: Sequence[Links],
) -> Examples:
    gone = {row: EMPTY for row, words in enumerate(spans) if not len(words)}
    labels: list[Label] | None = None if examples.labels is None else []
    for row, tags in enumerate(examples.labels or ()):
        made, lost = project(cast("Sequence[str]", tags or ()), links[row], len(spans[row]))
        cast("list[Label]", labels).append(None if tags is None else made)
        if lost:
            gone.setdefault(row, LOST)
    found = replace(examples, language=translator.target, texts=texts, spans=spans, labels=labels)
    return _without(found, gone)


def _without(examples: Examples, gone: Mapping[int, str]) -> Examples:
    """Leave rows out, and count them by reason."""
    left = examples.select(row for row in range(len(examples)) if row not in gone)
    skipped = Counter(examples.skipped) + Counter(gone.values())
    return replace(left, skipped=dict(skipped))
