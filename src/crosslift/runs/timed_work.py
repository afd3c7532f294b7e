"""Training with an eye on the clock: until the steps or the minutes are over."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any, Protocol

import torch
from torch import nn

from crosslift.methods.pretrain import PretrainWork
from crosslift.runs.folder import RunFolder
from crosslift.runs.progress import Watch
from crosslift.runs.replay import Batch
from crosslift.runs.settings import Execution, Optimisation
from crosslift.runs.train import Work, train

_PACE_FROM, _PACE_TO = 100, 300


class TimeIsUp(Exception):
    """Ends the loop; the weights are where they are."""


def time_is_up(deadline: float, world: int, device: torch.device) -> bool:
    """Whether the deadline is past; of several processes, which must end together, the first one's clock decides."""
    over = time.monotonic() > deadline
    if world > 1 and deadline < float("inf"):
        said = torch.tensor(float(over), device=device)
        torch.distributed.broadcast(said, src=0)
        over = bool(said)
    return over


class Timed(Work, Protocol):
    """Work that may end with `TimeIsUp`, and knows where it is."""

    at: int


def train_until(
    module: nn.Module,
    work: Timed,
    folder: RunFolder,
    optimisation: Optimisation,
    execution: Execution,
    *,
    minutes: float | None,
    watch: Watch,
    **how: Any,  # noqa: ANN401  what else `train` takes
) -> float:
    """Train until the steps are over or the work says that its time is; the last weights stay in the module.

    Args:
        module: What is trained.
        work: Batches and loss.
        folder: The run.
        optimisation: Rates, steps, batch.
        execution: Precision, memory, checkpoints.
        minutes: The limit that the work keeps, for people.
        watch: Who is told about progress.
        how: Further arguments of `train`.

    Returns:
        Seconds.
    """
    began = time.monotonic()
    try:
        train(module, work, folder, optimisation, execution, average_from=1.0, watch=watch, **how)
    except TimeIsUp:
        watch.say(f"Stopped after {minutes:g} minutes at step {work.at} of {work.steps}.")
    return time.monotonic() - began


class TimedWork(PretrainWork):
    """Pretraining batches that stop at a deadline, tell the pace early on, and count.

    Attributes:
        at: Steps drawn so far.
        tokens: Tokens drawn so far, padding included.
    """

    at = 0
    tokens = 0
    deadline = float("inf")
    watch: Watch

    def limit(self, minutes: float | None, watch: Watch) -> None:
        """Stop when so many minutes have passed."""
        self.watch = watch
        self.began: dict[int, float] = {}
        self.deadline = time.monotonic() + 60 * minutes if minutes else float("inf")

    def batches(self, step: int, rank: int, world: int) -> Iterator[tuple[Batch, float]]:
        """Return the batches of a step, or raise `TimeIsUp`."""
        if time_is_up(self.deadline, world, self.device):
            raise TimeIsUp
        if step in (_PACE_FROM, _PACE_TO):
            if self.device.type == "cuda":
                torch.cuda.synchronize()
            self.began[step] = time.monotonic()
        if step == _PACE_TO and _PACE_FROM in self.began:
            pace = (self.began[_PACE_TO] - self.began[_PACE_FROM]) / (_PACE_TO - _PACE_FROM)
            left = pace * (self.steps - step) / 60
            self.watch.say(f"pace      {1000 * pace:.1f} ms a step: {left:.1f} min for the other {self.steps - step}")
        for batch, share in super().batches(step, rank, world):
            self.tokens += sum(batch[name].numel() for name in ("masked_ids", "pair_ids") if name in batch)
            yield batch, share
        self.at = step + 1
