"""The jobs of the distillation table: which models there are, and which of them build on which."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product

ARCHITECTURES = ("cnn", "transformer", "bilstm")
MAIN = "cnn"
"""Architecture of the source model wherever the grid does not ask for another."""

BRIDGES: dict[str, tuple[str, int | None]] = {
    "mini-x": ("mini-x", 6),
    "mini-x-mlm": ("mini-x-mlm", 6),
    "mini-x-all": ("mini-x", None),
}
"""Name -> encoder, and how many of its lowest layers stay as they are. The last one learns in all of its layers."""
SHARED = "mini-x"
"""Where labels may be shared, a multilingual encoder can learn from them: what a translator adds to that."""


@dataclass(frozen=True)
class Set:
    """A public set, as the table uses it.

    Attributes:
        family: Sets of one family have the same texts.
        kind: Of the task.
        targets: Languages with text for a student.
        text: Split that holds it; its labels are not read, but by `gold`.
        bridge_only: Further languages in which the bridge is scored.
        variants: What the bridge reads beside English (`balanced`: translations, `human`: those of people).
        limit: At most so many texts of a half.
        steps: Optimiser steps of a source model or an encoder, and of a student.
    """

    family: str
    kind: str
    targets: tuple[str, ...]
    text: str = "train"
    bridge_only: tuple[str, ...] = ()
    variants: tuple[str, ...] = ("plain",)
    limit: int | None = None
    steps: tuple[int, int] = (1500, 600)


XSID = ("de", "id", "it", "ja", "nl", "tr", "zh", "ar", "sr", "lt")
ALL = ("plain", "balanced", "human")
SETS = {
    "massive-intent": Set("massive", "classification", ("de", "es", "th", "ar", "sw"), variants=ALL),
    "massive-slots": Set("massive", "tagging", ("de", "es", "th", "ar", "sw")),
    "sib200": Set("sib200", "classification", ("de", "es", "th", "ar", "sw"), variants=ALL, steps=(600, 200)),
    "xsid-intent": Set("xsid", "classification", ("da",), "projected-train", XSID, limit=6000),
    "xsid-slots": Set("xsid", "tagging", ("da",), "projected-train", XSID, limit=6000),
    "panx": Set("panx", "tagging", ("de", "es", "ar", "sw"), "dev", steps=(800, 300)),
}
GRID = ("massive-intent", ("de", "es", "th"))
"""Where every source architecture teaches every student."""


@dataclass(frozen=True)
class Job:
    """One model of the table; what is empty does not apply."""

    set: str
    role: str  # source, bridge, student, gold, translate-test, translate-train
    seed: int
    source: str = MAIN  # architecture of the source model
    bridge: str = ""
    variant: str = ""  # of what the bridge reads: plain, balanced, human
    student: str = ""
    augmented: bool = False
    language: str = ""

    @property
    def name(self) -> str:
        """The job as a file name."""
        parts = (self.set, self.role, self.source, self.bridge, self.variant, self.student)
        more = ("augmented" if self.augmented else "", self.language, f"seed{self.seed}")
        return "_".join(part for part in (*parts, *more) if part)

    @property
    def learner(self) -> str:
        """What is trained: an architecture, or an encoder."""
        return {"bridge": self.bridge, "source": self.source}.get(self.role, self.student)

    @property
    def steps(self) -> int:
        """Optimiser steps of its training."""
        first, last = SETS[self.set].steps
        if self.role == "translate-test":
            return 0
        return first if self.role == "source" or self.learner in BRIDGES else last

    @property
    def needs(self) -> Job | None:
        """The model that this one learns from, or predicts with."""
        if self.role == "student":
            return Job(self.set, "bridge", self.seed, self.source, self.bridge, self.variant)
        if self.role in ("bridge", "translate-test", "translate-train"):
            return Job(self.set, "source", self.seed, self.source)
        return None


def translated(language: str) -> bool:
    """Whether there is a translator for a language: neither Apertium here nor a dictionary knows Danish."""
    return language != "da"


def jobs(sets: list[str], bridges: list[str], seeds: list[int], grid: bool = True) -> list[Job]:
    """Return all jobs, the first seed of everything first, and within it what others need first."""
    found: list[Job] = []
    for seed in seeds:
        each = [list(_jobs(name, bridges, seed, grid)) for name in sets]
        for role in ("source", "bridge"):
            found += [job for some in each for job in some if job.role == role]
        # Students last, and CNNs, which the other comparisons rest on, before the others.
        rest = [job for some in each for job in some if job.role not in ("source", "bridge")]
        found += sorted(rest, key=lambda job: (job.source not in ("", MAIN), job.student not in ("", MAIN)))
    return found


def _jobs(name: str, bridges: list[str], seed: int, grid: bool) -> Iterator[Job]:
    data = SETS[name]
    first = bridges[0]
    sources = ARCHITECTURES if grid and name == GRID[0] else (MAIN,)
    for source in sources:
        yield Job(name, "source", seed, source)
        yield Job(name, "bridge", seed, source, first, "plain")
    yield from (Job(name, "bridge", seed, MAIN, first, variant) for variant in data.variants[1:])
    yield from (Job(name, "bridge", seed, MAIN, bridge, "plain") for bridge in bridges[1:])
    if data.kind == "classification":
        yield Job(name, "source", seed, SHARED)
        for language in filter(translated, data.targets):
            yield Job(name, "translate-test", seed, SHARED, language=language)
            yield Job(name, "translate-train", seed, SHARED, student=SHARED, language=language)
    for language, student in product(data.targets, ARCHITECTURES):
        yield Job(name, "student", seed, MAIN, first, "plain", student, language=language)
        # Where the grid is, every student is taught in every way; elsewhere one of them.
        every = student == MAIN or name == GRID[0]
        for variant in data.variants[1:] if every else ():
            yield Job(name, "student", seed, MAIN, first, variant, student, language=language)
        # One student is enough to show what another bridge does.
        for bridge in bridges[1:] if student == MAIN else ():
            yield Job(name, "student", seed, MAIN, bridge, "plain", student, language=language)
        if data.kind == "classification" and every:
            yield Job(name, "student", seed, MAIN, first, "plain", student, True, language)
        if student == MAIN:
            yield Job(name, "gold", seed, "", student=student, language=language)
        if student == MAIN and translated(language):
            yield Job(name, "translate-test", seed, MAIN, language=language)
            yield Job(name, "translate-train", seed, MAIN, student=student, language=language)
        if language in GRID[1]:
            for source in sources[1:]:
                yield Job(name, "student", seed, source, first, "plain", student, language=language)
