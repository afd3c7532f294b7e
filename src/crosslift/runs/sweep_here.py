"""The engine without workers: runs one after another in this process, where a worker would take long to begin."""

from __future__ import annotations

from pathlib import Path

from crosslift.data.storage import Json
from crosslift.runs.sweep_grid import Planned
from crosslift.runs.sweep_work import attempt


class Here:
    """Runs in this process.

    Args:
        out: Folder of the sweep.
        cores: Threads of each run.
    """

    def __init__(self, out: Path, cores: int = 1) -> None:
        self.out, self.cores = out, cores
        self.given: list[Planned] = []

    @property
    def free(self) -> int:
        """How many more runs can be taken now."""
        return 1 - len(self.given)

    def submit(self, planned: Planned) -> None:
        """Take a run; it is performed when it is waited for."""
        self.given.append(planned)

    def wait(self, seconds: float) -> list[tuple[Planned, Json]]:
        """Perform what was taken."""
        taken, self.given = self.given, []
        return [(planned, attempt(planned, self.out, self.cores, alone=True)) for planned in taken]

    def close(self) -> None:
        """Nothing is left running."""
