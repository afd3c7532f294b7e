"""What a report says, as plain data: gathered from run folders, with nothing of how it looks."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from statistics import fmean
from typing import Any, cast

from crosslift.data import catalog
from crosslift.data.storage import Json, read_json
from crosslift.errors import BadInput, CrossliftError, nearest
from crosslift.measure.scores import Comparisons, Score, Scores
from crosslift.methods import METHODS, method_settings
from crosslift.report.choice import FILE, Chosen, candidates_of, read_choice
from crosslift.runs.compare import compare
from crosslift.runs.folder import RunFolder, find_runs
from crosslift.runs.metrics import metrics_until
from crosslift.runs.settings import Optimisation, Selection, default, option
from crosslift.tasks import TASKS

_NAMED = 6  # systems in a title

SURE = 0.05
"""Below this p-value, after Holm's correction for the number of languages, a difference is marked."""

MEASURED = ("igap", "alignment")
"""What `crosslift measure … --json` wrote is shown too, where it lies in a run folder under such a name."""


@dataclass(frozen=True)
class System:
    """One method with its seeds."""

    name: str
    path: Path
    folders: list[RunFolder]
    config: Json
    summaries: list[Json]

    @property
    def seeds(self) -> list[int]:
        """The seeds, in order."""
        return [int(str(folder.config["seed"])) for folder in self.folders]

    @property
    def source(self) -> str:
        """The language that was trained in."""
        return str(self.config.get("source") or "")


@dataclass(frozen=True)
class Evaluation:
    """All systems on one data set.

    Attributes:
        name: Such as `massive-intent/test`.
        metric: The main score.
        source: The language that was trained in, if all systems agree.
        languages: Rows of the tables, the source first.
        scores: System -> its scores.
        compared: System -> its comparison with the baseline.
        notes: What could not be compared, and why.
    """

    name: str
    metric: str
    source: str | None
    languages: list[str]
    scores: dict[str, Scores]
    compared: dict[str, Comparisons] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    @property
    def targets(self) -> list[str]:
        """The languages other than the source."""
        return [language for language in self.languages if language != self.source]

    def mean(self, system: str) -> float | None:
        """Return a system's mean over the target languages; `None` unless it was scored in all of them."""
        found = [self.scores[system].rows.get(language) for language in self.targets]
        summary = self.scores[system].mean(self.targets) if self.targets and all(found) else None
        return summary.mean if summary else None

    def gap(self, system: str, language: str) -> float | None:
        """Return the points that a system loses from the source language to another one."""
        scores = self.scores[system]
        if self.source not in scores.rows or language not in scores.rows:
            return None
        there, here = scores.of_language(str(self.source)), scores.of_language(language)
        return there.mean - here.mean if there and here else None

    @property
    def ranking(self) -> list[str]:
        """The systems by their mean over the targets, best first."""
        means = {system: self.mean(system) for system in self.scores}
        return sorted((s for s, mean in means.items() if mean is not None), key=lambda s: -cast("float", means[s]))


@dataclass(frozen=True)
class Content:
    """Everything that a report shows."""

    title: str
    systems: list[System]
    baseline: str
    evaluations: list[Evaluation]
    measured: dict[str, Json]
    command: str
    choice: Chosen | None = None


def gather(
    runs: Sequence[str | Path], *, baseline: str | None = None, data: str | None = None, title: str | None = None
) -> Content:
    """Read what a report needs from run folders.

    Args:
        runs: Run folders, groups of seeds, folders of sweeps and transfers, or of what `crosslift measure` wrote.
        baseline: Which system the others are compared with, by its name in the report; default: the first
            `finetune`, else the first.
        data: Show this evaluation alone; default: all.
        title: Default: from methods and data.
    """
    measured = {run: _measured(run) for run in map(Path, runs)}
    systems = _systems([run for run, found in measured.items() if _holds_runs(run) or not found])
    names = [system.name for system in systems]
    if baseline is not None and baseline not in names:
        raise BadInput(f'No system is called "{baseline}".{nearest(baseline, names)}', f"There is {', '.join(names)}.")
    plain = next(
        (system.name for system in systems if system.config.get("method") == "finetune"), names[0] if names else ""
    )
    known = list(dict.fromkeys(name for system in systems for f in system.folders for name in f.results()))
    if data is not None and data not in known:
        raise BadInput(f'Nothing was evaluated on "{data}".{nearest(data, known)}', f"There is {', '.join(known)}.")
    evaluations = [_evaluation(systems, name, baseline or plain) for name in ([data] if data else known)]
    titles = {system.path: system.name for system in systems}
    measured |= {path: _measured(path) for path in titles if path not in measured}
    words = ["crosslift", "report", *map(str, runs)]
    words += ["--baseline", baseline] if baseline else []
    words += ["--data", data] if data else []
    return Content(
        title=title or (_title(systems) if systems else f"Measured: {', '.join(run.name for run in measured)}"),
        systems=systems,
        baseline=baseline or plain,
        evaluations=evaluations,
        measured={titles.get(path, str(path)): found for path, found in measured.items() if found},
        command=shlex.join(words),
        choice=next((read_choice(Path(run)) for run in runs if (Path(run) / FILE).exists()), None),
    )


