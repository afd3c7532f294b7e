"""From files to what a pretraining step draws from: streams, pairs and teachers' vectors on the device."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray

from crosslift.data.files import read_lines
from crosslift.data.pair_rows import PairRows, pools_of
from crosslift.data.pairs import Draft, Tokenised, pair_stream, read_pairs, tokenise_pairs
from crosslift.data.streams import Rows, Streams, hold_out, mixed
from crosslift.data.switching import Lexicon, read_lexicon
from crosslift.data.tokenise import Workers, tokenise_lines
from crosslift.errors import BadInput
from crosslift.models.sentence_teacher import WORDS_PER_TEXT, StoredVectors, TeacherVectors, teacher_vectors

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

    from crosslift.methods.pretrain import Objectives, Sampling
    from crosslift.runs.progress import Watch

ENGLISH = "en"
SWITCHED_PER_LANGUAGE = 20_000
_HELD_OUT_WINDOWS = 64
_VECTORS = ".npz"


@dataclass(frozen=True)
class Corpus:
    """What was read.

    Attributes:
        text: Language -> lines; blank lines between documents are left out.
        pairs: Language -> (English, translation).
        lexicons: Language -> lexicon.
        phrases: Language -> words and phrases that are only shown beside a teacher's vector of them.
        left_out: Lines and pairs that were excluded by name.
    """

    text: dict[str, list[str]]
    pairs: dict[str, list[tuple[str, str]]]
    lexicons: Mapping[str, Lexicon]
    phrases: Mapping[str, list[str]] = field(default_factory=dict)
    left_out: int = 0

    def describe(self) -> str:
        """Return the sizes in words."""
        lines = sum(map(len, self.text.values()))
        pairs = sum(map(len, self.pairs.values()))
        sizes = f"{lines:,} lines in {len(self.text)} languages, {pairs:,} pairs, {len(self.lexicons)} lexicons"
        if self.phrases:
            sizes += f", {sum(map(len, self.phrases.values())):,} phrases"
        return sizes + (f" ({self.left_out:,} lines and pairs excluded)" if self.left_out else "")

    def by_language(self) -> dict[str, list[str]]:
        """Return all text by language; both sides of the pairs are text too."""
        english = list(dict.fromkeys(one for pairs in self.pairs.values() for one, _ in pairs))
        languages = dict.fromkeys([*self.text, *self.pairs, *([ENGLISH] if english else [])])
        return {
            language: self.text.get(language, [])
            + [other for _, other in self.pairs.get(language, [])]
            + (english if language == ENGLISH else [])
            for language in languages
        }


def read_corpus(
    text: Mapping[str, Sequence[Path]],
    bitext: Sequence[Path],
    lexicons: Mapping[str, Path],
    exclude: Sequence[Path] = (),
    phrases: Mapping[str, Sequence[Path]] | None = None,
) -> Corpus:
    """Read all files; pairs are sorted into languages.

    Args:
        text: Language -> files.
        bitext: Files of pairs.
        lexicons: Language -> file.
        exclude: Files of lines that are never trained on, on either side of a pair.
        phrases: Language -> files of words and phrases.
    """
    banned = frozenset(line for path in exclude for line in read_lines(path))
    left_out = 0
    lines: dict[str, list[str]] = {}
    for language, paths in text.items():
        found = [line for path in paths for line in read_lines(path) if line]
        lines[language] = [line for line in found if line not in banned]
        left_out += len(found) - len(lines[language])
    pairs: dict[str, list[tuple[str, str]]] = {}
    for path in bitext:
        for language, english, other in read_pairs(path):
            if english in banned or other in banned:
                left_out += 1
            else:
                pairs.setdefault(language, []).append((english, other))
    if not any(lines.values()) and not pairs:
        raise BadInput("There is no text to train on.", "Name text files (--text de=de.txt) or bitext.")
    opened = {language: read_lexicon(path) for language, path in sorted(lexicons.items())}
    short = {
        language: list(dict.fromkeys(line for path in paths for line in read_lines(path) if line))
        for language, paths in (phrases or {}).items()
    }
    return Corpus(lines, dict(sorted(pairs.items())), opened, short, left_out)


@dataclass(frozen=True)
class Prepared:
    """What the steps draw from.

    Attributes:
        streams: Windows of the masked LM.
        pairs: Sentence pairs, or `None`.
        teachers: Their vectors of the anchor texts.
        training: Language -> tokens of its text, without the held-out end.
        held_out: Language -> (windows, length) tokens kept out of training.
    """

    streams: Streams
    pairs: PairRows | None
    teachers: list[TeacherVectors]
    training: dict[str, NDArray[np.integer]]
    held_out: dict[str, NDArray[np.integer]]

    @property
    def word_width(self) -> int:
        """Width of the word vectors; 0 if there are none."""
        return next((t.words.shape[1] for t in self.teachers if len(t.words)), 0)

    def describe(self) -> str:
        """Return the sizes in words."""
        pairs = len(self.pairs.anchors) if self.pairs else 0
        linked = int((self.pairs.words >= 0).sum()) if self.pairs else 0
        return f"{len(self.streams.ids):,} tokens of streams, {pairs:,} pairs with {linked:,} linked words"


def prepare(
    corpus: Corpus,
    tokenizer: PreTrainedTokenizerBase,
    teachers: Sequence[str | Path],
    sampling: Sampling,
    objectives: Objectives,
    device: torch.device,
    seed: int,
    workers: Workers,
    watch: Watch,
) -> Prepared:
    """Tokenise everything once and put it on the device."""
    backend = tokenizer.backend_tokenizer
    backend.no_padding()
    backend.no_truncation()
    clock = _Clock(watch)
    runs: dict[str, NDArray[np.integer]] = dict(tokenise_lines(corpus.text, backend, workers))
    clock.say("text tokenised")
    opened = [StoredVectors(Path(t)) if str(t).endswith(_VECTORS) else t for t in teachers]
    plan = plan_pairs(corpus, sampling, opened, seed)
    tokenised: Tokenised | None = None
    if plan.drafts:
        longest = max(sampling.pair_lengths)
        tokenised = tokenise_pairs(
            plan.drafts, backend, corpus.lexicons, longest=max(longest, 128), seed=seed, workers=workers
        )
        clock.say(f"{len(plan.drafts):,} pairs tokenised")
    extra, switched = _pair_runs(plan, tokenised, seed)
    both: dict[str, NDArray[np.integer]] = {}
    for name, run in extra.items():
        kind, language = name.split("/")
        if kind == "both":
            both[language] = run
        else:
            runs[language] = np.concatenate([run, runs[language]]) if language in runs else run
    training, held_out = hold_out(runs, sampling.window - 2, _HELD_OUT_WINDOWS)
    streams = _streams(training, both, switched, sampling).to(device)
    clock.say("streams joined")
    taught = (objectives.sentences or objectives.words) and teachers
    if tokenised is None or not (objectives.contrast or taught):
        return Prepared(streams, None, [], training, held_out)
    uses_words = bool(objectives.words) and any(not isinstance(t, StoredVectors) for t in opened)
    # A teacher of English makes nothing of the words of another language.
    has_word = (tokenised.words >= 0) & uses_words & plan.in_english[plan.anchors][:, None]
    among_english = np.cumsum(plan.in_english) - 1
    keys = among_english[plan.anchors][:, None] * WORDS_PER_TEXT + np.where(has_word, tokenised.words, 0)
    wanted = np.unique(keys[has_word])
    vectors = _teachers(opened, plan, wanted, device, workers)
    clock.say(f"{len(plan.texts):,} texts and {len(wanted):,} words read by {len(teachers)} teachers")
    words = np.where(has_word, np.searchsorted(wanted, keys), -1).astype(np.int32)
    pairs = _pair_rows(plan, tokenised, words, sampling, device)
    return Prepared(streams, pairs, vectors, training, held_out)


class _Clock:
    """Says what took how long."""

    def __init__(self, watch: Watch) -> None:
        self.watch, self.last = watch, time.monotonic()

    def say(self, what: str) -> None:
        now = time.monotonic()
        self.watch.say(f"prepare   {what}   {now - self.last:.0f} s")
        self.last = now


@dataclass
class PairPlan:
    """Which pairs there will be, before they are tokenised.

    Attributes:
        drafts: The pairs.
        groups: `kind/language` -> pair numbers; kinds are pair, switched, lexicon, same, phrase.
        texts: Anchor texts, English first come.
        languages: Language of each anchor text.
    """

    drafts: list[Draft] = field(default_factory=list)
    groups: dict[str, list[int]] = field(default_factory=dict)
    texts: dict[str, int] = field(default_factory=dict)
    languages: list[str] = field(default_factory=list)

    @property
    def anchors(self) -> NDArray[np.int64]:
        """(pairs,) number of each pair's anchor text."""
        return np.array([draft.anchor for draft in self.drafts], dtype=np.int64)

    @property
    def in_english(self) -> NDArray[np.bool_]:
        """(texts,) whether an anchor text is English."""
        return np.array([language == ENGLISH for language in self.languages], dtype=bool)

    def add(self, group: str, draft: Draft) -> None:
        """Take in a pair."""
        self.groups.setdefault(group, []).append(len(self.drafts))
        self.drafts.append(draft)

    def anchor(self, text: str, language: str) -> int:
        """Return the number of an anchor text."""
        number = self.texts.setdefault(text, len(self.texts))
        if number == len(self.languages):
            self.languages.append(language)
        return number


