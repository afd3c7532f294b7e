"""Files that are either there and whole, or not there at all."""

import json
import os
import shutil
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import cast

from crosslift.errors import BadInput, BrokenRun

Json = dict[str, object]


@contextmanager
def atomic(path: Path) -> Iterator[Path]:
    """Give a temporary path beside `path`; on success it takes the name `path` in one step.

    A crash or a full disk leaves whatever `path` held before.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        folder = tempfile.TemporaryDirectory(dir=path.parent, prefix=f".{path.name}-")
    except OSError as error:
        raise BrokenRun(
            f"{path} could not be written: {error.strerror or error}.", "Name a place that you may write to."
        ) from error
    with folder as scratch:
        draft = Path(scratch) / path.name
        try:
            yield draft
        except OSError as error:
            raise BrokenRun(
                f"{path} could not be written: {error.strerror or error}.",
                "What was there before is untouched. Free some space and start the same command again.",
            ) from error
        if draft.is_dir():
            for file in sorted(draft.rglob("*")):
                if file.is_file():
                    _sync(file)
            if path.exists():
                shutil.rmtree(path)
        else:
            _sync(draft)
        draft.replace(path)


def drafts_of(path: Path) -> list[Path]:
    """Return what a kill left of a file that was being written by `atomic`."""
    return list(path.parent.glob(f".{path.name}-*"))


def _sync(file: Path) -> None:
    with file.open("rb") as handle:
        os.fsync(handle.fileno())


def write_text(path: Path, text: str) -> None:
    """Write a text file atomically."""
    with atomic(path) as draft:
        draft.write_text(text, encoding="utf-8")


def check_folder(path: str | Path, option: str) -> None:
    """Refuse a path that cannot become a folder, before hours are spent on what it shall hold; nothing is made."""
    place = Path(path)
    there = next((one for one in (place, *place.parents) if one.exists()), Path())
    if not there.is_dir():
        raise BadInput(f"{there} is a file.", f"{option} is the name of a folder.")


def write_json(path: Path, content: object) -> None:
    """Write JSON atomically, readable by people."""
    write_text(path, json.dumps(content, indent=2, ensure_ascii=False) + "\n")


def read_json(path: Path) -> Json:
    """Read a JSON object that crosslift wrote; a torn file is named."""
    try:
        return cast("Json", json.loads(path.read_text(encoding="utf-8")))
    except (OSError, ValueError) as error:
        raise BrokenRun(f"{path} cannot be read: {error}.", "Remove it and start the command again.") from error


def write_jsonl(path: Path, rows: Iterable[object]) -> None:
    """Write one JSON value a line, atomically."""
    write_text(path, "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows))


def read_jsonl(path: Path) -> list[Json]:
    """Read one JSON object a line, as `write_jsonl` wrote it."""
    with path.open(encoding="utf-8", newline="\n") as lines:
        return [json.loads(line) for line in lines]
