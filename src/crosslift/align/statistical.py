"""A word aligner that needs nothing but the sentence pairs.

Both directions, p(target | source) and p(source | target), are trained by expectation maximisation: first with a
prior for the diagonal (the reparameterised IBM 2 of Dyer et al. 2013), then as a hidden Markov model (Vogel et al.
1996; `hmm.py`):

    p(f_j, a_j = i) = p(i | …) · t(f_j | e_i),      p(i | j) ∝ exp(-λ |i/I - j/J|),   then   p(i | i') ∝ jump(i - i')

Words that stand together by chance mislead an aligner on small corpora. Three things are done about it: a sparse
Dirichlet prior on t, counts that leave out the cell they are asked about (`expectation.py`), and two directions
that are trained to agree: the counts of a round are the product of both posteriors (Liang et al. 2006).
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from crosslift.align.chunks import Chunk, Sentences, make_chunks, numbered, vocabulary
from crosslift.align.expectation import Counts, Own, Prior, expect, round_of, sum_by
from crosslift.align.hmm import Jumps
from crosslift.align.links import Candidates
from crosslift.data.storage import atomic
from crosslift.errors import BadInput

Words = Sequence[Sequence[str]]

LONGEST = 400
"""Words of the longest sentence that is looked at: a table of 400 × 400 cells is 160,000 numbers."""
_SLAB = 20_000  # pairs that are aligned at once: memory does not grow with the text
_FORMAT = "crosslift-aligner-1"
_REMEDY = "Write one with  crosslift align --save."


@dataclass(frozen=True)
class Settings:
    """How the statistical aligner is trained."""

    diagonal_rounds: int = field(default=5, metadata={"help": "Rounds of EM with the diagonal prior."})
    rounds: int = field(default=5, metadata={"help": "Rounds of EM with the hidden Markov model."})
    free_rounds: int = field(default=2, metadata={"help": "First rounds in which the two directions need not agree."})
    diagonal: float = field(default=4.0, metadata={"help": "Strength of the diagonal; 0 = none."})
    null: float = field(default=0.1, metadata={"help": "Share of words that translate nothing."})
    prior: float = field(default=0.001, metadata={"help": "Dirichlet prior of translations; smaller = sparser."})
    same: float = field(default=1.0, metadata={"help": "Extra count of a word beside itself: names, numbers, marks."})

    def __post_init__(self) -> None:
        if min(self.diagonal_rounds, self.rounds, self.free_rounds) < 0 or self.diagonal_rounds + self.rounds < 1:
            raise BadInput("An aligner needs at least one round.", "Say --rounds 5.")
        if not 0 < self.null < 1:
            raise BadInput(f"--null is a share between 0 and 1, not {self.null:g}.")
        # Written so that NaN, which is neither above nor below anything, is refused too.
        if not (0 < self.prior < math.inf and 0 <= self.same < math.inf and 0 <= self.diagonal < math.inf):
            raise BadInput("--prior must be above 0; --same and --diagonal must not be below 0.")

    def belief(self) -> Prior:
        """Return what is believed before any count."""
        return Prior(self.prior, self.same, self.null, self.diagonal)


@dataclass(frozen=True)
class Aligner:
    """A trained statistical aligner.

    Attributes:
        settings: How it was trained.
        source: Source words in lower case -> number.
        target: Target words in lower case -> number.
        table: (types,) word pairs that were seen, `source * len(target) + target`, ascending.
        pairs: (2, types) expected count of each, by direction.
        nulls: (words,) and (words,): expected count of each produced word without partner.
        jumps: By direction; `None` if it was trained with the diagonal prior alone.
    """

    settings: Settings
    source: dict[str, int]
    target: dict[str, int]
    table: NDArray[np.int64]
    pairs: NDArray[np.float32]
    nulls: tuple[NDArray[np.float32], NDArray[np.float32]]
    jumps: tuple[Jumps, Jumps] | None

    def __repr__(self) -> str:
        return f"Aligner({len(self.source):,} × {len(self.target):,} words, {len(self.table):,} word pairs)"

    def align(self, source: Words, target: Words) -> tuple[Candidates, Candidates]:
        """Find the best partner of every word of new sentence pairs.

        Args:
            source: Words of each source sentence; a sentence may be empty.
            target: Words of each target sentence.

        Returns:
            Candidates of the source words (backward) and of the target words (forward).
        """
        if len(source) != len(target):
            raise BadInput(f"{len(source):,} source sentences, but {len(target):,} target sentences.")
        slabs = [slice(first, first + _SLAB) for first in range(0, len(source), _SLAB)]
        found = [self._align(source[slab], target[slab]) for slab in slabs]
        return Candidates.join([own for own, _ in found]), Candidates.join([other for _, other in found])

    def _align(self, source: Words, target: Words) -> tuple[Candidates, Candidates]:
        corpus = _Corpus(source, target, self.source, self.target)
        old, produced = np.divmod(self.table, max(len(self.target), 1))
        known = old * len(corpus.target_words) + produced  # the same pairs, numbered with the new words in mind
        place = np.minimum(np.searchsorted(known, corpus.table), max(len(known) - 1, 0))
        seen = known[place] == corpus.table if len(known) else np.zeros(len(corpus.table), dtype=bool)
        pairs = np.where(seen, self.pairs[:, place], 0).astype(np.float64) if len(known) else corpus.zeros()
        totals = (
            sum_by(old, self.pairs[0], len(corpus.source_words)),
            sum_by(produced, self.pairs[1], len(corpus.target_words)),
        )
        nulls = (
            np.pad(self.nulls[0].astype(np.float64), (0, len(corpus.target_words) - len(self.target))),
            np.pad(self.nulls[1].astype(np.float64), (0, len(corpus.source_words) - len(self.source))),
        )
        counts = Counts(corpus.given, corpus.same, corpus.shared, pairs, totals, nulls, self.jumps)
        return corpus.candidates(counts, self.settings.belief(), None)

    def save(self, path: str | Path) -> None:
        """Write the aligner as one safetensors file."""
        from safetensors.numpy import save_file

        tensors: dict[str, NDArray[Any]] = {
            "source": _packed(self.source),
            "target": _packed(self.target),
            "table": self.table,
            "pairs": self.pairs,
            "nulls.0": self.nulls[0],
            "nulls.1": self.nulls[1],
        }
        for direction, jumps in enumerate(self.jumps or ()):
            tensors |= {f"between.{direction}": jumps.between, f"first.{direction}": jumps.first}
        # safetensors writes memory as it lies, so it must lie in order.
        tensors = {name: np.ascontiguousarray(value) for name, value in tensors.items()}
        with atomic(Path(path)) as draft:
            save_file(tensors, draft, {"format": _FORMAT, "settings": json.dumps(asdict(self.settings))})

    @classmethod
    def load(cls, path: str | Path) -> Aligner:
        """Read an aligner that `save` wrote."""
        from safetensors import SafetensorError, safe_open

        try:
            with safe_open(path, framework="np") as file:
                meta = file.metadata() or {}
                tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118  not a dictionary
        except (OSError, SafetensorError) as error:
            raise BadInput(
                f"{path} cannot be read as an aligner: {error}.", "crosslift align --save writes one."
            ) from None
        if meta.get("format") != _FORMAT:
            raise BadInput(f"{path} is not an aligner of this version.", "crosslift align --save writes one.")
        jumps = None
        if "between.0" in tensors:
            jumps = (
                Jumps(tensors["between.0"], tensors["first.0"]),
                Jumps(tensors["between.1"], tensors["first.1"]),
            )
        return cls(
            Settings(**json.loads(meta["settings"])),
            _unpacked(tensors["source"]),
            _unpacked(tensors["target"]),
            tensors["table"],
            tensors["pairs"],
            (tensors["nulls.0"], tensors["nulls.1"]),
            jumps,
        )


def train(source: Words, target: Words, settings: Settings | None = None) -> tuple[Aligner, Candidates, Candidates]:
    """Train an aligner and align the text it is trained on.

    Each pair is aligned by what the others say; so the links of a pair may differ from what `Aligner.align` finds
    when it is given a training pair as if it were new.

    Args:
        source: Words of each source sentence; a sentence may be empty.
        target: Words of each target sentence.
        settings: How to train.

    Returns:
        The aligner, and the candidates of the source words (backward) and of the target words (forward).
    """
    settings = settings or Settings()
    corpus = _Corpus(source, target)
    prior = settings.belief()
    counts = Counts(
        corpus.given,
        corpus.same,
        corpus.shared,
        corpus.zeros(),
        (np.zeros(len(corpus.source_words)), np.zeros(len(corpus.target_words))),
        (np.zeros(len(corpus.target_words)), np.zeros(len(corpus.source_words))),
        None if settings.diagonal_rounds else (Jumps.start(), Jumps.start()),
    )
    owns = [Own() for _ in corpus.chunks]
    for done in range(settings.diagonal_rounds + settings.rounds):
        jumping = bool(settings.rounds) and done + 1 >= settings.diagonal_rounds
        counts = round_of(corpus.chunks, counts, prior, owns, agree=done >= settings.free_rounds, jumping=jumping)
    own, other = corpus.candidates(counts, prior, owns)
    kept = counts.pairs.max(axis=0, initial=0) > 1e-3 * settings.prior
    aligner = Aligner(
        settings,
        corpus.source_words,
        corpus.target_words,
        corpus.table[kept],
        counts.pairs[:, kept].astype(np.float32),
        (counts.nulls[0].astype(np.float32), counts.nulls[1].astype(np.float32)),
        counts.jumps,
    )
    return aligner, own, other


class _Corpus:
    """Sentence pairs cut into chunks, with the words they are made of.

    Args:
        source: Words of each source sentence.
        target: Words of each target sentence.
        known_source: Words that have a number already.
        known_target: Likewise.
    """

    def __init__(
        self,
        source: Words,
        target: Words,
        known_source: Iterable[str] = (),
        known_target: Iterable[str] = (),
    ) -> None:
        if len(source) != len(target):
            raise BadInput(f"{len(source):,} source sentences, but {len(target):,} target sentences.")
        self.source_words, self.target_words = vocabulary(source, known_source), vocabulary(target, known_target)
        self.sentences: tuple[Sentences, Sentences] = (
            numbered(source, self.source_words),
            numbered(target, self.target_words),
        )
        self.chunks: list[Chunk]
        self.chunks, self.table = make_chunks(*self.sentences, len(self.target_words), LONGEST)
        self.given = np.divmod(self.table, max(len(self.target_words), 1))
        twin = np.array([self.target_words.get(word, -1) for word in self.source_words], dtype=np.int64)
        self.same = twin[self.given[0]] == self.given[1]
        back = np.zeros(len(self.target_words), dtype=bool)
        back[twin[twin >= 0]] = True
        self.shared = (twin >= 0, back)

    def zeros(self) -> NDArray[np.float64]:
        """Return a count of 0 for every word pair: (2, types)."""
        return np.zeros((2, len(self.table)))

    def candidates(self, counts: Counts, prior: Prior, owns: Sequence[Own] | None) -> tuple[Candidates, Candidates]:
        """Return the best partner of each source word and of each target word."""
        found = (Candidates.empty(self.sentences[0].lengths), Candidates.empty(self.sentences[1].lengths))
        for number, chunk in enumerate(self.chunks):
            forward, backward, _ = expect(chunk, counts, prior, owns[number] if owns else None)
            for side, words, share, axis in ((0, chunk.source, backward, 1), (1, chunk.target, forward, 2)):
                where = (found[side].starts[chunk.rows][:, None] + np.arange(words.shape[1]))[words >= 0]
                found[side].partner[where] = share.argmax(axis=axis)[words >= 0]
                found[side].score[where] = share.max(axis=axis)[words >= 0]
                found[side].none[where] = np.clip(1 - share.sum(axis=axis), 0, 1)[words >= 0]
        return found


def _packed(words: dict[str, int]) -> NDArray[np.uint8]:
    return np.frombuffer("\n".join(words).encode("utf-8", "surrogatepass"), dtype=np.uint8)


def _unpacked(packed: NDArray[np.uint8]) -> dict[str, int]:
    text = packed.tobytes().decode("utf-8", "surrogatepass")
    return {word: number for number, word in enumerate(text.split("\n"))} if text else {}
