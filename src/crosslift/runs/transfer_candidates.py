"""The candidates of a transfer: which there are, what each needs and costs, and how one is run.

A candidate is a method, or a chain of methods joined by `+`: an adjusted encoder first (`adjust+ear`), a small student
last (`adjust+ear+student`). `frozen` is plain fine-tuning that keeps the lower layers as they are. The parts of a chain
are kept, so that `ear` and `ear+student` share one run of `ear`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, cast

from crosslift.data import load
from crosslift.data.examples import Examples
from crosslift.data.storage import write_text
from crosslift.errors import BadInput, nearest
from crosslift.models.load import load_config, load_tokenizer, model_kind, model_labels
from crosslift.runs.adjust import adjust
from crosslift.runs.distill import distill
from crosslift.runs.fit import Run, fit
from crosslift.runs.folder import RunFolder
from crosslift.runs.machine import describe
from crosslift.runs.plug import fit_connector
from crosslift.runs.plugged import plug
from crosslift.runs.progress import Watch
from crosslift.runs.transfer_inputs import Inputs

CHAINS = (
    "finetune", "frozen", "ear", "robust", "adjust", "with-adjustment", "adjust+ear", "distill", "plug",
    "distill+student",
)  # fmt: skip
"""What runs by default where the inputs allow it, in this order; the plain baseline is the first."""

NEEDS: dict[str, tuple[str, ...]] = {
    "finetune": ("labels",),
    "frozen": ("labels",),
    "ear": ("labels",),
    "robust": ("labels",),
    "adjust": ("labels", "bitext"),
    "with-adjustment": ("labels", "bitext"),
    "distill": ("task-model", "text"),
    "plug": ("task-model", "connector"),
    "student": ("target-text",),
}
"""Part of a chain -> what it needs."""

OPTIONS = {
    "labels": "--data",
    "bitext": "--bitext",
    "task-model": "--task-model",
    "text": "--text",
    "source-text": "--text in the source language",
    "target-text": "--text in a target language",
    "connector": "--connector, or --base with text of its language",
}
"""What can be needed -> how to give it."""

COST = {
    "finetune": 1.0,
    "frozen": 0.7,
    "ear": 2.5,
    "robust": 2.5,
    "adjust": 1.0,
    "with-adjustment": 4.0,
    "distill": 2.0,
    "plug": 3.0,
    "student": 2.0,
}
"""Rough cost of a part in plain fine-tunings: what the budget is held against before anything is known."""

CONNECTOR_STEPS = 300
STUDENT_EPOCHS = 20
_LENGTH = ("epochs", "steps", "batch_size", "evaluations", "checkpoint_every")


def parts_of(chain: str) -> tuple[str, ...]:
    """Return the parts of a chain in order; one that makes no sense is refused.

    `adjust` by itself is followed by plain fine-tuning, `student` is the last.
    """
    parts = tuple(chain.split("+"))
    for part in parts:
        if part not in NEEDS:
            known = [*NEEDS, *CHAINS]
            raise BadInput(f'There is no candidate "{part}".{nearest(part, known)}', f"There are {', '.join(CHAINS)}.")
    middle = [part for part in parts if part not in ("adjust", "student")]
    ordered = (
        *(["adjust"] if "adjust" in parts else []),
        *(middle[:1]),
        *(["student"] if "student" in parts else []),
    )
    wrong = parts != ordered or not (middle or "adjust" in parts)
    if wrong or ("adjust" in parts and middle and middle[0] not in ("finetune", "frozen", "ear", "robust")):
        raise BadInput(
            f'"{chain}" is no chain of methods.',
            "A chain is adjust (if wanted), one method, student (if wanted), such as adjust+ear+student.",
        )
    return parts


def needs(chain: str) -> tuple[str, ...]:
    """Return what a candidate needs, without repetition."""
    found = [need for part in parts_of(chain) for need in NEEDS[part]]
    if chain == "distill+student":
        found[1:2] = ["source-text"]
    return tuple(dict.fromkeys(found))


def cost(chain: str) -> float:
    """Return the rough cost of a candidate, in plain fine-tunings."""
    parts = parts_of(chain)
    fitted = 1.0 if parts[0] == "adjust" and (len(parts) == 1 or parts[1] == "student") else 0.0
    return sum(COST[part] for part in parts) + fitted


def candidates(have: set[str], methods: Sequence[str] | None = None) -> tuple[list[str], dict[str, str]]:
    """Return the candidates that some inputs allow, in order, and why the others are left out.

    Args:
        have: Of `OPTIONS`.
        methods: The candidates that were asked for; one that lacks an input is an error.
    """
    for name in methods or ():
        missing = [need for need in needs(name) if need not in have]
        if missing:
            give = " and ".join(OPTIONS[need] for need in missing)
            raise BadInput(f"{name} needs {' and '.join(missing)}.", f"Give {give}.")
    skipped, wanted = {}, []
    for name in dict.fromkeys([*CHAINS, *(methods or ())]):
        missing = [need for need in needs(name) if need not in have]
        if missing:
            skipped[name] = f"needs {' and '.join(missing)}"
        elif methods and name not in methods and name != "finetune":
            skipped[name] = "not asked for"
        else:
            wanted.append(name)
    if not wanted:
        raise BadInput(
            "There is nothing to transfer from.",
            "Give labels (--data), or a task model with text of its language (--task-model, --text en=FILE).",
        )
    return wanted, skipped


def run_candidate(name: str, inputs: Inputs, runs: Path, settings: Mapping[str, Any], watch: Watch) -> Run:
    """Run one candidate; what is done already is not done again."""
    parts = parts_of(name)
    if parts[-1] == "student":
        teacher = run_candidate("+".join(parts[:-1]), inputs, runs, settings, watch)
        return _student(teacher, name, inputs, runs, settings, watch)
    if name == "distill":
        return _distill(inputs, runs, settings, watch)
    if name == "plug":
        return _plug(inputs, runs, settings, watch)
    model = inputs.model
    extra: dict[str, Any] = {}
    method = parts[-1]
    if parts[0] == "adjust":
        # The rate and the length of fine-tuning are not those of adjustment.
        adjusted = adjust(
            bitext=inputs.training_pairs(),
            model=model,
            out=runs / "adjusted-encoder",
            source=inputs.source,
            watch=watch,
        )
        model = str(adjusted.model)
    if method == "with-adjustment":
        extra["with_adjustment"] = inputs.training_pairs()
    if method in ("ear", "robust") and inputs.synonyms:
        extra["synonyms"] = inputs.synonyms
    if method == "frozen":
        settings = {"frozen_layers": frozen_layers(model), **settings}
    if method == "robust":
        extra |= {"variant": "xtune", "noise_from": "synonyms"} if inputs.synonyms else {"variant": "adv"}
    return fit(
        method if method in ("ear", "robust") else "finetune",
        model=model,
        data=inputs.labelled(),
        dev=inputs.dev_data(),
        out=runs / name,
        source=inputs.source,
        seeds=inputs.seeds,
        limit=inputs.limit,
        watch=watch,
        **extra,
        **settings,
    )


def frozen_layers(model: str) -> int:
    """Return three quarters of an encoder's layers: 6 of 8 did best for the embedded one (docs/minis.md)."""
    return 3 * int(load_config(model).num_hidden_layers) // 4


