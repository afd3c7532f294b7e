"""Scores as functions of summed per-example statistics.

Every metric keeps one row of counts per example and a function from summed rows to the score. Resampling
examples is then a matrix product with the rows, for F1 as much as for accuracy. All scores are in percent.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Literal, TypeVar

import numpy as np
from numpy.typing import NDArray

from crosslift.data.examples import Answer
from crosslift.errors import BadInput, nearest
from crosslift.tasks.answers import Tokens, normaliser

T = TypeVar("T")
Floats = NDArray[np.float64]
TagSequences = Sequence[Sequence[str] | None]
GoldAnswers = Sequence[Sequence[str | Answer] | None]


@dataclass(frozen=True, eq=False)
class Metric:
    """A score, kept as additive statistics of its examples.

    Attributes:
        name: What is measured, such as `accuracy` or `f1_mlqa`; part of the identity of a number.
        stats: (examples, k) statistics.
        combine: (..., k) summed statistics -> (...) scores in percent.
        is_mean: The score is a mean of per-example values; `stats` are then (sum of values 0..1, count).
    """

    name: str
    stats: Floats
    combine: Callable[[Floats], Floats]
    is_mean: bool = False

    def __post_init__(self) -> None:
        if self.stats.ndim != 2 or not len(self.stats):
            raise BadInput(f"{self.name}: there are no examples to score.")

    def __len__(self) -> int:
        return len(self.stats)

    def __repr__(self) -> str:
        return f"Metric({self.name}: {self.value:.2f}, n = {len(self):,})"

    @property
    def value(self) -> float:
        """The score over all examples, in percent."""
        return float(self.combine(self.stats.sum(axis=0)))

    @property
    def per_example(self) -> Floats:
        """(examples,) values in percent whose mean is the score.

        Raises:
            BadInput: The score is not such a mean (F1 over a corpus).
        """
        if not self.is_mean or np.ptp(self.stats[:, 1]) > 0:
            raise BadInput(
                f"{self.name} is not a mean of one value per example.",
                "Compare with permutation_test or paired_bootstrap instead.",
            )
        return self.combine(self.stats)

    def by_group(self, groups: Sequence[Hashable]) -> Metric:
        """Sum the statistics of each group, so that whole groups are resampled; the score stays the same.

        Args:
            groups: (examples,) group of each example. Groups come out in order of first appearance.
        """
        if len(groups) != len(self):
            raise BadInput(f"{self.name}: {len(groups)} groups for {len(self)} examples.")
        place = {group: i for i, group in enumerate(dict.fromkeys(groups))}
        sums = np.zeros((len(place), self.stats.shape[1]))
        np.add.at(sums, _codes(groups, place), self.stats)
        return Metric(self.name, sums, self.combine, self.is_mean)


def _mean(sums: Floats) -> Floats:
    """(..., 2) sum and count -> mean in percent."""
    return 100 * sums[..., 0] / np.maximum(sums[..., 1], 1)


def _micro_f1(sums: Floats) -> Floats:
    """(..., 3) correct, predicted and gold units -> F1 in percent; 0 where there is no unit at all."""
    return 200 * sums[..., 0] / np.maximum(sums[..., 1] + sums[..., 2], 1)


def _macro_f1(sums: Floats) -> Floats:
    """(..., 3 * labels) correct, predicted, gold per label -> mean F1 of the labels that occur."""
    by_label = sums.reshape(*sums.shape[:-1], -1, 3)
    occurs = (by_label[..., 1] + by_label[..., 2]) > 0
    mean: Floats = _micro_f1(by_label).sum(axis=-1) / np.maximum(occurs.sum(axis=-1), 1)
    return mean


def accuracy(gold: Sequence[str | None] | None, pred: Sequence[str]) -> Metric:
    """Return the share of examples whose predicted class is the gold class."""
    known = _known(gold, pred)
    right = np.fromiter((g == p for g, p in zip(known, pred, strict=True)), np.float64, len(pred))
    return _mean_metric("accuracy", right)


def macro_f1(gold: Sequence[str | None] | None, pred: Sequence[str], labels: Sequence[str]) -> Metric:
    """Return the plain mean of the classes' F1, over the classes that occur as gold or prediction.

    A class that neither occurs nor is predicted does not count: it has no F1. In a resample the same rule
    holds for the resample.

    Args:
        gold: Gold class of each example.
        pred: Predicted class of each example.
        labels: All classes there are.
    """
    known = _known(gold, pred)
    place = {label: i for i, label in enumerate(labels)}
    for label in dict.fromkeys(chain(known, pred)):
        if label not in place:
            raise BadInput(f'Unknown class "{label}".{nearest(label, labels)}', f"Known: {', '.join(labels)}.")
    g, p = _codes(known, place), _codes(pred, place)
    rows = np.arange(len(g))
    stats = np.zeros((len(g), len(place), 3))
    stats[rows, g, 2] = 1
    stats[rows, p, 1] = 1
    stats[rows, g, 0] = g == p
    return Metric("macro_f1", stats.reshape(len(g), -1), _macro_f1)


def entity_f1(gold: TagSequences | None, pred: TagSequences, mode: Literal["strict", "lenient"] = "lenient") -> Metric:
    """Return the F1 of entities over the whole set (micro), from IOB2 tags, one per word.

    An entity counts as found if its type and both ends are right. `lenient` reads tags as conlleval and
    seqeval's default do: an I- that continues nothing starts an entity. `strict` takes only entities that
    start with B-, as seqeval's strict IOB2 does. With no entity in gold or prediction F1 is 0.

    Args:
        gold: Gold tags of each sentence.
        pred: Predicted tags of each sentence, as many as gold.
        mode: How to read an I- that continues nothing.

    Returns:
        `entity_f1` (lenient) or `entity_f1_strict`, with one row per sentence.
    """
    g, p, names, sentence = _flat_tags(gold, pred)
    for name in names:
        if name not in ("O", "B", "I") and not name.startswith(("B-", "I-")):
            raise BadInput(f'"{name}" is not an IOB2 tag.', "Tags are O, B-TYPE and I-TYPE; for others use token_f1.")
    begins = np.array([name[0] == "B" for name in names], dtype=bool)
    types = {name: i for i, name in enumerate(dict.fromkeys(name[2:] for name in names))}
    type_of = np.array([-1 if name == "O" else types[name[2:]] for name in names], dtype=np.int64)
    gold_type, gold_stop = _entities(type_of[g], begins[g], sentence, mode)
    pred_type, pred_stop = _entities(type_of[p], begins[p], sentence, mode)
    found = (gold_type >= 0) & (gold_type == pred_type) & (gold_stop == pred_stop)
    name = "entity_f1" if mode == "lenient" else "entity_f1_strict"
    return _f1_metric(name, found, pred_type >= 0, gold_type >= 0, sentence, len(pred))


def _entities(
    types: NDArray[np.int64], begins: NDArray[np.bool_], sentence: NDArray[np.int64], mode: str
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return for each word the type of the entity that starts there (-1: none) and the word after its end."""
    inside = types >= 0
    continues = np.zeros(len(types), dtype=bool)
    continues[1:] = inside[1:] & ~begins[1:] & (types[1:] == types[:-1]) & (sentence[1:] == sentence[:-1])
    starts = inside & ~continues
    breaks = np.append(np.flatnonzero(~continues), len(types))
    stop = breaks[np.searchsorted(breaks, np.arange(len(types)), side="right")]
    if mode == "strict":
        starts &= begins
    return np.where(starts, types, -1), stop


