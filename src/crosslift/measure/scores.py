"""Scores of a system by language and seed, and the comparison of two systems: plain data, no files."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from html import escape
from statistics import fmean, stdev
from typing import Literal, NamedTuple, cast

import numpy as np

from crosslift.errors import BadInput, nearest
from crosslift.measure.significance import (
    Comparison,
    bootstrap_interval,
    format_p,
    holm,
    mcnemar,
    paired_bootstrap,
    paired_t_test,
    permutation_test,
)
from crosslift.tasks.metrics import Floats, Metric

SCREEN = 110
"""Characters that fit beside each other on a usual screen."""

SeedPairs = Sequence[tuple[Metric, Metric]]
TESTS: dict[str, Callable[[Metric, Metric], Comparison]] = {
    "t": paired_t_test,
    "permutation": permutation_test,
    "bootstrap": paired_bootstrap,
    "mcnemar": mcnemar,
}


@dataclass(frozen=True)
class Score:
    """One score: what was measured, in percent, with its 95 % bootstrap interval over `n` examples."""

    metric: str
    value: float
    low: float
    high: float
    n: int

    @classmethod
    def of(cls, metric: Metric, samples: int = 1000, seed: int = 0) -> Score:
        """Return the score of a metric with its bootstrap interval."""
        low, high = bootstrap_interval(metric, samples=samples, seed=seed)
        return cls(metric.name, metric.value, low, high, len(metric))


class Summary(NamedTuple):
    """A score over seeds: its mean, its standard deviation (`None` for one seed), and how many seeds."""

    mean: float
    sd: float | None
    seeds: int

    def __str__(self) -> str:
        return f"{self.mean:.2f}" if self.sd is None else f"{self.mean:.2f} ± {self.sd:.2f}"


def summarise(values: Sequence[float]) -> Summary:
    """Return mean and sample standard deviation (ddof = 1) of one value per seed."""
    if not values:
        raise BadInput("There is nothing to average: no seed has been scored.")
    return Summary(fmean(values), stdev(values) if len(values) > 1 else None, len(values))


@dataclass
class Scores:
    """All scores of one system on one task.

    Attributes:
        system: What was scored, such as a method's or a run's name.
        task: On what.
        source: The language the task was learned in; it is left out of the mean over targets.
        rows: language -> seed -> metric -> score.
    """

    system: str
    task: str
    source: str | None = None
    rows: dict[str, dict[int, dict[str, Score]]] = field(default_factory=dict)

    def add(self, language: str, seed: int, score: Score) -> None:
        """Put in one score; an earlier one of the same language, seed and metric is replaced."""
        self.rows.setdefault(language, {}).setdefault(seed, {})[score.metric] = score

    @property
    def metrics(self) -> list[str]:
        """Names of the metrics, in the order they were put in; the first is the main one."""
        cells = (cell for seeds in self.rows.values() for cell in seeds.values())
        return list(dict.fromkeys(name for cell in cells for name in cell))

    @property
    def targets(self) -> list[str]:
        """The languages other than the source."""
        return [language for language in self.rows if language != self.source]

    def of_language(self, language: str, metric: str | None = None) -> Summary | None:
        """Return a language's score over seeds; `None` if it was not scored with this metric."""
        return self.mean([language], metric)

    def mean(
        self, languages: Literal["targets", "all"] | Sequence[str] = "targets", metric: str | None = None
    ) -> Summary | None:
        """Return the plain mean of the languages' scores: per seed, then summarised over seeds.

        Only seeds for which every one of the languages is scored take part (`Summary.seeds` says how many);
        `None` if there is no such seed.
        """
        by_seed = self._complete(languages, metric)
        return summarise([fmean(s.value for s in scores) for scores in by_seed]) if by_seed else None

    def interval(
        self, languages: Literal["targets", "all"] | Sequence[str] = "targets", metric: str | None = None
    ) -> tuple[float, float] | None:
        """Return the mean of the intervals of the same scores.

        For several languages this is the cautious choice: as wide as if all languages rose and fell
        together, which those of a parallel test set nearly do.
        """
        scores = [score for group in self._complete(languages, metric) for score in group]
        return (fmean(s.low for s in scores), fmean(s.high for s in scores)) if scores else None

    def _complete(self, languages: Literal["targets", "all"] | Sequence[str], metric: str | None) -> list[list[Score]]:
        """Return, for each seed that has them all, the scores of the languages."""
        name = self._metric(metric)
        if languages == "targets":
            languages = self.targets
        elif languages == "all":
            languages = list(self.rows)
        for language in languages:
            if language not in self.rows:
                raise BadInput(f'{self.system} has no scores in "{language}".{nearest(language, self.rows)}')
        seeds = dict.fromkeys(seed for language in languages for seed in self.rows[language])
        cells = [[self.rows[language].get(seed, {}).get(name) for language in languages] for seed in seeds]
        return [[score for score in row if score is not None] for row in cells if None not in row]

    def _metric(self, metric: str | None) -> str:
        names = self.metrics
        if not names:
            raise BadInput(f"{self.system} has no scores yet.")
        if metric is not None and metric not in names:
            raise BadInput(f'{self.system} has no metric "{metric}".{nearest(metric, names)}')
        return metric or names[0]

    def _grid(self, metric: str | None = None) -> list[tuple[str, ...]]:
        """Return the rows of the table: headings, mean ± sd over seeds, 95 % intervals."""
        columns: list[tuple[str, Literal["targets", "all"] | Sequence[str]]]
        columns = [(language, [language]) for language in self.rows]
        columns += [("all", "all"), ("targets", "targets")] if self.targets else [("all", "all")]
        filled = [("", "score", "95 %")]
        for heading, languages in columns:
            mean, interval = self.mean(languages, metric), self.interval(languages, metric)
            span = f"{interval[0]:.1f}–{interval[1]:.1f}" if interval else "–"
            filled.append((heading, str(mean) if mean else "–", span))
        return list(zip(*filled, strict=True))

    def title(self, metric: str | None = None) -> str:
        """Return one line that says what the table holds."""
        seeds = dict.fromkeys(seed for row in self.rows.values() for seed in row)
        source = f", from {self.source}" if self.source else ""
        listed = ", ".join(map(str, seeds))
        return (
            f"{self.system}, {self.task}{source}: {self._metric(metric)}, seed{'s' if len(seeds) > 1 else ''} {listed}"
        )

    def table(self, metric: str | None = None) -> str:
        """Return a plain-text table: every language, then their mean, then the mean of the targets.

        For each the mean ± standard deviation over seeds, and the 95 % bootstrap interval. Languages are columns
        while the table fits on a screen, else rows.
        """
        grid = self._grid(metric)
        lines = _aligned(grid)
        if len(lines[0]) > SCREEN:
            lines = _aligned(list(zip(*grid, strict=True)))
        return "\n".join([self.title(metric), *lines])

    def __str__(self) -> str:
        return self.table()

    def _repr_html_(self) -> str:
        return _html_table(self.title(), self._grid())

    def to_dict(self) -> dict[str, object]:
        """Return everything as plain data; seeds become text, as JSON wants."""
        rows = {
            language: {str(seed): {name: asdict(score) for name, score in cell.items()} for seed, cell in seeds.items()}
            for language, seeds in self.rows.items()
        }
        return {"system": self.system, "task": self.task, "source": self.source, "rows": rows}

    @classmethod
    def from_dict(cls, data: Mapping[str, object]) -> Scores:
        """Return what `to_dict` gave."""
        rows = cast("Mapping[str, Mapping[str, Mapping[str, Mapping[str, str | float]]]]", data["rows"])
        scores = cls(str(data["system"]), str(data["task"]), cast("str | None", data["source"]))
        for language, seeds in rows.items():
            for seed, cell in seeds.items():
                for fields in cell.values():
                    scores.add(language, int(seed), Score(**fields))  # type: ignore[arg-type]
        return scores


