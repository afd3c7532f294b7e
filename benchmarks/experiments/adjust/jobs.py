"""The jobs of `run.py`: which tasks, systems and studies there are."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from dataclasses import dataclass
from statistics import fmean
from typing import Any

LANGUAGES = ("es", "ru", "vi", "hi")
TASKS: dict[str, dict[str, Any]] = {
    "xnli": {"data": "mnli", "test": "xnli", "epochs": 2, "mixes": ("", "sentences")},
    "panx": {"data": "panx", "test": "panx", "epochs": 5, "mixes": ("",)},
    "xquad": {
        "data": "squad", "test": "xquad", "epochs": 2, "mixes": ("", "context", "question"),
        "options": {"max_length": 256, "stride": 64, "max_answer_length": 60},
    },
    "massive": {"data": "massive-intent", "test": "massive-intent", "epochs": 3, "mixes": ("",)},
}  # fmt: skip
PARTS = ("main:panx:5", "main:xnli:5", "main:xquad:5")
PAIRS, CONTINUAL_BATCH = 15_000, 16
SIZES = (1_000, 2_000, 5_000, 10_000, 20_000)
QUALITY = 3_000
RATES = (5e-5, 2e-4, 5e-4, 1e-3)

SYSTEMS: dict[str, tuple[dict[str, Any] | None, str]] = {
    "original": (None, ""),
    "adjusted": ({}, ""),
    "continual": ({}, "paper"),
    "continual, released": ({}, "released"),
    **{f"{size:,} pairs": ({"pairs": size}, "") for size in SIZES},
    **{how: ({"pooling": how}, "") for how in ("first", "last", "subwords")},
    "cao": ({"preset": "cao"}, ""),
    **{f"linked {which}": ({"linked": which}, "") for which in ("cls", "specials", "words")},
    **{f"from {source}": ({"source": source, "pairs": QUALITY}, "") for source in ("prose", "tatoeba", "gettext")},
    **{f"rate {rate:g}": ({"rate": rate}, "") for rate in RATES},
}
"""System -> (what differs from the default adjustment, or none; preset of continual learning)."""

STUDIES: dict[str, tuple[str, ...]] = {
    "main": ("adjusted", "continual"),
    "released": ("continual, released",),
    "size": tuple(f"{size:,} pairs" for size in SIZES),
    "pooling": ("adjusted", "first", "last", "subwords", "cao"),
    "linked": ("adjusted", "linked cls", "linked specials", "linked words"),
    "quality": ("from prose", "from tatoeba", "from gettext"),
    "control": ("adjusted",),
    "vocabulary": ("5,000 pairs", "20,000 pairs"),
    "rate": tuple(f"rate {rate:g}" for rate in RATES),
}
EVERYWHERE = ("main", "released", "control")
"""Studies in all languages; the others have those of --study-languages."""


@dataclass(frozen=True)
class Job:
    """One task learnt once; without a task: the encoder that it starts from.

    Attributes:
        encoder: Name of the encoder; with "+hi": with more pieces for Hindi.
        system: See `SYSTEMS`.
        language: Language the encoder is adjusted to; "": the original, which is scored in all languages.
        task: See `TASKS`; "": the adjusted encoder itself.
        source: Language the task is learnt in.
        seed: Of adjustment and fine-tuning.
        dev: Score English dev data alone.
    """

    encoder: str
    system: str
    language: str
    task: str
    source: str
    seed: int
    dev: bool = False

    def key(self) -> str:
        """Return what tells this job from others."""
        system = self.system.replace(", ", "-").replace(" ", "-").replace(",", "")
        parts = (self.encoder, system, self.language or "all", self.task or "encoder", self.source)
        return ".".join((*parts, "dev" if self.dev else "test", f"seed-{self.seed}"))

    def start(self) -> Job | None:
        """Return the job that makes the encoder this one starts from; continual learning starts from `adjusted`."""
        adjusted, preset = SYSTEMS.get(self.system, (None, ""))
        if self.task and adjusted is not None:
            return Job(self.encoder, "adjusted" if preset else self.system, self.language, "", "en", self.seed)
        if "+" in self.encoder and self.system != "extended":
            return Job(self.encoder, "extended", "", "", "en", 1)
        return None


@dataclass(frozen=True)
class Part:
    """Jobs that are done one seed after another: STUDY:TASKS:SEEDS[:ENCODERS], names separated by commas."""

    study: str
    tasks: tuple[str, ...]
    seeds: int
    encoders: tuple[str, ...]

    @classmethod
    def read(cls, text: str, encoders: tuple[str, ...]) -> Part:
        """Read a part as the command line has it; without encoders it has all of them."""
        study, tasks, seeds, *chosen = text.split(":")
        found = cls(study, tuple(tasks.split(",")), int(seeds), tuple(chosen[0].split(",")) if chosen else encoders)
        for name, known in (
            (study, STUDIES),
            *((t, TASKS) for t in found.tasks),
            *((e, encoders) for e in found.encoders),
        ):
            if name not in known:
                raise SystemExit(f"{text}: {name} is none of {', '.join(known)}")
        return found

    def jobs(self, arguments: argparse.Namespace) -> Iterator[Job]:
        """Yield the jobs, seed by seed; the original encoder is scored in all languages at once."""
        languages = arguments.languages if self.study in EVERYWHERE else arguments.study_languages
        if self.study == "vocabulary":
            languages = tuple(x for x in languages if x in arguments.text)
        dev = self.study == "rate"
        for seed in range(1, self.seeds + 1):
            for encoder in self.encoders:
                for task in self.tasks:
                    for language in languages:
                        base = f"{encoder}+{language}" if self.study == "vocabulary" else encoder
                        yield Job(base, "original", "", task, "en", seed, dev)
                        if self.study == "control":
                            yield Job(base, "original", "", task, language, seed)
                            yield Job(base, "adjusted", language, task, language, seed)
                        for system in STUDIES[self.study]:
                            yield Job(base, system, language, task, "en", seed, dev)


def wanted(job: Job, arguments: argparse.Namespace) -> list[tuple[str, str]]:
    """Return (language, mix) of the test sets of a job."""
    if job.dev:
        return [("en", "")]
    if job.source != "en":
        return [(job.source, "")]
    own = (job.encoder.partition("+")[2], job.language)
    targets = [x for x in dict.fromkeys(own) if x] or arguments.languages
    return [("en", ""), *((language, mix) for language in targets for mix in TASKS[job.task]["mixes"])]


def best_rate(results: dict[str, Any], otherwise: float) -> float:
    """Choose the rate of adjustment from the results of study `rate`; no target label is looked at.

    Of the rates after which English dev scores are, on average, at most a point below those of the original encoder,
    the one after which most held-out sentences find their translation; the lowest, if every rate does such harm;
    `otherwise`, if there is nothing to choose from.
    """
    dev = [row for row in results["jobs"] if row["dev"]]
    before = {_run(row): row["scores"]["en"] for row in dev if row["system"] == "original"}
    found = {}
    for rate in RATES:
        name = f"rate {rate:g}"
        lost = [before[_run(row)] - row["scores"]["en"] for row in dev if row["system"] == name and _run(row) in before]
        after = [row["after"]["retrieval"] for row in results["encoders"] if row["system"] == name]
        if lost and after:
            found[rate] = (fmean(lost), fmean(after))
    harmless = [rate for rate, (lost, _) in found.items() if lost <= 1]
    return max(harmless, key=lambda rate: found[rate][1]) if harmless else min(found, default=otherwise)


def _run(row: dict[str, Any]) -> tuple[str, str, int]:
    return row["encoder"], row["task"], row["seed"]
