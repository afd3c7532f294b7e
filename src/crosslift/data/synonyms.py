"""Synonyms: where they come from, and how words of a text are replaced by them.

Words are character spans of the text (`segment`), so punctuation stays where it is, and replacement keeps the
number of words: word i of the new text stands for word i of the old one. What is drawn for a word depends on
(seed, step, row, word) alone, never on which rows happen to share a batch.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from crosslift.data.examples import Spans
from crosslift.data.files import find_file, format_suffix, read_lines, read_text
from crosslift.data.table import parse_json
from crosslift.data.words import ranges, row_starts
from crosslift.errors import BadFile, BadInput

Synonyms = dict[str, tuple[str, ...]]
"""Word -> what may stand in its place; never empty."""

_WORDNET = ("data.noun", "data.verb", "data.adj", "data.adv")

_NEGATIONS = frozenset(
    """no not nor none never nothing nobody nowhere neither without cannot hardly barely seldom rarely unless except
    dont doesnt didnt isnt arent wasnt werent cant couldnt wouldnt shouldnt wont hasnt havent hadnt
    nein nicht nichts nie niemals kein keine keinen keinem keiner keines keinerlei keinesfalls keineswegs mitnichten
    niemand niemandem niemanden nirgends nirgendwo weder ohne kaum
    non ne pas jamais rien guère aucun aucune sans ni personne
    né mai niente nulla nessun nessuno nessuna senza neanche nemmeno neppure
    nunca jamás nada nadie ninguno ninguna ningún sin tampoco não nenhum nenhuma sem ninguém
    не нет ни никогда никто ничего ничто нигде никак никакой никакая никакое никакие без нельзя
    niet nooit geen niets niemand zonder nie nigdy nic nikt żaden żadna żadne bez""".split()  # noqa: SIM905  readable so
)
_NUMBERS = frozenset(
    """zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen
    seventeen eighteen nineteen twenty thirty forty fifty sixty seventy eighty ninety hundred thousand million
    billion half once twice first second third""".split()  # noqa: SIM905
)


def read_synonyms(path: str | Path) -> Synonyms:
    """Read a synonym dictionary, plain or compressed, by what it is.

    * `.json`: `{"word": ["other", …]}` (the counter-fitted neighbours of Alzantot et al. 2018);
    * `.tsv` or `.txt`: `word TAB other`, or `word TAB other | another | …`; several lines add up;
    * a folder with WordNet's `data.noun`, `data.verb`, `data.adj`, `data.adv`.

    Entries of several words are left out, on both sides: a word is replaced by a word.
    """
    path = Path(path)
    if path.is_dir():
        return _tidy(_wordnet(path))
    if format_suffix(path) == ".json":
        return _tidy(_json(path))
    return _tidy(_table(path))


def _tidy(pairs: Iterable[tuple[str, Sequence[str]]]) -> Synonyms:
    found: dict[str, dict[str, None]] = {}
    for word, others in pairs:
        for other in others:
            if other != word and _is_word(word) and _is_word(other):
                found.setdefault(word, {})[other] = None
    return {word: tuple(others) for word, others in found.items()}


def _is_word(text: str) -> bool:
    return bool(text) and not any(map(str.isspace, text))


def _json(path: Path) -> Iterable[tuple[str, Sequence[str]]]:
    content = parse_json(path, read_text(path))
    remedy = 'Write {"word": ["other", "another"]}.'
    if not isinstance(content, dict):
        raise BadFile(path, None, "is not an object of word lists.", remedy)
    for word, others in content.items():
        if not isinstance(others, list) or not all(isinstance(other, str) for other in others):
            raise BadFile(path, None, f"the entry of {word!r} is not a list of words.", remedy)
    return content.items()


def _table(path: Path) -> Iterable[tuple[str, Sequence[str]]]:
    for number, line in enumerate(read_lines(path), start=1):
        parts = line.split("\t")
        if len(parts) != 2 or not all(part.strip() for part in parts):
            raise BadFile(
                path,
                number,
                "is not `word TAB other` or `word TAB other | another`.",
                "Mend or remove the line; a dictionary in JSON has a name that ends in .json.",
            )
        yield parts[0].strip(), [other.strip() for other in parts[1].split("|")]


def _wordnet(folder: Path) -> Iterable[tuple[str, Sequence[str]]]:
    files = [file for name in _WORDNET if (file := find_file(folder / name))]
    if not files:
        raise BadFile(folder, None, f"has none of {', '.join(_WORDNET)}.", "Name WordNet's dict folder.")
    for file in files:
        for number, line in enumerate(read_lines(file), start=1):
            if line.startswith(" "):  # the licence at the top
                continue
            fields = line.split(" ")
            try:
                # offset, file, type, number of words in hexadecimal, then word and its sense in turn
                lemmas = fields[4 : 4 + 2 * int(fields[3], 16) : 2]
            except (IndexError, ValueError):
                raise BadFile(file, number, "is not a line of a WordNet data file.", "Fetch it again.") from None
            # Adjectives carry their place in brackets: galore(ip).
            words = [lemma.split("(")[0].replace("_", " ") for lemma in lemmas]
            for word in words:
                yield word.lower(), words


def part_of(synonyms: Mapping[str, tuple[str, ...]], scale: float) -> Synonyms:
    """Return a share of a dictionary: always the same one, and a smaller share lies within a larger one."""
    if not 0 < scale <= 1:
        raise BadInput(f"--scale is a share of the dictionary: 0 < scale ≤ 1, not {scale:g}.")
    order = sorted(synonyms, key=lambda word: hashlib.blake2b(word.encode(), digest_size=8).digest())
    kept = set(order[: round(scale * len(order))])
    return {word: others for word, others in synonyms.items() if word in kept}


def neighbours(words: Sequence[str], vectors: NDArray[np.floating], count: int = 8) -> Synonyms:
    """Return the nearest words of each word by cosine: synonyms for a language that has no dictionary.

    Args:
        words: Different words.
        vectors: (words, width), none of them zero.
        count: How many neighbours each word gets.
    """
    count = min(count, len(words) - 1)
    if count < 1:
        return {}
    unit = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    found: Synonyms = {}
    for start in range(0, len(words), 2048):
        scores = unit[start : start + 2048] @ unit.T
        places = np.arange(len(scores))
        scores[places, start + places] = -np.inf
        top = np.argpartition(-scores, count - 1, axis=1)[:, :count]
        top = np.take_along_axis(top, np.argsort(-np.take_along_axis(scores, top, 1), axis=1, kind="stable"), 1)
        for word, row in zip(words[start : start + 2048], top.tolist(), strict=True):
            found[word] = tuple(words[i] for i in row)
    return found


@lru_cache(maxsize=2**17)  # a word is a synonym of many
def is_protected(word: str) -> bool:
    """Say whether replacing the word would turn the meaning over: a negation, or a number."""
    lower = word.lower()
    return (
        lower in _NEGATIONS
        or lower in _NUMBERS
        or lower.endswith(("n't", "n’t"))
        or any(character.isnumeric() for character in word)
    )


def space_spans(texts: Sequence[str]) -> list[Spans]:
    """Return the words of each text as cut at single spaces, punctuation attached."""
    spans = []
    for text in texts:
        words = text.split(" ")
        starts = row_starts([len(word) + 1 for word in words])
        both = np.stack([starts[:-1], starts[1:] - 1], axis=1).astype(np.int32)
        spans.append(both[both[:, 1] > both[:, 0]])
    return spans


def in_case_of(word: str, model: str) -> str:
    """Write a word in the case of another: UPPER, Title, or as it is."""
    if len(model) > 1 and model.isupper():
        return word.upper()
    if model[:1].isupper():
        return word[:1].upper() + word[1:]
    return word


@dataclass(frozen=True)
class Replaceable:
    """Texts, and what each of their words may become.

    Attributes:
        texts: The texts.
        spans: Their words, each (words, 2).
        word: (places,) number of each replaceable word within its text; all texts one after another.
        starts: (texts + 1,) where each text starts in `word`.
        choices: (places,) what each of these words may become.
    """

    texts: Sequence[str]
    spans: Sequence[Spans]
    word: NDArray[np.int64]
    starts: NDArray[np.int64]
    choices: Sequence[tuple[str, ...]]

    def replace(
        self, rows: NDArray[np.integer], rate: float | None, seed: int, step: int | NDArray[np.int64]
    ) -> tuple[list[str], list[Spans]]:
        """Return new versions of some texts and of their words' spans; words map one to one.

        Args:
            rows: Which texts.
            rate: Chance that a word which has synonyms is replaced by one of them, all alike; `None`: the draw is
                uniform over the word itself and its synonyms (Huang et al. 2021).
            seed: Another seed, other words.
            step: Another step, other words; one for all texts or one for each.
        """
        rows = np.asarray(rows, dtype=np.int64)
        counts = self.starts[rows + 1] - self.starts[rows]
        places = ranges(self.starts[rows], counts)
        owner = np.repeat(rows, counts)
        sizes = np.array([len(self.choices[i]) for i in places.tolist()], dtype=np.int64)
        own_step = step if isinstance(step, int) else np.repeat(step, counts)
        whether = uniform(seed, own_step, owner, self.word[places], 0)
        which = uniform(seed, own_step, owner, self.word[places], 1)
        chosen = whether < (sizes / (sizes + 1) if rate is None else rate)
        pick = (which * sizes).astype(np.int64)
        bounds = row_starts(counts)
        texts, grown = [], []
        flat = np.concatenate([np.zeros((0, 2), dtype=np.int32), *(self.spans[row] for row in rows.tolist())])
        offsets = row_starts([len(self.spans[row]) for row in rows.tolist()])
        at = np.repeat(offsets[:-1], counts) + self.word[places]
        for i, row in enumerate(rows.tolist()):
            own = np.flatnonzero(chosen[bounds[i] : bounds[i + 1]]) + bounds[i]
            new = [self.choices[place][k] for place, k in zip(places[own].tolist(), pick[own].tolist(), strict=True)]
            texts.append(_rewritten(self.texts[row], flat[at[own]].tolist(), new))
            grown += [len(word) for word in new]
        growth = np.zeros(len(flat), dtype=np.int64)
        growth[at[chosen]] = grown - (flat[at[chosen], 1] - flat[at[chosen], 0])
        # One sum over all texts; what came before a text is not its own.
        total = np.cumsum(growth)
        before = np.concatenate([[0], total])[offsets[:-1]]
        total -= np.repeat(before, np.diff(offsets))
        moved = np.stack([flat[:, 0] + total - growth, flat[:, 1] + total], axis=1).astype(np.int32)
        return texts, [moved[a:b] for a, b in zip(offsets[:-1].tolist(), offsets[1:].tolist(), strict=True)]


def replaceable(
    texts: Sequence[str],
    spans: Sequence[Spans],
    synonyms: Mapping[str, tuple[str, ...]],
    *,
    protect: bool = True,
    exact: bool = False,
    keep: Sequence[Sequence[tuple[int, int]]] | None = None,
) -> Replaceable:
    """Look every word up once.

    Args:
        texts: The texts.
        spans: Their words.
        synonyms: Word -> choices; looked up as written, then in lower case.
        protect: Leave negations and numbers as they are, and bring in none.
        exact: Look words up as written only, and write choices as they stand in the dictionary.
        keep: The character ranges of each text in which nothing is replaced (start and end; an answer, say).
    """
    known: dict[str, tuple[str, ...]] = {}

    def choices_of(word: str) -> tuple[str, ...]:
        if protect and is_protected(word):
            return ()
        if exact:
            others = synonyms.get(word, ())
        else:
            found = synonyms.get(word) or synonyms.get(word.lower(), ())
            others = tuple(dict.fromkeys(in_case_of(other, word) for other in found))
        return tuple(other for other in others if other != word and not (protect and is_protected(other)))

    numbers, starts, choices = [], [0], []
    for row, (text, words) in enumerate(zip(texts, spans, strict=True)):
        kept = keep[row] if keep is not None else ()
        for number, (start, end) in enumerate(words.tolist()):
            word = text[start:end]
            if word not in known:
                known[word] = choices_of(word)
            if known[word] and not any(start < high and end > low for low, high in kept):
                numbers.append(number)
                choices.append(known[word])
        starts.append(len(numbers))
    return Replaceable(texts, spans, np.array(numbers, dtype=np.int64), np.array(starts), choices)


def _rewritten(text: str, spans: Sequence[Sequence[int]], new: Sequence[str]) -> str:
    """Put new words in place of those at some spans."""
    pieces, done = [], 0
    for word, (start, end) in zip(new, spans, strict=True):
        pieces += [text[done:start], word]
        done = end
    return "".join([*pieces, text[done:]])


def uniform(
    seed: int, step: int | NDArray[np.int64], row: NDArray[np.int64], word: NDArray[np.int64], draw: int
) -> NDArray[np.float64]:
    """Return one number in [0, 1) per (row, word): a hash of all arguments (SplitMix64)."""
    with np.errstate(over="ignore"):
        state = np.full(len(row), seed % 2**63, dtype=np.uint64)
        for part in (np.asarray(step), row, word, np.asarray(draw)):
            state = (state ^ part.astype(np.uint64)) + np.uint64(0x9E3779B97F4A7C15)
            state = (state ^ (state >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
            state = (state ^ (state >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
            state = state ^ (state >> np.uint64(31))
    return np.asarray((state >> np.uint64(11)) / 2.0**53)