def plan_pairs(
    corpus: Corpus, sampling: Sampling, teachers: Sequence[StoredVectors | str | Path], seed: int
) -> PairPlan:
    """Decide which pairs there are: real ones, code-switched ones, lexicon entries, texts beside themselves."""
    rng = np.random.default_rng([seed, 1])
    plan = PairPlan()
    for language, pairs in corpus.pairs.items():
        also_plain = rng.random(len(pairs)) < sampling.plain
        for (english, other), plain in zip(pairs, also_plain.tolist(), strict=True):
            anchor = plan.anchor(english, ENGLISH)
            plan.add(f"pair/{language}", Draft("pair", language, english, other, anchor))
            if plain:
                plan.add(f"pair/{language}", Draft("plain", language, english, other, anchor))
    sentences = [*plan.texts, *corpus.text.get(ENGLISH, [])]
    for language, lexicon in corpus.lexicons.items():
        if sampling.switched_pairs or sampling.switched_windows:
            chosen = rng.choice(len(sentences), min(len(sentences), SWITCHED_PER_LANGUAGE), replace=False)
            for text in (sentences[i] for i in chosen.tolist()):
                plan.add(f"switched/{language}", Draft("switched", language, text, "", plan.anchor(text, ENGLISH)))
        for entry, words in lexicon.items() if sampling.lexicon_pairs else ():
            anchor = plan.anchor(entry, ENGLISH)
            for word in words:
                plan.add(f"lexicon/{language}", Draft("pair", language, entry, word, anchor))
    if sampling.same_pairs and teachers:
        for language, lines in corpus.by_language().items():
            most = sampling.same_english if language == ENGLISH else sampling.same_lines
            _plan_same(plan, f"same/{language}", lines, most, teachers, rng)
    if sampling.phrase_pairs and teachers:
        for language, phrases in corpus.phrases.items():
            _plan_same(plan, f"phrase/{language}", phrases, len(phrases), teachers, rng)
    return plan


