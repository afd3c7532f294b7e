"""Transfer: from what there is (labels, sentence pairs, a task model, text) to a chosen model.

Every candidate is a run folder below `OUT/runs`; `plan.json` holds what was asked for and what the budget allowed,
`transfer.json` what came of it. Started again with the same arguments, it goes on, and ends in the same choice.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any, cast

from crosslift.data import languages_of
from crosslift.data.examples import Examples
from crosslift.data.storage import Json, atomic, read_json, write_json
from crosslift.errors import BadInput, CrossliftError, Unfinished, nearest
from crosslift.measure.scores import Scores
from crosslift.models.load import load_config
from crosslift.runs.adjust import Bitexts, adjust
from crosslift.runs.card import write_card
from crosslift.runs.distill import distill
from crosslift.runs.distill_data import Text
from crosslift.runs.evaluate import evaluate
from crosslift.runs.fit import Run, fingerprint, fit, open_run
from crosslift.runs.progress import Silent, Watch, clock

NEEDS: dict[str, tuple[str, ...]] = {
    "finetune": ("labels",),
    "ear": ("labels",),
    "robust": ("labels",),
    "adjust": ("labels", "bitext"),
    "with-adjustment": ("labels", "bitext"),
    "distill": ("task-model", "text"),
}
"""Candidate -> what it needs, in the order in which they run; the plain baseline is the first."""

COST = {"finetune": 1.0, "ear": 2.5, "robust": 1.4, "adjust": 2.0, "with-adjustment": 4.0, "distill": 2.0}
"""Rough cost of a candidate in plain fine-tunings: what the budget is held against before anything is known."""

SMALL = 512
"""Encoders narrower than this want a larger learning rate."""


@dataclass(frozen=True)
class Transferred:
    """What a transfer delivered.

    Attributes:
        path: Folder of it all.
        model: The chosen model in Hugging Face format.
        chosen: Name of the chosen candidate.
        rule: How it was chosen, in words.
        runs: Candidate -> its run folder, for those that succeeded.
        scores: Candidate -> its scores on the test data, where there is some.
        failed: Candidate -> why it failed.
        skipped: Candidate -> why it was not tried.
    """

    path: Path
    model: Path
    chosen: str
    rule: str
    runs: dict[str, Path]
    scores: dict[str, Scores]
    failed: dict[str, str]
    skipped: dict[str, str]

    def table(self) -> str:
        """Return candidates × languages, as text."""
        if not self.scores:
            return "No test data was given, so nothing was scored in the target languages."
        languages = list(dict.fromkeys(x for scores in self.scores.values() for x in scores.rows))
        width = max(len(name) for name in self.scores) + 2
        lines = [" " * width + "".join(f"{language:>6}" for language in languages) + "   mean of targets"]
        for name, scores in self.scores.items():
            cells = [f"{found.mean:6.1f}" if (found := scores.of_language(x)) else "     –" for x in languages]
            mean = scores.mean("targets")
            lines.append(f"{name:<{width}}{''.join(cells)}   {f'{mean.mean:.1f}' if mean else '–'}")
        return "\n".join(lines)

    @property
    def best_in_hindsight(self) -> str | None:
        """The system with the best mean over target languages on the test data; `None` without test data."""
        return _best({name: mean.mean for name, table in self.scores.items() if (mean := table.mean("targets"))})

    def to_dict(self) -> Json:
        """Return what `transfer.json` holds."""
        return read_json(self.path / "transfer.json")


@dataclass(frozen=True)
class Inputs:
    """What there is to work with."""

    model: str
    data: str | Path | Examples | None
    dev: str | Path | Examples | None
    source: str
    bitext: Bitexts
    task_model: str | None
    text: Mapping[str, Text]
    synonyms: str | None
    limit: int | None
    seeds: tuple[int, ...]

    def have(self) -> set[str]:
        """Return the inputs by the names in `NEEDS`."""
        given = {"labels": self.data is not None, "bitext": bool(self.bitext), "text": bool(self.text)}
        given["task-model"] = self.task_model is not None
        return {name for name, there in given.items() if there}

    def request(self) -> Json:
        """Return what must be the same for a transfer to go on."""
        return {
            "model": self.model,
            "data": _named(self.data),
            "dev": _named(self.dev),
            "source": self.source,
            "bitext": {language: _named(found) for language, found in self.bitext.items()},
            "task_model": self.task_model,
            "text": {language: _named(found) for language, found in self.text.items()},
            "synonyms": self.synonyms,
            "limit": self.limit,
            "seeds": list(self.seeds),
        }


def transfer(
    *,
    out: str | Path,
    model: str | Path = "mini-x",
    data: str | Path | Examples | None = None,
    dev: str | Path | Examples | None = None,
    source: str = "en",
    bitext: Bitexts | None = None,
    task_model: str | Path | None = None,
    text: Mapping[str, Text] | None = None,
    synonyms: str | Path | None = None,
    test: str | Path | Mapping[str, Examples] | None = None,
    languages: Sequence[str] | None = None,
    methods: Sequence[str] | None = None,
    budget: float | None = None,
    target_dev: str | Path | Mapping[str, Examples] | None = None,
    allow_target_dev: bool = False,
    seeds: Sequence[int] = (1,),
    limit: int | None = None,
    watch: Watch | None = None,
    **settings: object,
) -> Transferred:
    """Run the methods that the inputs allow, choose one without target labels, and deliver its model.

    Args:
        out: Folder of the transfer; started again, it goes on.
        model: Multilingual encoder by folder, embedded name or hub id.
        data: Labelled source-language data.
        dev: Source-language dev data; default: the data set's own, or a tenth of the training data.
        source: Language of the labels, and of the task model.
        bitext: Target language -> sentence pairs, source first.
        task_model: A trained source-language model, for want of labels.
        text: Language -> unlabelled text for the task model to speak about.
        synonyms: File of source-language synonyms, for `ear` and `robust`; default: neighbours in the encoder's
            embeddings for `ear`, and noise in place of synonyms for `robust`.
        test: Data to score every candidate on, after the choice is made.
        languages: Of the test data; default: all.
        methods: Candidates; default: all that the inputs allow. The plain baseline always runs with labels.
        budget: Seconds of training; candidates that would exceed it are left out, and named.
        target_dev: Gold dev data of target languages; refused unless `allow_target_dev`.
        allow_target_dev: Choose by `target_dev`; the result says so.
        seeds: One run of each candidate for each.
        limit: Use at most so many training examples.
        watch: Who is told about progress.
        settings: Settings of the fits with labels (`epochs`, `learning_rate`, …).
    """
    watch, out = watch or Silent(), Path(out)
    if target_dev is not None and not allow_target_dev:
        raise BadInput(
            "Gold labels of target languages are not used to choose a model.",
            "Leave out --target-dev, or allow it explicitly with --allow-target-dev.",
        )
    task, words = (None if given is None else str(given) for given in (task_model, synonyms))
    inputs = Inputs(str(model), data, dev, source, bitext or {}, task, text or {}, words, limit, tuple(seeds))
    wanted, skipped = candidates(inputs.have(), methods)
    settings = {"learning_rate": _rate(inputs.model), **settings}
    plan = _open_plan(out, {**inputs.request(), "methods": wanted, "settings": settings, "budget": budget})
    watch.say(f"methods   {', '.join(wanted)}")
    runs: dict[str, Run] = {}
    failed: dict[str, str] = {}
    for name in wanted:
        reason = _over_budget(name, plan, runs, budget)
        if reason:
            skipped[name] = reason
            watch.say(f"left out  {name}: {reason}")
            continue
        plan["decided"][name] = "run"
        write_json(out / "plan.json", plan)
        try:
            runs[name] = _run(name, inputs, out / "runs", dict(settings), watch)
        except Unfinished:
            raise
        except Exception as error:
            if not isinstance(error, CrossliftError | OSError | RuntimeError | ValueError | ArithmeticError):
                raise  # a mistake of ours, not of the input or the machine
            failed[name] = str(error).splitlines()[0] if str(error) else type(error).__name__
            watch.say(f"failed    {name}: {failed[name]}")
    if not runs:
        reasons = "; ".join(f"{name}: {reason}" for name, reason in failed.items())
        raise CrossliftError(f"No candidate succeeded ({reasons}).")
    signals, rule = _signals(runs, inputs, target_dev, out, watch)
    chosen = max(signals, key=lambda name: signals[name])  # the first, so the plainer, where two are equal
    with atomic(out / "model") as draft:
        shutil.copytree(runs[chosen].model, draft)
    record: Json = {"chosen": chosen, "rule": rule, "target_labels_read": target_dev is not None, "signals": signals}
    record |= {"failed": failed, "skipped": skipped, "runs": {name: str(run.path) for name, run in runs.items()}}
    write_json(out / "transfer.json", record)
    scores = _scores(runs, inputs, out, test, languages, watch) if test is not None else {}
    if scores:
        write_json(out / "transfer.json", {**record, "test": _hindsight(chosen, scores)})
        for folder in runs[chosen].folders:
            write_card(folder)
        _copy_card(runs[chosen].model, out / "model")
    paths = {name: run.path for name, run in runs.items()}
    return Transferred(out, out / "model", chosen, rule, paths, scores, failed, skipped)


def candidates(have: set[str], methods: Sequence[str] | None = None) -> tuple[list[str], dict[str, str]]:
    """Return the candidates that some inputs allow, in order, and why the others are left out.

    Args:
        have: Of `labels`, `bitext`, `task-model` and `text`.
        methods: The candidates that were asked for; one that lacks an input is an error.
    """
    for name in methods or ():
        if name not in NEEDS:
            raise BadInput(f'There is no candidate "{name}".{nearest(name, NEEDS)}', f"There are {', '.join(NEEDS)}.")
        missing = [need for need in NEEDS[name] if need not in have]
        if missing:
            raise BadInput(f"{name} needs {' and '.join(missing)}.", f"Give {_options(missing)}.")
    skipped, wanted = {}, []
    for name, needs in NEEDS.items():
        missing = [need for need in needs if need not in have]
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


def _options(needs: Sequence[str]) -> str:
    known = {"labels": "--data", "bitext": "--bitext", "task-model": "--task-model", "text": "--text"}
    return " and ".join(known[need] for need in needs)


def _run(name: str, inputs: Inputs, runs: Path, settings: dict[str, Any], watch: Watch) -> Run:
    """Run one candidate; what is done already is not done again."""
    if name == "distill":
        # Text of the task model's own language is what it can speak about; the encoder carries that to the others.
        own = {inputs.source: inputs.text[inputs.source]} if inputs.source in inputs.text else inputs.text
        length: dict[str, Any] = {"epochs": 10, "learning_rate": settings["learning_rate"]}
        length |= {key: settings[key] for key in ("epochs", "steps", "batch_size", "evaluations") if key in settings}
        return distill(
            teacher=cast("str", inputs.task_model),
            text=own,
            student=inputs.model,
            out=runs / name,
            seeds=inputs.seeds,
            limit=inputs.limit,
            watch=watch,
            **length,
        )
    model: str = inputs.model
    extra: dict[str, Any] = {}
    if name in ("ear", "robust") and inputs.synonyms:
        extra["synonyms"] = inputs.synonyms
    if name == "adjust":
        # The rate and the length of fine-tuning are not those of adjustment.
        model = str(adjust(bitext=inputs.bitext, model=model, out=runs / "adjusted-encoder", watch=watch).model)
    elif name == "with-adjustment":
        extra["with_adjustment"] = inputs.bitext
    elif name == "robust":
        extra["variant"] = "rs-da" if inputs.synonyms else "gaussian"
    return fit(
        name if name in ("ear", "robust") else "finetune",
        model=model,
        data=cast("str", inputs.data),
        dev=inputs.dev,
        out=runs / name,
        source=inputs.source,
        seeds=inputs.seeds,
        limit=inputs.limit,
        watch=watch,
        **extra,
        **settings,
    )


def _rate(model: str) -> float:
    width = int(getattr(load_config(model), "hidden_size", SMALL))
    return 3e-4 if width < SMALL else 3e-5


def _named(given: object) -> object:
    """Return what is remembered of an input: its name, and a digest of examples that have no file."""
    if isinstance(given, Examples):
        return f"{given.name} {fingerprint(given)}"
    return [str(x) for x in given] if isinstance(given, list | tuple) else None if given is None else str(given)


def _open_plan(out: Path, request: Json) -> dict[str, Any]:
    """Return the plan of a new transfer, or of the one that goes on here; another request is refused."""
    file = out / "plan.json"
    if not file.exists():
        if out.exists() and any(out.iterdir()):
            raise BadInput(f"{out} is not empty and holds no transfer.", "Choose another --out.")
        write_json(file, {"request": request, "decided": {}})
    plan: dict[str, Any] = read_json(file)
    found = plan["request"]
    differing = sorted(key for key in request if found.get(key) != request[key])
    if differing:
        changes = "; ".join(f"{key}: {found.get(key)!r} there, {request[key]!r} now" for key in differing)
        raise BadInput(f"{out} holds another transfer ({changes}).", "Choose another --out.")
    return plan


def _over_budget(name: str, plan: Mapping[str, Any], runs: Mapping[str, Run], budget: float | None) -> str:
    """Return why a candidate does not fit into what is left of the budget; a decision once taken stands."""
    if budget is None or not runs or plan["decided"].get(name) == "run":
        return ""
    spent = {done: _seconds(run) for done, run in runs.items()}
    unit = fmean(seconds / COST[done] for done, seconds in spent.items())
    left = budget - sum(spent.values())
    expected = unit * COST[name]
    return f"about {clock(expected)}, with {clock(max(0, left))} of the budget left" if expected > left else ""


def _seconds(run: Run) -> float:
    return sum(float(str(facts["seconds"])) for facts in run.summary())


def _signals(
    runs: Mapping[str, Run],
    inputs: Inputs,
    target_dev: str | Path | Mapping[str, Examples] | None,
    out: Path,
    watch: Watch,
) -> tuple[dict[str, float], str]:
    """Return what the choice goes by, in percent, and the rule in words."""
    if target_dev is not None:
        found = {
            name: evaluate(
                run, target_dev, split="dev", out=out / "selection" / name, only_missing=True, watch=watch
            ).mean("targets")
            for name, run in runs.items()
        }
        means = {name: mean.mean for name, mean in found.items() if mean}
        return means, "GOLD TARGET DEV DATA, as allowed: the mean over its target languages"
    labelled = {name: run for name, run in runs.items() if name != "distill"}
    if labelled:
        # Agreement with a teacher and a score against labels are no common scale.
        return {name: _dev(run) for name, run in labelled.items()}, (
            f"highest score on {inputs.source} dev data; no target label was read"
            + ("; distill was left aside, as it is judged by agreement with its teacher" if "distill" in runs else "")
        )
    return {name: _dev(run) for name, run in runs.items()}, "agreement with the task model; no label was read"


def _dev(run: Run) -> float:
    """Return the mean over seeds of the delivered weights' main score on dev data."""
    values = []
    for facts in cast("list[dict[str, Any]]", run.summary()):
        values.append(float(next(iter(facts["dev"][facts["selected"]].values()))))
    return fmean(values)


