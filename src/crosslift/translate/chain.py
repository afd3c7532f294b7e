"""One translator after another: through a pivot language."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from crosslift.translate import Translator


class Chain:
    """Translators one after another, each into the language that the next one reads."""

    def __init__(self, legs: Sequence[Translator]) -> None:
        self.legs = legs
        self.source, self.target = legs[0].source, legs[-1].target
        self.name = ", then ".join(leg.name for leg in legs)
        prints = "\n".join(leg.fingerprint for leg in legs)
        self.fingerprint = f"chain-{hashlib.blake2b(prints.encode(), digest_size=8).hexdigest()}"
        self.chunk = max(leg.chunk for leg in legs)

    def translate(self, texts: Sequence[str]) -> list[str]:
        """Translate texts leg by leg; what one leg leaves empty stays empty."""
        found = list(texts)
        for leg in self.legs:
            rows = [row for row, text in enumerate(found) if text.strip()]
            for row, text in zip(rows, leg.translate([found[row] for row in rows]), strict=True):
                found[row] = text
        return found
