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
from typing import Any

from crosslift.data import languages_of
from crosslift.data.examples import Examples
from crosslift.data.storage import Json, atomic, drafts_of, read_json, write_json, write_text
from crosslift.errors import BadInput, CrossliftError, Unfinished
from crosslift.measure.scores import Scores
from crosslift.measure.significance import format_p
from crosslift.models.load import load_config
from crosslift.runs.adjust import Bitexts
from crosslift.runs.card import CARD, choice_section, write_card
from crosslift.runs.compare import compare
from crosslift.runs.distill_data import Text
from crosslift.runs.evaluate import evaluate
from crosslift.runs.fit import Run, open_run
from crosslift.runs.progress import Silent, Watch, clock
from crosslift.runs.transfer_candidates import candidates, cost, run_candidate
from crosslift.runs.transfer_choice import BASELINE, Choice, by_gold, choose
from crosslift.runs.transfer_igap import add_gaps
from crosslift.runs.transfer_inputs import Inputs

SURE = 0.05
"""Below this p-value of a paired test a difference is called one."""

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
            spread = f" ± {mean.sd:.1f}" if mean and mean.sd is not None else ""
            shown = f"{mean.mean:.1f}{spread}" if mean else "–"
            lines.append(f"{name:<{width}}{''.join(cells)}   {shown}{self._remark(name)}")
        return "\n".join(lines)

    def _remark(self, name: str) -> str:
        """Return how a candidate compares with the baseline, and its size where it is a small student."""
        size = ""
        weights = self.runs[name] / "model" / "model.safetensors" if name in self.runs else None
        if name.endswith("+student") and weights and weights.exists():
            size = f"   {weights.stat().st_size / 1e6:.1f} MB"
        if name == BASELINE or BASELINE not in self.runs or name not in self.runs:
            return size
        table = self.scores[name]
        if not table.targets:
            return size
        try:
            found = compare(self.runs[name], self.runs[BASELINE], data=table.task, languages=table.targets).pooled
        except CrossliftError:  # such as one seed against three
            return size
        way = "better" if found.difference > 0 else "worse"
        sure = f"{way} than {BASELINE}, {format_p(found.p_value)}"
        return f"   {sure if found.p_value < SURE else f'no sure difference from {BASELINE}'}{size}"

    @property
    def best_in_hindsight(self) -> str | None:
        """The system with the best mean over target languages on the test data; `None` without test data."""
        return _best({name: mean.mean for name, table in self.scores.items() if (mean := table.mean("targets"))})

    def to_dict(self) -> Json:
        """Return what `transfer.json` holds."""
        return read_json(self.path / "transfer.json")


