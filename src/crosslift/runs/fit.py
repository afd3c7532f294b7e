"""Fit a method: data and a model in, a run folder with a Hugging Face model out."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from crosslift.data import catalog, check_labels, load, splits_of
from crosslift.data.examples import Examples
from crosslift.errors import BadInput
from crosslift.methods import method_class, method_settings
from crosslift.models.load import load_model, load_tokenizer
from crosslift.runs.deliver import average_models, deliver
from crosslift.runs.evaluate import dev_scorer
from crosslift.runs.folder import RunFolder, find_runs
from crosslift.runs.plan import Plan, describe_plan
from crosslift.runs.progress import Silent, Watch, clock
from crosslift.runs.settings import Execution, Optimisation, Selection, sort_settings
from crosslift.runs.train import make_accelerator, train
from crosslift.tasks import TASKS, Task, task_for

if TYPE_CHECKING:
    from accelerate import Accelerator

    from crosslift.runs.adjust import Bitexts, Pairing
    from crosslift.runs.continual import Adjustment, Continual


@dataclass(frozen=True)
class Run:
    """A finished run, or a group of runs that differ in their seed."""

    path: Path
    folders: list[RunFolder]

    @property
    def model(self) -> Path:
        """The delivered model (of the first seed, where there are several)."""
        return self.folders[0].model

    def __repr__(self) -> str:
        seeds = [folder.config["seed"] for folder in self.folders]
        return f"Run({self.path}, {self.folders[0].config['method']}, seeds {', '.join(map(str, seeds))})"

    def summary(self) -> list[dict[str, object]]:
        """Return one entry per seed: its own scores by selection rule (see `table`), steps, seconds."""
        return [folder.summary for folder in self.folders]

    def table(self) -> str:
        """Return the scores that runs have of themselves by seed and selection rule, as text.

        They are on source dev data; of a student, its agreement with the teacher on held-out text.
        """
        lines = []
        for folder in self.folders:
            facts = folder.summary
            dev = cast("dict[str, dict[str, float]]", facts["dev"])
            distilled = all("agreement" in scores for scores in dev.values())
            what = "agreement with the teacher on held-out text" if distilled else "source dev"
            scores = "   ".join(f"{name} {next(iter(scores.values())):.1f}" for name, scores in dev.items())
            lines.append(
                f"seed {folder.config['seed']!s:<4} {what}:  {scores}   delivered: {facts['selected']}"
                f"   {facts['steps']} steps, {clock(float(str(facts['seconds'])))}"
            )
        return "\n".join(lines)


def fit(
    method: str = "finetune",
    *,
    model: str | Path,
    data: str | Path | Examples,
    out: str | Path,
    dev: str | Path | Examples | None = None,
    labels: Sequence[str] | None = None,
    source: str = "en",
    seeds: Sequence[int] = (1,),
    limit: int | None = None,
    average_runs: bool = False,
    with_adjustment: Bitexts | None = None,
    overwrite: bool = False,
    watch: Watch | None = None,
    **settings: object,
) -> Run:
    """Train a method on source-language data; started again with the same arguments, it goes on.

    Args:
        method: Name of the method (`crosslift ls methods`).
        model: Encoder by folder, embedded name or hub id.
        data: Training data: examples, a file, or a catalog name.
        out: Run folder; with several seeds it holds `seed-1`, `seed-2`, …
        dev: Source-language dev data; default: the data set's own dev split, or a tenth of the training data.
        labels: Label names in the order of the model's outputs; default: those of the data.
        source: Language of the training data.
        seeds: One run each.
        limit: Use at most so many training examples.
        average_runs: Also deliver the average of the runs' weights; the runs then share one new head.
        with_adjustment: Continual learning: target language -> sentence pairs that join every step (see `adjust`).
        overwrite: Replace a run that is there already.
        watch: Who is told about progress.
        settings: Anything of `Optimisation`, `Execution`, `Selection`, the task or the method, by name.

    Returns:
        The run; `run.model` is a Hugging Face folder.
    """
    watch = watch or Silent()
    out = Path(out)
    whole_set, train_set, dev_set = _source_data(data, dev, source, limit, watch, labels)
    groups = [Optimisation, Execution, Selection, method_settings(method), *_adjusting(with_adjustment)]
    *kept, task_options = sort_settings([*groups, TASKS[train_set.kind]], settings)
    optimisation, execution, selection, own, *adjusting = (cls(**kw) for cls, kw in zip(groups, kept, strict=True))
    adjustment = _adjustment(with_adjustment, source, *adjusting) if with_adjustment else None
    known = catalog.find(train_set.name).labels if catalog.is_known(train_set.name) else ()
    task = task_for(whole_set, labels or known or None, **_lengths(train_set.kind, str(model), task_options))
    accelerator = make_accelerator(execution)
    seeds = list(dict.fromkeys(seeds))
    folders = []
    for seed in seeds:
        config = {
            "method": method,
            "model": str(model),
            "data": train_set.name,
            "dev": dev_set.name,
            "source": source,
            "seed": seed,
            "head_seed": seeds[0] if average_runs else seed,
            "limit": limit,
            "task": asdict(task),  # type: ignore[call-overload]
            "kind": task.kind,
            "optimisation": asdict(optimisation),
            "selection": asdict(selection),
            "settings": asdict(own),
            "fingerprint": fingerprint(train_set, dev_set),
            **({"with_adjustment": adjustment.config()} if adjustment else {}),
        }
        folder = RunFolder(out if len(seeds) == 1 else out / f"seed-{seed}")
        if accelerator.is_main_process:
            folder = RunFolder.start(folder.path, config, overwrite=overwrite)
        accelerator.wait_for_everyone()
        folders.append(folder)
        if folder.done:
            watch.say(f"{folder.path} is done already.")
            continue
        job = _Job(method, str(model), task, train_set, dev_set, optimisation, execution, selection, own, adjustment)
        if accelerator.is_main_process:
            with folder.locked():
                job.run(folder, config, accelerator, watch)
        else:
            job.run(folder, config, accelerator, Silent())
        accelerator.wait_for_everyone()
    if average_runs and accelerator.is_main_process:
        average_models([folder.model for folder in folders], out / "average" / "model")
    return Run(out, folders)


def _adjusting(bitext: Bitexts | None) -> list[type]:
    """Return the settings that adjustment during fine-tuning adds."""
    if not bitext:
        return []
    from crosslift.runs.continual import SETTINGS  # which builds on this module

    return list(SETTINGS)


def _adjustment(bitext: Bitexts, source: str, settings: Continual, pairing: Pairing) -> Adjustment:
    from crosslift.runs.continual import read_adjustment

    return read_adjustment(bitext, source, settings, pairing)


def _lengths(kind: str, model: str, options: dict[str, Any]) -> dict[str, Any]:
    """Shorten a task's default lengths to what the model can read; lengths that were asked for stand."""
    defaults = {setting.name: setting.default for setting in fields(TASKS[kind])}
    longest = options.get("max_length", min(int(str(defaults["max_length"])), load_tokenizer(model).model_max_length))
    if "stride" in defaults:
        options = {"stride": min(int(str(defaults["stride"])), longest // 3), **options}
    return {"max_length": longest, **options}


@dataclass(frozen=True)
class _Job:
    """One seed of a fit."""

    method: str
    model: str
    task: Task
    train_set: Examples
    dev_set: Examples
    optimisation: Optimisation
    execution: Execution
    selection: Selection
    settings: object
    adjustment: Adjustment | None = None

    def run(self, folder: RunFolder, config: dict[str, object], accelerator: Accelerator, watch: Watch) -> None:
        seed = int(str(config["seed"]))
        tokenizer = load_tokenizer(self.model)
        model = load_model(self.model, self.task, head_seed=int(str(config["head_seed"])))
        method = method_class(self.method)(self.settings, self.task, tokenizer, self.train_set)
        if hasattr(method, "prepare"):
            method.prepare(model, seed)
        lines: list[str] = []
        plan = Plan(method, self.optimisation, self.execution.max_tokens, seed)
        if self.adjustment:
            plan, lines = self.adjustment.join(
                plan, self.method, self.model, tokenizer, self.execution, accelerator.device
            )
        lines += describe_plan(plan, model, self.train_set, self.dev_set, self.execution, accelerator.device)
        for line in lines:
            watch.say(line)
            folder.note(line)
        score = dev_scorer(self.task, tokenizer, self.dev_set)
        trained = train(
            model,
            plan,
            folder,
            self.optimisation,
            self.execution,
            seed=seed,
            evaluate=score,
            evaluations=self.selection.evaluations,
            average_from=self.selection.average_from,
            accelerator=accelerator,
            watch=watch,
            label=self.method,
        )
        if accelerator.is_main_process:
            dev = self.dev_set
            deliver(
                folder,
                model,
                tokenizer,
                trained,
                score,
                select=self.selection.select,
                selected_on=f"source dev ({dev.name}, {dev.language}); no target data was read",
                steps=plan.steps,
            )


def _source_data(
    data: str | Path | Examples,
    dev: str | Path | Examples | None,
    source: str,
    limit: int | None,
    watch: Watch,
    labels: Sequence[str] | None = None,
) -> tuple[Examples, Examples, Examples]:
    """Load the source-language data: all of it, which has every label, then what is trained on, and dev data.

    Without dev data a tenth is set apart.
    """
    train_set = whole_set = data if isinstance(data, Examples) else load(data, language=source, split="train")
    if train_set.labels is None:
        raise BadInput(f"{train_set.name} has no labels; this method learns from labels.")
    if dev is None and isinstance(data, str) and catalog.is_known(data) and "dev" in splits_of(data):
        dev = data
    if dev is None:
        parts = train_set.split({"train": 0.9, "dev": 0.1})
        train_set, dev = parts["train"], parts["dev"]
        if not len(train_set) or not len(dev):
            raise BadInput(f"{train_set.name} is too small to set a tenth apart for dev.", "Give dev data with --dev.")
        watch.say("No dev data: a tenth of the training data is set apart for it.")
    dev_set = dev if isinstance(dev, Examples) else load(dev, language=source, split="dev")
    check_labels([whole_set, dev_set], labels)
    return whole_set, (train_set.take(limit) if limit else train_set), dev_set


def fingerprint(*sets: Examples) -> str:
    """Return a short digest of examples, so that a run never goes on with other data."""
    digest = hashlib.blake2b(digest_size=12)
    for examples in sets:
        for columns in zip(examples.ids, examples.texts, examples.pairs or examples.ids, strict=True):
            digest.update("\x1f".join(columns).encode())
        digest.update(repr(examples.labels).encode())
    return digest.hexdigest()


def open_run(path: str | Path) -> Run:
    """Open a finished run or group of runs."""
    folders = find_runs(path)
    if not folders:
        raise BadInput(f"{path} is not a run folder.", "crosslift ls runs shows the runs here.")
    unfinished = [folder for folder in folders if not folder.done]
    if unfinished:
        raise BadInput(f"{unfinished[0].path} is not finished.", "Start its command again to finish it.")
    return Run(Path(path), folders)
