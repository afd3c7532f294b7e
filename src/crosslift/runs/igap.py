"""Measure IGAP: fine-tune, look at the checkpoints as they come, keep their errors.

A system is a model, a fine-tuning method and a source language; several of each are compared in one call. Every run
(one seed and one learning rate of a system) goes through the one training loop, which shows each n-th step's weights
to a `Gate`; no checkpoint is written. With `out` a run's errors are kept in a small file of its own, so that a call
that was stopped goes on, and several processes may share the work.
"""

from __future__ import annotations

import hashlib
import json
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any

from crosslift.data import catalog
from crosslift.data.examples import Examples, concatenate
from crosslift.data.parallel import corrupt_labels, random_labels, require_share
from crosslift.data.storage import check_folder, read_json, write_json
from crosslift.errors import BadInput, Unfinished, nearest
from crosslift.measure.igap import Errors, bands, joined
from crosslift.measure.igap_result import IgapResult
from crosslift.methods import METHODS, method_class, method_settings
from crosslift.models.load import load_config, load_model, load_tokenizer, locate
from crosslift.runs.fit import fingerprint
from crosslift.runs.folder import RunFolder
from crosslift.runs.gated import Gate, Measured, Passes
from crosslift.runs.igap_data import held_out_sets, parallel_sets
from crosslift.runs.igap_settings import Training
from crosslift.runs.plan import Plan
from crosslift.runs.progress import Silent, Watch
from crosslift.runs.settings import Execution, sort_settings
from crosslift.runs.train import make_accelerator, train
from crosslift.tasks import TASKS, Task, task_for

if TYPE_CHECKING:
    from accelerate import Accelerator
    from torch import nn

    from crosslift.measure.igap import Band

VARIANTS = ("gaussian", "xtune", "adv", "rs-rp", "rs-da")
"""Kinds of `robust` that may be named like methods."""
_OF_A_MODEL = (".safetensors", ".json", ".txt", ".model")