def _holds_runs(path: Path) -> bool:
    return (path / "grid.json").exists() or (path / FILE).exists() or bool(find_runs(path))


def _measured(path: Path) -> Json:
    """Return what `crosslift measure` wrote into a folder: file name -> content."""
    return {file.stem: read_json(file) for kind in MEASURED for file in sorted(path.glob(f"{kind}*.json"))}


def _systems(runs: Sequence[str | Path]) -> list[System]:
    paths: list[Path] = []
    for run in map(Path, runs):
        if (run / "grid.json").exists():
            groups = sorted({file.parent.parent for file in run.glob("*/seed-*/finished.json")})
            if not groups:
                raise BadInput(f"The sweep in {run} has no finished run yet.")
            paths += groups
        elif (run / FILE).exists():
            paths += candidates_of(run)
        else:
            paths.append(run)
    found = []
    for path in dict.fromkeys(paths):
        folders = find_runs(path)
        if not folders:
            raise BadInput(f"{path} is not a run folder.", "crosslift ls runs shows the runs here.")
        summaries = [folder.summary if folder.done else {} for folder in folders]
        trained = bool((folders[0].config.get("method") or "given") != "given")
        for folder in folders:
            if trained and not folder.done and not folder.results():
                raise BadInput(f"{folder.path} is not finished.", "Start its command again to finish it.")
        found.append(System("", path, folders, folders[0].config, summaries))
    methods = [str(system.config.get("method")) for system in found]
    names = [_name(system, methods) for system in found]
    for place, system in enumerate(found):
        if (system.path.parents[1] / FILE).exists():  # a candidate is called so, whatever its last method
            names[place] = system.path.name
    return [
        replace(system, name=name if names.count(name) == 1 else str(system.path))
        for system, name in zip(found, names, strict=True)
    ]


def _name(system: System, methods: Sequence[str]) -> str:
    """Return a short name: the method, or the folder where methods are not unique."""
    method = str(system.config.get("method"))
    if method == "given":
        return Path(str(system.config["model"])).name
    return method if methods.count(method) == 1 else system.path.name


def _evaluation(systems: Sequence[System], name: str, baseline: str) -> Evaluation:
    tables: dict[str, Scores] = {}
    for system in systems:
        table = Scores(system.name, name, system.source or None)
        for folder in system.folders:
            found = cast("dict[str, dict[str, Any]]", folder.results().get(name, {}))
            for language, entry in found.items():
                for score in entry["scores"].values():
                    table.add(language, int(str(folder.config["seed"])), Score(**score))
        if table.rows:
            tables[system.name] = table
    sources = {table.source for table in tables.values() if table.source}
    source = sources.pop() if len(sources) == 1 else None
    languages = list(dict.fromkeys(language for table in tables.values() for language in table.rows))
    languages.sort(key=lambda language: language != source)
    metric = next(iter(tables.values())).metrics[0]
    compared, notes = {}, []
    by_name = {system.name: system for system in systems}
    for other in tables:
        if other == baseline or baseline not in tables:
            continue
        both = [
            language for language in languages if language in tables[other].rows and language in tables[baseline].rows
        ]
        if not by_name[other].source:  # it cannot say what its source is, which must stay out of the mean
            both = [language for language in both if language != source]
        try:
            compared[other] = compare(by_name[other].path, by_name[baseline].path, data=name, languages=both)
        except CrossliftError as error:
            notes.append(f"{other} and {baseline} cannot be compared: {error.seen}")
    return Evaluation(name, metric, source, languages, tables, compared, notes)


def _title(systems: Sequence[System]) -> str:
    data = dict.fromkeys(data_name(system.config["data"]) for system in systems if system.config.get("data"))
    methods = dict.fromkeys(str(system.config.get("method")) for system in systems)
    names = methods if len(methods) == len(systems) or len(systems) > _NAMED else [system.name for system in systems]
    return f"{', '.join(data) or 'Evaluation'}: {', '.join(names)}"


def data_name(name: object) -> str:
    """Return what `--data` takes: of `massive-intent/en/train`, which a run notes, the set; a file as it is."""
    first = str(name).split("/")[0]
    return first if catalog.is_known(first) else str(name)


