"""The one training loop. Every method hands it a loss; it owns everything else.

Two decisions make runs repeatable. A step's batches are a function of the step alone, and the random state
is set anew from (seed, step, process) before each step; so a resumed run needs no stored random state and
ends with the same weights, bit for bit on a CPU. And each micro-batch is weighed by its share of the step's
loss units, so that accumulation and several processes change the speed, not the result.
"""

from __future__ import annotations

import math
import signal
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from importlib.util import find_spec
from types import FrameType
from typing import Protocol

import torch
from accelerate import Accelerator, DistributedDataParallelKwargs
from torch import Tensor, nn
from transformers import PreTrainedModel

from crosslift.errors import BadInput, MissingExtra, Unfinished
from crosslift.models.anatomy import freeze_bottom
from crosslift.runs import checkpoint
from crosslift.runs.checkpoint import State, Weights
from crosslift.runs.folder import RunFolder
from crosslift.runs.machine import autocast_for
from crosslift.runs.metrics import MetricsLog, metrics_until, require_finite
from crosslift.runs.progress import Silent, Watch
from crosslift.runs.replay import Batch, Replay, to_device
from crosslift.runs.settings import Execution, Optimisation


class Work(Protocol):
    """What a method hands the loop.

    With `replayable = True` it says that the shapes of a batch decide all that its loss does, so that a GPU may record
    it (see `replay`). It may also have `check(means)`, called with every line of metrics, which stops a run that has
    gone wrong by raising `BrokenRun`.
    """

    steps: int
    """Optimiser steps in all."""

    def batches(self, step: int, rank: int, world: int) -> Iterable[tuple[Batch, float]]:
        """Return this process's micro-batches of a step, each with its share of the step's loss units.

        A function of its arguments alone; the shares sum to one over all micro-batches and processes.
        """

    def loss(self, model: nn.Module, batch: Batch) -> dict[str, Tensor]:
        """Return named, weighted terms, each a mean over the batch's units; their sum is minimised."""


@dataclass(frozen=True)
class Trained:
    """What a finished loop leaves: weights by selection rule, and what is worth knowing about them.

    Attributes:
        weights: `last`, and with an evaluation `best` and `average`; on the CPU.
        history: One entry per evaluation: step and scores.
        best_step: The step of the best evaluation, or `None`.
        seconds: Wall time of this stretch (a resumed run counts from the resume).
    """

    weights: dict[str, Weights]
    history: list[dict[str, float]]
    best_step: int | None
    seconds: float