def transfer(
    *,
    out: str | Path,
    model: str | Path = "mini-x",
    data: str | Path | Examples | None = None,
    dev: str | Path | Examples | None = None,
    source: str = "en",
    bitext: Bitexts | None = None,
    task_model: str | Path | None = None,
    base: str | Path | None = None,
    connector: str | Path | None = None,
    text: Mapping[str, Text] | None = None,
    synonyms: str | Path | None = None,
    test: str | Path | Mapping[str, Examples] | None = None,
    languages: Sequence[str] | None = None,
    methods: Sequence[str] | None = None,
    budget: float | None = None,
    igap: bool = False,
    target_dev: str | Path | Mapping[str, Examples] | None = None,
    allow_target_dev: bool = False,
    seeds: Sequence[int] = (1,),
    limit: int | None = None,
    reading: Mapping[str, object] | None = None,
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
        bitext: Target language -> sentence pairs, source first. A fifth (at most 200) is kept to judge by.
        task_model: A trained source-language model, for want of labels.
        base: The public model that the task model was tuned from, for `plug`.
        connector: A trained connector (run of `fit plug`), for `plug`; with it no base and no text are needed.
        text: Language -> unlabelled text: what the task model speaks about, what students read. A tenth is kept to
            judge by.
        synonyms: File of source-language synonyms, for `ear` and `robust`; default: neighbours in the encoder's
            embeddings for `ear`, and worst-case noise in place of synonyms for `robust`.
        test: Data to score every candidate on, after the choice is made.
        languages: Of the test data; default: all.
        methods: Candidates, such as `ear` or chains such as `adjust+ear+student`; default: all that the inputs allow.
            The plain baseline always runs with labels.
        budget: Seconds of training; candidates that would exceed it are left out, and named.
        igap: Also measure random-label IGAP of the candidates that learn from labels, on the kept sentence pairs.
        target_dev: Gold dev data of target languages; refused unless `allow_target_dev`.
        allow_target_dev: Choose by `target_dev`; the result says so.
        seeds: One run of each candidate for each.
        limit: Use at most so many training examples.
        reading: Further arguments of `crosslift.load` for `data`, `dev`, `test`, `target_dev` and tables of text.
        watch: Who is told about progress.
        settings: Settings of the fits with labels (`epochs`, `learning_rate`, …).
    """
    watch, out = watch or Silent(), Path(out)
    if target_dev is not None and not allow_target_dev:
        raise BadInput(
            "Gold labels of target languages are not used to choose a model.",
            "Leave out --target-dev, or allow it explicitly with --allow-target-dev.",
        )
    if igap and not (bitext and data is not None):
        raise BadInput("Random-label IGAP needs sentence pairs and labels.", "Give --bitext and --data, or no --igap.")
    task, words, mono, joint = (None if x is None else str(x) for x in (task_model, synonyms, base, connector))
    inputs = Inputs(
        str(model), data, dev, source, bitext or {}, task, text or {}, words, limit, tuple(seeds), mono, joint,
        dict(reading or {}),
    )  # fmt: skip
    inputs.check()
    wanted, skipped = candidates(inputs.have(), methods)
    settings = {"learning_rate": _rate(inputs.model), **settings}
    asked = {name: _number(value) for name, value in settings.items()}
    request = {**inputs.request(), "methods": wanted, "settings": asked, "budget": budget, "igap": igap}
    plan = _open_plan(out, request)
    watch.say(f"methods   {', '.join(wanted)}")
    runs, failed = _run_all(wanted, skipped, inputs, plan, out, settings, budget, watch)
    choice = _gold(runs, inputs, target_dev, out, watch) if target_dev is not None else None
    choice = choice or choose(runs, inputs, out / "selection", watch)
    signals = choice.signals
    if igap:
        reason = _over_budget("igap", plan, runs, budget, 0.5 * len(runs), out)
        if reason:
            skipped["igap"] = reason
        else:
            _decide("igap", plan, out)
            signals = add_gaps(signals, runs, inputs, out / "selection" / "igap", watch)
    chosen = choice.chosen
    with atomic(out / "model") as draft:
        shutil.copytree(runs[chosen].model, draft)
    about = choice_section(chosen, choice.rule, signals)
    _write_card(runs[chosen].model, about, out / "model")
    record: Json = {"chosen": chosen, "rule": choice.rule, "target_labels_read": target_dev is not None}
    record |= {"signals": signals, "aside": choice.aside, "failed": failed, "skipped": skipped}
    record["runs"] = {name: str(run.path) for name, run in runs.items()}
    named = str(test) if isinstance(test, str | Path) else None
    record["asked"] = {"test": named, "languages": list(languages) if languages else None}
    write_json(out / "transfer.json", record)
    scores = _scores(runs, inputs, out, test, languages, watch) if test is not None else {}
    if scores:
        write_json(out / "transfer.json", {**record, "test": _hindsight(chosen, scores)})
        for folder in runs[chosen].folders:
            write_card(folder)
        _write_card(runs[chosen].model, about, out / "model")
    paths = {name: run.path for name, run in runs.items()}
    return Transferred(out, out / "model", chosen, choice.rule, paths, scores, failed, skipped)


def _run_all(
    wanted: Sequence[str],
    skipped: dict[str, str],
    inputs: Inputs,
    plan: dict[str, Any],
    out: Path,
    settings: Mapping[str, object],
    budget: float | None,
    watch: Watch,
) -> tuple[dict[str, Run], dict[str, str]]:
    """Run the candidates that the budget allows; return those that succeeded, and why others failed."""
    runs: dict[str, Run] = {}
    failed: dict[str, str] = {}
    for name in wanted:
        reason = _over_budget(name, plan, runs, budget, cost(name), out)
        if reason:
            skipped[name] = reason
            watch.say(f"left out  {name}: {reason}")
            continue
        _decide(name, plan, out)
        try:
            runs[name] = run_candidate(name, inputs, out / "runs", settings, watch)
        except Unfinished:
            raise
        except (CrossliftError, OSError, RuntimeError, ValueError, ArithmeticError) as error:
            failed[name] = str(error).splitlines()[0] if str(error) else type(error).__name__
            watch.say(f"failed    {name}: {failed[name]}")
    if not runs:
        reasons = "; ".join(f"{name}: {reason}" for name, reason in failed.items())
        raise CrossliftError(f"No candidate succeeded ({reasons}).")
    return runs, failed


def _number(value: object) -> object:
    """Return a setting as a number where it is one: the command line hands over text."""
    try:
        number = float(str(value))
    except ValueError:
        return value
    return value if isinstance(value, bool) else int(number) if number.is_integer() else number


def _rate(model: str) -> float:
    width = int(getattr(load_config(model), "hidden_size", SMALL))
    return 3e-4 if width < SMALL else 3e-5


def _open_plan(out: Path, request: Json) -> dict[str, Any]:
    """Return the plan of a new transfer, or of the one that goes on here; another request is refused."""
    file = out / "plan.json"
    if not file.exists():
        # A kill at the very start may have left a draft of the plan behind.
        if out.exists() and set(out.iterdir()) - set(drafts_of(file)):
            raise BadInput(f"{out} is not empty and holds no transfer.", "Choose another --out.")
        write_json(file, {"request": request, "decided": {}})
    plan: dict[str, Any] = read_json(file)
    found = plan["request"]
    differing = sorted(key for key in request if found.get(key) != request[key])
    if differing:
        changes = "; ".join(f"{key}: {found.get(key)!r} there, {request[key]!r} now" for key in differing)
        raise BadInput(f"{out} holds another transfer ({changes}).", "Choose another --out.")
    return plan


def _decide(name: str, plan: dict[str, Any], out: Path) -> None:
    plan["decided"][name] = "run"
    write_json(out / "plan.json", plan)


def _over_budget(
    name: str, plan: Mapping[str, Any], runs: Mapping[str, Run], budget: float | None, units: float, out: Path
) -> str:
    """Return why a candidate does not fit into what is left of the budget; a decision once taken stands."""
    if budget is None or not runs or plan["decided"].get(name) == "run":
        return ""
    unit = fmean(_seconds(run) / cost(done) for done, run in runs.items())
    # Everything that was trained: adjusted encoders, connectors and the teachers of students, too.
    finished = [*out.glob("runs/*/finished.json"), *out.glob("runs/*/seed-*/finished.json")]
    left = budget - sum(float(str(read_json(file).get("seconds") or 0)) for file in finished)
    expected = unit * units
    return f"about {clock(expected)}, with {clock(max(0, left))} of the budget left" if expected > left else ""


def _seconds(run: Run) -> float:
    return sum(float(str(facts["seconds"])) for facts in run.summary())


def _gold(
    runs: Mapping[str, Run],
    inputs: Inputs,
    target_dev: str | Path | Mapping[str, Examples],
    out: Path,
    watch: Watch,
) -> Choice:
    means = {}
    for name, run in runs.items():
        where = out / "selection" / "gold" / name
        found = evaluate(
            run, target_dev, split="dev", out=where, only_missing=True, reading=inputs.reading, watch=watch
        )
        found.source = inputs.source
        mean = found.mean("targets")
        if mean:
            means[name] = mean.mean
    if not means:
        raise BadInput("The gold dev data has no target language.", f"It is all in {inputs.source}, the source.")
    return by_gold(means)


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
        found["task-model"] = evaluate(
            inputs.task_model, test, ordered, out=given, only_missing=True, reading=inputs.reading, watch=watch
        )
    for name, run in runs.items():
        found[name] = evaluate(
            open_run(run.path), test, ordered, only_missing=True, reading=inputs.reading, watch=watch
        )
    for table in found.values():
        table.source = inputs.source
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


def _write_card(model: Path, about: str, to: Path) -> None:
    """Write the card of the chosen run with how it was chosen among candidates."""
    if (model / CARD).exists():
        write_text(to / CARD, f"{(model / CARD).read_text(encoding='utf-8')}\n{about}")
