"""Words and phrases, so that an encoder meets the vocabulary of its languages one piece of meaning at a time.

    python phrases.py words WHEEL-FOLDER OUT                    # OUT/words-*.txt.xz, out of an unpacked wordfreq wheel
    python phrases.py pairs PRETRAINING OUT --languages hi,sw   # OUT/pairs-phrases.txt.xz: translated phrases
    python phrases.py texts --config mini-x.json --root FOLDER  # FOLDER/phrases/*.txt, for the multilingual teacher

`pairs` links the words of sentence pairs (`align_words`) and cuts out phrases that translate each other: no word of
either phrase is linked outside it. It is for languages that the multilingual teacher does not know. For those that it
knows, `texts` writes listed words, random rows of them, and spans of all text.
"""

from __future__ import annotations

import argparse
import gzip
import lzma
import multiprocessing as mp
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

LISTED = 60_000
"""Words taken from a frequency list."""
ROWS, SPANS = 25_000, 60_000
"""Random rows of listed words, and spans of text, per language."""
PHRASES_PER_PAIR, LONGEST_PHRASE, LONGEST_SPAN = 4, 5, 8
UNSPACED = ("zh", "ja", "th")


def words(wheel: Path, out: Path) -> None:
    """Write the frequent words of each language that the teacher knows; needs msgpack."""
    import msgpack
    from use_vectors import KNOWN

    out.mkdir(parents=True, exist_ok=True)
    for language in KNOWN:
        lists = [wheel / "wordfreq" / "data" / f"{size}_{language}.msgpack.gz" for size in ("large", "small")]
        found = next((path for path in lists if path.exists()), None)
        if found is None:
            print(f"{language}: no list")
            continue
        by_frequency = msgpack.unpackb(gzip.decompress(found.read_bytes()), raw=False)[
            1:
        ]  # the first item describes the file
        listed = [word for equal in by_frequency for word in sorted(equal) if not any(map(str.isdigit, word))]
        text = "\n".join(listed[:LISTED]).encode()
        (out / f"words-{language}.txt.xz").write_bytes(lzma.compress(text))
        print(f"{language}: {min(LISTED, len(listed)):,} of {len(listed):,} words")


def pairs(pretraining: Path, out: Path, languages: Sequence[str], limit: int | None) -> None:
    """Write `language TAB english TAB phrase`, each once."""
    import crosslift as xl
    from crosslift.data.examples import Examples
    from crosslift.data.pairs import read_pairs

    by_language: dict[str, list[tuple[str, str]]] = {}
    for path in sorted(pretraining.glob("pairs-*.txt.xz")):
        for language, english, other in read_pairs(path):
            if language in languages:
                by_language.setdefault(language, []).append((english, other))
    out.mkdir(parents=True, exist_ok=True)
    for language in sorted(by_language, key=lambda name: len(by_language[name])):
        some = by_language[language][:limit]
        english, others = [one for one, _ in some], [other for _, other in some]
        ids = [str(i) for i in range(len(some))]
        bitext = Examples("bitext", "en", ids, english, pairs=others, pair_language=language)
        aligned = xl.align_words(bitext, symmetrise="grow-diag-final-and")
        found = dict.fromkeys(cut_phrases(aligned, np.random.default_rng(len(some))))
        lines = "".join(f"{language}\t{english}\t{other}\n" for english, other in found)
        (out / f"pairs-phrases-{language}.txt.xz").write_bytes(lzma.compress(lines.encode()))
        print(f"{language}: {len(found):,} phrases of {len(some):,} pairs", flush=True)


def cut_phrases(aligned: object, rng: np.random.Generator) -> Iterator[tuple[str, str]]:
    """Yield phrases that translate each other, some of each pair."""
    for number in range(len(aligned)):
        links = aligned.alignment.links(number)
        source, target = aligned.source[number], aligned.target[number]
        english, other = aligned.bitext.texts[number], aligned.bitext.pairs[number]
        for _ in range(min(PHRASES_PER_PAIR, len(source) // 2)):
            first = int(rng.integers(len(source)))
            last = min(len(source) - 1, first + int(rng.integers(LONGEST_PHRASE)))
            ends = [t for s, t in links if first <= s <= last]
            if not ends or len(ends) == len(links):
                continue
            low, high = min(ends), max(ends)
            if high - low > 2 * LONGEST_PHRASE or any(low <= t <= high and not first <= s <= last for s, t in links):
                continue
            left, right = english[source[first][0] : source[last][1]], other[target[low][0] : target[high][1]]
            if any(map(str.isalpha, left)) and any(map(str.isalpha, right)) and left != right:
                yield left, right


def texts(config_file: Path, root: Path, processes: int) -> None:
    """Write the phrases of every language that the teacher knows."""
    from recipe import read_config
    from use_vectors import KNOWN

    from crosslift.runs.pretrain_data import read_corpus

    config = read_config(config_file, root)
    text = {language: [Path(path)] for language, path in config["text"].items()}
    corpus = read_corpus(text, [Path(path) for path in config["bitext"]], {})
    lines = corpus.by_language()
    out = root / "phrases"
    out.mkdir(exist_ok=True)
    work = [(language, lines[language], root / "pretraining", out) for language in KNOWN if language in lines]
    with mp.get_context("fork").Pool(processes) as pool:
        pool.starmap(_write_phrases, work)


def _write_phrases(language: str, lines: list[str], lists: Path, out: Path) -> None:
    rng = np.random.default_rng(sum(map(ord, language)))
    file = lists / f"words-{language}.txt.xz"
    listed = lzma.decompress(file.read_bytes()).decode().split("\n") if file.exists() else []
    found = dict.fromkeys(listed)
    join = "" if language in UNSPACED else " "
    if listed:
        for size in rng.integers(2, 6, ROWS).tolist():
            found[join.join(listed[i] for i in rng.integers(len(listed), size=size).tolist())] = None
    for number in rng.integers(len(lines), size=SPANS).tolist():
        found[_span(lines[number], language, rng)] = None
    kept = [phrase for phrase in found if any(map(str.isalpha, phrase))]
    (out / f"phrases-{language}.txt").write_text("\n".join(kept) + "\n", encoding="utf-8")
    print(f"{language}: {len(kept):,} phrases", flush=True)


def _span(line: str, language: str, rng: np.random.Generator) -> str:
    parts = list(line) if language in UNSPACED else line.split()
    longest = 2 * LONGEST_SPAN if language in UNSPACED else LONGEST_SPAN
    first, size = int(rng.integers(len(parts))), int(rng.integers(1, longest + 1))
    return ("" if language in UNSPACED else " ").join(parts[first : first + size]).strip()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    verbs = parser.add_subparsers(dest="verb", required=True)
    one = verbs.add_parser("words")
    one.add_argument("wheel", type=Path)
    one.add_argument("out", type=Path)
    two = verbs.add_parser("pairs")
    two.add_argument("pretraining", type=Path)
    two.add_argument("out", type=Path)
    two.add_argument("--languages", required=True)
    two.add_argument("--limit", type=int)
    three = verbs.add_parser("texts")
    three.add_argument("--config", type=Path, required=True)
    three.add_argument("--root", type=Path, required=True)
    three.add_argument("--processes", type=int, default=12)
    given = parser.parse_args()
    if given.verb == "words":
        words(given.wheel, given.out)
    elif given.verb == "pairs":
        pairs(given.pretraining, given.out, given.languages.split(","), given.limit)
    else:
        texts(given.config, given.root, given.processes)


if __name__ == "__main__":
    main()