def _scores(
    runs: Mapping[str, Run],
    inputs: Inputs,
    out: Path,
    test: str | Path | Mapping[str, Examples],
    languages: Sequence[str] | None,
    watch: Watch,
) -> dict[str, Scores]:
    """Score every candidate, and the task model as it is where that is the baseline."""
    known = list(languages or (test if isinstance(test, Mapping) else languages_of(test, "test")))
    ordered = [x for x in known if x == inputs.source] + [x for x in known if x != inputs.source]
    found = {}
    if inputs.task_model and "finetune" not in runs:
        given = out / "runs" / "task-model"
        found["task-model"] = evaluate(inputs.task_model, test, ordered, out=given, only_missing=True, watch=watch)
        found["task-model"].source = inputs.source
    for name, run in runs.items():
        found[name] = evaluate(open_run(run.path), test, ordered, only_missing=True, watch=watch)
    return found


def _hindsight(chosen: str, scores: Mapping[str, Scores]) -> Json:
    """Return test scores, and what the choice cost against the one that test labels would have made."""
    means = {name: mean.mean for name, table in scores.items() if (mean := table.mean("targets"))}
    best = _best(means)
    return {
        "mean_of_targets": {name: round(value, 2) for name, value in means.items()},
        "best_in_hindsight": best,
        "points_below_it": round(means[best] - means[chosen], 2) if best and chosen in means else None,
        "scores": {name: table.to_dict() for name, table in scores.items()},
    }


def _best(means: Mapping[str, float]) -> str | None:
    return max(means, key=lambda name: means[name]) if means else None


def _copy_card(model: Path, to: Path) -> None:
    if (model / "README.md").exists():
        with atomic(to / "README.md") as draft:
            shutil.copyfile(model / "README.md", draft)