def _plan_same(
    plan: PairPlan,
    group: str,
    lines: Sequence[str],
    most: int,
    teachers: Sequence[StoredVectors | str | Path],
    rng: np.random.Generator,
) -> None:
    """Add at most so many texts beside their own plain form, where some teacher knows the text."""
    language = group.split("/")[1]
    stored = [teacher for teacher in teachers if isinstance(teacher, StoredVectors)]
    if language != ENGLISH and not stored:
        return
    chosen = rng.choice(len(lines), min(len(lines), most), replace=False)
    texts = [lines[i] for i in chosen.tolist()]
    known = np.ones(len(texts), dtype=bool)
    if language != ENGLISH:
        known = np.any([each.known(texts) for each in stored], axis=0)
    for text, use in zip(texts, known.tolist(), strict=True):
        if use:
            plan.add(group, Draft("same", language, text, "", plan.anchor(text, language)))


def _pair_runs(
    plan: PairPlan, pairs: Tokenised | None, seed: int
) -> tuple[dict[str, NDArray[np.integer]], dict[str, NDArray[np.integer]]]:
    """Return runs of tokens from pairs (`text/…` one side, `both/…` both sides), and code-switched runs."""
    if pairs is None:
        return {}, {}
    rng = np.random.default_rng([seed, 2])
    runs: dict[str, NDArray[np.integer]] = {}
    switched: dict[str, NDArray[np.integer]] = {}
    for name, members in plan.groups.items():
        kind, language = name.split("/")
        shuffled = rng.permutation(np.array(members))
        if kind == "pair":
            runs[f"text/{language}"] = pair_stream(pairs, shuffled, rng, both=False)
            runs[f"both/{language}"] = pair_stream(pairs, shuffled, rng, both=True)
        elif kind == "switched":
            switched[language] = pair_stream(pairs, shuffled, rng, both=False)
    return runs, switched


