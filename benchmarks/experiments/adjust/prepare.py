"""Sentence pairs and their word links for `run.py`, made once on a CPU.

    CROSSLIFT_DATA=… python benchmarks/experiments/adjust/prepare.py --pairs FOLDER --out prepared

Per source of pairs and language: `SOURCE-LANGUAGE.tsv.xz`, filtered and in random order, with its links by word
(`.links.xz`, Pharaoh) and, for prose in the languages of the studies, by piece of the encoder's tokenizer
(`.pieces.xz`). The aligner reads all pairs; the files keep the first `--most`. Further pairs lie in
`held-LANGUAGE.tsv.xz`: no encoder is adjusted with them.

Sources: `prose` (pairs-01 … pairs-03 in FOLDER: sentences of many origins), `gettext` (pairs-gettext: interfaces and
manuals), `tatoeba` (the catalog's bitext). Files that are there are not made again.
"""

from __future__ import annotations

import argparse
import lzma
import time
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch

import crosslift as xl
from crosslift.align import Alignment, align_words
from crosslift.align.encoded_pairs import pieces_as_words
from crosslift.align.pharaoh import pharaoh_lines
from crosslift.data.bitext_filter import BitextFilter, filter_bitext
from crosslift.data.examples import Examples
from crosslift.models.load import load_tokenizer

HELD = 500


def read_pairs(folder: Path, languages: Iterable[str]) -> dict[tuple[str, str], list[tuple[str, str]]]:
    """Return (source, language) -> pairs of English and translation."""
    found: dict[tuple[str, str], list[tuple[str, str]]] = {}
    for file in sorted(folder.glob("pairs-*.txt.xz")):
        source = "gettext" if "gettext" in file.name else "prose"
        with lzma.open(file, "rt", encoding="utf-8", newline="\n") as stream:
            for line in stream:
                language, english, translation = line.rstrip("\n").split("\t")
                if language in languages:
                    found.setdefault((source, language), []).append((english, translation))
    for language in languages:
        bitext = xl.load("bitext", language=language, split="train")
        found["tatoeba", language] = list(zip(bitext.texts, bitext.pairs or (), strict=True))
    return found


def shuffled(pairs: list[tuple[str, str]], language: str, name: str) -> Examples:
    """Return pairs in random order, filtered."""
    order = np.random.default_rng(0).permutation(len(pairs))
    texts, others = zip(*(pairs[i] for i in order), strict=True)
    ids = [str(i) for i in range(len(pairs))]
    bitext = Examples("bitext", "en", ids, texts, others, pair_language=language, name=name)
    return filter_bitext(bitext, BitextFilter())


def write_lines(file: Path, lines: Iterable[str]) -> None:
    """Write lines, compressed."""
    file.write_bytes(lzma.compress("".join(f"{line}\n" for line in lines).encode(), preset=9))


def write_pairs(file: Path, bitext: Examples) -> None:
    """Write pairs as English TAB translation."""
    write_lines(file, (f"{a}\t{b}" for a, b in zip(bitext.texts, bitext.pairs or (), strict=True)))


def write_links(file: Path, alignment: Alignment, count: int) -> None:
    """Write the links of the first `count` pairs."""
    write_lines(file, pharaoh_lines(alignment.select(np.arange(count))))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=Path, required=True, help="folder of pairs-*.txt.xz")
    parser.add_argument("--languages", default="es,ru,vi,hi")
    parser.add_argument("--pieces", default="ru,hi", help="languages whose pieces are linked, too")
    parser.add_argument("--tokenizer", default="mini-x", help="encoder whose pieces")
    parser.add_argument("--most", type=int, default=22_000, help="pairs of prose that are kept")
    parser.add_argument("--most-others", type=int, default=6_000, help="pairs of the other sources that are kept")
    parser.add_argument("--out", type=Path, required=True)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    arguments.out.mkdir(parents=True, exist_ok=True)
    languages = arguments.languages.split(",")
    tokenizer = load_tokenizer(arguments.tokenizer)
    everything = read_pairs(arguments.pairs, languages)
    for (source, language), pairs in sorted(everything.items(), key=lambda item: languages.index(item[0][1])):
        stem = f"{source}-{language}"
        file = arguments.out / f"{stem}.tsv.xz"
        if file.exists():
            continue
        began = time.monotonic()
        bitext = shuffled(pairs, language, stem)
        if source == "prose":
            write_pairs(arguments.out / f"held-{language}.tsv.xz", bitext.select(range(HELD)))
            bitext = replace(bitext.select(range(HELD, len(bitext))), skipped=bitext.skipped)
        count = min(len(bitext), arguments.most if source == "prose" else arguments.most_others)
        write_links(arguments.out / f"{stem}.links.xz", align_words(bitext).alignment, count)
        if source == "prose" and language in arguments.pieces.split(","):
            pieces = align_words(pieces_as_words(bitext, tokenizer), words="spaces").alignment
            write_links(arguments.out / f"{stem}.pieces.xz", pieces, count)
        write_pairs(file, bitext.select(range(count)))  # last: it says that all is there
        seconds = time.monotonic() - began
        print(f"{stem}: {count:,} of {len(bitext):,}; left out {dict(bitext.skipped)}; {seconds:.0f} s", flush=True)


if __name__ == "__main__":
    main()
