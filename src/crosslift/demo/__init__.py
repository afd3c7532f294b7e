"""The embedded corpus: small, hand-written, multi-parallel data for every kind of task, offline."""

from __future__ import annotations

from crosslift.data.examples import Examples
from crosslift.demo.intents import load_intents, load_parallel, load_slots
from crosslift.demo.values import LANGUAGES, SPLITS
from crosslift.errors import BadInput, nearest

__all__ = ["LANGUAGES", "NAMES", "SPLITS", "load", "load_parallel"]

NAMES = ("demo-intent", "demo-slots", "demo-nli", "demo-qa")
"""Sets of the embedded corpus, by the name the catalog knows them by."""


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
            from crosslift.demo.pairs import load_nli

            return load_nli(language, split)
        case "demo-qa":
            from crosslift.demo.pairs import load_qa

            return load_qa(language, split)
    raise BadInput(f'No embedded set "{name}".{nearest(name, NAMES)}', f"There are {', '.join(NAMES)}.")
