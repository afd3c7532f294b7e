"""What a transfer has to work with, and which part of it is kept to judge by."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

from crosslift.data import catalog, load, splits_of
from crosslift.data.bitext import read_bitext
from crosslift.data.examples import Examples, Kind
from crosslift.errors import BadInput
from crosslift.runs.adjust import Bitexts
from crosslift.runs.distill_data import Text
from crosslift.runs.fit import fingerprint

HELD_OUT_PAIRS = 200
_JUDGING = 7  # not the seed of other cuts: of a part made with it, a tenth would be all or nothing


@dataclass(frozen=True)
class Inputs:
    """What there is to work with."""

    model: str
    data: str | Path | Examples | None
    dev: str | Path | Examples | None
    source: str
    bitext: Bitexts
    task_model: str | None
    text: Mapping[str, Text]
    synonyms: str | None
    limit: int | None
    seeds: tuple[int, ...]
    base: str | None = None
    connector: str | None = None
    reading: Mapping[str, object] = field(default_factory=dict)

    def have(self) -> set[str]:
        """Return the inputs by the names in `OPTIONS`."""
        base = self.base is not None and self.source in self.text
        given = {
            "labels": self.data is not None,
            "bitext": bool(self.bitext),
            "task-model": self.task_model is not None,
            "text": bool(self.text),
            "source-text": self.source in self.text,
            "target-text": bool(self.text.keys() - {self.source}),
            "connector": self.connector is not None or base,
        }
        return {name for name, there in given.items() if there}

    def check(self) -> None:
        """Refuse text that is not there before anything runs: it may be looked at last, when candidates are judged."""
        for language, given in self.text.items():
            if not isinstance(given, Examples) and not catalog.is_known(str(given)) and not Path(given).exists():
                raise BadInput(f"There is no {given}, the text of {language}.", "Give --text LANGUAGE=FILE.")

    def request(self) -> dict[str, object]:
        """Return what must be the same for a transfer to go on."""
        return {
            "model": self.model,
            "data": _named(self.data),
            "dev": _named(self.dev),
            "source": self.source,
            "bitext": {language: _named(found) for language, found in self.bitext.items()},
            "task_model": self.task_model,
            "base": self.base,
            "connector": self.connector,
            "text": {language: _named(found) for language, found in self.text.items()},
            "synonyms": self.synonyms,
            "limit": self.limit,
            "seeds": list(self.seeds),
            "reading": {name: dict(x) if isinstance(x, Mapping) else x for name, x in self.reading.items()},
        }

    def labelled(self) -> Examples | str:
        """Return the training data: as it was given, or read as its options say."""
        return self._read(self.data, "train")

    def dev_data(self) -> Examples | str | None:
        """Return the dev data in the same way; `None`: `fit` looks for some."""
        return None if self.dev is None else self._read(self.dev, "dev")

    def _read(self, given: str | Path | Examples | None, split: str) -> Examples | str:
        if isinstance(given, Examples):
            return given
        if not self.reading:
            return str(given)
        return load(str(given), language=self.source, split=split, **self.reading)  # type: ignore[arg-type]

    def source_dev(self) -> Examples:
        """Return the dev data that `fit` selects on: given, the set's own, or the tenth that it sets apart."""
        given = self.dev_data()
        data = self.labelled()
        if given is None and isinstance(data, str) and catalog.is_known(data) and "dev" in splits_of(data):
            given = data
        if given is not None:
            return given if isinstance(given, Examples) else load(given, language=self.source, split="dev")
        whole = data if isinstance(data, Examples) else load(data, language=self.source, split="train")
        return whole.split({"train": 0.9, "dev": 0.1})["dev"]

    def pairs(self, language: str) -> Examples:
        """Return the sentence pairs of a language."""
        given = self.bitext[language]
        if isinstance(given, Examples):
            return given
        return read_bitext(given, language=self.source, pair_language=language)

    def training_pairs(self) -> dict[str, Examples]:
        """Return the pairs that methods may learn from: without those that are kept to judge them."""
        return {language: apart(self.pairs(language))[0] for language in self.bitext}

    def judging_pairs(self) -> dict[str, Examples]:
        """Return the pairs that no method learns from."""
        return {language: apart(self.pairs(language))[1] for language in self.bitext}

    def texts(self, kind: str, languages: Sequence[str] | None = None) -> dict[str, Examples]:
        """Return the unlabelled text of some languages (default: all) to learn from, the source first."""
        return {language: _parted(found)["learn"] for language, found in self._texts(kind, languages).items()}

    def judging_texts(self, kind: str) -> dict[str, Examples]:
        """Return a tenth of the text of each language, which no method learns from; translations stay together."""
        return {language: _parted(found)["judge"] for language, found in self._texts(kind, None).items()}

    def _texts(self, kind: str, languages: Sequence[str] | None) -> dict[str, Examples]:
        wanted = [x for x in languages or self.text if x == self.source]
        wanted += [x for x in languages or self.text if x != self.source]
        return {language: self._text(language, kind) for language in wanted}

    def _text(self, language: str, kind: str) -> Examples:
        given = self.text[language]
        if isinstance(given, Examples):
            return given.unlabelled()
        # What is said about columns is about tables, not about a file with one text a line.
        table = not catalog.is_known(str(given)) and Path(str(given)).suffix in (".csv", ".tsv", ".jsonl", ".parquet")
        named = {k: v for k, v in self.reading.items() if k in ("columns", "format", "quoting")} if table else {}
        options: dict[str, Any] = {"kind": cast("Kind", kind), "unlabelled": True, **named}
        return load(given, language=language, split="train", **options)


def _parted(text: Examples) -> dict[str, Examples]:
    return text.split({"learn": 0.9, "judge": 0.1}, seed=_JUDGING)


def apart(pairs: Examples) -> tuple[Examples, Examples]:
    """Return pairs to learn from, and a fifth of them (at most 200) to judge by."""
    kept = min(HELD_OUT_PAIRS, len(pairs) // 5)
    return pairs.select(range(len(pairs) - kept)), pairs.select(range(len(pairs) - kept, len(pairs)))


def _named(given: object) -> object:
    """Return what is remembered of an input: its name, and a digest of examples that have no file."""
    if isinstance(given, Examples):
        return f"{given.name} {fingerprint(given)}"
    return [str(x) for x in given] if isinstance(given, list | tuple) else None if given is None else str(given)