def train(
    model: nn.Module,
    work: Work,
    folder: RunFolder,
    optimisation: Optimisation,
    execution: Execution,
    *,
    seed: int,
    evaluate: Callable[[nn.Module], dict[str, float]] | None = None,
    evaluations: int = 10,
    average_from: float = 0.5,
    accelerator: Accelerator | None = None,
    watch: Watch | None = None,
    label: str = "train",
) -> Trained:
    """Train `model` in place and return its weights by selection rule.

    Args:
        model: Any module that `work.loss` can call.
        work: Batches and loss of a method.
        folder: Where checkpoints and metrics go; a run begun there goes on.
        optimisation: Rates, steps, batch.
        execution: Precision, memory, checkpoints.
        seed: Fixes dropout and everything else drawn during training.
        evaluate: Scores on **source** dev data; the first one selects `best`, higher is better.
        evaluations: How often to evaluate, evenly spread, the last time at the end.
        average_from: Share of the run after which evaluated weights enter `average` (Schmidt et al. 2023 average
            all; a new head makes the first ones useless).
        accelerator: Devices and processes; made from `execution` if not given.
        watch: Who is told about progress.
        label: What the progress is called.
    """
    watch = watch or Silent()
    accelerator = accelerator or make_accelerator(execution)
    steps = work.steps
    device = accelerator.device
    model.to(device)
    if optimisation.frozen_layers is not None:
        freeze_bottom(_encoder_in(model), optimisation.frozen_layers)
    if execution.gradient_checkpointing:
        model.gradient_checkpointing_enable()  # type: ignore[operator]
    autocast = autocast_for(execution.precision, device)
    optimizer = _adamw(model, optimisation, device)
    memory = _Memory()
    start = _resume(folder, model, optimizer, memory, watch)
    prepared = accelerator.prepare_model(model)
    if execution.compile:
        prepared.compile(dynamic=None)
    replayed = _replays(model, work, execution, accelerator)
    plainly = _runner(prepared, work, accelerator, autocast)
    run: Callable[[Batch, float], dict[str, Tensor]] = Replay(plainly, device) if replayed else plainly
    check: Callable[[dict[str, float]], None] | None = getattr(work, "check", None)
    moments = _evaluation_steps(steps, evaluations) if evaluate else set()
    tracked = accelerator.is_main_process and bool(execution.trackers)
    if tracked:
        accelerator.project_configuration.logging_dir = str(folder.path)
        accelerator.init_trackers(folder.path.name)
    log = MetricsLog(folder, start, steps, execution.log_every, accelerator.is_main_process)
    began = last_save = time.monotonic()
    save_cost = 0.0
    watch.start(label, steps, start)
    with _polite_stop() as stopping, _own_stream() if replayed else nullcontext():
        for step in range(start, steps):
            _seed(seed, step, accelerator.process_index)
            for group in optimizer.param_groups:
                group["lr"] = optimisation.rate(step, steps)
            terms = _accumulate(prepared, run, work, step, accelerator)
            norm = _clip(model, optimisation.clip)
            optimizer.step()
            optimizer.zero_grad(set_to_none=not replayed)
            note = log.add(step + 1, terms, norm, optimisation.rate(step, steps))
            if note and check:
                check(log.newest)
            if tracked and note:
                accelerator.log(log.newest, step=step + 1)
            if step + 1 in moments:
                assert evaluate is not None
                scores = _evaluated(model, evaluate)
                memory.add(step + 1, scores, model, averaged=(step + 1) > average_from * steps)
                log.write({"step": step + 1, "dev": scores})
                note = "  ".join(f"{name} {value:.1f}" for name, value in list(scores.items())[:1])
            watch.advance(step + 1, note)
            now = time.monotonic()
            due = (
                (step + 1) % execution.checkpoint_every == 0
                if execution.checkpoint_every
                else now - last_save > max(30.0, 20 * save_cost)
            )
            if (due or stopping.asked) and step + 1 < steps and accelerator.is_main_process:
                require_finite(step + 1, terms, norm)
                memory.save(folder, step + 1, model, optimizer)
                last_save = time.monotonic()
                save_cost = last_save - now
            if stopping.asked and step + 1 < steps:
                raise Unfinished(
                    f"Interrupted at step {step + 1} of {steps}; nothing is lost.",
                    "Start the same command again to go on.",
                )
    seconds = time.monotonic() - began
    if isinstance(run, Replay):
        if run.refused:
            watch.say(f"Steps could not be recorded, which would have been faster: {run.refused}")
        del run  # recordings hold memory that no later run of this process could use
        torch.cuda.empty_cache()
    watch.finish(note if moments else "")
    if tracked:
        accelerator.end_training()
    weights = {"last": _cpu(model), **memory.weights()}
    return Trained(weights, memory.history, memory.best_step, seconds)


def make_accelerator(execution: Execution) -> Accelerator:
    """Return devices and processes as the machine and `execution` allow."""
    for tracker in execution.trackers:
        if find_spec(tracker) is None:
            raise MissingExtra(tracker, "trackers")
    cpu = not torch.cuda.is_available()
    # Heads leave parts of some encoders unused (a pooler, say); DDP must be told to expect that.
    unused = DistributedDataParallelKwargs(find_unused_parameters=True)
    return Accelerator(
        kwargs_handlers=[unused],
        cpu=cpu,
        log_with=list(execution.trackers) or None,
        project_dir=".",  # accelerate wants one before the run folder is known; `train` sets it
    )


def _encoder_in(model: nn.Module) -> PreTrainedModel:
    found = next((module for module in model.modules() if isinstance(module, PreTrainedModel)), None)
    if found is None:
        raise BadInput(f"{type(model).__name__} has no layers of an encoder.", "Leave out --frozen-layers.")
    return found


