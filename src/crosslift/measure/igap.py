"""IGAP: what is lost between languages, measured at a fixed training error.

A model θ is fine-tuned on items x in the source language; x_t is the translation of x and y their label. With
error rates over the same items,

    E = G_inter + G_intra + E_train                                        the error on held-out target data
    E_train = error on x        G_inter = error on x_t − E_train        G_intra = E − error on x_t

    IGAP(E′) = min { G_inter(θ) : θ ∈ A(θ₀), 0 ≤ E_train(θ) − E′ < ε }

where A(θ₀) are the checkpoints of all seeds, learning rates and steps of one fine-tuning algorithm (Chi, Huang, Mao:
Measuring Cross-Lingual Transferability of Multilingual Transformers on Sentence Classification, 2023).

Departures. `expected` is the minimum within a seed, then the mean over seeds: it does not fall with the number of
seeds as the paper's pooled minimum (`minimum`) does. A minimum also falls with the number of checkpoints in the band,
so compared systems are given equally many of them: the first ones of each seed, in the order of training. Where no
checkpoint lies in the band the score is undefined; the band is never widened. Means over targets are plain means.

Everything here is a pure function of counts of wrong items.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from fractions import Fraction
from math import ceil, inf
from statistics import fmean
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from crosslift.errors import BadInput
from crosslift.measure.scores import Summary, summarise


class Band(NamedTuple):
    """Training errors from E′ up to, not including, E′ + ε; both are shares of the items."""

    error: float
    epsilon: float

    def counts(self, items: int) -> range:
        """Return the numbers of wrong items that lie in the band; exact, as decimals are meant.

        A billionth of an item is forgiven: an end that was computed, such as 0.1 + 0.2, is not quite what is meant.
        """
        low, width, slack = Fraction(str(self.error)), Fraction(str(self.epsilon)), Fraction(1, 10**9)
        return range(ceil(low * items - slack), min(items + 1, ceil((low + width) * items - slack)))


def bands(errors: Iterable[float | Band], epsilon: float) -> tuple[Band, ...]:
    """Return one band per E′; a band that has its own ε stands as it is."""
    found = [error if isinstance(error, Band) else Band(float(error), float(epsilon)) for error in errors]
    for band in found:
        if not 0 <= band.error <= 1 or not 0 < band.epsilon < inf:
            raise BadInput(f"E′ lies between 0 and 1 and ε above 0, not at {band.error:g} and {band.epsilon:g}.")
    if not found:
        raise BadInput("IGAP needs one E′ or more.")
    return tuple(dict.fromkeys(found))


@dataclass(frozen=True)
class Checkpoint:
    """What one checkpoint gets wrong.

    Attributes:
        seed: Seed of its run.
        rate: Learning rate of its run.
        step: Optimiser steps so far.
        wrong: Training items wrong in the source language; `None` where the evaluation stopped early because the
            error lies in none of the bands that were asked for.
        translated: target -> items wrong in translation. A target that a gated evaluation left out is known to be
            no better than an earlier checkpoint of the same run, in every band.
        mistakes: language -> (wrong,) which items, where they were kept: what intervals are made of.
    """

    seed: int
    rate: float
    step: int
    wrong: int | None
    translated: Mapping[str, int] = field(default_factory=dict)
    mistakes: Mapping[str, Sequence[int]] = field(default_factory=dict)


class Decomposition(NamedTuple):
    """The error on held-out target data and its three parts, and the plain transfer gap; in points."""

    error: float
    interlingual: float
    intralingual: float
    training: float
    transfer_gap: float | None


def decompose(training: float, translated: float, target: float, source: float | None = None) -> Decomposition:
    """Split the transfer error into interlingual gap, intralingual gap and training error.

    Args:
        training: Error on the training items in the source language, in points.
        translated: Error on their translations.
        target: Error on held-out data in the target language.
        source: Error on held-out data in the source language, for the plain transfer gap.
    """
    gap = None if source is None else target - source
    return Decomposition(target, translated - training, target - translated, training, gap)


@dataclass(frozen=True)
class Final:
    """Error rates where a run ended, in points, by language; the source is among them.

    Attributes:
        seed: Seed of the run.
        rate: Its learning rate.
        step: Its last step.
        parallel: On the training items and their translations.
        held_out: On held-out data; empty if there was none.
    """

    seed: int
    rate: float
    step: int
    parallel: Mapping[str, float]
    held_out: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Errors:
    """Everything measured about one system: a model, a fine-tuning method and a source language.

    Attributes:
        system: Its name.
        source: Source language.
        targets: Target languages.
        items: Training items that have a translation in every target.
        checkpoints: In the order of training within each run.
        ends: Where each run ended.
        asked: The bands that a gated evaluation looked into; `None` if every checkpoint was evaluated wholly.
        candidates: Checkpoints per run and band after which it looked no further; `None`: all.
    """

    system: str
    source: str
    targets: tuple[str, ...]
    items: int
    checkpoints: tuple[Checkpoint, ...]
    ends: tuple[Final, ...] = ()
    asked: tuple[Band, ...] | None = None
    candidates: int | None = None

    @property
    def seeds(self) -> list[int]:
        """Seeds of the runs, in order."""
        return list(dict.fromkeys(checkpoint.seed for checkpoint in self.checkpoints))

    def qualifying(self, band: Band) -> dict[int, list[Checkpoint]]:
        """Return seed -> its checkpoints in the band, over all learning rates, by step."""
        if self.asked is not None and band not in self.asked:
            looked = ", ".join(f"{found.error:g}" for found in self.asked)
            raise BadInput(
                f"{self.system} was not looked at for E′ = {band.error:g}, ε = {band.epsilon:g}, only {looked}."
            )
        inside = band.counts(self.items)
        found: dict[int, list[Checkpoint]] = {seed: [] for seed in self.seeds}
        for checkpoint in sorted(self.checkpoints, key=lambda c: (c.step, c.rate)):
            if checkpoint.wrong is not None and checkpoint.wrong in inside:
                found[checkpoint.seed].append(checkpoint)
        return found

    def final(self, language: str, held_out: bool = True) -> Summary | None:
        """Return the error at the end of the runs: mean over learning rates, then over seeds; in points."""
        by_seed: dict[int, list[float]] = {}
        for end in self.ends:
            errors = end.held_out if held_out else end.parallel
            if language in errors:
                by_seed.setdefault(end.seed, []).append(errors[language])
        return summarise([fmean(values) for values in by_seed.values()]) if by_seed else None

    def decomposition(self, target: str) -> Decomposition | None:
        """Return the parts of the transfer error at the end of the runs; `None` without held-out data."""
        error = self.final(target)
        if error is None:
            return None
        training, translated = self.final(self.source, held_out=False), self.final(target, held_out=False)
        own = self.final(self.source)
        assert training is not None and translated is not None
        return decompose(training.mean, translated.mean, error.mean, own.mean if own else None)

    def to_dict(self) -> dict[str, Any]:
        """Return everything as plain data."""
        return {
            "system": self.system,
            "source": self.source,
            "targets": list(self.targets),
            "items": self.items,
            "asked": None if self.asked is None else [list(band) for band in self.asked],
            "candidates": self.candidates,
            "checkpoints": [asdict(checkpoint) for checkpoint in self.checkpoints],
            "ends": [asdict(end) for end in self.ends],
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Errors:
        """Return what `to_dict` gave."""
        plain = dict(data)
        plain["targets"] = tuple(plain["targets"])
        plain["asked"] = None if plain["asked"] is None else tuple(Band(*band) for band in plain["asked"])
        plain["checkpoints"] = tuple(Checkpoint(**checkpoint) for checkpoint in plain["checkpoints"])
        plain["ends"] = tuple(Final(**end) for end in plain["ends"])
        return cls(**plain)


def joined(parts: Sequence[Errors]) -> Errors:
    """Put the runs of one system together."""
    first = parts[0]
    for part in parts:
        if replace(part, checkpoints=(), ends=()) != replace(first, checkpoints=(), ends=()):
            raise BadInput(f"Runs of {first.system} and {part.system} were not measured alike.")
    checkpoints = tuple(checkpoint for part in parts for checkpoint in part.checkpoints)
    return replace(first, checkpoints=checkpoints, ends=tuple(end for part in parts for end in part.ends))


@dataclass(frozen=True)
class Igap:
    """IGAP of one transfer direction, or its mean over targets; in points.

    Attributes:
        band: E′ and ε.
        by_seed: seed -> lowest interlingual gap among its checkpoints; seeds with none are missing.
        qualifying: seed -> checkpoints in the band.
        used: seed -> how many of them the minimum was taken over.
        minimum: The paper's formula: the lowest gap of all seeds; `None` if undefined.
    """

    band: Band
    by_seed: dict[int, float]
    qualifying: dict[int, int]
    used: dict[int, int]
    minimum: float | None

    @property
    def defined(self) -> bool:
        """Whether any checkpoint lies in the band."""
        return bool(self.by_seed)

    @property
    def expected(self) -> Summary | None:
        """Mean and sd over the seeds that have a checkpoint in the band; `None` if undefined."""
        return summarise(list(self.by_seed.values())) if self.by_seed else None

    def __str__(self) -> str:
        if not self.defined:
            return "undefined"
        lacking = len(self.qualifying) - len(self.by_seed)
        return f"{self.expected}" + (f" ({len(self.by_seed)} of {len(self.qualifying)} seeds)" if lacking else "")

    def to_dict(self) -> dict[str, Any]:
        """Return everything as plain data."""
        expected = self.expected
        return {
            "error": self.band.error,
            "epsilon": self.band.epsilon,
            "expected": None if expected is None else expected.mean,
            "sd": None if expected is None else expected.sd,
            "minimum": self.minimum,
            "by_seed": {str(seed): value for seed, value in self.by_seed.items()},
            "qualifying": {str(seed): count for seed, count in self.qualifying.items()},
            "used": {str(seed): count for seed, count in self.used.items()},
        }


def igap(errors: Errors, target: str, band: Band, candidates: int | None = None) -> Igap:
    """Return the IGAP of one transfer direction.

    Args:
        errors: A system's checkpoints.
        target: Target language.
        band: E′ and ε.
        candidates: Take the minimum over the first so many checkpoints of each seed; `None`: over all.
    """
    found = errors.qualifying(band)
    if errors.candidates is not None:
        candidates = min(errors.candidates, candidates or errors.candidates)
    used = {seed: rows[:candidates] for seed, rows in found.items()}
    best = {seed: _best(rows, target) for seed, rows in used.items()}
    by_seed = {seed: 100 * gap / errors.items for seed, (gap, _) in best.items() if gap is not None}
    counts = {seed: len(rows) for seed, rows in found.items()}
    lowest = min(by_seed.values()) if by_seed else None
    return Igap(band, by_seed, counts, {seed: len(rows) for seed, rows in used.items()}, lowest)


def _best(rows: Sequence[Checkpoint], target: str) -> tuple[int | None, Checkpoint | None]:
    """Return the lowest gap, in items, and its checkpoint; the earlier one of equals."""
    known = [(row.translated[target] - (row.wrong or 0), row) for row in rows if target in row.translated]
    return min(known, key=lambda pair: pair[0]) if known else (None, None)


def igaps(errors: Errors, band: Band, candidates: int | None = None) -> dict[str, Igap]:
    """Return target -> IGAP."""
    return {target: igap(errors, target, band, candidates) for target in errors.targets}


def mean_igap(found: Mapping[str, Igap]) -> Igap:
    """Return the plain mean over targets: per seed for `expected`, of the minima for `minimum`."""
    some = next(iter(found.values()))
    seeds = [seed for seed in some.by_seed if all(seed in score.by_seed for score in found.values())]
    lowest = [score.minimum for score in found.values() if score.minimum is not None]
    return Igap(
        some.band,
        {seed: fmean(score.by_seed[seed] for score in found.values()) for seed in seeds},
        some.qualifying,
        some.used,
        fmean(lowest) if len(lowest) == len(found) else None,
    )


def joint_igap(errors: Errors, band: Band, candidates: int | None = None) -> Igap:
    """Return the mean over targets at single checkpoints: the lowest one of each seed.

    `mean_igap` takes another checkpoint for each target; no delivered model has all those gaps at once. Only a table
    in which every checkpoint was evaluated wholly can say it.
    """
    if errors.asked is not None:
        raise BadInput(f"{errors.system}: the mean at one checkpoint needs every checkpoint evaluated wholly.")
    count = len(errors.targets)
    summed = []
    for row in errors.checkpoints:
        complete = row.wrong is not None and all(target in row.translated for target in errors.targets)
        # `igap` subtracts the training error once; the sum over targets holds it once for each of them.
        total = sum(row.translated.values()) - (count - 1) * (row.wrong or 0)
        summed.append(replace(row, translated={"all": total} if complete else {}))
    whole = replace(errors, targets=("all",), checkpoints=tuple(summed))
    found = igap(whole, "all", band, candidates)
    return Igap(
        band,
        {seed: value / count for seed, value in found.by_seed.items()},
        found.qualifying,
        found.used,
        None if found.minimum is None else found.minimum / count,
    )


def curve(errors: Errors, along: Sequence[Band], candidates: int | None = None) -> dict[Band, Igap]:
    """Return band -> mean IGAP over targets."""
    return {band: mean_igap(igaps(errors, band, candidates)) for band in along}


def equal_candidates(systems: Sequence[Errors], band: Band) -> int:
    """Return how many checkpoints of each seed every system has in the band.

    Seeds without any do not count: they are undefined, and `Igap` says so.
    """
    counts = [len(rows) for errors in systems for rows in errors.qualifying(band).values() if rows]
    limits = [errors.candidates for errors in systems if errors.candidates is not None]
    return min([*counts, *limits], default=0)


def gap_resamples(
    errors: Errors, band: Band, candidates: int | None = None, samples: int = 2000, seed: int = 0
) -> dict[str, NDArray[np.float64]]:
    """Resample items and seeds: target -> (samples,) expected gaps, in points.

    Items are drawn together for all targets and seeds, so that differences between targets are paired. The
    checkpoint of each seed stays the one that was chosen; its choice is not resampled.

    Args:
        errors: A system with the mistakes of its chosen checkpoints.
        band: E′ and ε.
        candidates: As for `igap`.
        samples: Resamples.
        seed: Fixes the draw.
    """
    rows = errors.qualifying(band)
    seeds = [s for s, found in rows.items() if found]
    if not seeds:
        return {}
    limit = min((x for x in (candidates, errors.candidates) if x is not None), default=None)
    draw = np.random.default_rng(seed)
    weights = draw.multinomial(errors.items, np.full(errors.items, 1 / errors.items), size=samples)
    chosen = draw.integers(0, len(seeds), (samples, len(seeds)))
    found: dict[str, NDArray[np.float64]] = {}
    for target in errors.targets:
        gaps = np.zeros((len(seeds), errors.items))
        for place, s in enumerate(seeds):
            _, best = _best(rows[s][:limit], target)
            if best is None or not {target, errors.source} <= best.mistakes.keys():
                raise BadInput(f"{errors.system}: the mistakes of its checkpoints were not kept.")
            gaps[place, list(best.mistakes[target])] += 1
            gaps[place, list(best.mistakes[errors.source])] -= 1
        means = weights @ gaps.T * (100 / errors.items)  # (samples, seeds)
        found[target] = np.take_along_axis(means, chosen, axis=1).mean(axis=1)
    return found


def interval(values: NDArray[np.float64], level: float = 0.95) -> tuple[float, float]:
    """Return the percentile interval of resamples."""
    low, high = np.quantile(values, [(1 - level) / 2, (1 + level) / 2])
    return float(low), float(high)
