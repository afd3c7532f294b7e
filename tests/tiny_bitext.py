"""A made-up language beside English: every word has one translation, and word order stays."""

import numpy as np

from crosslift.data.examples import Examples

WORDS = {
    "the": "der", "house": "haus", "tree": "baum", "river": "fluss", "stone": "stein", "bird": "vogel",
    "cloud": "wolke", "is": "ist", "red": "rot", "green": "grün", "blue": "blau", "today": "heute", "and": "und",
    "old": "alt", "small": "klein", "we": "wir", "saw": "sahen",
}  # fmt: skip


def bitext(count: int = 40, seed: int = 0, language: str = "de") -> Examples:
    """Sentences of three to eight words and their translations, word by word."""
    draw = np.random.default_rng(seed)
    rows = [draw.choice(list(WORDS), size=draw.integers(3, 9)).tolist() for _ in range(count)]
    return Examples(
        kind="bitext",
        language="en",
        ids=[f"b{i}" for i in range(count)],
        texts=[" ".join(row) for row in rows],
        pairs=[" ".join(WORDS[word] for word in row) for row in rows],
        pair_language=language,
        name="tiny-bitext",
    )


def write_bitext(folder, count: int = 40, seed: int = 0):
    """Write the same as `bitext.tsv` and, with its true links, `bitext.pharaoh`; return both paths."""
    found = bitext(count, seed)
    lines = [f"{text}\t{pair}\n" for text, pair in zip(found.texts, found.pairs, strict=True)]
    (folder / "bitext.tsv").write_text("".join(lines), encoding="utf-8")
    rows = [" ".join(f"{i}-{i}" for i in range(len(text.split()))) for text in found.texts]
    (folder / "bitext.pharaoh").write_text("".join(f"{row}\n" for row in rows), encoding="utf-8")
    return folder / "bitext.tsv", folder / "bitext.pharaoh"
