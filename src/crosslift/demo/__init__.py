"""The embedded corpus: small, hand-written, multi-parallel data for every kind of task, offline."""

from __future__ import annotations

from crosslift.data.examples import Examples
from crosslift.demo import pairs
from crosslift.demo.intents import load_intents, load_parallel, load_slots
from crosslift.demo.values import LANGUAGES, SPLITS
from crosslift.errors import BadInput, nearest

__all__ = ["LANGUAGES", "NAMES", "SPLITS", "languages", "load", "load_parallel", "load_translations", "splits"]

NAMES = ("demo-intent", "demo-slots", "demo-nli", "demo-qa")
"""Sets of the embedded corpus, by the name the catalog knows them by."""


def languages(name: str) -> tuple[str, ...]:
    """Return the languages of an embedded set."""
    return {"demo-nli": pairs.LANGUAGES_NLI, "demo-qa": pairs.LANGUAGES_QA}.get(name, tuple(LANGUAGES))


def splits(name: str, language: str | None = None) -> tuple[str, ...]:
    """Return the splits of an embedded set, in a language or in any."""
    return tuple(pairs.splits_nli(language)) if name == "demo-nli" and language else tuple(SPLITS)


def load(name: str, language: str, split: str, seed: int = 0) -> Examples:
    """Load one split of an embedded set in one language.

    Args:
        name: `demo-intent` (classification), `demo-slots` (tagging), `demo-nli` (pairs) or `demo-qa`.
        language: Language code.
        split: `train`, `dev` or `test`.
        seed: Intents and slots: another seed draws other values into the same phrasings. Pairs and
            questions are fixed and take no notice of it.
    """
    match name:
        case "demo-intent":
            return load_intents(language, split, seed)
        case "demo-slots":
            return load_slots(language, split, seed)
        case "demo-nli":
            return pairs.load_nli(language, split)
        case "demo-qa":
            return pairs.load_qa(language, split)
    raise BadInput(f'No embedded set "{name}".{nearest(name, NAMES)}', f"There are {', '.join(NAMES)}.")


def load_translations(name: str, language: str, split: str = "train") -> Examples:
    """Return an embedded set's English sentences and their translations as bitext."""
    if name in ("demo-intent", "demo-slots"):
        return load_parallel("en", language, split)
    english, other = load(name, "en", split), load(name, language, split)
    both = zip((*english.texts, *(english.pairs or ())), (*other.texts, *(other.pairs or ())), strict=True)
    translations = dict(both)  # a premise, hypothesis or paragraph that stands in several rows counts once
    ids = [f"{name}-{i}" for i in range(len(translations))]
    return Examples(
        kind="bitext",
        language="en",
        ids=ids,
        texts=list(translations),
        pairs=list(translations.values()),
        parallel_ids=ids,
        pair_language=language,
        name=f"{name}/en-{language}/{split}",
    )
