"""Text for balanced distillation: source text in every target language, tied to its original.

The bridge reads the translations; the source teacher has read the originals only, and what it said about an original
holds for the translations as well. Human translations of the same text (matched by parallel id) may stand in for a
translator: that is an upper bound, not a method.

(Guo et al., *FreeTransfer-X*, NAACL 2022, section 2.3.1.)
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from crosslift.data.examples import Examples
from crosslift.errors import BadInput
from crosslift.translate.text import translate_examples

if TYPE_CHECKING:
    from crosslift.translate import Translator


def balanced(
    source: Examples,
    translators: Mapping[str, Translator | Examples],
    *,
    cache: str | Path | None = None,
    progress: Callable[[str, int, int], None] | None = None,
) -> dict[str, Examples]:
    """Return the source text in every target language, as `distill(translations=…)` takes it.

    The parallel id of each translation is that of its original (its id where it has none). Labels are not looked at.

    Args:
        source: The text that the teacher reads.
        translators: Language -> a translator, or existing translations that share parallel ids with the source.
        cache: Folder to keep translations in.
        progress: Told the language, how many different texts are done, and of how many.
    """
    keys = source.parallel_ids or source.ids
    plain = replace(source.unlabelled(), parallel_ids=keys)
    found = {}
    for language, how in translators.items():
        if isinstance(how, Examples):
            found[language] = _matched(how.unlabelled(), set(keys), source.name)
            continue
        tell = None if progress is None else lambda done, total, name=language: progress(name, done, total)
        found[language] = translate_examples(plain, how, cache=cache, progress=tell)
    return found


def _matched(given: Examples, keys: set[str], name: str) -> Examples:
    own = given.parallel_ids or given.ids
    rows = [row for row, key in enumerate(own) if key in keys]
    if not rows:
        raise BadInput(f"{given.name} ({given.language}) shares no parallel id with {name or 'the source text'}.")
    left = len(given) - len(rows)
    skipped = {**given.skipped, "no original in the source text": left} if left else given.skipped
    return replace(given.select(rows), parallel_ids=[own[row] for row in rows], skipped=skipped)
