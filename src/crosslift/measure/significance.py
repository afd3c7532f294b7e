"""Is the difference real? Intervals and paired tests on `Metric`s.

Every test takes two systems scored on the same examples in the same order. The difference is a − b in
points: positive means that `a` is better. All p-values are two-sided.

Resampling is a matrix product of weights and statistics. Examples with equal statistics are
interchangeable, so where there are many of them the weights are drawn for the distinct rows only: the same
distribution as drawing examples one by one, at a fraction of the work.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import special

from crosslift.errors import BadInput
from crosslift.tasks.metrics import Floats, Metric

LEVEL = 0.95
"""Coverage of the interval in a `Comparison`."""

_CHUNK = 2_000_000  # weights held at a time: 16 MB
_EXACT_BELOW = 25  # discordant pairs from which the chi-square approximation of McNemar's test is good


@dataclass(frozen=True, repr=False)
class Comparison:
    """What a paired test says about two systems.

    Attributes:
        test: Which test, in words.
        difference: Score of a minus score of b, in points.
        low: Lower end of the 95 % interval of the difference.
        high: Upper end.
        p_value: Two-sided.
        n: Units that were paired: examples, sentences or groups.
        samples: Resamples drawn; 0 for a test by formula.
    """

    test: str
    difference: float
    low: float
    high: float
    p_value: float
    n: int
    samples: int = 0

    def to_dict(self) -> dict[str, str | float | int]:
        """Return the fields as plain data."""
        return asdict(self)

    def __repr__(self) -> str:
        drawn = f", {self.samples:,} samples" if self.samples else ""
        return (
            f"{self.difference:+.2f} ({LEVEL:.0%} {self.low:+.2f} to {self.high:+.2f}), "
            f"{format_p(self.p_value)}, n = {self.n:,} ({self.test}{drawn})"
        )


def format_p(p: float) -> str:
    """Return a p-value as text: `p = 0.012`, or `p < 0.001`."""
    return f"p = {p:.3f}" if p >= 0.001 else "p < 0.001"


def bootstrap_interval(metric: Metric, samples: int = 1000, level: float = LEVEL, seed: int = 0) -> tuple[float, float]:
    """Return the percentile interval of a score under resampling of its examples.

    One example says nothing about its spread: the interval is then the whole scale, 0 to 100.
    """
    if len(metric) == 1:
        return 0.0, 100.0
    scores = np.concatenate([metric.combine(sums) for sums in _resampled(metric.stats, samples, seed)])
    return _percentiles(scores, level)


def paired_bootstrap(a: Metric, b: Metric, samples: int = 1000, seed: int = 0) -> Comparison:
    """Resample examples, the same ones for both systems.

    The p-value is twice the share of resamples on the smaller side of zero, counting the observed data as
    one more resample: p < 0.05 goes with an interval that leaves out zero.
    """
    _check_pair(a, b)
    differences = _bootstrap_differences(a, b, samples, seed)
    low, high = _difference_interval(differences)
    below, above = np.count_nonzero(differences <= 0), np.count_nonzero(differences >= 0)
    p = 1.0 if len(a) == 1 else min(1.0, 2 * (1 + min(below, above)) / (1 + samples))
    return Comparison("paired bootstrap", a.value - b.value, low, high, p, len(a), samples)


def permutation_test(a: Metric, b: Metric, samples: int = 1000, seed: int = 0) -> Comparison:
    """Swap the two systems' outputs at random, example by example, and see how often so much comes of it.

    Works for every metric, F1 over a corpus included. The p-value counts the observed data as one more
    sample. The interval is that of the paired bootstrap.
    """
    _check_pair(a, b)
    observed = a.value - b.value
    total_a, total_b = a.stats.sum(axis=0), b.stats.sum(axis=0)
    distinct, counts = _distinct(b.stats - a.stats)
    rng = np.random.default_rng(seed)
    extreme = 0
    for size in _chunks(samples, len(distinct)):
        moved = rng.binomial(counts, 0.5, size=(size, len(counts))) @ distinct
        swapped = a.combine(total_a + moved) - b.combine(total_b - moved)
        # Swapping everything only changes the sign; a rounding error must not make it look smaller.
        extreme += int(np.count_nonzero(np.abs(swapped) >= abs(observed) - 1e-9))
    low, high = _difference_interval(_bootstrap_differences(a, b, samples, seed))
    return Comparison("paired permutation", observed, low, high, (1 + extreme) / (1 + samples), len(a), samples)


def paired_t_test(a: Metric, b: Metric) -> Comparison:
    """Student's paired t-test on per-example values (or per-item means over seeds, see `Metric.by_group`).

    Where all differences are equal and not zero, t has no spread to go by; the p-value is then that of the
    sign test, 2^(1 − n). One example gives p = 1.
    """
    _check_pair(a, b)
    differences = a.per_example - b.per_example
    n, mean = len(differences), float(differences.mean())
    if n == 1:
        return Comparison("paired t-test", mean, -100.0, 100.0, 1.0, 1)
    error = float(differences.std(ddof=1)) / math.sqrt(n)
    if error < 1e-12:
        p = 1.0 if abs(mean) < 1e-12 else 2.0 ** (1 - n)
    else:
        p = 2 * float(special.stdtr(n - 1, -abs(mean) / error))
    half = float(special.stdtrit(n - 1, (1 + LEVEL) / 2)) * error
    return Comparison("paired t-test", mean, mean - half, mean + half, p, n)


def mcnemar(a: Metric, b: Metric) -> Comparison:
    """McNemar's test on right and wrong answers.

    Exact (binomial) where fewer than 25 examples are right in one system only, else chi-square with
    continuity correction; `test` says which. The interval is the normal one for paired proportions.
    """
    _check_pair(a, b)
    right_a, right_b = a.per_example, b.per_example
    if not (np.isin(right_a, (0, 100)).all() and np.isin(right_b, (0, 100)).all()):
        raise BadInput(
            f"McNemar's test needs answers that are right or wrong; {a.name} has values in between.",
            "Use paired_t_test, or compare one seed at a time.",
        )
    n = len(a)
    only_a, only_b = int(np.count_nonzero(right_a > right_b)), int(np.count_nonzero(right_b > right_a))
    discordant = only_a + only_b
    if discordant < _EXACT_BELOW:
        test = "McNemar, exact"
        p = min(1.0, 2 * float(special.bdtr(min(only_a, only_b), discordant, 0.5))) if discordant else 1.0
    else:
        test = "McNemar, chi-square with continuity correction"
        p = float(special.chdtrc(1, max(abs(only_a - only_b) - 1, 0) ** 2 / discordant))
    difference = 100 * (only_a - only_b) / n
    error = 100 * math.sqrt(discordant - (only_a - only_b) ** 2 / n) / n
    half = float(special.ndtri((1 + LEVEL) / 2)) * error if n > 1 else 200.0
    return Comparison(test, difference, max(difference - half, -100.0), min(difference + half, 100.0), p, n)


def holm(p_values: Sequence[float]) -> list[float]:
    """Return p-values adjusted for testing several hypotheses at once (Holm, 1979), in the given order."""
    p = np.asarray(p_values, dtype=np.float64)
    order = np.argsort(p, kind="stable")
    adjusted = np.empty_like(p)
    adjusted[order] = np.minimum(1, np.maximum.accumulate(p[order] * np.arange(len(p), 0, -1)))
    return [float(value) for value in adjusted]


def _check_pair(a: Metric, b: Metric) -> None:
    if a.name != b.name:
        raise BadInput(f"Cannot compare {a.name} with {b.name}: these are different metrics.", "Score both alike.")
    if a.stats.shape != b.stats.shape:
        raise BadInput(
            f"Cannot pair {len(a):,} examples with {len(b):,} ({a.name}).",
            "Both systems must be scored on the same examples, in the same order, with the same labels.",
        )


def _bootstrap_differences(a: Metric, b: Metric, samples: int, seed: int) -> Floats:
    """(samples,) differences a − b under resampling; empty for a single example."""
    if len(a) == 1:
        return np.empty(0)
    width = a.stats.shape[1]
    both = np.concatenate([a.stats, b.stats], axis=1)
    parts = _resampled(both, samples, seed)
    return np.concatenate([a.combine(sums[:, :width]) - b.combine(sums[:, width:]) for sums in parts])


def _difference_interval(differences: Floats) -> tuple[float, float]:
    return _percentiles(differences, LEVEL) if len(differences) else (-100.0, 100.0)


def _percentiles(scores: Floats, level: float) -> tuple[float, float]:
    low, high = np.quantile(scores, [(1 - level) / 2, (1 + level) / 2])
    return float(low), float(high)


def _resampled(stats: Floats, samples: int, seed: int) -> Iterator[Floats]:
    """Yield (chunk, k) summed statistics of samples of as many examples, drawn with replacement."""
    distinct, counts = _distinct(stats)
    n, rng = len(stats), np.random.default_rng(seed)
    if 5 * len(distinct) > n:  # a binomial draw costs as much as five draws of an example
        for size in _chunks(samples, n):
            drawn = rng.integers(n, size=(size, n)) + n * np.arange(size)[:, None]
            weights = np.bincount(drawn.ravel(), minlength=size * n).reshape(size, n)
            yield weights.astype(np.float64) @ stats
    else:
        for size in _chunks(samples, len(distinct)):
            weights = rng.multinomial(n, counts / n, size=size)
            yield weights.astype(np.float64) @ distinct


def _distinct(stats: Floats) -> tuple[Floats, NDArray[np.int64]]:
    """Return the distinct rows in ascending order, (d, k), and how often each occurs, (d,)."""
    # As strings of bytes rows are sorted many times faster than column by column; + 0.0 makes one zero of -0.0 and 0.0.
    rows = np.ascontiguousarray(stats + 0.0)
    whole = rows.view(np.dtype((np.void, rows.itemsize * rows.shape[1]))).ravel()
    _, first, counts = np.unique(whole, return_index=True, return_counts=True)
    found = rows[first]
    order = np.lexsort(found.T[::-1])
    return found[order], counts[order]


def _chunks(samples: int, width: int) -> Iterator[int]:
    """Yield numbers of samples that sum to `samples`, each small enough to hold its weights."""
    if samples < 1:
        raise BadInput(f"Resampling needs at least one sample, not {samples}.")
    step = max(1, _CHUNK // width)
    for done in range(0, samples, step):
        yield min(step, samples - done)
