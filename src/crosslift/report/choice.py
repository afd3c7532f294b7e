"""What a report says of a transfer: which candidate was delivered, by what rule, and what the choice was worth."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from crosslift.data.storage import read_json
from crosslift.runs.settings import option

FILE = "transfer.json"
AGREED = "In hindsight the test data agrees: nothing that was tried does better."

MEANINGS = {
    "source dev": "score on dev data of the source language",
    "translation agreement": "translated sentences with the same answer as their original",
    "carried": "the product of the two: what counts",
    "agreement on translations": "translations of which it says what the task model says of the original",
    "agreement": "agreement with the task model on text of its own language",
    "gold target dev": "mean score on gold dev data of the target languages",
    "random-label igap": "error that other languages add when a coin is learnt by heart; less is better",
}
"""Signal -> what it is, in words."""


@dataclass(frozen=True)
class Chosen:
    """The choice of a transfer.

    Attributes:
        folder: Of the transfer.
        chosen: The candidate that was delivered.
        rule: How it was chosen.
        honest: Whether no target label was read.
        signals: Candidate -> signal -> value.
        notes: Candidates that failed, were left out or were put aside, with the reason.
        hindsight: What the test data says of the choice, or nothing.
        command: What runs the transfer again; empty where its data was given in Python.
    """

    folder: Path
    chosen: str
    rule: str
    honest: bool
    signals: dict[str, dict[str, float]]
    notes: list[str]
    hindsight: str
    command: str

    @property
    def kinds(self) -> list[str]:
        """The signals that some candidate has, in order."""
        return list(dict.fromkeys(kind for found in self.signals.values() for kind in found))

    @property
    def lead(self) -> str:
        """The choice in one sentence."""
        how = "without looking at any label of the other languages" if self.honest else "WITH GOLD TARGET LABELS"
        regret = f" {self.hindsight}" if self.hindsight not in ("", AGREED) else ""
        return f"Delivered: {self.chosen}, chosen {how}.{regret}"


def read_choice(folder: Path) -> Chosen:
    """Read the choice from the folder of a transfer."""
    found = cast("dict[str, Any]", read_json(folder / FILE))
    notes = [f"{name} failed: {reason}" for name, reason in found["failed"].items()]
    notes += [f"{name} was not compared: {reason}" for name, reason in found.get("aside", {}).items()]
    over = {name: why for name, why in found["skipped"].items() if "budget" in why}
    notes += [f"{name} was left out: {reason}" for name, reason in over.items()]
    return Chosen(
        folder,
        found["chosen"],
        found["rule"],
        not found["target_labels_read"],
        found["signals"],
        notes,
        _hindsight(found),
        _command(folder),
    )


def candidates_of(folder: Path) -> list[Path]:
    """Return the run folders of a transfer, the task model as it was given first."""
    found = cast("dict[str, Any]", read_json(folder / FILE))
    given = folder / "runs" / "task-model"
    return [*([given] if given.exists() else []), *(folder / "runs" / name for name in found["runs"])]


def _hindsight(found: Mapping[str, Any]) -> str:
    test = found.get("test") or {}
    best, below = test.get("best_in_hindsight"), test.get("points_below_it")
    if best is None or below is None:
        return ""
    if best == found["chosen"]:
        return AGREED
    return f"In hindsight {best} does better on the test data, by {below:.1f} points; the choice could not know that."


def _command(folder: Path) -> str:
    """Return the command of a transfer; nothing where some of its data has no name."""
    request = cast("dict[str, Any]", read_json(folder / "plan.json"))["request"]
    shown = cast("dict[str, Any]", read_json(folder / FILE)).get("asked") or {}
    words = ["crosslift", "transfer", "--model", request["model"]]
    for name in ("data", "dev", "task_model", "base", "connector", "synonyms"):
        words += [option(name), request[name]] if request.get(name) else []
    words += ["--source", request["source"]] if request["source"] != "en" else []
    for name in ("bitext", "text"):
        for language, file in request[name].items():
            files = ",".join(file) if isinstance(file, list) else file
            words += [option(name), f"{language}={files}"]
    words += ["--methods", ",".join(request["methods"])]
    words += ["--seeds", ",".join(map(str, request["seeds"]))] if request["seeds"] != [1] else []
    words += ["--limit", str(request["limit"])] if request["limit"] else []
    words += ["--budget", f"{request['budget']:g}s"] if request["budget"] else []
    words += ["--igap"] if request.get("igap") else []
    for name, value in {**request.get("reading", {}), **request["settings"]}.items():
        pairs = ",".join(f"{a}={b}" for a, b in value.items()) if isinstance(value, dict) else str(value)
        words += [option(name)] if value is True else [option(name), pairs]
    words += ["--test", shown["test"]] if shown.get("test") else []
    words += ["--languages", ",".join(shown["languages"])] if shown.get("languages") else []
    if any(" " in word and not Path(word.partition("=")[2] or word).exists() for word in words):
        return ""  # examples that were given in Python have a name and a digest, no file
    return shlex.join([*words, "--out", str(folder)])
