"""Everything of the distillation table that needs no GPU, made once: what `run.py` reads.

    CROSSLIFT_DATA=… python benchmarks/experiments/distill/prepare.py --work DIR --out prepared.tar.xz

Cuts the training sets into an annotated and an unannotated half by parallel id, translates (Apertium for Spanish, a
dictionary elsewhere), disturbs text, and trains the vocabularies of small models on the unannotated half. A file that
is there is not made again. All of it is packed into one archive:

    SET/LANGUAGE-annotated.json, -unannotated, -dev, -test    examples
    SET/LANGUAGE-into.json          the English unannotated half in the language, with links between words
    SET/LANGUAGE-back.json          the language's test set in English, with links between words
    SET/LANGUAGE-noise.json         the unannotated half, and disturbed copies of it
    tokenizers/FAMILY-LANGUAGE/     a vocabulary of 10,000 pieces
"""

from __future__ import annotations

import argparse
import json
import lzma
import tarfile
import time
from dataclasses import asdict, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from jobs import SETS, translated

from crosslift.data import load
from crosslift.data.examples import Examples
from crosslift.models.students import student_tokenizer
from crosslift.translate import Translator, open_translator, translate_all
from crosslift.translate.augment import noise
from crosslift.translate.text import translate_linked

CUT = 15
"""A seed of its own: crosslift cuts dev and held-out parts by the same hash with other seeds."""
COPIES = 2
"""Disturbed copies of each text."""

Links = list[list[list[int]]]


def save(file: Path, examples: Examples, links: Links | None = None) -> None:
    """Write examples as JSON."""
    found = asdict(examples)
    if examples.spans is not None:
        found["spans"] = [spans.tolist() for spans in examples.spans]
    file.parent.mkdir(parents=True, exist_ok=True)
    draft = file.with_suffix(".tmp")
    said = json.dumps({"examples": found, "links": links}, ensure_ascii=False, separators=(",", ":"))
    draft.write_text(said, encoding="utf-8")
    draft.replace(file)


def read(file: Path) -> tuple[Examples, Links | None]:
    """Read what `save` wrote."""
    found = json.loads(file.read_text(encoding="utf-8"))
    columns: dict[str, Any] = found["examples"]
    if columns["spans"] is not None:
        columns["spans"] = [np.array(spans, dtype=np.int32).reshape(-1, 2) for spans in columns["spans"]]
    return Examples(**columns), found["links"]


@cache
def whole(name: str, language: str, split: str) -> Examples:
    """Load a set once."""
    return load(name, language=language, split=split)


def halves(name: str, language: str, limit: int | None) -> dict[str, Examples]:
    """Return both halves of a training set by parallel id; text that is no training set (PAN-X) is both of them."""
    data = SETS[name]
    split = "train" if language == "en" else data.text
    found = whole(name, language, split)
    parts = {"annotated": found, "unannotated": found}
    if split != "dev":
        parts = found.split({"annotated": 0.5, "unannotated": 0.5}, seed=CUT)
    most = min(x for x in (limit, data.limit, len(found)) if x)
    return {part: cut(examples, most) for part, examples in parts.items()}


def cut(examples: Examples, most: int) -> Examples:
    """Return the first examples by a hash of their ids, so that translations of one text stay or go together."""
    if len(examples) <= most:
        return examples
    share = most / len(examples)
    return examples.split({"kept": share, "left": 1 - share}, seed=CUT + 1)["kept"]


def translator(language: str, lexicons: str, back: bool) -> Translator:
    """Return who translates from English, or back into it."""
    name = "apertium" if language == "es" else f"dictionary{'-back' if back else ''}:{lexicons}"
    return open_translator(name, *((language, "en") if back else ("en", language)))


def translate(examples: Examples, there: Translator) -> tuple[Examples, Links | None]:
    """Return examples in another language, row by row, with links between words for tagging; no row is left out."""
    plain = examples.unlabelled()
    if plain.kind == "tagging":
        texts, spans, links = translate_linked(plain, there)
        made = replace(plain, language=there.target, texts=texts, spans=spans)
        return made, [[list(pair) for pair in row] for row in links]
    return replace(plain, language=there.target, texts=translate_all(there, plain.texts)), None


def prepare(name: str, out: Path, lexicons: str, limit: int | None) -> None:
    """Make the files of one set."""
    data, home = SETS[name], out / name
    parts = {language: halves(name, language, limit) for language in ("en", *data.targets)}
    known = [whole(name, "en", split) for split in ("train", "dev")]
    names = {label for examples in known for label in examples.label_names()}
    home.mkdir(parents=True, exist_ok=True)
    labels = sorted(names, key=lambda label: (label != "O", label))
    (home / "labels.json").write_text(json.dumps(labels) + "\n", encoding="utf-8")
    sets = {f"{language}-{part}": examples for language, some in parts.items() for part, examples in some.items()}
    sets["en-dev"] = whole(name, "en", "dev")
    for language in ("en", *data.targets, *data.bridge_only):
        sets[f"{language}-test"] = load(name, language=language, split="test")
    for key in [key for key in sets if limit and not key.endswith("annotated")]:
        sets[key] = sets[key].take(limit)
    for key, examples in sets.items():
        if not (home / f"{key}.json").exists():
            save(home / f"{key}.json", examples)
    for language in data.targets:
        began = time.monotonic()
        into, back, noisy = (home / f"{language}-{what}.json" for what in ("into", "back", "noise"))
        if translated(language) and not into.exists():
            save(into, *translate(parts["en"]["unannotated"], translator(language, lexicons, back=False)))
        if translated(language) and not back.exists():
            save(back, *translate(sets[f"{language}-test"], translator(language, lexicons, back=True)))
        if data.kind == "classification" and not noisy.exists():
            text = parts[language]["unannotated"].unlabelled()
            # A copy has the parallel id of its text, so that both are held out, or neither.
            text = text if text.parallel_ids else replace(text, parallel_ids=text.ids)
            save(noisy, noise(text, samples=COPIES)[0])
        print(f"{name} {language}: translated and disturbed in {time.monotonic() - began:.0f} s", flush=True)
    for language, some in parts.items():
        folder = out / "tokenizers" / f"{data.family}-{language}"
        if not folder.exists():
            student_tokenizer({language: list(some["unannotated"].texts)}).save_pretrained(folder)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--work", type=Path, required=True, help="folder to make the files in")
    parser.add_argument("--out", type=Path, required=True, help="archive to pack them into (.tar.xz)")
    parser.add_argument("--sets", default=",".join(SETS))
    parser.add_argument("--lexicons", default="../shared/pretraining/lexicon-{lang}.tsv.xz", help="English TAB word")
    parser.add_argument("--limit", type=int, help="at most so many texts: a dry run")
    arguments = parser.parse_args()
    for name in arguments.sets.split(","):
        prepare(name, arguments.work, arguments.lexicons, arguments.limit)
    arguments.out.parent.mkdir(parents=True, exist_ok=True)
    # Sets share texts, which one stream of compression with a long memory finds again.
    how = [{"id": lzma.FILTER_LZMA2, "preset": 6, "dict_size": 2**27}]
    with lzma.open(arguments.out, "wb", filters=how) as stream, tarfile.open(fileobj=stream, mode="w") as archive:
        for folder in sorted(arguments.work.iterdir()):
            archive.add(folder, folder.name)
    print(f"{arguments.out}: {arguments.out.stat().st_size / 2**20:.1f} MiB")


if __name__ == "__main__":
    main()
