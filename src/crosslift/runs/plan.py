"""The batches of a run by step, and the plan of a run in words."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor, nn

from crosslift.data.batches import micro_batches, training_batches
from crosslift.data.examples import Examples
from crosslift.methods import Method
from crosslift.runs.machine import total_memory
from crosslift.runs.progress import clock
from crosslift.runs.replay import Batch
from crosslift.runs.settings import Execution, Optimisation

if TYPE_CHECKING:
    from transformers import PreTrainedModel


class Plan:
    """The batches of a run as a function of (seed, step): the `Work` that the loop asks for."""

    def __init__(self, method: Method, optimisation: Optimisation, max_tokens: int, seed: int) -> None:
        self.method, self.max_tokens, self.seed = method, max_tokens, seed
        self.batch_size = optimisation.batch_size
        self.per_epoch = math.ceil(len(method.lengths) / self.batch_size)
        self.steps = optimisation.steps or max(1, round(optimisation.epochs * self.per_epoch))
        self.replayable = getattr(method, "replayable", False)
        self._epoch: tuple[int, list[np.ndarray]] = (-1, [])

    def rows(self, step: int) -> np.ndarray:
        """Return the rows of one optimiser step, over all processes."""
        epoch, place = divmod(step, self.per_epoch)
        if self._epoch[0] != epoch:
            self._epoch = (epoch, training_batches(self.method.lengths, self.batch_size, self.seed, epoch))
        return self._epoch[1][place]

    def batches(self, step: int, rank: int, world: int) -> Iterator[tuple[Batch, float]]:
        """Return this process's micro-batches with their share of the step's loss units."""
        rows = self.rows(step)
        units = self.method.units(rows).sum()
        own = micro_batches(rows, self.method.lengths, max_tokens=self.max_tokens, rank=rank, world=world)
        # With fewer rows than processes one would never call backward and the others would wait for it.
        for part in own or [rows[:1]]:
            share = float(self.method.units(part).sum() / max(1, units)) if own else 0.0
            yield self.method.batch(part, step), share

    def loss(self, model: nn.Module, batch: Batch) -> dict[str, Tensor]:
        """Return the method's loss terms."""
        return self.method.loss(model, batch)

    def check(self, means: dict[str, float]) -> None:
        """Let a method that can go wrong in a way of its own look at the means of its terms."""
        if hasattr(self.method, "check"):
            self.method.check(means)


def describe_plan(
    plan: Plan,
    model: PreTrainedModel,
    train_set: Examples,
    dev_set: Examples,
    execution: Execution,
    device: torch.device,
) -> list[str]:
    """Return the plan in words: examples, steps, and time and memory measured on one typical step."""
    parameters = sum(p.numel() for p in model.parameters())
    seconds = _seconds_per_step(plan, model, device)
    width, layers = model.config.hidden_size, model.config.num_hidden_layers
    # Weights, gradients and two moments in fp32; some 34 values per token and width live in each layer.
    tokens = min(execution.max_tokens, int(plan.method.lengths.max()) * plan.batch_size)
    memory = 16 * parameters + 4 * 34 * tokens * width * (1 if execution.gradient_checkpointing else layers)
    free = torch.cuda.mem_get_info()[0] if device.type == "cuda" else total_memory()
    lines = [
        f"data      {len(train_set):,} × {train_set.kind} ({train_set.language}) from {train_set.name}; "
        f"dev {len(dev_set):,} from {dev_set.name}",
        f"model     {parameters / 1e6:.1f}M parameters, {type(model).__name__}, on {device.type}",
        f"plan      {plan.steps:,} steps of {plan.batch_size}, about {clock(seconds * plan.steps)} "
        f"plus evaluation, about {memory / 2**30:.1f} GiB",
    ]
    if hasattr(plan.method, "notes"):
        lines += plan.method.notes()
    for reason, count in train_set.skipped.items():
        lines.append(f"left out  {count:,} training rows: {reason}")
    if memory > free:
        lines.append(f"warning   that may exceed the {free / 2**30:.1f} GiB here: lower --max-tokens")
    return lines


def _seconds_per_step(plan: Plan, model: PreTrainedModel, device: torch.device) -> float:
    """Time one step forwards and backwards; the weights do not move."""
    model.to(device).train()
    typical = min(plan.steps - 1, plan.per_epoch // 2)
    for _ in range(2):  # the first call pays for set-up
        began = time.monotonic()
        for batch, share in plan.batches(typical, 0, 1):
            on_device = {name: tensor.to(device) for name, tensor in batch.items()}
            (sum(plan.loss(model, on_device).values()) * share).backward()  # type: ignore[union-attr]
        model.zero_grad(set_to_none=True)
        if device.type == "cuda":
            torch.cuda.synchronize()
        seconds = time.monotonic() - began
    return seconds * 1.15  # clipping and the optimiser
