"""Which learning rate? A short stretch with a rising rate shows up to where the loss still falls (Smith 2017).

The released code of FreeTransfer-X takes the rate at which the smoothed loss falls fastest. In trials that place was
decided by the noise of single batches, and by the first steps, in which a new student learns how frequent the classes
are. So we take a quarter of the rate at which the smoothed loss is lowest.
"""

from __future__ import annotations

import copy
import shutil
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from crosslift.data.storage import read_json, write_json, write_text
from crosslift.errors import BrokenRun
from crosslift.runs.folder import RunFolder
from crosslift.runs.metrics import metrics_until
from crosslift.runs.settings import Execution, Optimisation
from crosslift.runs.train import Work, train

if TYPE_CHECKING:
    from accelerate import Accelerator
    from torch import nn

    from crosslift.runs.progress import Watch

STEPS = 100
_SMOOTHING = 0.9
_MARGIN = 4


@dataclass(frozen=True)
class RisingRate(Optimisation):
    """A rate that rises by equal ratios from `lowest` to `learning_rate`."""

    lowest: float = 1e-5

    def rate(self, step: int, steps: int) -> float:
        """Return the learning rate of a step (counted from 0) of `steps`."""
        return float(self.lowest * (self.learning_rate / self.lowest) ** (step / max(1, steps - 1)))


class _Start:
    """The first steps of some work."""

    def __init__(self, work: Work, steps: int) -> None:
        self.batches, self.loss, self.steps = work.batches, work.loss, steps


def range_test(
    model: nn.Module,
    work: Work,
    folder: RunFolder,
    optimisation: Optimisation,
    execution: Execution,
    lowest: float,
    highest: float,
    *,
    seed: int,
    accelerator: Accelerator,
    watch: Watch,
) -> float:
    """Sweep the rate on a copy of the model and return the one to train with; only the training loss is read.

    Rates, losses and a picture are written to `range-test.json` and `range-test.svg` of the run folder.

    Args:
        model: It is copied; its weights do not move.
        work: Batches and loss.
        folder: The run.
        optimisation: Batch size, clipping; the rate is swept.
        execution: How the machine is used.
        lowest: Where the sweep starts.
        highest: Where it ends.
        seed: Fixes batches and dropout.
        accelerator: Devices and processes.
        watch: Who is told about progress.
    """
    result = folder.path / "range-test.json"
    if not result.exists():
        scratch = RunFolder(folder.path / "range-test")
        sweep = RisingRate(
            learning_rate=highest,
            lowest=lowest,
            batch_size=optimisation.batch_size,
            weight_decay=optimisation.weight_decay,
            clip=optimisation.clip,
            beta2=optimisation.beta2,
        )
        once = replace(execution, log_every=1, compile=False, trackers=())
        try:
            train(
                copy.deepcopy(model),
                _Start(work, STEPS),
                scratch,
                sweep,
                once,
                seed=seed,
                accelerator=accelerator,
                watch=watch,
                label="range test",
            )
        except BrokenRun:  # the loss was no number any more: what came before says enough
            watch.say("The loss broke off during the range test.")
        accelerator.wait_for_everyone()
        if accelerator.is_main_process:
            rows = [row for row in metrics_until(scratch, STEPS) if "loss" in row]
            rates, losses = [float(row["rate"]) for row in rows], [float(row["loss"]) for row in rows]
            best = choose_rate(rates, losses)
            write_text(folder.path / "range-test.svg", picture(rates, losses, best))
            write_json(result, {"rate": best, "rates": rates, "losses": losses})
            shutil.rmtree(scratch.path, ignore_errors=True)
        accelerator.wait_for_everyone()
    return float(str(read_json(result)["rate"]))


def smoothed(losses: Sequence[float]) -> list[float]:
    """Return the running mean in which older losses count less and less, free of a bias towards 0."""
    mean, found = 0.0, []
    for number, loss in enumerate(losses, 1):
        mean = _SMOOTHING * mean + (1 - _SMOOTHING) * loss
        found.append(mean / (1 - _SMOOTHING**number))
    return found


def choose_rate(rates: Sequence[float], losses: Sequence[float]) -> float:
    """Return a quarter of the rate at which the smoothed loss is lowest, but no less than the lowest rate."""
    return max(rates[0], rates[int(np.argmin(smoothed(losses)))] / _MARGIN)


def picture(rates: Sequence[float], losses: Sequence[float], best: float) -> str:
    """Return an SVG of the loss over the rate (on a logarithmic axis), smoothed and raw, with the chosen rate."""
    width, height, edge = 640, 360, 50
    across = np.log10(rates)
    low, high = min(losses), max(losses)

    def x(rate: float) -> float:
        share = (np.log10(rate) - across[0]) / max(across[-1] - across[0], 1e-9)
        return float(edge + share * (width - 2 * edge))

    def y(loss: float) -> float:
        return float(height - edge - (loss - low) / max(high - low, 1e-9) * (height - 2 * edge))

    def line(values: Sequence[float], style: str) -> str:
        points = " ".join(f"{x(rate):.1f},{y(value):.1f}" for rate, value in zip(rates, values, strict=True))
        return f'<polyline fill="none" {style} points="{points}"/>'

    def text(at: float, down: float, words: str, anchor: str = "middle") -> str:
        return f'<text x="{at:.1f}" y="{down:.1f}" text-anchor="{anchor}">{words}</text>'

    bottom = height - edge
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}"',
        'font-family="sans-serif" font-size="12">',
        '<rect width="100%" height="100%" fill="white"/>',
        f'<path d="M{edge},{edge} V{bottom} H{width - edge}" fill="none" stroke="#555"/>',
        line(losses, 'stroke="#bbb"'),
        line(smoothed(losses), 'stroke="#0a6" stroke-width="2"'),
        f'<path d="M{x(best):.1f},{edge} V{bottom}" stroke="#c30" stroke-dasharray="4 3"/>',
        text(x(best), edge - 8, f"chosen: {best:.1e}"),
        *(text(x(rate), bottom + 18, f"{rate:.0e}") for rate in (rates[0], rates[-1])),
        text(width / 2, height - 10, "learning rate"),
        *(text(edge - 6, y(loss) + 4, f"{loss:.2f}", "end") for loss in (low, high)),
        text(edge, edge - 8, "training loss"),
        "</svg>",
    ]
    return "\n".join(parts) + "\n"
