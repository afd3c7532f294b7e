"""Translations that are made once: kept on disk, in order of length, and never lost to a kill.

One SQLite file per translator (by fingerprint) holds `source -> translation`. It is written chunk by chunk, each in
one transaction, so that several processes may share it and a job that was killed goes on where it was.
"""

from __future__ import annotations

import os
import re
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from crosslift.errors import BrokenRun, CrossliftError

if TYPE_CHECKING:
    from crosslift.translate import Translator

Progress = Callable[[int, int], None]
"""Told how many different texts are done, of how many."""

_AT_ONCE = 500  # SQLite limits how many values a query may name


def cache_folder() -> Path:
    """Return where translations are kept: below `$CROSSLIFT_CACHE`, else below the user's own cache."""
    own = os.environ.get("CROSSLIFT_CACHE")
    root = Path(own) if own else Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "crosslift"
    return root / "translations"


def translate_all(
    translator: Translator,
    texts: Sequence[str],
    *,
    cache: str | Path | None = None,
    progress: Progress | None = None,
) -> list[str]:
    """Translate texts, each different one once; the order is kept, and an empty text stays empty.

    The texts go to the translator longest first, so that those of like length share a batch and time left can be
    told. How they are cut into chunks depends on the texts alone: a job that is started again, also one that draws
    (from a Hugging Face model), ends with the same translations.

    Args:
        translator: Who translates.
        texts: Any texts; duplicates and blanks cost nothing.
        cache: Folder to keep translations in; `None`: nothing is kept.
        progress: Told after each chunk how many different texts are done, and of how many.
    """
    wanted = sorted({text for text in texts if text.strip()}, key=lambda text: (-len(text), text))
    size = translator.chunk or len(wanted) or 1
    found: dict[str, str] = {}
    with _opened(translator, cache) as store:
        for start in range(0, len(wanted), size):
            chunk = wanted[start : start + size]
            known = store.read(chunk)
            missing = [text for text in chunk if text not in known]
            if missing:
                made = dict(zip(missing, _translated(translator, missing), strict=True))
                store.write(made.items())
                known |= made
            found |= known
            if progress:
                progress(len(found), len(wanted))
    return [found.get(text, "") for text in texts]


def _translated(translator: Translator, texts: list[str]) -> list[str]:
    made = translator.translate(texts)
    if len(made) != len(texts):
        raise CrossliftError(f"{translator.name} gave {len(made)} translations of {len(texts)} texts.")
    return made


class _Store:
    """Translations of one translator in a SQLite file."""

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self.link = sqlite3.connect(path, timeout=60)
        with self.link:
            self.link.execute(
                "CREATE TABLE IF NOT EXISTS translations (source TEXT PRIMARY KEY, translation TEXT) WITHOUT ROWID"
            )

    def read(self, texts: Sequence[str]) -> dict[str, str]:
        """Return the translations that are there."""
        found: dict[str, str] = {}
        for start in range(0, len(texts), _AT_ONCE):
            part = texts[start : start + _AT_ONCE]
            marks = ",".join("?" * len(part))
            found.update(self.link.execute(f"SELECT * FROM translations WHERE source IN ({marks})", part))
        return found

    def write(self, pairs: Iterable[tuple[str, str]]) -> None:
        """Add translations, all of them or none."""
        with self.link:
            self.link.executemany("INSERT OR REPLACE INTO translations VALUES (?, ?)", pairs)

    def close(self) -> None:
        """Let go of the file."""
        self.link.close()


class _Nowhere:
    """Keeps nothing."""

    def read(self, texts: Sequence[str]) -> dict[str, str]:
        """Know nothing."""
        return {}

    def write(self, pairs: Iterable[tuple[str, str]]) -> None:
        """Keep nothing."""


@contextmanager
def _opened(translator: Translator, cache: str | Path | None) -> Iterator[_Store | _Nowhere]:
    if cache is None or not translator.chunk:
        yield _Nowhere()
        return
    languages = re.sub(r"[^\w-]", "", f"{translator.source}-{translator.target}")
    file = Path(cache) / f"{languages}-{translator.fingerprint}.sqlite"
    try:
        with closing(_Store(file)) as store:
            yield store
    except sqlite3.Error as error:
        raise BrokenRun(
            f"{file} cannot be used: {error}.", "Is the disk full? If not, remove that file: it will be made again."
        ) from error
