"""Do several sets belong together? Label names and parallel rows, checked before anything runs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence

from crosslift.data.examples import Examples
from crosslift.errors import BadInput, BadLabels, nearest


def check_labels(
    sets: Sequence[Examples], model_labels: Sequence[str] | None = None, allow: Collection[str] = ()
) -> None:
    """Refuse sets with labels that the source, or the model, does not know.

    Fewer labels than the source has is fine: a small test set need not show every class. Tags are compared
    without `B-` and `I-`: a name that is always one word long in one language may be longer in another.

    Args:
        sets: The source set first, then the targets; unlabelled ones pass.
        model_labels: The labels of the model; without them those of the first set count.
        allow: Labels that may be unknown (tags: without `B-` and `I-`).

    Raises:
        BadLabels: Names the labels, shows both lists, and the nearest match.
    """
    if not sets:
        return
    tagging = sets[0].kind == "tagging"
    known = _names(sets[0].label_names() if model_labels is None else model_labels, tagging)
    owner = "the model" if model_labels is not None else _name(sets[0])
    if model_labels is None and sets[0].labels is None:
        return
    for target in sets:
        names = _names(target.label_names(), tagging)
        unknown = [label for label in names if label not in known and label not in allow]
        if unknown:
            listed = ", ".join(f'"{label}"' for label in unknown)
            guess = nearest(unknown[0], known)
            raise BadLabels(
                f"{_name(target)} has labels that {owner} does not know: {listed}.{guess}",
                f"{owner}: {', '.join(known)}\n  {_name(target)}: {', '.join(names)}\n"
                f"  Map them with --labels {unknown[0]}=…, or leave such rows out with --skip-unknown.",
            )


def check_parallel(sets: Sequence[Examples]) -> None:
    """Refuse sets that are not translations of one another, row for row by parallel id.

    Raises:
        BadInput: Says which sets differ, in what, and where first.
    """
    if not sets:
        return
    for part in sets:
        if part.parallel_ids is None:
            raise BadInput(f"{_name(part)} is not parallel: its rows have no parallel ids.")
    first, ids = sets[0], Counter(sets[0].parallel_ids or ())
    for other in sets[1:]:
        others = Counter(other.parallel_ids or ())
        if others == ids:
            continue
        here, there = next(iter(ids - others), None), next(iter(others - ids), None)
        where = f'"{here}" is only in {_name(first)}' if here else f'"{there}" is only in {_name(other)}'
        raise BadInput(
            f"{_name(first)} has {len(first):,} rows and {_name(other)} {len(other):,}, "
            f"but they are not the same ones: {where}.",
            "Keep the rows that all have.",
        )


def _name(examples: Examples) -> str:
    return f"{examples.name} ({examples.language})" if examples.name else examples.language


def _names(labels: Sequence[str], tagging: bool) -> list[str]:
    plain = (label[2:] if tagging and label[:2] in ("B-", "I-") else label for label in labels)
    return list(dict.fromkeys(plain))