def _adamw(model: nn.Module, optimisation: Optimisation, device: torch.device) -> torch.optim.AdamW:
    """AdamW with decay on matrices only; frozen parameters are left out."""
    learnt = [p for p in model.parameters() if p.requires_grad]
    groups = [
        {"params": [p for p in learnt if p.ndim >= 2], "weight_decay": optimisation.weight_decay},
        {"params": [p for p in learnt if p.ndim < 2], "weight_decay": 0.0},
    ]
    betas = (0.9, optimisation.beta2)
    return torch.optim.AdamW(
        [g for g in groups if g["params"]],
        lr=optimisation.learning_rate,
        betas=betas,
        eps=optimisation.epsilon,
        fused=device.type == "cuda",
    )


def _seed(seed: int, step: int, rank: int) -> None:
    torch.manual_seed(((seed * 1_000_003 + step) * 4_099 + rank) % 2**63)


def _replays(model: nn.Module, work: Work, execution: Execution, accelerator: Accelerator) -> bool:
    """Whether steps are recorded: on one GPU, where the method allows it; with a compiled model only if asked for."""
    wanted = not execution.compile if execution.cuda_graphs is None else execution.cuda_graphs
    alone = accelerator.device.type == "cuda" and accelerator.num_processes == 1
    # Recurrent layers let a library decide, at every call, what it launches.
    recurrent = any(isinstance(module, nn.RNNBase) for module in model.modules())
    safe = getattr(work, "replayable", False) and not execution.gradient_checkpointing and not recurrent
    return wanted and alone and safe


def _own_stream() -> AbstractContextManager[object]:
    # Nothing can be recorded on the default stream, and gradients must not change from one stream to another.
    return torch.cuda.stream(torch.cuda.Stream())  # type: ignore[no-untyped-call]


def _runner(
    model: nn.Module, work: Work, accelerator: Accelerator, autocast: AbstractContextManager[object]
) -> Callable[[Batch, Tensor | float], dict[str, Tensor]]:
    """Return what runs a batch on the device forwards and backwards and returns its loss terms."""
    world = accelerator.num_processes

    def run(batch: Batch, share: Tensor | float) -> dict[str, Tensor]:
        batch = {name: to_device(tensor, accelerator.device) for name, tensor in batch.items()}
        with autocast:
            terms = work.loss(model, batch)
        # DDP averages gradients over processes; shares are of the whole step, hence × world.
        accelerator.backward(sum(terms.values()) * (share * world))
        return {name: term.detach() for name, term in terms.items()}

    return run


def _accumulate(
    model: nn.Module,
    run: Callable[[Batch, float], dict[str, Tensor]],
    work: Work,
    step: int,
    accelerator: Accelerator,
) -> dict[str, Tensor]:
    """Run one step's micro-batches forwards and backwards; return the loss terms, weighed by share."""
    model.train()
    world = accelerator.num_processes
    batches = list(work.batches(step, accelerator.process_index, world))
    totals: dict[str, Tensor] = {}
    for number, (batch, share) in enumerate(batches):
        last = number == len(batches) - 1
        with nullcontext() if last or world == 1 else accelerator.no_sync(model):
            terms = run(batch, share)
        for name, term in terms.items():
            totals[name] = totals.get(name, torch.zeros((), device=term.device)) + term * share
    if world > 1:
        names = sorted(totals)
        stacked = accelerator.reduce(torch.stack([totals[name] for name in names]), reduction="sum")
        totals = dict(zip(names, stacked, strict=True))
    return totals


def _clip(model: nn.Module, largest: float) -> Tensor:
    learnt = [p for p in model.parameters() if p.grad is not None]
    return torch.nn.utils.clip_grad_norm_(learnt, largest if largest > 0 else math.inf)


def _evaluation_steps(steps: int, evaluations: int) -> set[int]:
    count = max(1, min(evaluations, steps))
    return {round(steps * k / count) for k in range(1, count + 1)}


def _evaluated(model: nn.Module, evaluate: Callable[[nn.Module], dict[str, float]]) -> dict[str, float]:
    # Every process evaluates all of it: the weights are equal, and no process waits for another's time-out.
    model.eval()
    with torch.no_grad():
        scores = evaluate(model)
    model.train()
    return scores


