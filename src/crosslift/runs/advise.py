"""Advise: from what somebody has to the methods that apply, with cost, measured gain and command."""

from __future__ import annotations

import math
import re
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, cast

from crosslift.data.storage import Json, read_json
from crosslift.errors import BadInput, nearest
from crosslift.runs.progress import clock

HAVE = {
    "labels": "labelled source-language data",
    "task-model": "a trained source-language model",
    "source-text": "unlabelled source-language text",
    "target-text": "unlabelled target-language text",
    "bitext": "sentence pairs",
    "translator": "a translator",
    "synonyms": "a file of source-language synonyms",
    "dictionary": "a bilingual dictionary",
}
"""What can be had -> in words."""

KINDS = ("classification", "tagging", "qa")
SETS = {"classification": "demo-intent", "tagging": "demo-slots", "qa": "demo-qa"}
"""Kind -> the embedded set on which a step is timed."""

RESULTS = Path(__file__).parents[3] / "benchmarks" / "results" / "gains.json"
"""Measured gains over plain fine-tuning, where this is a checkout.

`{"gains": [{method, kind, data, model, difference, low, high, languages, seeds, examples}, …]}`: points, mean over the
target languages, with the 95 % interval of a paired test over examples; how many languages, seeds and training examples
there were. `synonyms` says of some that they were measured with, or without, a dictionary.
"""


@dataclass(frozen=True)
class Way:
    """One method as advice sees it.

    Attributes:
        does: What it does, in a few words.
        needs: Inputs that it cannot do without.
        command: What to run; words in capitals are the user's to fill in.
        cost: A step's cost in steps of plain fine-tuning, where it is not timed itself.
        epochs: Passes over the data by default.
        timed: Whether a step is timed on the embedded data.
        kinds: Tasks that it can do.
    """

    does: str
    needs: tuple[str, ...]
    command: str
    cost: float = 1.0
    epochs: float = 3.0
    timed: bool = False
    kinds: tuple[str, ...] = KINDS


WAYS = {
    "finetune": Way(
        "plain fine-tuning on source labels: the baseline",
        ("labels",),
        "crosslift fit finetune --model MODEL --data LABELS --out runs/finetune",
        timed=True,
    ),
    "frozen": Way(
        "fine-tuning that keeps the lower layers as they are",
        ("labels",),
        "crosslift transfer --model MODEL --data LABELS --methods frozen",
        cost=0.7,
    ),
    "ear": Way(
        "embedding push and attention pull on synonyms",
        ("labels",),
        "crosslift fit ear --model MODEL --data LABELS --out runs/ear",
        cost=2.5,
        timed=True,
    ),
    "robust": Way(
        "training on disturbed inputs",
        ("labels",),
        "crosslift fit robust --variant adv --model MODEL --data LABELS --out runs/robust",
        cost=2.5,
        timed=True,
    ),
    "adjust": Way(
        "pull translated words together first, then fine-tune",
        ("labels", "bitext"),
        "crosslift transfer --model MODEL --data LABELS --bitext de=BITEXT --methods adjust",
        cost=2.0,
    ),
    "with-adjustment": Way(
        "fine-tune and pull translated words together in every step",
        ("labels", "bitext"),
        "crosslift fit finetune --model MODEL --data LABELS --with-adjustment de=BITEXT --out runs/with-adjustment",
        cost=4.0,
    ),
    "adjust+ear": Way(
        "adjusted encoder, then embedding push and attention pull",
        ("labels", "bitext"),
        "crosslift transfer --model MODEL --data LABELS --bitext de=BITEXT --methods adjust+ear",
        cost=3.5,
    ),
    "distill": Way(
        "an encoder learns what your model says about text of its language",
        ("task-model", "source-text"),
        "crosslift transfer --model MODEL --task-model TASK_MODEL --text en=TEXT",
        cost=2.0,
        epochs=10.0,
    ),
    "distill+student": Way(
        "the same, then a small model learns what that encoder says about text of your languages",
        ("task-model", "source-text", "target-text"),
        "crosslift transfer --model MODEL --task-model TASK_MODEL --text en=TEXT --text de=TARGET_TEXT"
        " --methods distill+student",
        cost=4.0,
        epochs=10.0,
    ),
    "plug": Way(
        "a connector lets your model read other languages (also needs the public model yours was tuned from)",
        ("task-model", "source-text"),
        "crosslift fit plug --multi MODEL --mono BASE --text TEXT --out runs/connector"
        " && crosslift plug TASK_MODEL --connector runs/connector --out plugged",
        cost=3.0,
    ),
    "translate-train": Way(
        "translate the labelled data, then fine-tune on that",
        ("labels", "translator"),
        "crosslift translate LABELS --from en --to de --with TRANSLATOR --out de.jsonl"
        " && crosslift fit finetune --model MODEL --data de.jsonl --source de --out runs/translate-train",
        kinds=("classification", "tagging"),
    ),
    "dictionary-train": Way(
        "translate the labelled data word by word, then fine-tune on that",
        ("labels", "dictionary"),
        "crosslift translate LABELS --from en --to de --with dictionary:DICTIONARY --out de.jsonl"
        " && crosslift fit finetune --model MODEL --data de.jsonl --source de --out runs/dictionary-train",
        kinds=("classification", "tagging"),
    ),
}
"""Method -> how it is advised, in the order in which they are shown."""


