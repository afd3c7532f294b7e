"""Sentence pairs with their words and the links between them: what every aligner gives."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Literal, get_args

import numpy as np
from numpy.typing import NDArray

from crosslift.align.links import WAYS, Alignment, Candidates, symmetrise
from crosslift.align.pharaoh import SUFFIXES, UNBOUNDED, link_lines, read_pharaoh
from crosslift.align.statistical import LONGEST, Aligner, Settings, train
from crosslift.data.bitext import read_bitext
from crosslift.data.bitext_filter import check_scripts
from crosslift.data.examples import Examples, Spans, concatenate
from crosslift.data.segment import segment_all
from crosslift.data.wordalign import GoldAlignment
from crosslift.errors import BadInput, nearest

WordKind = Literal["segment", "spaces"]
WORD_KINDS: tuple[str, ...] = get_args(WordKind)
_MODEL = ".safetensors"
_NAMED = ("statistical", "eflomal")


@dataclass(frozen=True)
class AlignedBitext:
    """Sentence pairs, their words, and which word translates which.

    Attributes:
        bitext: The pairs: `texts` is the source side, `pairs` the target side.
        source: By pair, the words of the source side as character spans: (words, 2).
        target: By pair, the words of the target side.
        alignment: The links.
        candidates: The best partner of every source word and of every target word, where scores were asked for and
            the aligner has them.
        aligner: The trained statistical aligner, where one was trained.
        left_out: Reason -> number of pairs that no aligner was shown; they have no links.
    """

    bitext: Examples
    source: list[Spans]
    target: list[Spans]
    alignment: Alignment
    candidates: tuple[Candidates, Candidates] | None = None
    aligner: Aligner | None = None
    left_out: Mapping[str, int] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.bitext)

    def __repr__(self) -> str:
        sides = f"{self.bitext.language}-{self.bitext.pair_language}"
        return f"AlignedBitext({len(self):,} pairs {sides}, {len(self.alignment.source):,} links)"

    def select(self, rows: Sequence[int] | NDArray[np.integer]) -> AlignedBitext:
        """Return these pairs in this order, without candidates."""
        rows = [int(row) for row in rows]
        return AlignedBitext(
            self.bitext.select(rows),
            [self.source[row] for row in rows],
            [self.target[row] for row in rows],
            self.alignment.select(rows),
        )

    def with_alignment(self, alignment: Alignment) -> AlignedBitext:
        """Return the same pairs with other links."""
        return replace(self, alignment=alignment)

    def words(self, side: Literal["source", "target"]) -> list[list[str]]:
        """Return the words of every sentence of a side."""
        if side == "source":
            return cut(self.bitext.texts, self.source)
        return cut(self.bitext.pairs or (), self.target)

    def identical(self) -> NDArray[np.bool_]:
        """Return which links join a word to the same string, case ignored: (links,)."""
        pair = self.alignment.pairs()
        ends = []
        for side, word in (("source", self.alignment.source), ("target", self.alignment.target)):
            rows = self.words("source" if side == "source" else "target")
            flat = np.array([w.lower() for row in rows for w in row], dtype=object)
            starts = np.cumsum([0, *map(len, rows)])
            ends.append(flat[starts[pair] + word])
        return np.asarray(ends[0] == ends[1], dtype=bool)


def cut(texts: Sequence[str], spans: Sequence[Spans]) -> list[list[str]]:
    """Return the words of each text, cut out of it by their spans."""
    return [[text[a:b] for a, b in part.tolist()] for text, part in zip(texts, spans, strict=True)]


def word_spans(texts: Sequence[str], language: str, kind: str = "segment") -> list[Spans]:
    """Return the words of texts as character spans.

    Args:
        texts: The texts.
        language: Decides how `segment` cuts.
        kind: `segment` (crosslift's own words; marks are words) or `spaces` (cut at white space alone: for text that
            another tool has cut, and for the alignment files made from it).
    """
    if kind not in WORD_KINDS:
        raise BadInput(f'Words are cut by "segment" or "spaces", not by "{kind}".{nearest(kind, WORD_KINDS)}')
    if kind == "segment":
        return segment_all(texts, language)
    return [_space_spans(text) for text in texts]


def _space_spans(text: str) -> Spans:
    inside = np.array([False, *(not c.isspace() for c in text), False])
    edges = np.flatnonzero(inside[1:] != inside[:-1])
    return edges.reshape(-1, 2).astype(np.int32)


def align_words(
    bitext: Examples | str | Path | Sequence[str | Path],
    *,
    aligner: str | Path = "statistical",
    symmetrise: str = "intersection",
    words: str = "segment",
    language: str | None = None,
    pair_language: str | None = None,
    scores: bool = False,
    **settings: object,
) -> AlignedBitext:
    """Link the words of sentence pairs.

    Args:
        bitext: Sentence pairs, or the file or files to read them from.
        aligner: `statistical` (trained on these very pairs), `eflomal`, a statistical aligner that was saved (a
            `.safetensors` file), an alignment in Pharaoh format (any other file), or an encoder whose word vectors
            are compared (a folder, an embedded name, a hub id).
        symmetrise: How two directions become one: `intersection`, `grow-diag-final-and`, `union`, `forward`,
            `backward`. Files, and encoders with `method` itermax or softmax, have one direction only.
        words: `segment` or `spaces`, see `word_spans`.
        language: Language of the first side, for files.
        pair_language: Language of the second side, for files.
        scores: Keep the score of each link and the best partner of each word.
        settings: Of the statistical aligner (`rounds`, …) or of the encoder (`method`, `layer`, …).
    """
    if symmetrise not in WAYS:
        raise BadInput(
            f'There is no symmetrisation "{symmetrise}".{nearest(symmetrise, WAYS)}', f"One of {', '.join(WAYS)}."
        )
    if not isinstance(bitext, Examples):
        bitext = read_bitext(bitext, language=language, pair_language=pair_language)
    found = _align(cut_words(bitext, words), aligner, symmetrise, settings)
    if scores:
        return found
    links = found.alignment
    return replace(found, alignment=Alignment(links.starts, links.source, links.target), candidates=None)


def cut_words(bitext: Examples, words: str = "segment") -> AlignedBitext:
    """Return sentence pairs cut into words, with no links yet.

    Raises:
        BadFile: A side is not in the script of its language.
    """
    if bitext.kind != "bitext" or bitext.pairs is None:
        raise BadInput(f"{bitext.name or 'The data'} holds no sentence pairs: it is a {bitext.kind} set.")
    check_scripts(bitext)
    source = word_spans(bitext.texts, bitext.language, words)
    target = word_spans(bitext.pairs, bitext.pair_language or bitext.language, words)
    return AlignedBitext(bitext, source, target, Alignment.from_pairs([[]] * len(bitext)))


def align_gold(
    gold: Sequence[GoldAlignment],
    bitext: Examples | None = None,
    *,
    aligner: str | Path = "statistical",
    symmetrise: str = "intersection",
    words: str = "segment",
    **settings: object,
) -> AlignedBitext:
    """Align the pairs of a gold set, with further pairs for an aligner to learn from.

    Args:
        gold: Sentence pairs with gold links; their words are taken as they are.
        bitext: Further pairs of the same languages.
        aligner: As for `align_words`.
        symmetrise: As for `align_words`.
        words: How the further pairs are cut into words.
        settings: As for `align_words`.

    Returns:
        The pairs of the gold set alone.
    """
    texts, pairs = ([" ".join(getattr(pair, side)) for pair in gold] for side in ("source", "target"))
    ids = [f"gold:{number}" for number in range(len(gold))]
    languages = (bitext.language, bitext.pair_language) if bitext else ("und", "und")
    first = cut_words(Examples("bitext", languages[0], ids, texts, pairs=pairs, pair_language=languages[1]), "spaces")
    whole = first
    if bitext is not None:
        rest = cut_words(bitext, words)
        whole = AlignedBitext(
            concatenate([first.bitext, bitext]),
            first.source + rest.source,
            first.target + rest.target,
            Alignment.from_pairs([]),
        )
    found = _align(whole, aligner, symmetrise, settings)
    return replace(first, alignment=found.alignment.select(range(len(gold))), aligner=found.aligner)


def check_directions(aligner: str | Path, symmetrise: str, method: str = "argmax") -> None:
    """Refuse to make one of two directions where there are not two.

    Args:
        aligner: As for `align_words`.
        symmetrise: What was asked for; `intersection`, the default, may stand for nothing asked.
        method: Of an encoder.
    """
    if symmetrise == "intersection":
        return
    path = Path(aligner)
    if str(aligner) in _NAMED or path.suffix == _MODEL:
        return
    if path.is_file() or path.suffix in SUFFIXES:
        raise BadInput(
            f"--symmetrise {symmetrise} changes nothing: {aligner} holds links of one kind.", "Leave it out."
        )
    if method != "argmax":
        raise BadInput(f"--symmetrise {symmetrise} changes nothing: --method {method} links both sides at once.")


def explain(aligned: AlignedBitext) -> Iterator[dict[str, object]]:
    """Yield one row per word: what it is linked to, its likeliest partner, and how likely that and no partner are.

    Raises:
        BadInput: The aligner gave no scores.
    """
    if aligned.candidates is None:
        raise BadInput("This aligner says nothing about its choices.", "The statistical one and encoders do.")
    sides = (aligned.words("source"), aligned.words("target"))
    for pair in range(len(aligned)):
        links = aligned.alignment.links(pair)
        for side, candidates in enumerate(aligned.candidates):
            start = int(candidates.starts[pair])
            others = sides[1 - side][pair]
            for number, word in enumerate(sides[side][pair]):
                best = int(candidates.partner[start + number])
                yield {
                    "pair": aligned.bitext.ids[pair],
                    "side": ("source", "target")[side],
                    "number": number,
                    "word": word,
                    "linked": " ".join(others[link[1 - side]] for link in links if link[side] == number),
                    "likeliest": others[best] if best >= 0 else "",
                    "score": round(float(candidates.score[start + number]), 4),
                    "none": round(float(candidates.none[start + number]), 4),
                }


def _align(base: AlignedBitext, aligner: str | Path, how: str, settings: Mapping[str, object]) -> AlignedBitext:
    path = Path(aligner)
    if str(aligner) == "statistical" or path.suffix == _MODEL:
        left, right = base.words("source"), base.words("target")
        if path.suffix == _MODEL:
            _take(aligner, (), settings)
            model = Aligner.load(path)
            own, other = model.align(left, right)
        else:
            names = tuple(f.name for f in fields(Settings))
            model, own, other = train(left, right, Settings(**_take(aligner, names, settings)))  # type: ignore[arg-type]
        links = symmetrise(other.links("target"), own.links("source"), how)
        return replace(base, alignment=links, candidates=(own, other), aligner=model, left_out=_left_out(base, LONGEST))
    if str(aligner) == "eflomal":
        from crosslift.align.eflomal import MOST_WORDS, align_eflomal

        _take(aligner, (), settings)
        forward, backward = align_eflomal(base.words("source"), base.words("target"))
        return replace(base, alignment=symmetrise(forward, backward, how), left_out=_left_out(base, MOST_WORDS))
    if path.is_file() or path.suffix in SUFFIXES:
        _take(aligner, (), settings)
        return replace(base, alignment=_read_links(path, base))
    from crosslift.align.embedding import EmbeddingSettings, align_embeddings

    names = tuple(f.name for f in fields(EmbeddingSettings))
    chosen = EmbeddingSettings(**_take(aligner, names, settings))  # type: ignore[arg-type]
    links, own, other = align_embeddings(str(aligner), base.bitext, base.source, base.target, chosen, how)
    return replace(base, alignment=links, candidates=(own, other), left_out=_left_out(base, None))


def _read_links(path: Path, base: AlignedBitext) -> Alignment:
    """Read a file of links: a line a pair, or a line for every line of a bitext of which some were left out."""
    sizes = [np.array([len(row) for row in side], dtype=np.int64) for side in (base.source, base.target)]
    whole = len(base) + sum(base.bitext.skipped.values())
    # A pair that was read from a file is named by its line.
    rows = np.array([int(name) if name.isdecimal() else 0 for name in base.bitext.ids], dtype=np.int64) - 1
    if whole == len(base) or len(link_lines(path)) != whole or rows.min() < 0 or rows.max() >= whole:
        return read_pharaoh(path, *sizes)
    # Links of pairs that were left out are not looked at, wherever they point.
    lengths = [np.full(whole, UNBOUNDED) for _ in sizes]
    for every, own in zip(lengths, sizes, strict=True):
        every[rows] = own
    return read_pharaoh(path, *lengths).select(rows)


def _take(aligner: str | Path, names: Sequence[str], settings: Mapping[str, object]) -> dict[str, object]:
    """Return the settings if the aligner has them all."""
    for name in settings:
        if name not in names:
            known = f"It has {', '.join(names)}." if names else "It has none."
            raise BadInput(f'The aligner "{aligner}" has no setting "{name}".{nearest(name, names)}', known)
    return dict(settings)


def _left_out(base: AlignedBitext, longest: int | None) -> dict[str, int]:
    """Count the pairs that an aligner could not be shown."""
    sizes = np.array([[len(a), len(b)] for a, b in zip(base.source, base.target, strict=True)]).reshape(-1, 2)
    found = {"empty side": int((sizes.min(axis=1) == 0).sum())}
    if longest is not None:
        found[f"more than {longest} words"] = int((sizes.max(axis=1) > longest).sum())
    return {reason: count for reason, count in found.items() if count}