def igap(
    models: str | Path | Sequence[str | Path],
    data: str | Path | Mapping[str, Examples],
    *,
    sources: str | Sequence[str] | None = "en",
    targets: Sequence[str] | None = None,
    methods: str | Sequence[str] = "finetune",
    seeds: Sequence[int] = (1, 2, 3),
    rates: Sequence[float] | None = None,
    errors: Sequence[float | Band] = (0.0,),
    epsilon: float = 0.001,
    every: int = 10,
    candidates: int | None = 10,
    split: str | None = "dev",
    held_out: str | Mapping[str, Examples] | None = None,
    labels: str = "gold",
    noise: float = 0.0,
    extra: Examples | None = None,
    limit: int | None = None,
    out: str | Path | None = None,
    whole: bool = False,
    reading: Mapping[str, object] | None = None,
    watch: Watch | None = None,
    **settings: Any,  # noqa: ANN401  checked by name and type below
) -> IgapResult:
    """Measure how much of what is learnt in one language is lost in others, at equal training error.

    Args:
        models: Encoders by folder, embedded name or hub id.
        data: Parallel data: catalog name, file with `{lang}`, or language -> examples.
        sources: Languages to train in, each by itself; `None`: all that are measured.
        targets: The same for every source, but for itself; default: all other languages of the data.
        methods: Names of methods or of `robust`'s variants, with settings as in `ear:alpha=1,beta=0`.
        seeds: One run each, per learning rate.
        rates: Learning rates, pooled; default 2e-5, or 3e-4 for an encoder narrower than 512.
        errors: The training errors E′, as shares of the items; or bands, each with its own ε.
        epsilon: Width ε of a band that has none of its own.
        every: Steps between checkpoints.
        candidates: Look at so many checkpoints per run and band, the first ones, and no further (without held-out data
            a run then stops); `None`: at all of them, as in the paper.
        split: Part of the data whose items are trained on and measured.
        held_out: Part, file with `{lang}` or examples for scores, transfer gap and intralingual gap at the end of
            each run.
        labels: `gold`, or `random`: a fair coin per item, drawn anew for each seed; the data then needs none.
        noise: Share of items whose gold label is replaced by a random one.
        extra: More training rows in the source language, which are not measured.
        limit: Use at most so many items, and so many held-out examples per language.
        out: Folder for the runs' errors; what is there already is not run again.
        whole: Evaluate everything at every checkpoint instead of what the bands need.
        reading: Further arguments of `crosslift.load`.
        watch: Who is told about progress.
        settings: Anything of `Training`, `Execution` or the task, by name.
    """
    watch = watch or Silent()
    if labels not in ("gold", "random"):
        raise BadInput(f'Labels are gold or random, not "{labels}".{nearest(labels, ("gold", "random"))}')
    targets = [targets] if isinstance(targets, str) else targets
    # What is named twice is run and counted once.
    names = list(dict.fromkeys([str(models)] if isinstance(models, (str, Path)) else map(str, models)))
    from_languages = list(dict.fromkeys([sources] if isinstance(sources, str) else sources or ()))
    specs = list(dict.fromkeys(spec.strip() for spec in ([methods] if isinstance(methods, str) else methods)))
    seeds = list(dict.fromkeys(seeds))
    if not seeds:
        raise BadInput("IGAP needs one seed or more.", "Write them as 1,2,3 or 1-5.")
    for spec in specs:
        _method(spec)
    for option, value in (("every", every), ("candidates", candidates), ("limit", limit)):
        if value is not None and value < 1:
            raise BadInput(f"--{option} must be at least 1, not {value}.")
    if out:
        check_folder(out, "--out")
    if extra is not None and labels == "random":
        raise BadInput("Extra training rows have labels of their own; random labels go without them.")
    if extra is not None and len(from_languages) != 1:
        raise BadInput("Extra training rows are in one language; give one source.")
    if held_out is not None and labels == "random":
        raise BadInput("Nobody can foretell random labels of held-out data; leave out --held-out.")
    if noise and labels == "random":
        raise BadInput("Random labels are noise already; leave out --noise.")
    require_share(noise)
    asked = bands(errors, epsilon)
    reading = dict(reading or {})
    wanted = None if targets is None else list(dict.fromkeys([*from_languages, *targets]))
    sets = parallel_sets(data, wanted, split, limit, reading, labelled=labels == "gold", watch=watch)
    items = len(next(iter(sets.values())))
    for band in asked:
        if not band.counts(items):
            raise BadInput(
                f"No number of wrong items, of {items:,}, is a training error from {band.error:g} to "
                f"{band.error + band.epsilon:g}.",
                f"Make --epsilon wider; one item is {1 / items:.2g}.",
            )
    from_languages = from_languages or list(sets)
    for source in from_languages:
        if source not in sets:
            raise BadInput(f'The data has no "{source}".{nearest(source, sets)}', f"There is {', '.join(sets)}.")
    apart = held_out_sets(data, held_out, list(sets), reading)
    apart = {language: examples.take(limit) if limit else examples for language, examples in apart.items()}
    for source in (x for x in from_languages if x in apart):
        trained = set(_content(sets[source]))
        if seen := sum(row in trained for row in _content(apart[source])):
            watch.say(f"{seen:,} of {len(apart[source]):,} held-out examples in {source} are among those trained on.")
    all_targets = list(sets) if targets is None else list(dict.fromkeys(targets))
    aims = {source: tuple(x for x in all_targets if x != source) for source in from_languages}
    for source, aimed in aims.items():
        if not aimed:
            raise BadInput(f'No target is left for the source "{source}".', "Name another one under --languages.")
    kind = "classification" if labels == "random" else next(iter(sets.values())).kind
    if kind not in ("classification", "tagging"):
        raise BadInput(f"IGAP is for classification and tagging, not for {kind} data.", "Or use random labels.")
    if noise and kind != "classification":
        raise BadInput("Label noise is for classification.")
    given, execution_given, task_given = sort_settings([Training, Execution, TASKS[kind]], settings)
    if "learning_rate" in given:
        if rates:
            raise BadInput("Give either rates, or learning_rate for a single one.")
        rates = [float(given["learning_rate"])]
    # Of all models before the first is trained: what is wrong with the last must not show hours later.
    ways = {
        model: [Training(**{**given, "learning_rate": float(x)}) for x in dict.fromkeys(rates or default_rates(model))]
        for model in names
    }
    parts: list[tuple[_System, Errors]] = []
    spent = Passes()
    accelerator = make_accelerator(Execution(**execution_given))
    for model in names:
        task = _task(model, sets, labels, task_given)
        measured = _Tokenised(model, task, sets, apart, labels)
        for spec, source, seed, optimisation in product(specs, from_languages, seeds, ways[model]):
            system = _System(model, spec, source)
            run = _Run(
                system, aims[source], measured, optimisation, Execution(**execution_given), asked, seed, every,
                candidates, noise, extra, whole,
            )  # fmt: skip
            found, passes = run.kept(Path(out) if out else None, accelerator, watch)
            parts.append((system, found))
            spent.texts, spent.calls = spent.texts + passes.texts, spent.calls + passes.calls
    systems = {system: [found for other, found in parts if other == system] for system, _ in parts}
    shown = _names(list(systems))
    merged = {shown[system]: replace(joined(found), system=shown[system]) for system, found in systems.items()}
    about = f"{_data_name(data, sets)}, {items:,} items, {labels} labels"
    about += f", noise {noise:g}" if noise else ""
    return IgapResult(merged, asked, about, spent.texts, spent.calls)