def _distill(inputs: Inputs, runs: Path, settings: Mapping[str, Any], watch: Watch) -> Run:
    """Let the encoder learn what the task model says about text of its language; it carries that to the others."""
    kind = task_kind(inputs)
    own = [inputs.source] if inputs.source in inputs.text else None
    length: dict[str, Any] = {"epochs": 10, "learning_rate": settings["learning_rate"]}
    length |= {key: settings[key] for key in _LENGTH if key in settings}
    return distill(
        teacher=cast("str", inputs.task_model),
        text=inputs.texts(kind, own),
        student=inputs.model,
        out=runs / "distill",
        seeds=inputs.seeds,
        limit=inputs.limit,
        watch=watch,
        **length,
    )


def _student(teacher: Run, name: str, inputs: Inputs, runs: Path, settings: Mapping[str, Any], watch: Watch) -> Run:
    """Distil a candidate into a small model that reads the languages of the text."""
    kind = str(teacher.folders[0].config["kind"])
    text = inputs.texts(kind)
    if inputs.source not in text and inputs.data is not None:
        data = inputs.labelled()
        own = data if isinstance(data, Examples) else load(data, language=inputs.source, split="train")
        text = {inputs.source: own.unlabelled(), **text}
    length: dict[str, Any] = {"epochs": STUDENT_EPOCHS}
    length |= {key: settings[key] for key in _LENGTH if key in settings and key != "epochs"}
    return distill(
        teacher=teacher, text=text, out=runs / name, seeds=inputs.seeds, limit=inputs.limit, watch=watch, **length
    )


