"""What a sweep must know about the methods of `fit`: their arguments, their settings, and how they are called."""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import fields
from importlib import import_module
from pathlib import Path
from typing import Any

from crosslift.data import load
from crosslift.data.examples import Examples
from crosslift.data.storage import Json
from crosslift.errors import BadInput, nearest
from crosslift.methods import METHODS, method_settings
from crosslift.models.load import locate
from crosslift.runs.fit import fit
from crosslift.runs.folder import RunFolder
from crosslift.runs.progress import Watch
from crosslift.runs.settings import Execution, Optimisation, Selection, sort_settings
from crosslift.tasks import TASKS

OTHERS = {
    "adjust": ("crosslift.runs.adjust", "adjust"),
    "distill": ("crosslift.runs.distill", "distill"),
    "plug": ("crosslift.runs.plug", "fit_connector"),
    "new-model": ("crosslift.runs.sweep_assemblies", "new_model"),
    "plugged": ("crosslift.runs.sweep_assemblies", "plugged"),
    "emb-learn": ("crosslift.runs.sweep_assemblies", "learn_embeddings"),
    "translate-train": ("crosslift.runs.sweep_assemblies", "train_translated"),
    "translate-test": ("crosslift.runs.sweep_assemblies", "score_translated"),
    "igap": ("crosslift.runs.sweep_measures", "measure_igap"),
    "similarities": ("crosslift.runs.sweep_measures", "measure_similarities"),
    "words": ("crosslift.runs.sweep_measures", "measure_words"),
    "synonyms": ("crosslift.runs.sweep_measures", "measure_synonyms"),
    "plug-alignment": ("crosslift.runs.sweep_measures", "measure_plug"),
}
"""Methods that learn without labels, assemblies and measurements -> where their function and its `SETTINGS` are."""
NO_TASK = (
    "adjust",
    "plug",
    "emb-learn",
    "translate-test",
    "igap",
    "similarities",
    "words",
    "synonyms",
    "plug-alignment",
)
"""What delivers an encoder, a connector or a measurement: there is nothing left to score."""

MEASURES = (*(name for name, (module, _) in OTHERS.items() if module.endswith("sweep_measures")), "translate-test")
"""What writes scores into its run folder itself."""

# What the sweep itself decides.
_OURS = {"out", "seed", "seeds", "overwrite", "average_runs", "watch", "settings"}
_TASK_SETTINGS = {setting.name for cls in TASKS.values() for setting in fields(cls)} - {"labels"}
LOAD = tuple(name for name in inspect.signature(load).parameters if name not in {"path_or_name", "language", "split"})


def check(chosen: Json, kinds: dict[str, str]) -> Json:
    """Return one run's arguments with every name known and every setting of its type, or say what is wrong.

    Args:
        chosen: What the grid says, with `method`.
        kinds: Filled with the task kind of each data set that was looked at, so that it is loaded once.
    """
    method, known = chosen.get("method"), [*METHODS, *OTHERS]
    if not isinstance(method, str):
        instead = "" if method is None else f" (it is {method!r})"
        raise BadInput(f'A run of the grid has no "method"{instead}.', f"Methods: {', '.join(known)}.")
    if method not in known:
        raise BadInput(f'There is no method "{method}".{nearest(method, known)}', f"Methods: {', '.join(known)}.")
    function = _function(method)
    arguments = [name for name in inspect.signature(function).parameters if name not in _OURS]
    arguments += ["reading"] if method in METHODS else []
    arguments += ["half"] if method in METHODS or method == "distill" else []
    arguments = list(dict.fromkeys(["method", *arguments]))
    groups = _groups(method, chosen)
    own = {setting.name for cls in groups for setting in fields(cls)}
    task = _TASK_SETTINGS if method not in NO_TASK else set()
    refuse_unknown(chosen, sorted({"seeds", *arguments, *own, *task}), f"fit {method}")
    given = {name: value for name, value in chosen.items() if name in arguments}
    for name, parameter in inspect.signature(function).parameters.items():
        if parameter.default is inspect.Parameter.empty and name in arguments and given.get(name) is None:
            raise BadInput(f'A run of fit {method} in the grid has no "{name}".')
    settings = {name: value for name, value in chosen.items() if name not in arguments}
    if method in METHODS:
        groups.append(TASKS[_kind(given, kinds)])
    else:  # which task it is, the teacher says when it is opened
        settings = {name: value for name, value in settings.items() if name in own}
    shares = sort_settings(groups, settings)
    for cls, share in zip(groups, shares, strict=True):
        if cls not in TASKS.values():
            cls(**share)  # its own checks
    loose = {name: value for name, value in chosen.items() if name in task - own and method not in METHODS}
    return {**given, **{name: value for share in shares for name, value in share.items()}, **loose}