def learning(system: System) -> tuple[list[list[tuple[float, float]]], list[list[tuple[float, float]]], str]:
    """Return, seed by seed, (step, loss) and (step, main dev score), and the name of that score."""
    losses, devs, name = [], [], ""
    for folder in system.folders:
        rows = metrics_until(folder, 2**62)
        losses.append([(float(row["step"]), float(row["loss"])) for row in rows if "loss" in row])
        scored = [row for row in rows if row.get("dev")]
        name = name or next((next(iter(row["dev"])) for row in scored), "")
        devs.append([(float(row["step"]), float(next(iter(row["dev"].values())))) for row in scored])
    return losses, devs, name


def cost(system: System) -> Json:
    """Return steps, seconds of training (mean over seeds) and of evaluation, the machine, and the size on disk."""
    trained = [float(str(summary["seconds"])) for summary in system.summaries if "seconds" in summary]
    entries = [
        entry
        for folder in system.folders
        for found in folder.results().values()
        for entry in cast("dict[str, Json]", found).values()
    ]
    machine = cast("Json", system.summaries[0].get("machine") or {})
    weights = system.folders[0].model / "model.safetensors"
    gpus = cast("list[str]", machine.get("gpus") or [])
    return {
        "seeds": len(system.folders),
        "steps": system.summaries[0].get("steps"),
        "training_seconds": fmean(trained) if trained else None,
        "evaluation_seconds": sum(float(str(entry.get("seconds") or 0)) for entry in entries) / len(system.folders),
        "machine": ", ".join(gpus) if gpus else f"{machine['cores']} CPU cores" if machine else "–",
        "model_megabytes": weights.stat().st_size / 1e6 if weights.exists() else None,
    }


def commands(system: System) -> list[str]:
    """Return the commands that make a system again: train, then evaluate."""
    config = system.config
    lines = []
    method = str(config.get("method"))
    if method in METHODS:
        data, dev = data_name(config["data"]), data_name(config.get("dev") or config["data"])
        words = ["crosslift", "fit", method, "--model", str(config["model"]), "--data", data]
        words += ["--dev", dev] if dev != data else []
        words += ["--source", system.source] if system.source not in ("", "en") else []
        words += ["--seeds", ",".join(map(str, system.seeds))]
        words += ["--limit", str(config["limit"])] if config.get("limit") else []
        groups = [(Optimisation, "optimisation"), (Selection, "selection"), (method_settings(method), "settings")]
        groups.append((TASKS[str(config["kind"])], "task"))
        for cls, part in groups:
            words += _options(cls, cast("Json", config.get(part) or {}))
        lines.append(shlex.join([*words, "--out", str(system.path)]))
    elif method == "distill":
        lines.append(_distilling(system))
    elif method == "plug" and config.get("task_model"):
        words = ["crosslift", "plug", str(config["task_model"]), "--connector", str(config["connector"])]
        lines.append(shlex.join([*words, "--out", str(system.folders[0].model)]))
    elif method != "given":
        lines.append(f"# crosslift fit {method}: its settings are in {system.folders[0].config_file}")
    for name, found in system.folders[0].results().items():
        entries = cast("dict[str, Json]", found)
        first = next(iter(entries.values()), {})
        words = ["crosslift", "evaluate", str(system.path), "--data", str(first.get("data") or data_name(name))]
        words += ["--languages", ",".join(entries)]
        words += ["--split", str(first["split"])] if first.get("split") not in (None, "test") else []
        words += ["--limit", str(first["limit"])] if first.get("limit") else []
        lines.append(shlex.join(words))
    return lines


def _distilling(system: System) -> str:
    """Return the command of a distillation; the files of its text are not in its settings, only their languages."""
    config = system.config
    words = ["crosslift", "fit", "distill", "--teacher", str(config["teacher"]), "--student", str(config["model"])]
    for language in cast("list[str]", config.get("languages") or []):
        words += ["--text", f"{language}=TEXT"]
    words += ["--seeds", ",".join(map(str, system.seeds))]
    words += ["--limit", str(config["limit"])] if config.get("limit") else []
    if config.get("rate_from") == "given":
        words += ["--learning-rate", str(cast("Json", config["optimisation"])["learning_rate"])]
    for name in ("epochs", "steps", "batch_size"):
        value = cast("Json", config["optimisation"]).get(name)
        words += [option(name), f"{value:g}"] if value is not None else []
    return shlex.join([*words, "--out", str(system.path)])


def _options(cls: type, chosen: Mapping[str, object]) -> list[str]:
    """Return the settings that differ from their defaults, as options."""
    words: list[str] = []
    for setting in fields(cls):
        value, usual = chosen.get(setting.name), default(setting)
        usual = list(usual) if isinstance(usual, tuple) else usual
        if setting.name == "labels" or setting.name not in chosen or value == usual or value is None:
            continue
        if isinstance(value, bool):
            words.append(option(setting.name) if value else option(f"no_{setting.name}"))
        else:
            words += [option(setting.name), ",".join(map(str, value)) if isinstance(value, list) else f"{value}"]
    return words
