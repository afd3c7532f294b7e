"""A labelled set cut in two, to play through what happens without labels.

One half keeps its labels: the owner of the source model trained it there. The other is only text. Both are cut by
parallel id, so that no translation of a sentence with a label is among the text of any language.
"""

from __future__ import annotations

from dataclasses import replace

from crosslift.data.examples import Examples


def halves(examples: Examples, *, seed: int = 0, independent: bool = False) -> tuple[Examples, Examples]:
    """Return the annotated half and the unannotated one, which has lost its labels.

    Args:
        examples: A labelled set in one language.
        seed: Another seed, another cut; the same one in every language.
        independent: Cut each language by itself, as the released code of FreeTransfer-X does: translations of
            sentences with labels then occur among the text of other languages.
    """
    if independent:
        apart = [f"{examples.language} {id_}" for id_ in examples.ids]
        examples = replace(examples, groups=apart)
    parts = examples.split({"annotated": 0.5, "unannotated": 0.5}, seed)
    return parts["annotated"], parts["unannotated"].unlabelled()