def token_f1(gold: TagSequences | None, pred: TagSequences) -> Metric:
    """Return the micro F1 of single words over the tags other than O.

    A word is correct if its whole tag is right, B- and I- included, and the tag is not O; precision divides
    by the words predicted as not O, recall by the words whose gold tag is not O. It equals scikit-learn's
    micro F1 over all labels but O. Where no tag is O (parts of speech) it is plain accuracy over words.

    This is our reading of the "token-level micro-averaged F1" of Efimov et al., who do not spell it
    out and whose released code computes entity F1.
    """
    g, p, names, sentence = _flat_tags(gold, pred)
    outside = names.index("O") if "O" in names else -1
    return _f1_metric("token_f1", (g == p) & (g != outside), p != outside, g != outside, sentence, len(pred))


def exact_match(gold: GoldAnswers | None, pred: Sequence[str], normaliser: str, language: str) -> Metric:
    """Return the share of questions answered with the tokens of one of the gold answers.

    Args:
        gold: Gold answers of each question, as texts or `Answer`s; empty = the question has no answer.
        pred: Predicted answer of each question; empty = none.
        normaliser: `squad`, `mlqa` or `unicode`; part of the metric's name.
        language: Language of the answers, which is that of the paragraph.
    """
    values = [
        max(float(candidate == given) for candidate in candidates)
        for candidates, given in _answer_tokens(gold, pred, normaliser, language)
    ]
    return _mean_metric(f"exact_match_{normaliser}", np.array(values))


