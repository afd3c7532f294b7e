"""The batches of a pretraining run, with an eye on the clock."""

from __future__ import annotations

import time
from collections.abc import Iterator

import torch

from crosslift.methods.pretrain import PretrainWork
from crosslift.runs.progress import Watch
from crosslift.runs.train import Batch

_PACE_FROM, _PACE_TO = 100, 300


class TimeIsUp(Exception):
    """Ends the loop; the weights are where they are."""


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
        if time.monotonic() > self.deadline:
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
