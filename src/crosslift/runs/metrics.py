"""metrics.jsonl: what a run measured on its way, a line every few steps."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Mapping
from typing import Any

from torch import Tensor

from crosslift.data.storage import write_text
from crosslift.errors import BrokenRun
from crosslift.runs.folder import RunFolder


def metrics_until(folder: RunFolder, step: int) -> list[dict[str, Any]]:
    """Return the logged rows up to a step; a torn last line (the process died) is ignored."""
    rows = []
    if folder.metrics.exists():
        for line in folder.metrics.read_text(encoding="utf-8").split("\n"):
            try:
                row = json.loads(line)
            except ValueError:
                continue
            if row["step"] <= step:
                rows.append(row)
    return rows


def require_finite(step: int, terms: Mapping[str, float | Tensor], norm: float | Tensor) -> None:
    """Stop a run whose loss or gradient is no number any more: the next checkpoint would be useless."""
    if not all(math.isfinite(value) for value in (*terms.values(), norm)):
        shown = ", ".join(f"{name} {float(value):g}" for name, value in terms.items())
        raise BrokenRun(
            f"The loss is not finite at step {step} ({shown}, gradient {float(norm):g}).",
            "Lower --learning-rate, or raise --warmup; the last checkpoint is kept.",
        )


class MetricsLog:
    """metrics.jsonl: means over `every` steps, fetched from the device once per line; the first and `last` have one."""

    def __init__(self, folder: RunFolder, start: int, last: int, every: int, writes: bool) -> None:
        self.folder, self.last, self.every, self.writes = folder, last, every, writes
        self.waiting: list[tuple[dict[str, Tensor], Tensor]] = []
        self.newest: dict[str, float] = {}
        self.since = time.monotonic()
        if writes:
            kept = metrics_until(folder, start)
            write_text(folder.metrics, "".join(json.dumps(row) + "\n" for row in kept))

    def add(self, step: int, terms: dict[str, Tensor], norm: Tensor, rate: float) -> str:
        """Take in one step; return a note for the screen when a line was due."""
        self.waiting.append((terms, norm))
        if step % self.every and step not in (1, self.last):
            return ""
        names = sorted({name for seen, _ in self.waiting for name in seen})
        count = len(self.waiting)
        means = {name: float(sum(seen[name] for seen, _ in self.waiting if name in seen)) / count for name in names}
        loss, norm_mean = sum(means.values()), float(sum(n for _, n in self.waiting)) / count
        require_finite(step, means, norm_mean)
        now = time.monotonic()
        self.newest = {"loss": loss, **means, "grad_norm": norm_mean, "rate": rate}
        self.newest["steps_per_second"] = count / max(now - self.since, 1e-9)
        self.since, self.waiting = now, []
        self.write({"step": step, **self.newest})
        return f"loss {loss:.3f}"

    def write(self, row: dict[str, object]) -> None:
        """Append a row."""
        if self.writes:
            with self.folder.metrics.open("a", encoding="utf-8") as file:
                file.write(json.dumps(row) + "\n")
