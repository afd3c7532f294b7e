"""Lay out everything a GPU machine needs, in parts small enough for one transfer each.

    python pack.py --pretraining FOLDER --tokenizers FOLDER --teacher INT8-FOLDER --use FOLDER --data FOLDER --out OUT

Writes OUT/part-1, OUT/part-2, …, each at most 60 MB. Copied over each other on the other machine they give the folder
that the configs call `{root}`:

    pretraining/  text-*, pairs-*, lexicon-*      tokenizers/  mini-x, mini-en      excluded.txt
    teacher8/     see teacher.py                  use/         see use_vectors.py   data/   evaluation sets
    repo/         src and benchmarks of this repository
"""

from __future__ import annotations

import argparse
import shutil
from pathlib import Path

REPOSITORY = Path(__file__).parents[3]
LIMIT = 60_000_000
SETS = ("massive", "mnli", "ntrex", "panx", "sib200", "xnli", "xquad", "xsid")
"""Evaluation sets. Of MASSIVE, PAN-X and xSID only English is trained on; other languages travel as test files."""


def files_of(folder: Path, pattern: str = "*") -> list[Path]:
    return [path for path in sorted(folder.rglob(pattern)) if path.is_file() and "__pycache__" not in path.parts]


def wanted(arguments: argparse.Namespace) -> dict[str, Path]:
    """Return place under `{root}` -> file."""
    found = {}
    for pattern in ("text-*", "pairs-*", "lexicon-*"):
        found |= {f"pretraining/{path.name}": path for path in files_of(arguments.pretraining, pattern)}
    folders = {"tokenizers": arguments.tokenizers, "teacher8": arguments.teacher, "use": arguments.use}
    folders |= {f"data/{name}": arguments.data / name for name in SETS}
    folders |= {f"repo/{name}": REPOSITORY / name for name in ("src", "benchmarks")}
    for place, folder in folders.items():
        found |= {f"{place}/{path.relative_to(folder).as_posix()}": path for path in files_of(folder)}
    found["excluded.txt"] = REPOSITORY / "benchmarks" / "pretraining-excluded.txt"
    return {place: path for place, path in found.items() if needed(place)}


def needed(place: str) -> bool:
    """Leave out what zero-shot transfer never reads: other languages' text that is not for testing."""
    if not place.startswith(("data/massive/", "data/panx/", "data/xsid/")):
        return True
    name = place.rsplit("/", 1)[1]
    return name.startswith("en") or ".test." in name


def parts(sizes: dict[str, int], limit: int) -> list[list[str]]:
    """Share files out: the largest first, each into the first part that has room."""
    found: list[tuple[int, list[str]]] = []
    for place in sorted(sizes, key=lambda name: (-sizes[name], name)):
        for number, (used, names) in enumerate(found):
            if used + sizes[place] <= limit:
                found[number] = (used + sizes[place], [*names, place])
                break
        else:
            found.append((sizes[place], [place]))
    return [names for _, names in found]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("pretraining", "tokenizers", "teacher", "use", "data", "out"):
        parser.add_argument(f"--{name}", type=Path, required=True)
    arguments = parser.parse_args()
    files = wanted(arguments)
    sizes = {place: path.stat().st_size for place, path in files.items()}
    for number, places in enumerate(parts(sizes, LIMIT), start=1):
        folder = arguments.out / f"part-{number}"
        if folder.exists():
            shutil.rmtree(folder)
        for place in places:
            (folder / place).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(files[place], folder / place)
        print(f"{folder}: {len(places)} files, {sum(sizes[p] for p in places) / 1e6:.1f} MB")


if __name__ == "__main__":
    main()
