"""Train the tokenizers of mini-x (unigram, 28,000 pieces, 24 languages) and mini-en (byte-level BPE, 8,192 pieces).

    python train_tokenizers.py --pretraining FOLDER --out FOLDER

They see the text files and the pairs; of the user-interface strings (gettext) only a part, or their words would crowd
out plain language.
"""

from __future__ import annotations

import argparse
import random
import time
from collections import defaultdict
from pathlib import Path

from recipe import by_language, matching

from crosslift.data.files import read_lines
from crosslift.data.pairs import read_pairs
from crosslift.models.tokenizer_training import TokenizerSettings, train_tokenizer

GETTEXT_SHARE = 0.15
SETTINGS = {
    "mini-x": TokenizerSettings(
        kind="unigram", pieces=28_000, characters=40_000_000, balance=0.3, lowercase=0.25, coverage=0.9997
    ),
    "mini-en": TokenizerSettings(kind="bpe", pieces=8_192, characters=40_000_000, lowercase=0.25),
}


def texts(folder: Path) -> dict[str, list[str]]:
    """Return language -> lines of text and of both sides of the pairs."""
    found: dict[str, list[str]] = defaultdict(list)
    for language, path in by_language(folder / "text-*.txt.xz").items():
        found[language] += [line for line in read_lines(Path(path)) if line]
    rng = random.Random(0)
    english = set()
    for path in matching(folder / "pairs-*.txt.xz"):
        share = GETTEXT_SHARE if "gettext" in path.name else 1.0
        for language, one, other in read_pairs(path):
            if rng.random() <= share:
                english.add(one)
                found[language].append(other)
    found["en"] += sorted(english)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pretraining", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--only", choices=list(SETTINGS))
    arguments = parser.parse_args()
    lines = texts(arguments.pretraining)
    for name, settings in SETTINGS.items():
        if arguments.only not in (None, name):
            continue
        began = time.monotonic()
        tokenizer = train_tokenizer({"en": lines["en"]} if name == "mini-en" else lines, settings)
        tokenizer.save_pretrained(arguments.out / name)
        print(f"{name}: {len(tokenizer):,} pieces in {time.monotonic() - began:.0f} s")


if __name__ == "__main__":
    main()