@dataclass(frozen=True)
class Advice:
    """What is said of one method.

    Attributes:
        method: Its name.
        does: What it does.
        missing: Inputs that it still needs; none: it is ready.
        seconds: Expected time here; `None` where it was not timed.
        timed: Whether its own step was timed, or plain fine-tuning's and a factor.
        gains: Entries of `benchmarks/results/gains.json` for it and this kind; none: not measured.
        command: What to run.
    """

    method: str
    does: str
    missing: tuple[str, ...]
    seconds: float | None
    timed: bool
    gains: tuple[Json, ...]
    command: str

    @property
    def gain(self) -> str:
        """The measured gain in words."""
        if self.method == "finetune":
            return "the baseline: gains are measured against it"
        said = [
            f"{float(str(g['difference'])):+.1f} points on {g['data']} with {g['model']} "
            f"(95% {float(str(g['low'])):+.1f} to {float(str(g['high'])):+.1f}{_conditions(g)})"
            for g in self.gains
        ]
        return "; ".join(said) or "gain not measured yet"

    def to_dict(self) -> Json:
        """Return it as plain data."""
        return {**asdict(self), "ready": not self.missing, "gain": self.gain}


def _conditions(gain: Json) -> str:
    """Return how a gain was measured, as far as its entry says."""
    known = (("languages", "language"), ("seeds", "seed"), ("examples", "training example"))
    counts = [(int(str(gain[name])), word) for name, word in known if gain.get(name)]
    return "".join(f", {count:,} {word}{'s' if count != 1 else ''}" for count, word in counts)


def advise(
    have: Collection[str],
    kind: str = "classification",
    *,
    model: str = "mini-x",
    examples: int = 10_000,
    to: Sequence[str] = ("de",),
    timed: bool = True,
    results: Path = RESULTS,
) -> list[Advice]:
    """Say which methods apply, what each lacks, its cost on this machine, its measured gain, and its command.

    Args:
        have: Of `HAVE`.
        kind: Of `KINDS`.
        model: Encoder; it is timed on a few steps of embedded data.
        examples: How many labelled examples or texts there are, for the cost.
        to: Target languages, for the commands.
        timed: Time a few steps; without, no cost is given.
        results: File of measured gains.

    Returns:
        Methods that are ready first, each group in the order of `WAYS`.
    """
    for name in have:
        if name not in HAVE:
            raise BadInput(f'There is nothing called "{name}" to have.{nearest(name, HAVE)}', f"{', '.join(HAVE)}.")
    if kind not in KINDS:
        raise BadInput(f'There is no kind "{kind}".{nearest(kind, KINDS)}', f"Kinds: {', '.join(KINDS)}.")
    if examples < 1:
        raise BadInput(f"--examples must be at least 1, not {examples}.")
    gains = measured_gains(results)
    synonyms = "synonyms" in have
    steps = math.ceil(examples / 32)
    seconds = time_steps(model, kind) if timed else {}
    found = []
    for name, way in WAYS.items():
        if kind not in way.kinds:
            continue
        step = seconds.get(name) or (seconds["finetune"] * way.cost if seconds else None)
        found.append(
            Advice(
                method=name,
                does=way.does,
                missing=tuple(need for need in way.needs if need not in have),
                seconds=None if step is None else round(step * steps * way.epochs, 1),
                timed=name in seconds,
                gains=tuple(
                    g
                    for g in gains
                    if (g.get("method"), g.get("kind")) == (name, kind) and g.get("synonyms", synonyms) == synonyms
                ),
                command=_for_languages(_command(way, name, model, have), to),
            )
        )
    return sorted(found, key=lambda one: bool(one.missing))