def answer_f1(gold: GoldAnswers | None, pred: Sequence[str], normaliser: str, language: str) -> Metric:
    """Return the mean over questions of the best token F1 with one of the gold answers.

    A question without an answer counts 1 if the prediction is empty, else 0. So does an answer of which the
    normaliser leaves nothing. Arguments as for `exact_match`.
    """
    values = [
        max(_overlap_f1(candidate, given) for candidate in candidates)
        for candidates, given in _answer_tokens(gold, pred, normaliser, language)
    ]
    return _mean_metric(f"f1_{normaliser}", np.array(values))


def _answer_tokens(
    gold: GoldAnswers | None, pred: Sequence[str], name: str, language: str
) -> Iterable[tuple[list[Tokens], Tokens]]:
    """Yield the gold answers and the prediction of each question as tokens."""
    tokens = normaliser(name, language)
    for answers, given in zip(_known(gold, pred), pred, strict=True):
        texts = [answer.text if isinstance(answer, Answer) else answer for answer in answers]
        candidates = [found for text in texts if (found := tokens(text))]
        yield candidates or [()], tokens(given)


def _overlap_f1(gold: Tokens, pred: Tokens) -> float:
    if not gold or not pred:
        return float(gold == pred)
    common = (Counter(gold) & Counter(pred)).total()
    return 2 * common / (len(gold) + len(pred))


def _known(gold: Sequence[T | None] | None, pred: Sequence[object]) -> list[T]:
    """Return gold labels that are all known and as many as the predictions."""
    if gold is None:
        raise BadInput("There is nothing to score against: the labels are unknown.")
    if len(gold) != len(pred):
        raise BadInput(f"{len(gold)} gold labels but {len(pred)} predictions.")
    known = [label for label in gold if label is not None]
    if len(known) < len(gold):
        first = next(i for i, label in enumerate(gold) if label is None)
        missing = len(gold) - len(known)
        raise BadInput(
            f"The labels of {missing:,} of {len(gold):,} examples are unknown (first: example {first + 1}).",
            "Score labelled examples only.",
        )
    return known


def _codes(values: Iterable[T], place: Mapping[T, int]) -> NDArray[np.int64]:
    return np.fromiter(map(place.__getitem__, values), np.int64)


def _flat_tags(
    gold: TagSequences | None, pred: TagSequences
) -> tuple[NDArray[np.int64], NDArray[np.int64], list[str], NDArray[np.int64]]:
    """Return gold and predicted tags of all words as codes, the codes' names, and each word's sentence."""
    known, given = _known(gold, pred), _known(pred, pred)
    lengths = np.array([len(tags) for tags in known], dtype=np.int64)
    differ = np.flatnonzero(lengths != [len(tags) for tags in given])
    if len(differ):
        row = int(differ[0])
        raise BadInput(f"Sentence {row + 1} has {len(known[row])} gold tags but {len(given[row])} predicted tags.")
    names = sorted(set(chain.from_iterable(known)).union(*given))
    place = {name: i for i, name in enumerate(names)}
    g = _codes(chain.from_iterable(known), place)
    p = _codes(chain.from_iterable(given), place)
    return g, p, names, np.repeat(np.arange(len(known)), lengths)


def _mean_metric(name: str, values: Floats) -> Metric:
    return Metric(name, np.stack([values, np.ones(len(values))], axis=1), _mean, is_mean=True)


def _f1_metric(
    name: str,
    correct: NDArray[np.bool_],
    predicted: NDArray[np.bool_],
    gold: NDArray[np.bool_],
    sentence: NDArray[np.int64],
    sentences: int,
) -> Metric:
    """Sum units by sentence: (sentences, 3) correct, predicted, gold."""
    columns = [np.bincount(sentence, weights=units, minlength=sentences) for units in (correct, predicted, gold)]
    return Metric(name, np.stack(columns, axis=1), _micro_f1)