def _streams(
    training: Mapping[str, NDArray[np.integer]],
    both: Mapping[str, NDArray[np.integer]],
    switched: Mapping[str, NDArray[np.integer]],
    sampling: Sampling,
) -> Streams:
    shares = {"both": sampling.translation_windows if both else 0.0}
    shares["switched"] = sampling.switched_windows if switched else 0.0
    parts = [(Streams.of(training, sampling.smoothing), 1 - shares["both"] - shares["switched"])]
    for name, runs in (("both", both), ("switched", switched)):
        if shares[name]:
            parts.append((Streams.of(runs, sampling.smoothing), shares[name]))
    return mixed(parts)


def _teachers(
    teachers: Sequence[StoredVectors | str | Path],
    plan: PairPlan,
    wanted: NDArray[np.int64],
    device: torch.device,
    workers: Workers,
) -> list[TeacherVectors]:
    """Return each teacher's vectors; texts that a teacher does not know have zero vectors.

    Args:
        teachers: Stored vectors, or folders of sentence encoders that read English.
        plan: Its anchor texts are read.
        wanted: Keys of words, where texts are numbered among the English ones.
        device: Where the vectors go.
        workers: Processes that tokenise.
    """
    texts = list(plan.texts)
    english = plan.in_english
    none = np.empty(0, dtype=np.int64)
    found: list[TeacherVectors] = []
    for teacher in teachers:
        if isinstance(teacher, StoredVectors):
            vectors = torch.from_numpy(teacher.of(texts)).to(device)
            found.append(TeacherVectors(vectors, torch.empty((0, vectors.shape[1]), device=device)))
            continue
        taken = any(len(other.words) for other in found)
        read = [text for text, known in zip(texts, english.tolist(), strict=True) if known]
        vectors_of = teacher_vectors(teacher, read, none if taken else wanted, device, workers)
        sentences = vectors_of.sentences.new_zeros(len(texts), vectors_of.sentences.shape[1])
        sentences[torch.from_numpy(english).to(sentences.device)] = vectors_of.sentences
        found.append(TeacherVectors(sentences, vectors_of.words))
    return found


def _pair_rows(
    plan: PairPlan, pairs: Tokenised, words: NDArray[np.int32], sampling: Sampling, device: torch.device
) -> PairRows:
    shares = {
        "switched": sampling.switched_pairs,
        "lexicon": sampling.lexicon_pairs,
        "same": sampling.same_pairs,
        "phrase": sampling.phrase_pairs if any(name.startswith("phrase/") for name in plan.groups) else 0.0,
    }
    shares["pair"] = max(0.0, 1 - sum(shares.values()))
    groups = {name: np.array(members, dtype=np.int64) for name, members in plan.groups.items()}
    lengths = np.maximum(pairs.left_lengths, pairs.right_lengths).astype(np.int64)
    pools, weights = pools_of(groups, lengths, sorted(sampling.pair_lengths), shares, sampling.smoothing)
    return PairRows(
        Rows.of(pairs.left, pairs.left_lengths).to(device),
        Rows.of(pairs.right, pairs.right_lengths).to(device),
        torch.from_numpy(plan.anchors).to(device),
        torch.from_numpy(pairs.spans).to(device),
        torch.from_numpy(words).to(device),
        tuple((name, length, torch.from_numpy(members).to(device)) for name, length, members in pools),
        weights,
    )