@dataclass(frozen=True)
class Comparisons:
    """Two systems, language by language.

    Attributes:
        metric: What was compared.
        languages: language -> comparison; differences are a − b in points.
        adjusted: language -> p-value after Holm's correction for the number of languages.
        pooled: The mean over the target languages.
    """

    metric: str
    languages: dict[str, Comparison]
    adjusted: dict[str, float]
    pooled: Comparison

    def to_dict(self) -> dict[str, object]:
        """Return everything as plain data."""
        return {
            "metric": self.metric,
            "languages": {language: found.to_dict() for language, found in self.languages.items()},
            "adjusted": dict(self.adjusted),
            "pooled": self.pooled.to_dict(),
        }

    def table(self) -> str:
        """Return one line per language, and one for the mean of the targets."""
        lines = [
            f"{language:<8} {found!r}; Holm: {format_p(self.adjusted[language])}"
            for language, found in self.languages.items()
        ]
        return "\n".join([f"{self.metric}, a − b", *lines, f"{'targets':<8} {self.pooled!r}"])

    def __str__(self) -> str:
        return self.table()


def compare(
    pairs: Mapping[str, SeedPairs],
    source: str | None = None,
    groups: Mapping[str, Sequence[Hashable]] | None = None,
    test: str | None = None,
    permutations: int = 1000,
) -> Comparisons:
    """Compare two systems in every language, over all seeds.

    Each example's statistics are summed over seeds first, so that a unit is an example with all its seeds.
    By default means of per-example values (accuracy, answer F1) get a paired t-test on the examples' means
    over seeds, and F1 over a corpus a paired permutation test, as in the adjustment paper.

    The mean over the target languages is tested by permutation of examples; with `groups`, of parallel
    examples together, because translations of one sentence are not independent.

    Args:
        pairs: language -> one (metric of a, metric of b) per seed, all on the same examples.
        source: Language that stays out of the mean over targets.
        groups: language -> which group (parallel id) each example belongs to.
        test: `t`, `permutation`, `bootstrap` or `mcnemar`, to choose the test per language.
        permutations: How many, for the mean over the targets, and resamples for its interval.
    """
    if test is not None and test not in TESTS:
        raise BadInput(f'Unknown test "{test}".{nearest(test, TESTS)}', f"Known: {', '.join(TESTS)}.")
    if not pairs:
        raise BadInput("There is nothing to compare: no language was scored by both systems.")
    summed = {
        language: (over_seeds([a for a, _ in seeds]), over_seeds([b for _, b in seeds]))
        for language, seeds in pairs.items()
    }
    found = {
        language: TESTS[test or ("t" if a.is_mean else "permutation")](a, b) for language, (a, b) in summed.items()
    }
    targets = [language for language in summed if language != source] or list(summed)
    ids = [groups[language] for language in targets] if groups else None
    pooled = permutation_test(
        over_languages([summed[language][0] for language in targets], ids),
        over_languages([summed[language][1] for language in targets], ids),
        permutations,
    )
    adjusted = dict(zip(found, holm([c.p_value for c in found.values()]), strict=True))
    return Comparisons(next(iter(summed.values()))[0].name, found, adjusted, pooled)


