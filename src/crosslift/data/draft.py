"""Examples while they are being read: every row of every format passes the same checks."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import cast

from crosslift.data.examples import Examples, Kind, Label, Spans
from crosslift.errors import BadFile, nearest

TAG = re.compile(r"O|[BI]-\S+")

UNKNOWN_LANGUAGE = "und"
"""The code for "undetermined" (ISO 639-2): a file that does not say its language."""


@dataclass(frozen=True)
class Reading:
    """What the caller asks of a file.

    Attributes:
        kind: The kind of task; `None` = what the file looks like.
        language: Language to pick, or what to call the only one.
        columns: Our name of a column -> the file's name for it, or its number, from 1.
        labels: Label in the file -> label to use.
        allowed_labels: The labels that may occur, after mapping; empty = any.
        skip_unknown: Leave out rows whose label is unknown or missing.
        strict: Leave nothing out: what would be skipped is an error.
        limit: Stop after this many examples.
        placeholders: Texts that stand for "no sentence here" (`NS` in PAWS-X).
        pair_language: Language of the second text, where it is another.
        unlabelled: Do not look at labels.
    """

    kind: Kind | None = None
    language: str | None = None
    columns: Mapping[str, str | int] = field(default_factory=dict)
    labels: Mapping[str, str] = field(default_factory=dict)
    allowed_labels: Sequence[str] = ()
    skip_unknown: bool = False
    strict: bool = False
    limit: int | None = None
    placeholders: Sequence[str] = ()
    pair_language: str | None = None
    unlabelled: bool = False


class Draft:
    """Collects examples row by row and refuses or counts what is wrong with them.

    Args:
        path: The file, for messages.
        kind: The kind of task.
        reading: What the caller asked for.
    """

    def __init__(self, path: Path, kind: Kind, reading: Reading) -> None:
        self.path = path
        self.kind = kind
        self.reading = reading
        self.skipped: dict[str, int] = {}
        self._lines: dict[str, int | None] = {}
        self._texts: list[str] = []
        self._pairs: list[str] = []
        self._spans: list[Spans] = []
        self._labels: list[Label] = []
        self._parallel: list[str] = []
        self._groups: list[str] = []
        self._unlabelled: list[int] = []
        self._known: dict[str, str] = {}
        self._allowed = frozenset(reading.allowed_labels)

    @property
    def full(self) -> bool:
        """Whether the limit is reached."""
        return self.reading.limit is not None and len(self._texts) >= self.reading.limit

    def skip(self, line: int | None, reason: str) -> None:
        """Count a row that is left out, or refuse it if the caller is strict."""
        if self.reading.strict:
            raise BadFile(self.path, line, f"{reason}.", "Without --strict such rows are left out and counted.")
        self.skipped[reason] = self.skipped.get(reason, 0) + 1

    def add(
        self,
        line: int | None,
        id_: str,
        text: str,
        pair: str | None = None,
        spans: Spans | None = None,
        label: Label = None,
        parallel_id: str | None = None,
        group: str | None = None,
        tag_lines: Sequence[int] | None = None,
    ) -> None:
        """Check one row and take it in, or leave it out for a counted reason.

        Args:
            line: Its line in the file.
            id_: Its name, which no other row has.
            text: What the model reads.
            pair: The second text.
            spans: The words of a tagged text.
            label: Gold label as the file has it; `None` = the file does not say.
            parallel_id: Name that its translations share.
            group: What a split must keep together.
            tag_lines: The line of each tag, where every tag has its own.
        """
        reading = self.reading
        if not text.strip() or (pair is not None and not pair.strip()):
            return self.skip(line, "empty text")
        if reading.placeholders and (text in reading.placeholders or pair in reading.placeholders):
            return self.skip(line, "placeholder instead of a sentence")
        if reading.unlabelled:
            label = None
        if label is None:
            self._unlabelled.append(len(self._texts))
        elif isinstance(label, str) or self.kind == "tagging":
            label = self._named(line, label, tag_lines)
            if label is None:
                return self.skip(line, "unknown label")
        if not id_:
            raise BadFile(self.path, line, "has no id.")
        if id_ in self._lines:
            first = self._lines[id_]
            where = f" (first on line {first})" if first is not None else ""
            raise BadFile(self.path, line, f'id "{id_}" occurs twice{where}.', "Ids must be unique.")
        self._lines[id_] = line
        self._texts.append(text)
        self._labels.append(label)
        for column, value in ((self._pairs, pair), (self._parallel, parallel_id), (self._groups, group)):
            if value is not None:
                column.append(value)
        if spans is not None:
            self._spans.append(spans)
        return None

    def examples(self, language: str) -> Examples:
        """Return what was collected; a file with no usable row is an error."""
        if not self._texts:
            reasons = ", ".join(f"{reason}: {count}" for reason, count in self.skipped.items())
            raise BadFile(self.path, None, f"no row is left{f' ({reasons})' if reasons else ''}.")
        ids = list(self._lines)
        found = Examples(
            kind=self.kind,
            language=language,
            ids=ids,
            texts=self._texts,
            pairs=self._pairs or None,
            spans=self._spans or None,
            labels=None if len(self._unlabelled) == len(ids) else self._labels,
            parallel_ids=self._parallel or None,
            groups=self._groups or None,
            pair_language=self.reading.pair_language,
            name=self.path.name,
            skipped=self.skipped,
        )
        if found.labels is None or not self._unlabelled:
            return found
        if not self.reading.skip_unknown:
            line = self._lines[ids[self._unlabelled[0]]]
            raise BadFile(
                self.path,
                line,
                "has no label, though other rows have one.",
                "Label it, or leave such rows out with --skip-unknown.",
            )
        for row in self._unlabelled:
            self.skip(self._lines[ids[row]], "no label")
        return found.select(sorted(set(range(len(ids))) - set(self._unlabelled)))

    def _named(self, line: int | None, label: Label, tag_lines: Sequence[int] | None) -> Label:
        """Return the label or tags under the names to use, or `None` to leave the row out."""
        if isinstance(label, str):
            label = self.reading.labels.get(label, label)
            return label if self._may_be(line, "label", label) else None
        tags = cast("Sequence[str]", label)
        try:
            return [self._known[tag] for tag in tags]
        except KeyError:
            pass
        for place, tag in enumerate(tags):
            here = tag_lines[place] if tag_lines else line
            if not TAG.fullmatch(tag):
                remedy = 'A tag is O, or "B-" or "I-" and a name, as in B-PER.'
                raise BadFile(self.path, here, f'tag "{tag}" is bad.', remedy)
            used = _mapped_tag(tag, self.reading.labels)
            if not self._may_be(here, "tag", used):
                return None
            self._known[tag] = used
        return [self._known[tag] for tag in tags]

    def _may_be(self, line: int | None, what: str, label: str) -> bool:
        if not self._allowed or label in self._allowed:
            return True
        if self.reading.skip_unknown:
            return False
        allowed = list(self.reading.allowed_labels)
        guess = nearest(label, allowed).strip()
        target = guess.split('"')[1] if guess else allowed[0]
        raise BadFile(
            self.path,
            line,
            f'{what} "{label}" is not one of {", ".join(allowed)}.',
            f"{guess}{'  ' if guess else ''}Map it with --labels {label}={target}, "
            "or leave such rows out with --skip-unknown.",
        )


def _mapped_tag(tag: str, labels: Mapping[str, str]) -> str:
    if tag in labels:
        return labels[tag]
    prefix, _, name = tag.partition("-")
    return f"{prefix}-{labels[name]}" if name in labels else tag