def default_rates(model: str | Path) -> tuple[float, ...]:
    """Return a learning rate that fits the encoder's width: the paper's 2e-5, or 3e-4 for small ones."""
    return (3e-4,) if load_config(model).hidden_size < 512 else (2e-5,)


def method_spec(spec: str) -> tuple[str, dict[str, str]]:
    """Read a method with settings: `ear`, `gaussian` (a variant of `robust`), `ear:alpha=1,beta=0`."""
    name, _, rest = spec.partition(":")
    own = {}
    for part in filter(None, rest.split(",")):
        key, sign, value = part.partition("=")
        if not sign:
            raise BadInput(f'Settings of a method are name=value, not "{part}", in {spec}.')
        own[key.strip().replace("-", "_")] = value.strip()
    if name in VARIANTS:
        return "robust", {"variant": name, **own}
    if name not in METHODS:
        known = [*METHODS, *VARIANTS]
        raise BadInput(f'There is no method "{name}".{nearest(name, known)}', f"Methods: {', '.join(known)}.")
    return name, own


@dataclass(frozen=True)
class _System:
    model: str
    method: str
    source: str


def _names(systems: Sequence[_System]) -> dict[_System, str]:
    """Name systems by what they differ in."""
    varying = [field for field in ("model", "method", "source") if len({getattr(s, field) for s in systems}) > 1]
    short = {s: Path(s.model).name for s in systems}
    if len(set(short.values())) < len({s.model for s in systems}):
        short = {s: s.model for s in systems}
    said = {s: {"model": short[s], "method": s.method, "source": f"from {s.source}"} for s in systems}
    return {s: " ".join(said[s][field] for field in varying or ["model"]) for s in systems}


class _Tokenised:
    """The parallel sets of a call, tokenised once for a model and used by all of its runs."""

    def __init__(
        self,
        model: str | Path,
        task: Task,
        sets: Mapping[str, Examples],
        held_out: Mapping[str, Examples],
        labels: str,
    ) -> None:
        self.model, self.task, self.labels = model, task, labels
        self.tokenizer = load_tokenizer(model)
        self.weights = _weights(str(model))
        self.sets = dict(sets) if labels == "gold" else random_labels(sets, 0)
        self.parallel = {language: Measured(x, task, self.tokenizer) for language, x in self.sets.items()}
        self.held_out = {language: Measured(x, task, self.tokenizer) for language, x in held_out.items()}
        # By language, not in the order of a call: one that asks for all sources finds the runs of each.
        self.digest = fingerprint(*(part[language] for part in (sets, held_out) for language in sorted(part)))

    def labelled(self, seed: int, noise: float) -> tuple[dict[str, Examples], dict[str, Measured]]:
        """Return examples and tokenised sets with the labels of one run."""
        sets = random_labels(self.sets, seed) if self.labels == "random" else self.sets
        if noise:
            sets = corrupt_labels(sets, noise, self.task.labels, seed)
        if sets is self.sets:
            return self.sets, self.parallel
        return sets, {language: self.parallel[language].relabelled(x) for language, x in sets.items()}


class _Enough(Exception):
    """Every band has its candidates: the run need not go on."""