def call(chosen: Json, seed: int, out: Path, watch: Watch) -> None:
    """Train one run."""
    given: dict[str, Any] = dict(chosen)
    method, reading, half = str(given.pop("method")), given.pop("reading", None), given.pop("half", None)
    if reading or (half and method in METHODS):
        reading = reading or {}
        source = given.get("source") or "en"
        given["data"] = load(given["data"], language=source, split="train", **reading)
        if given.get("dev"):
            given["dev"] = load(given["dev"], language=source, split="dev", **reading)
    if method in METHODS or method in ("adjust", "distill"):
        given |= _opened(given, half)
    function = _function(method)
    accepted = inspect.signature(function).parameters
    given |= {"seeds": [seed]} if "seeds" in accepted else {"seed": seed}
    given |= {"method": method} if method in METHODS else {}
    function(**given, out=out, watch=watch)


def _opened(given: Mapping[str, Any], half: str | None) -> dict[str, Any]:
    """Return arguments whose names of sets stand for examples: sentence pairs, halves, translations."""
    from crosslift.runs.sweep_assemblies import halved
    from crosslift.runs.sweep_measures import named_bitext

    found: dict[str, Any] = {}
    for name in ("bitext", "with_adjustment"):
        if isinstance(given.get(name), dict):
            found[name] = {language: named_bitext(file, language) for language, file in given[name].items()}
    if half and isinstance(given.get("data"), Examples):
        found["data"] = halved(given["data"], half)
    for name in ("text", "translations"):
        if isinstance(given.get(name), dict) and (half or name == "translations"):
            kind = {"kind": "classification"} if name == "translations" else {}
            sets = {x: load(file, language=x, split="train", **kind) for x, file in given[name].items()}  # type: ignore[arg-type]
            found[name] = {x: halved(one, half) if half else one.unlabelled() for x, one in sets.items()}
    return found


def refuse_unknown(given: Iterable[str], known: Sequence[str], what: str) -> None:
    """Refuse a name that is not known, with the nearest that is."""
    for name in given:
        if name not in known:
            raise BadInput(f'{what} has no "{name}".{nearest(str(name), known)}', f"It has {', '.join(known)}.")


def _function(method: str) -> Callable[..., object]:
    if method in METHODS:
        return fit
    module, name = OTHERS[method]
    found: Callable[..., object] = getattr(import_module(module), name)
    return found


def _groups(method: str, chosen: Json) -> list[Any]:
    """Return the settings dataclasses of a method, without the task's."""
    if method in OTHERS:
        return list(import_module(OTHERS[method][0]).SETTINGS)
    groups = [Optimisation, Execution, Selection, method_settings(method)]
    if chosen.get("with_adjustment"):
        groups += import_module("crosslift.runs.continual").SETTINGS
    return groups


def _kind(given: Json, kinds: dict[str, str]) -> str:
    """Return the task kind of the training data; what else can be wrong with model and data shows here too."""
    for name in ("model", "source", "data", "dev"):
        if not isinstance(given.get(name, ""), str | None):
            raise BadInput(f"{name} in the grid is text, not {given[name]!r}.")
    limit = given.get("limit")
    if limit is not None and (isinstance(limit, bool) or not isinstance(limit, int) or limit < 1):
        raise BadInput(f"limit in the grid is a whole number above 0, not {limit!r}.")
    reading = given.get("reading") or {}
    if not isinstance(reading, dict):
        raise BadInput(f"reading in the grid holds names and values, not {reading!r}.")
    refuse_unknown(reading, LOAD, "reading")
    # A finished run may have lost its weights; what was built on it is still known by it.
    if not RunFolder(str(given["model"])).done:
        locate(str(given["model"]))
    where = json.dumps([given["data"], given.get("source"), reading], sort_keys=True)
    if where not in kinds:
        source = str(given.get("source") or "en")
        kinds[where] = load(str(given["data"]), language=source, split="train", **reading).kind
    return kinds[where]
