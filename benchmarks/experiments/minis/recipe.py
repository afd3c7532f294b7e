"""Read a config of this folder: `{root}` becomes a folder, and a pattern becomes the files it matches.

`text-*.txt.xz` stands for language -> file, where the part that `*` matches is the language; for `bitext` the pattern
stands for a list. Nothing heavy is imported here, since the processes that tokenise import it too.
"""

from __future__ import annotations

import json
from pathlib import Path


def read_config(file: Path, root: Path) -> dict[str, object]:
    """Return the arguments of `crosslift.runs.pretrain.pretrain`."""
    config = json.loads(file.read_text(encoding="utf-8").replace("{root}", root.resolve().as_posix()))
    for name in ("text", "lexicons", "phrases"):
        if isinstance(config.get(name), str):
            config[name] = by_language(Path(config[name]))
    if isinstance(config.get("bitext"), str):
        config["bitext"] = [str(path) for path in matching(Path(config["bitext"]))]
    return config


def by_language(pattern: Path) -> dict[str, str]:
    """Return language -> file: `text-*.txt.xz` gives {"de": "text-de.txt.xz", ...}."""
    before, after = pattern.name.split("*")
    return {path.name[len(before) : -len(after)]: str(path) for path in matching(pattern)}


def matching(pattern: Path) -> list[Path]:
    """Return the files that fit, in order; none at all is an error."""
    found = sorted(pattern.parent.glob(pattern.name))
    if not found:
        raise SystemExit(f"No file fits {pattern}.")
    return found
