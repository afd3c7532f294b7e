"""The data of a measurement: the same items in several languages, and held-out data beside them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from crosslift.data import languages_of, load
from crosslift.data.examples import Examples
from crosslift.data.parallel import LEFT_OUT, align, require_shared_labels
from crosslift.errors import BadInput
from crosslift.runs.progress import Watch


def parallel_sets(
    data: str | Path | Mapping[str, Examples],
    languages: Sequence[str] | None,
    split: str | None,
    limit: int | None = None,
    reading: Mapping[str, object] | None = None,
    *,
    labelled: bool = True,
    watch: Watch | None = None,
) -> dict[str, Examples]:
    """Load the same items in several languages; see `data.parallel.align`."""
    if isinstance(data, Mapping):
        absent = [language for language in languages or () if language not in data]
        if absent:
            raise BadInput(f'No data for "{absent[0]}"; there is {", ".join(data)}.')
        sets = {language: data[language] for language in languages or data}
    else:
        wanted = languages or languages_of(data, split)
        options = dict(reading or {})
        sets = {
            language: load(str(data).replace("{lang}", language), language=language, split=split, **options)  # type: ignore[arg-type]
            for language in wanted
        }
    if labelled:
        for examples in sets.values():
            if examples.labels is None:
                raise BadInput(f"{examples.name or 'The data'} has no labels.", "Measure it with random labels.")
    else:
        sets = {language: examples.unlabelled() for language, examples in sets.items()}
    aligned = align(sets)
    require_shared_labels(aligned)
    lost = max(examples.skipped.get(LEFT_OUT, 0) for examples in aligned.values())
    if lost and watch:
        watch.say(f"{lost:,} rows have {LEFT_OUT} and are left out.")
    if limit is None:
        return aligned
    some = next(iter(aligned.values()))
    kept = set(some.take(limit).ids)
    rows = [row for row, id_ in enumerate(some.ids) if id_ in kept]
    return {language: examples.select(rows) for language, examples in aligned.items()}


def held_out_sets(
    data: str | Path | Mapping[str, Examples],
    held_out: str | Mapping[str, Examples] | None,
    languages: Sequence[str],
    reading: Mapping[str, object],
) -> dict[str, Examples]:
    """Load the held-out data of some languages: a part of the same data, files of its own, or what was given."""
    if held_out is None:
        return {}
    if isinstance(held_out, Mapping):
        return {language: held_out[language] for language in languages if language in held_out}
    if isinstance(data, Mapping):
        raise BadInput("Held-out data of given examples must be given as examples, too.")
    own = "{lang}" in held_out or bool(Path(held_out).suffix)
    name, part = (held_out, None) if own else (str(data), held_out)
    # A file is taken whole: its part would be the training items once more.
    if part is not None and ("{lang}" in name or Path(name).is_file()):
        raise BadInput(
            f'{name} is taken whole; it has no part "{part}".',
            "Name held-out files, as in --held-out test.{lang}.tsv.",
        )
    return {
        language: load(name.replace("{lang}", language), language=language, split=part, **reading)  # type: ignore[arg-type]
        for language in languages
    }
