"""IGAP of one system or several, side by side: tables, curves, transfer matrices."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from crosslift.errors import BadInput, nearest
from crosslift.measure.igap import (
    Band,
    Errors,
    Igap,
    equal_candidates,
    gap_resamples,
    igap,
    igaps,
    interval,
    joint_igap,
    mean_igap,
)

MATRICES = ("igap", "score", "gap")


@dataclass(frozen=True)
class Matrix:
    """One number per transfer direction; rows are sources, columns targets, and `nan` is not defined.

    Attributes:
        what: `igap`, `score` (accuracy on held-out data) or `gap` (plain transfer gap); in points.
        sources: Languages trained in.
        targets: Languages transferred to.
        values: (sources, targets).
    """

    what: str
    sources: tuple[str, ...]
    targets: tuple[str, ...]
    values: NDArray[np.float64]

    def to_dict(self) -> dict[str, Any]:
        """Return source -> target -> value; `None` where it is not defined."""
        rows = {}
        for source, row in zip(self.sources, self.values.tolist(), strict=True):
            rows[source] = {t: None if np.isnan(v) else v for t, v in zip(self.targets, row, strict=True)}
        return {"what": self.what, "values": rows}

    def table(self) -> str:
        """Return the matrix as text."""
        grid = [["", *self.targets]]
        for source, row in zip(self.sources, self.values.tolist(), strict=True):
            grid.append([source, *("–" if np.isnan(value) else f"{value:.1f}" for value in row)])
        return text_table(grid)


@dataclass(frozen=True)
class IgapResult:
    """What a measurement found.

    Attributes:
        systems: name -> its checkpoints.
        bands: The bands of training error that were asked for.
        about: The data, in words.
        texts: Texts that went through a model to measure errors; training is not counted.
        calls: Calls of the model for that.
    """

    systems: dict[str, Errors]
    bands: tuple[Band, ...]
    about: str = ""
    texts: int = 0
    calls: int = 0

    def candidates(self, band: Band) -> int | None:
        """Return how many checkpoints of each seed are compared: equally many for all systems; one alone has all."""
        return equal_candidates(list(self.systems.values()), band) or None if len(self.systems) > 1 else None

    def of(self, system: str, band: Band | None = None, *, equal: bool = True) -> dict[str, Igap]:
        """Return target -> IGAP of one system.

        Args:
            system: Its name.
            band: Default: the first one.
            equal: Give every system equally many checkpoints.
        """
        if system not in self.systems:
            raise BadInput(f'There is no system "{system}".{nearest(system, self.systems)}')
        band = band or self.bands[0]
        return igaps(self.systems[system], band, self.candidates(band) if equal else None)

    def curve(self, system: str) -> dict[Band, Igap]:
        """Return band -> mean over targets."""
        return {band: mean_igap(self.of(system, band)) for band in self.bands}

    def interval(self, system: str, target: str, band: Band | None = None) -> tuple[float, float] | None:
        """Return the 95 % interval of `expected`, over items and seeds; `None` if undefined."""
        band = band or self.bands[0]
        found = gap_resamples(self.systems[system], band, self.candidates(band))
        return interval(found[target]) if found else None

    def matrix(self, what: str = "igap") -> Matrix:
        """Return one number per transfer direction, for systems that differ in their source alone."""
        if what not in MATRICES:
            raise BadInput(f'There is no matrix "{what}".{nearest(what, MATRICES)}', f"It is {', '.join(MATRICES)}.")
        by_source = {errors.source: errors for errors in self.systems.values()}
        if len(by_source) < len(self.systems):
            raise BadInput("A transfer matrix is of one model and one method; these systems share a source.")
        targets = tuple(dict.fromkeys([*by_source, *(t for e in by_source.values() for t in e.targets)]))
        rows = [[self._cell(errors, target, what) for target in targets] for errors in by_source.values()]
        return Matrix(what, tuple(by_source), targets, np.array(rows, dtype=np.float64))

    def _cell(self, errors: Errors, target: str, what: str) -> float:
        if what == "score":
            error = errors.final(target)
            return np.nan if error is None else 100 - error.mean
        if target == errors.source:
            return np.nan
        if what == "gap":
            parts = errors.decomposition(target)
            return np.nan if parts is None or parts.transfer_gap is None else parts.transfer_gap
        expected = _expected(igap(errors, target, self.bands[0], self.candidates(self.bands[0])))
        return np.nan if expected is None else expected

    def table(self, band: Band | None = None) -> str:
        """Return one row per system: expected IGAP by target, its mean, the pooled minimum, checkpoints used."""
        band = band or self.bands[0]
        targets = list(dict.fromkeys(target for errors in self.systems.values() for target in errors.targets))
        grid = [["", *targets, "mean ± sd", "min", "checkpoints"]]
        for name in self.systems:
            found = self.of(name, band)
            mean = mean_igap(found)
            cells = [_points(_expected(found[target])) if target in found else "–" for target in targets]
            counts = [f"{mean.used[seed]} of {mean.qualifying[seed]}" for seed in mean.qualifying]
            grid.append([name, *cells, str(mean), _points(mean.minimum), ", ".join(counts)])
        lines = [f"{self.about}: IGAP at training error {band.error:g} to {band.error + band.epsilon:g}, in points"]
        lines.append(text_table(grid))
        for name, errors in self.systems.items():
            if errors.asked is None:
                lines.append(f"{name}: {joint_igap(errors, band, self.candidates(band))} at the best single checkpoint")
            if not mean_igap(self.of(name, band)).defined:
                ended = errors.final(errors.source, held_out=False)
                reached = f"; its runs ended at {ended.mean / 100:.3f}" if ended else ""
                lines.append(f"{name}: undefined, no checkpoint has a training error in the band{reached}.")
        return "\n".join(lines)

    def decomposition_table(self) -> str:
        """Return the parts of the transfer error at the end of the runs, by system and target; empty if unknown."""
        grid = [["", "target", "error", "interlingual", "intralingual", "training", "transfer gap"]]
        for name, errors in self.systems.items():
            for target in errors.targets:
                parts = errors.decomposition(target)
                if parts is not None:
                    grid.append([name, target, *(_points(part) for part in parts)])
        return text_table(grid) if len(grid) > 1 else ""

    def curve_table(self) -> str:
        """Return the mean over targets for every E′; empty with a single one."""
        if len(self.bands) == 1:
            return ""
        grid = [["E′", *(f"{band.error:g}" for band in self.bands)]]
        for name in self.systems:
            grid.append([name, *(str(score) for score in self.curve(name).values())])
        return text_table(grid)

    def __str__(self) -> str:
        return "\n\n".join(filter(None, [self.table(), self.curve_table(), self.decomposition_table()]))

    def to_dict(self) -> dict[str, Any]:
        """Return the scores as plain data; `systems` of it can be read back with `Errors.from_dict`."""
        scores: dict[str, list[dict[str, Any]]] = {name: [] for name in self.systems}
        for name, errors in self.systems.items():
            for band in self.bands:
                found = self.of(name, band)
                entry = {
                    "targets": {target: score.to_dict() for target, score in found.items()},
                    "mean": mean_igap(found).to_dict(),
                }
                if errors.asked is None:
                    entry["one_checkpoint"] = joint_igap(errors, band, self.candidates(band)).to_dict()
                scores[name].append(entry)
        parts = {
            name: {t: p._asdict() for t in errors.targets if (p := errors.decomposition(t)) is not None}
            for name, errors in self.systems.items()
        }
        return {"about": self.about, "igap": scores, "decomposition": parts, "texts": self.texts, "calls": self.calls}


def _expected(score: Igap) -> float | None:
    return None if score.expected is None else score.expected.mean


def _points(value: float | None) -> str:
    return "undefined" if value is None else f"{value:.1f}"


def text_table(grid: Sequence[Sequence[str]]) -> str:
    """Return rows of text as aligned columns, the first to the left."""
    widths = [max(len(row[k]) for row in grid) for k in range(len(grid[0]))]
    lines = []
    for row in grid:
        cells = [cell.rjust(width) for cell, width in zip(row, widths, strict=True)]
        lines.append("  ".join([row[0].ljust(widths[0]), *cells[1:]]).rstrip())
    return "\n".join(lines)


def merge(results: Sequence[IgapResult]) -> IgapResult:
    """Put results of the same bands side by side; names must differ."""
    systems: dict[str, Errors] = {}
    for result in results:
        if result.bands != results[0].bands or systems.keys() & result.systems.keys():
            raise BadInput("Results can be put side by side if their bands are equal and their names differ.")
        systems |= result.systems
    texts, calls = sum(r.texts for r in results), sum(r.calls for r in results)
    return IgapResult(systems, results[0].bands, results[0].about, texts, calls)