def _cpu(model: nn.Module) -> Weights:
    return {name: tensor.detach().to("cpu", copy=True) for name, tensor in model.state_dict().items()}


class _Memory:
    """Best and averaged weights so far, and the checkpoints that keep them."""

    def __init__(self) -> None:
        self.best: Weights | None = None
        self.average: Weights | None = None
        self.averaged = 0
        self.best_step: int | None = None
        self.best_score = -math.inf
        self.history: list[dict[str, float]] = []
        self.changed = {"best", "average"}

    def add(self, step: int, scores: dict[str, float], model: nn.Module, *, averaged: bool) -> None:
        """Take in one evaluation."""
        score = next(iter(scores.values()))
        self.history.append({"step": step, **scores})
        weights = None
        if score > self.best_score:
            weights = self.best = _cpu(model)
            self.best_score, self.best_step = score, step
            self.changed.add("best")
        if averaged:
            weights = weights or _cpu(model)
            self.averaged += 1
            self.changed.add("average")
            if self.average is None:
                self.average = {name: tensor.clone() for name, tensor in weights.items()}
            else:
                for name, mean in self.average.items():
                    if mean.is_floating_point():
                        mean += (weights[name] - mean) / self.averaged

    def weights(self) -> dict[str, Weights]:
        """Return `best` and `average`, where they exist."""
        named = {"best": self.best, "average": self.average}
        return {name: weights for name, weights in named.items() if weights is not None}

    def save(self, folder: RunFolder, step: int, model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
        """Write a checkpoint."""
        tensors = {
            "model": _cpu(model),
            "optimizer": checkpoint.optimizer_tensors(optimizer),
            **self.weights(),
        }
        facts = {"averaged": float(self.averaged)}
        if self.best_step is not None:
            facts |= {"best_step": self.best_step, "best_score": self.best_score}
        unchanged = tuple({"best", "average"} - self.changed)
        checkpoint.save(folder.state, State(step, tensors, facts), unchanged=unchanged)
        self.changed.clear()

    def restore(self, state: State, history: list[dict[str, float]]) -> None:
        """Take up what a checkpoint and the metrics file hold."""
        self.best, self.average = state.tensors.get("best"), state.tensors.get("average")
        self.averaged = int(state.facts["averaged"])
        if "best_step" in state.facts:
            self.best_step, self.best_score = int(state.facts["best_step"]), state.facts["best_score"]
        self.history = history


def _resume(
    folder: RunFolder, model: nn.Module, optimizer: torch.optim.Optimizer, memory: _Memory, watch: Watch
) -> int:
    """Load the newest whole checkpoint; return the step to go on from."""
    state, passed_over = checkpoint.load_newest(folder.state)
    for line in passed_over:
        watch.say(f"{line} Using the one before it.")
    if state is None:
        if passed_over:
            watch.say("No whole checkpoint is left: starting from the beginning.")
        return 0
    rows = metrics_until(folder, state.step)
    history = [{"step": row["step"], **row["dev"]} for row in rows if "dev" in row]
    model.load_state_dict(state.tensors["model"])
    checkpoint.restore_optimizer(optimizer, state.tensors["optimizer"])
    memory.restore(state, history)
    watch.say(f"Going on from step {state.step}.")
    return state.step


class _Stop:
    asked = False


@contextmanager
def _polite_stop() -> Iterator[_Stop]:
    """Turn Ctrl-C and SIGTERM into "finish this step and save"; a second Ctrl-C stops at once."""
    stop = _Stop()

    def ask(signum: int, frame: FrameType | None) -> None:
        if stop.asked and signum == signal.SIGINT:
            raise KeyboardInterrupt
        stop.asked = True

    previous = {}
    try:
        for name in (signal.SIGINT, signal.SIGTERM):
            previous[name] = signal.signal(name, ask)
    except ValueError:  # not the main thread: signals stay with whoever has them
        pass
    try:
        yield stop
    finally:
        for name, handler in previous.items():
            signal.signal(name, handler)
