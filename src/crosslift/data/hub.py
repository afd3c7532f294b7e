"""Data sets of the Hugging Face hub, as tables. Nothing that a repository contains is ever run."""

from __future__ import annotations

from pathlib import Path

from crosslift.data.table import Table
from crosslift.errors import BadInput, MissingExtra


def read_hub(name: str, config: str | None, split: str, revision: str | None = None) -> Table:
    """Fetch one split of a hub data set; class numbers become class names.

    Args:
        name: Hub id, `owner/name`.
        config: Its configuration (often the language), or `None`.
        split: Its name of the split.
        revision: Commit or branch.
    """
    try:
        import datasets
    except ImportError:
        raise MissingExtra("datasets, which reads from the hub,", "data") from None
    try:
        rows = datasets.load_dataset(name, config, split=split, revision=revision)
        columns = {column: _named(rows.features[column], rows[column][:]) for column in rows.column_names}
    except Exception as error:  # whatever the library, the network or the repository throws, it is one thing here
        reason = str(error).split("\n")[0].rstrip(".") or type(error).__name__
        raise BadInput(
            f'"{name}" cannot be read from the hub: {reason}.',
            "Check the name and the network (HF_HUB_OFFLINE), or give a local file.",
        ) from None
    return Table(Path(name), columns, range(1, len(rows) + 1))


def _named(feature: object, values: list[object]) -> list[object]:
    inner = getattr(feature, "feature", None)
    if names := getattr(feature, "names", None):
        return [_class(names, value) for value in values]
    if names := getattr(inner, "names", None):
        return [[_class(names, item) for item in row] if isinstance(row, list) else row for row in values]
    return values


def _class(names: list[str], value: object) -> str | None:
    # The hub writes -1 for "label withheld".
    return names[value] if isinstance(value, int) and 0 <= value < len(names) else None