def _plug(inputs: Inputs, runs: Path, settings: Mapping[str, Any], watch: Watch) -> Run:
    """Plug the task model onto a connector: the one that was given, or one that is trained on the source text."""
    connector, spent = inputs.connector, 0.0
    steps = int(settings.get("steps") or CONNECTOR_STEPS)
    if connector is None:
        file = _as_file(inputs, runs)
        # Vectors of words teach far more than hidden words do in a few steps (docs/methods/plug.md).
        trained = fit_connector(
            multi=inputs.model, mono=cast("str", inputs.base), text=file, out=runs / "connector", steps=steps,
            hmlm=0.0, align=1.0, seed=inputs.seeds[0], processes=1, watch=watch, **_connector_size(inputs, settings),
        )  # fmt: skip
        connector, spent = str(trained.path), float(str(trained.summary["seconds"]))
    config: dict[str, object] = {
        "method": "plug",
        "model": inputs.model,
        "task_model": inputs.task_model,
        "connector": connector,
        "source": inputs.source,
        "seed": inputs.seeds[0],
        "kind": task_kind(inputs),
        "task": {"labels": list(model_labels(cast("str", inputs.task_model)))},
    }
    folder = RunFolder.start(runs / "plug", config)
    if not folder.done:
        with folder.locked():
            made = plug(cast("str", inputs.task_model), connector, folder.model)
            folder.finish(
                {
                    "selected": "plugged",
                    "selected_on": "nothing: there is one model",
                    "steps": None if inputs.connector else steps,
                    "seconds": round(spent + made.seconds, 1),
                    "machine": describe(),
                }
            )
    return Run(folder.path, [folder])


def _connector_size(inputs: Inputs, settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return rows that both models can read and batches that a few cores can do, unless a size was asked for."""
    longest = min(int(load_tokenizer(str(name)).model_max_length) for name in (inputs.model, inputs.base))
    return {"length": min(128, longest), "batch_size": int(settings.get("batch_size") or 32)}


def _as_file(inputs: Inputs, runs: Path) -> Path:
    """Return the source text as a file with one text a line, as connectors are trained from."""
    given = inputs.text[inputs.source]
    if not isinstance(given, Examples) and Path(given).suffix == ".txt":
        return Path(given)
    file = runs / "connector-text" / f"{inputs.source}.txt"
    if not file.exists():
        lines = [
            " ".join(text.split()) for text in inputs.texts("classification", [inputs.source])[inputs.source].texts
        ]
        write_text(file, "\n".join(lines) + "\n")
    return file


def task_kind(inputs: Inputs) -> str:
    """Return the kind of task of the task model."""
    return model_kind(cast("str", inputs.task_model)) or "classification"
