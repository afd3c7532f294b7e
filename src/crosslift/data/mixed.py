"""Test sets that mix languages within one example, made from parallel ones."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import replace

from crosslift.data.examples import Examples
from crosslift.errors import BadInput


def mixed(premises: Examples, english: Examples, seed: int = 0) -> Examples:
    """Put one of the two sentences of each item in English; a fair coin says which.

    The coin depends on the seed and the item's parallel id alone, so every language gets the same ones.

    Args:
        premises: Sentence pairs in the target language (natural-language inference, paraphrases).
        english: The same pairs in English, matched by parallel id.
        seed: Another seed, other coins.

    Returns:
        The items that both sets have, with the labels of `premises`; `skipped` counts the others.
    """
    if premises.pairs is None or english.pairs is None or premises.kind != "classification":
        raise BadInput(f"{premises.name or premises.language} has no sentence pairs to mix.")
    partner = _partners(english)
    keep = [row for row, id_ in enumerate(_parallel(premises)) if id_ in partner]
    texts, pairs = [], []
    for row in keep:
        id_ = _parallel(premises)[row]
        heads = hashlib.blake2b(f"{seed}\t{id_}".encode(), digest_size=1).digest()[0] < 128
        texts.append(english.texts[partner[id_]] if heads else premises.texts[row])
        pairs.append(premises.pairs[row] if heads else english.pairs[partner[id_]])
    language = f"{premises.language}+{english.language}"
    return _matched(premises, keep, texts, pairs, language, None, english.language)


def cross(question: Examples, context: Examples) -> Examples:
    """Ask in one language about a paragraph in another, as MLQA and XQuAD allow.

    Args:
        question: Set that gives the questions.
        context: Set that gives paragraphs and gold answers, matched by parallel id.

    Returns:
        The questions that both sets have, in the order of `context`; `skipped` counts the others.
    """
    if question.kind != "qa" or context.kind != "qa" or context.pairs is None:
        raise BadInput("Questions and paragraphs can be crossed between question-answering sets only.")
    partner = _partners(question)
    ids = _parallel(context)
    keep = [row for row, id_ in enumerate(ids) if id_ in partner]
    texts = [question.texts[partner[ids[row]]] for row in keep]
    pairs = [context.pairs[row] for row in keep]
    return _matched(context, keep, texts, pairs, question.language, context.language, question.language)


def _parallel(examples: Examples) -> Sequence[str]:
    if examples.parallel_ids is None:
        raise BadInput(f"{examples.name or examples.language} is not parallel: its rows have no parallel ids.")
    return examples.parallel_ids


def _partners(examples: Examples) -> dict[str, int]:
    return {id_: row for row, id_ in enumerate(_parallel(examples))}


def _matched(
    base: Examples,
    keep: list[int],
    texts: list[str],
    pairs: list[str],
    language: str,
    pair_language: str | None,
    other: str,
) -> Examples:
    if not keep:
        raise BadInput(f"{base.name or base.language} shares no parallel id with the {other} set.")
    lost = len(base) - len(keep)
    skipped = dict(base.skipped) | ({f"no partner in {other}": lost} if lost else {})
    return replace(
        base.select(keep),
        texts=texts,
        pairs=pairs,
        language=language,
        pair_language=pair_language,
        skipped=skipped,
    )
