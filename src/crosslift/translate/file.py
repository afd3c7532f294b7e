"""Existing translations in a file."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path

from crosslift.data.bitext import read_bitext
from crosslift.data.files import read_bytes
from crosslift.errors import BadFile


class TranslationFile:
    """Translations that somebody made: `source TAB translation` (or `|||`) a line; the first one of a text counts."""

    chunk = 0

    def __init__(self, path: Path, source: str, target: str) -> None:
        self.path, self.source, self.target = path, source, target
        self.name = f"translations in {path.name}"

    @cached_property
    def fingerprint(self) -> str:
        """A digest of the file."""
        return f"file-{hashlib.blake2b(read_bytes(self.path), digest_size=8).hexdigest()}"

    @cached_property
    def pairs(self) -> dict[str, str]:
        """Text, with single spaces -> its translation."""
        bitext = read_bitext(self.path)
        found: dict[str, str] = {}
        for text, translation in zip(bitext.texts, bitext.pairs or (), strict=True):
            found.setdefault(_plain(text), translation.strip())
        return found

    def translate(self, texts: Sequence[str]) -> list[str]:
        """Look texts up; a text that is not in the file is an error."""
        missing = [text for text in texts if _plain(text) not in self.pairs]
        if missing:
            raise BadFile(
                self.path,
                None,
                f"has no translation of {len(missing):,} of {len(texts):,} texts (first: {missing[0][:60]!r}).",
                "Add them, or leave those texts out.",
            )
        return [self.pairs[_plain(text)] for text in texts]


def _plain(text: str) -> str:
    return " ".join(text.split())
