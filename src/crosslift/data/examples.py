"""Examples of one task in one language, column by column."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal, NamedTuple, get_args

import numpy as np
from numpy.typing import NDArray

from crosslift.errors import BadInput

Kind = Literal["classification", "tagging", "qa", "text", "bitext"]
KINDS: tuple[str, ...] = get_args(Kind)

Spans = NDArray[np.int32]
"""Words as character spans of their text: (words, 2), start and end, in reading order."""


class Answer(NamedTuple):
    """A gold answer to a question: its text, and where it starts in the context (characters)."""

    text: str
    start: int


Label = str | Sequence[str] | Sequence[Answer] | None
"""A class name, one tag per word, the gold answers of a question, or `None` if unknown."""


@dataclass(frozen=True)
class Examples:
    """Examples of one task in one language; row i of every column is example i.

    What the columns hold depends on `kind`:

    | kind | texts | pairs | labels |
    | --- | --- | --- | --- |
    | classification | text | second text, where there are two | class name |
    | tagging | natural text (words are in `spans`) | – | one tag per word |
    | qa | question | context | gold answers; empty = no answer |
    | text | text | – | – |
    | bitext | source side | target side | – |

    Attributes:
        kind: The kind of task.
        language: Language code of `texts`.
        ids: One unique name per example.
        texts: What the model reads.
        pairs: The second text, or `None`.
        spans: Tagging: the words of each text as character spans.
        labels: Gold labels, or `None` for an unlabelled set. A single `None` means "unknown".
        parallel_ids: Same parallel id = the same sentence in other languages; `None` if not parallel.
        groups: What a split must keep on one side (default: the parallel id, else the id).
        pair_language: Language of `pairs` where it differs from `language`.
        name: Where the examples come from, for messages and results.
        skipped: Reason -> number of rows left out while reading.
    """

    kind: Kind
    language: str
    ids: Sequence[str]
    texts: Sequence[str]
    pairs: Sequence[str] | None = None
    spans: Sequence[Spans] | None = None
    labels: Sequence[Label] | None = None
    parallel_ids: Sequence[str] | None = None
    groups: Sequence[str] | None = None
    pair_language: str | None = None
    name: str = ""
    skipped: Mapping[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for column, values in self._columns().items():
            if len(values) != len(self.ids):
                raise BadInput(f"{self.name or 'examples'}: {len(self.ids)} ids but {len(values)} {column}.")

    def __len__(self) -> int:
        return len(self.ids)

    def __repr__(self) -> str:
        labelled = "labelled" if self.labels is not None else "no labels"
        return f"Examples({self.name or '–'}: {len(self):,} × {self.kind}, {self.language}, {labelled})"

    def _columns(self) -> dict[str, Sequence[object]]:
        names = ("texts", "pairs", "spans", "labels", "parallel_ids", "groups")
        return {name: getattr(self, name) for name in names if getattr(self, name) is not None}

    def words(self, row: int) -> list[str]:
        """Return the words of one tagging example, cut out of its text."""
        if self.spans is None:
            raise BadInput(f"{self.name or 'examples'} has no words: it is a {self.kind} set.")
        text = self.texts[row]
        return [text[start:end] for start, end in self.spans[row].tolist()]

    def select(self, rows: Iterable[int]) -> Examples:
        """Return the given rows, in the given order."""
        rows = list(rows)
        columns = {name: [values[i] for i in rows] for name, values in self._columns().items()}
        return replace(self, ids=[self.ids[i] for i in rows], **columns)  # type: ignore[arg-type]

    def take(self, count: int, seed: int = 0) -> Examples:
        """Return at most `count` rows drawn without replacement, in their original order."""
        if count >= len(self):
            return self
        rows = np.random.default_rng(seed).choice(len(self), size=count, replace=False)
        return self.select(sorted(rows.tolist()))

    def unlabelled(self) -> Examples:
        """Return the same examples with no labels: what label-free methods are given."""
        return replace(self, labels=None)

    def label_names(self) -> tuple[str, ...]:
        """Return the class names or tags that occur, sorted; unknown labels do not count."""
        seen: set[str] = set()
        for label in self.labels or ():
            if isinstance(label, str):
                seen.add(label)
            elif label is not None and self.kind == "tagging":
                seen.update(str(tag) for tag in label)
        return tuple(sorted(seen))

    def split(self, shares: Mapping[str, float], seed: int = 0) -> dict[str, Examples]:
        """Cut the set into named parts, by group.

        Which part a row falls into depends on its group and the seed alone. So translations of one
        sentence land in the same part in every language, however the files are ordered or cut.

        Args:
            shares: Part name -> expected share; the shares sum to one.
            seed: Another seed, another cut.
        """
        if abs(sum(shares.values()) - 1) > 1e-6:
            raise BadInput(f"Shares of a split must sum to 1, not {sum(shares.values()):g}.")
        bounds = np.cumsum(list(shares.values()))
        keys = self.groups or self.parallel_ids or self.ids
        where = np.array([_unit_interval(key, seed) for key in keys])
        part = np.minimum(np.searchsorted(bounds, where, side="right"), len(bounds) - 1)
        return {name: self.select(np.flatnonzero(part == i)) for i, name in enumerate(shares)}


def _unit_interval(key: str, seed: int) -> float:
    digest = hashlib.blake2b(f"{seed}\t{key}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") / 2**64


def concatenate(parts: Sequence[Examples]) -> Examples:
    """Join sets of one kind; ids get the language as a prefix where they would clash."""
    if not parts:
        raise BadInput("Nothing to concatenate.")
    if len({part.kind for part in parts}) > 1:
        raise BadInput(f"Cannot mix {' and '.join(sorted({part.kind for part in parts}))} examples.")
    ids = [id_ for part in parts for id_ in part.ids]
    if len(set(ids)) < len(ids):
        ids = [f"{part.language}:{id_}" for part in parts for id_ in part.ids]
    shared = set.intersection(*(set(part._columns()) for part in parts))
    columns = {name: [v for part in parts for v in getattr(part, name)] for name in shared}
    languages = list(dict.fromkeys(part.language for part in parts))
    skipped: dict[str, int] = {}
    for part in parts:
        for reason, count in part.skipped.items():
            skipped[reason] = skipped.get(reason, 0) + count
    names = dict.fromkeys(part.name for part in parts)
    empty = {n: None for n in ("pairs", "spans", "labels", "parallel_ids", "groups") if n not in shared}
    return replace(
        parts[0],
        ids=ids,
        language="+".join(languages),
        name="+".join(names),
        skipped=skipped,
        **columns,  # type: ignore[arg-type]
        **empty,  # type: ignore[arg-type]
    )