def over_seeds(metrics: Sequence[Metric]) -> Metric:
    """Join one system's seeds on the same examples: row i holds example i's statistics over all seeds.

    The score is then the mean over seeds where it is a mean of examples, else (F1 over a corpus) that of all
    seeds' predictions together.
    """
    _check_alike(metrics)
    if len({len(metric) for metric in metrics}) > 1:
        raise BadInput(f"{metrics[0].name}: the seeds were not scored on the same examples.")
    first = metrics[0]
    return Metric(first.name, np.sum([m.stats for m in metrics], axis=0), first.combine, first.is_mean)


def over_languages(metrics: Sequence[Metric], groups: Sequence[Sequence[Hashable]] | None = None) -> Metric:
    """Join the metrics of several languages into one whose score is the plain mean of theirs.

    Args:
        metrics: One per language.
        groups: One sequence per language: the group of each example. Rows of one group are kept together
            across languages. Without groups all examples are independent.
    """
    _check_alike(metrics)
    if groups is None:
        groups = [[(place, row) for row in range(len(metric))] for place, metric in enumerate(metrics)]
    grouped = [dict.fromkeys(ids) for ids in groups]
    rows = {group: row for row, group in enumerate(dict.fromkeys(id_ for ids in grouped for id_ in ids))}
    width = metrics[0].stats.shape[1]
    stats = np.zeros((len(rows), len(metrics), width))
    for place, (metric, ids) in enumerate(zip(metrics, groups, strict=True)):
        where = np.fromiter((rows[id_] for id_ in grouped[place]), np.int64, len(grouped[place]))
        stats[where, place] = metric.by_group(ids).stats
    combine = partial(_mean_over_languages, combine=metrics[0].combine, width=width)
    return Metric(metrics[0].name, stats.reshape(len(rows), -1), combine)


def _mean_over_languages(sums: Floats, combine: Callable[[Floats], Floats], width: int) -> Floats:
    """(..., languages * width) summed statistics -> (...) mean of the languages' scores."""
    mean: Floats = combine(sums.reshape(*sums.shape[:-1], -1, width)).mean(axis=-1)
    return mean


def _check_alike(metrics: Sequence[Metric]) -> None:
    names = {metric.name for metric in metrics}
    if len(names) != 1:
        raise BadInput(f"Cannot average {' and '.join(sorted(names)) or 'nothing'}: one metric at a time.")
    if len({metric.stats.shape[1] for metric in metrics}) > 1:
        raise BadInput(f"{metrics[0].name}: the label lists differ.")


def _aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    """Return lines of text with the cells of each column below one another."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return ["  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True)) for row in rows]


def _html_table(title: str, rows: Sequence[Sequence[str]]) -> str:
    head, *body = rows
    cells = "".join(f"<th>{escape(cell)}</th>" for cell in head)
    lines = "".join("<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>" for row in body)
    return f"<table><caption>{escape(title)}</caption><tr>{cells}</tr>{lines}</table>"