def _command(way: Way, name: str, model: str, have: Collection[str]) -> str:
    command = way.command.replace("--model MODEL", f"--model {model}").replace("--multi MODEL", f"--multi {model}")
    if "synonyms" in have and name in ("ear", "robust"):
        command = command.replace("--variant adv", "--variant xtune --noise-from synonyms") + " --synonyms SYNONYMS"
    return command


def _for_languages(command: str, to: Sequence[str]) -> str:
    """Return a command with its options for one target language said for each of several."""

    def each(found: re.Match[str]) -> str:
        return " ".join(f"{found[1]} {language}={found[2]}" for language in to or ("de",))

    return re.sub(r"(--(?:bitext|text|with-adjustment)) de=(\S+)", each, command)


def in_words(have: Collection[str], to: Sequence[str] = ()) -> str:
    """Return what somebody has and lacks, as a sentence."""
    there = [words for name, words in HAVE.items() if name in have]
    where = f", and want {', '.join(to)}" if to else ""
    lacking = "" if "labels" in have else ", but no labels"
    return f"You have {' and '.join(there) or 'nothing yet'}{lacking}{where}."


def main_command(have: Collection[str], model: str = "mini-x", to: Sequence[str] = ("de",)) -> str:
    """Return the command that tries everything which applies; nothing where nothing does."""
    words = [f"crosslift transfer --model {model}"]
    words += ["--data LABELS"] if "labels" in have else []
    words += ["--bitext de=BITEXT"] if "bitext" in have and "labels" in have else []
    words += ["--synonyms SYNONYMS"] if "synonyms" in have and "labels" in have else []
    task = "task-model" in have and ("source-text" in have or "target-text" in have)
    words += ["--task-model TASK_MODEL"] if task else []
    words += ["--text en=TEXT"] if "source-text" in have else []
    words += ["--text de=TARGET_TEXT"] if "target-text" in have else []
    if "labels" not in have and not task:
        return ""
    return _for_languages(" ".join([*words, "--test TEST"]), to)


def measured_gains(file: Path) -> list[Json]:
    """Return the measured gains; none where the file is not there."""
    return cast("list[Json]", read_json(file)["gains"]) if file.exists() else []


def time_steps(model: str, kind: str, batch_size: int = 32) -> dict[str, float]:
    """Return seconds per optimiser step of each method that can be timed, on one batch of embedded data.

    A step of the user's data costs more where texts are longer; the optimiser's part is counted as 15%.
    """
    import numpy as np

    from crosslift.data import load
    from crosslift.methods import method_class, method_settings
    from crosslift.models.load import load_model, load_tokenizer
    from crosslift.tasks import task_for

    examples = load(SETS[kind], language="en", split="train").take(batch_size)
    tokenizer = load_tokenizer(model)
    longest = min(128, int(tokenizer.model_max_length))
    options: dict[str, Any] = {"max_length": longest, **({"stride": longest // 3} if kind == "qa" else {})}
    task = task_for(examples, None, **options)
    found = {}
    for name in (name for name, way in WAYS.items() if way.timed):
        settings: Mapping[str, object] = {"variant": "adv"} if name == "robust" else {}
        network = load_model(model, task)
        method = method_class(name)(method_settings(name)(**settings), task, tokenizer, examples)
        if hasattr(method, "prepare"):
            try:
                method.prepare(network, 1)
            except BadInput:  # an encoder without neighbours to take synonyms from
                continue
        network.train()
        rows = np.arange(len(method.lengths))[:batch_size]
        times = []
        for step in range(3):  # the first pays for set-up
            began = time.perf_counter()
            sum(method.loss(network, method.batch(rows, step)).values()).backward()
            network.zero_grad(set_to_none=True)
            times.append(time.perf_counter() - began)
        found[name] = 1.15 * min(times[1:])
    return found


def table(found: list[Advice]) -> str:
    """Return advice as text."""
    lines = []
    for one in found:
        state = f"missing: {', '.join(HAVE[x] for x in one.missing)}" if one.missing else "ready"
        lines.append(f"{one.method:<17}{state:<8}  {one.does}")
        if not one.missing:
            sure = "about" if one.timed else "very roughly"
            about = "" if one.seconds is None else f"{sure} {clock(one.seconds)} here; "
            said = f"{about}{one.gain}".replace("; ", f";\n{'':<17}")
            lines += [f"{'':<17}{said}", f"{'':<17}{one.command}"]
    return "\n".join(lines)