@dataclass(frozen=True)
class _Run:
    """One seed and one learning rate of a system."""

    system: _System
    targets: tuple[str, ...]
    data: _Tokenised
    optimisation: Training
    execution: Execution
    asked: tuple[Band, ...]
    seed: int
    every: int
    candidates: int | None
    noise: float
    extra: Examples | None
    whole: bool

    def config(self) -> dict[str, Any]:
        """Return all that decides the outcome."""
        return {
            **asdict(self.system),
            "weights": self.data.weights,
            "seed": self.seed,
            "optimisation": asdict(self.optimisation),
            "asked": [list(band) for band in self.asked],
            "every": self.every,
            "candidates": self.candidates,
            "labels": self.data.labels,
            "noise": self.noise,
            "whole": self.whole,
            "languages": sorted({self.system.source, *self.targets}),
            "task": asdict(self.data.task),  # type: ignore[call-overload]
            "data": self.data.digest,
            "extra": fingerprint(self.extra) if self.extra is not None else None,
        }

    def kept(self, out: Path | None, accelerator: Accelerator, watch: Watch) -> tuple[Errors, Passes]:
        """Return the run's errors: from its file, or measured now and written there."""
        config = json.loads(json.dumps(self.config()))
        digest = hashlib.blake2b(json.dumps(config, sort_keys=True).encode(), digest_size=6).hexdigest()
        name = f"{Path(self.system.model).name}.{method_spec(self.system.method)[0]}.{self.system.source}"
        file = out / f"{name}.seed-{self.seed}.{digest}.json" if out else None
        if file and file.exists():
            found = read_json(file)
            # Another call may have named the targets in another order.
            errors = replace(Errors.from_dict(found["errors"]), targets=self.targets)  # type: ignore[arg-type]
            return errors, Passes(**found["passes"])  # type: ignore[arg-type]
        errors, passes = self.measure(accelerator, watch)
        if file:
            file.parent.mkdir(parents=True, exist_ok=True)
            write_json(file, {"config": config, "passes": asdict(passes), "errors": errors.to_dict()})
        return errors, passes

    def measure(self, accelerator: Accelerator, watch: Watch) -> tuple[Errors, Passes]:
        """Train, and look at every n-th step."""
        sets, measured = self.data.labelled(self.seed, self.noise)
        source = self.system.source
        rows = sets[source] if self.extra is None else concatenate([sets[source], self.extra])
        task, tokenizer = self.data.task, self.data.tokenizer
        method_type, own = _method(self.system.method)
        method = method_type(own, task, tokenizer, rows)
        model = load_model(self.system.model, task, head_seed=self.seed)
        if hasattr(method, "prepare"):
            method.prepare(model, self.seed)
        plan = Plan(method, self.optimisation, self.execution.max_tokens, self.seed)
        looks = max(1, round(plan.steps / self.every))
        plan.steps = looks * self.every
        gate = Gate(
            measured[source],
            {target: measured[target] for target in self.targets},
            self.asked,
            candidates=self.candidates,
            held_out=self.data.held_out,
            whole=self.whole,
            seed=self.seed,
            rate=self.optimisation.learning_rate,
        )

        def look(model: nn.Module) -> dict[str, float]:
            step = (len(gate.checkpoints) + 1) * self.every
            gate.look(model, step)
            known = gate.source.found / max(1, gate.source.done)
            enough = gate.full and not gate.held_out and not self.whole
            if enough or step == plan.steps:
                gate.last(model, step)
                if step < plan.steps:
                    raise _Enough
            return {"training accuracy": 100 * (1 - known)}

        rate = self.optimisation.learning_rate
        # The weights of no step are wanted again: what the loop would save goes with this folder.
        with tempfile.TemporaryDirectory() as scratch:
            never = replace(self.execution, checkpoint_every=plan.steps)
            label = f"{self.system.method} {source} seed {self.seed} rate {rate:g}"
            try:
                train(
                    model, plan, RunFolder(scratch), self.optimisation, never, seed=self.seed, evaluate=look,
                    evaluations=looks, average_from=1.0, accelerator=accelerator, watch=watch, label=label,
                )  # fmt: skip
            except _Enough:
                watch.finish("every band has its candidates")
            except Unfinished as stopped:
                raise Unfinished(
                    stopped.seen.replace("; nothing is lost", ""),
                    "With --out, finished runs are kept; the same command then starts with the one it was at.",
                ) from None
        assert gate.end is not None
        found = Errors(
            f"{self.system.model} {self.system.method} {source}",
            source,
            self.targets,
            gate.items,
            tuple(gate.checkpoints),
            (gate.end,),
            None if self.whole else self.asked,
            self.candidates,
        )
        return found, gate.passes


def _method(spec: str) -> tuple[Any, object]:
    """Return a method's class and settings; one that learns from more than labels is refused."""
    name, own = method_spec(spec)
    cls, settings = method_class(name), method_settings(name)
    if cls.needs != ("labels",):
        raise BadInput(f"{name} needs {', '.join(cls.needs)}; IGAP is for methods that learn from labels alone.")
    (given,) = sort_settings([settings], own)
    return cls, settings(**given)


def _weights(model: str) -> str:
    """Return a digest of a model's weights, config and tokenizer: results of others are never taken for its own."""
    where = Path(locate(model))
    digest = hashlib.blake2b(digest_size=8)
    for file in sorted(x for x in where.iterdir() if x.suffix in _OF_A_MODEL) if where.is_dir() else ():
        with file.open("rb") as content:
            digest.update(hashlib.file_digest(content, "blake2b").digest())
    return digest.hexdigest()


def _task(model: str | Path, sets: Mapping[str, Examples], labels: str, given: Mapping[str, Any]) -> Task:
    some = next(iter(sets.values()))
    most = int(load_tokenizer(model).model_max_length)
    options = {"max_length": min(128, most), **given}
    if labels == "random":
        return task_for(replace(some, kind="classification", spans=None, labels=None), ("0", "1"), **options)
    known = catalog.find(some.name).labels if catalog.is_known(some.name) else ()
    return task_for(some, known or None, **options)


def _content(examples: Examples) -> list[tuple[str, str]]:
    return list(zip(examples.texts, examples.pairs or [""] * len(examples), strict=True))


def _data_name(data: object, sets: Mapping[str, Examples]) -> str:
    if isinstance(data, str | Path) and "{lang}" in str(data):
        return Path(data).name
    return next(iter(sets.values())).name or "given data"
