"""The folder of a run: everything about it, readable with no code of ours.

- `config.json`: the complete, resolved settings
- `state/`: checkpoints (see `checkpoint`), removed when the run is done
- `metrics.jsonl`: one line per logged step
- `results.json`: scores by data set and language, rewritten after each language
- `predictions/`: one JSON line per example, the source of truth for every score
- `model/`: the delivered model in Hugging Face format, with its card (`README.md`)
- `variants/`: the weights that other selection rules would have delivered (best, last, average)
- `finished.json`: how the delivered weights were selected, source-dev scores, cost
- `log.txt`: the plan, as it was said
"""

from __future__ import annotations

import fcntl
import json
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

from crosslift.data.storage import Json, drafts_of, read_json, write_json
from crosslift.errors import BadInput, BrokenRun
from crosslift.runs.card import write_card

FINISHED = "finished.json"


class RunFolder:
    """One run on disk."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self.config_file = self.path / "config.json"
        self.state = self.path / "state"
        self.metrics = self.path / "metrics.jsonl"
        self.results_file = self.path / "results.json"
        self.predictions = self.path / "predictions"
        self.model = self.path / "model"
        self.variants = self.path / "variants"
        self.log = self.path / "log.txt"
        self._opened = time.monotonic()

    def __repr__(self) -> str:
        return f"RunFolder({self.path}, {'done' if self.done else 'unfinished'})"

    @classmethod
    def start(cls, path: str | Path, config: Json, *, overwrite: bool = False) -> RunFolder:
        """Open a run folder for this config: new, or begun earlier with the same config.

        A folder that holds another run is refused, with the settings that differ.
        """
        run = cls(path)
        if overwrite and run.config_file.exists() and "method" in run.config:  # never somebody's model
            shutil.rmtree(run.path)
        config = json.loads(json.dumps(config))
        if run.config_file.exists():
            found = run.config
            differing = sorted(k for k in found.keys() | config.keys() if found.get(k) != config.get(k))
            if differing:
                changes = "; ".join(f"{k}: {found.get(k)!r} there, {config.get(k)!r} now" for k in differing)
                raise BadInput(
                    f"{run.path} holds another run ({changes}).",
                    "Choose another --out, or replace that run with --overwrite.",
                )
        else:
            # A kill at the very start may have left a draft of the config behind.
            if run.path.exists() and set(run.path.iterdir()) - set(drafts_of(run.config_file)):
                raise BadInput(f"{run.path} is not empty and is no run folder.", "Choose another --out.")
            write_json(run.config_file, config)
        return run

    @property
    def config(self) -> Json:
        """The settings the run was started with."""
        if not self.config_file.exists():
            raise BadInput(f"{self.path} is not a run folder: it has no config.json.")
        return read_json(self.config_file)

    @property
    def done(self) -> bool:
        """Whether training has ended and the model is in place."""
        return (self.path / FINISHED).exists()

    def finish(self, summary: Json) -> None:
        """Mark the run as done; from now on it is not run again.

        A summary that does not say how many `seconds` it took gets those since this folder was opened.
        """
        write_json(self.path / FINISHED, {"seconds": round(time.monotonic() - self._opened, 1), **summary})
        write_card(self)
        shutil.rmtree(self.state, ignore_errors=True)
        for draft in drafts_of(self.config_file):
            shutil.rmtree(draft, ignore_errors=True)

    @property
    def summary(self) -> Json:
        """What `finish` wrote: selection, scores on source dev, cost."""
        return read_json(self.path / FINISHED)

    def results(self) -> Json:
        """Return the scores so far: "data/split" -> language -> metric -> score."""
        return read_json(self.results_file) if self.results_file.exists() else {}

    def note(self, text: str) -> None:
        """Append a line to log.txt."""
        self.path.mkdir(parents=True, exist_ok=True)
        with self.log.open("a", encoding="utf-8") as log:
            log.write(f"{datetime.now(UTC):%Y-%m-%d %H:%M:%S} {text}\n")

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Hold the run: a second process on the same folder is refused, not interleaved.

        A run that is refused before it has made anything leaves no folder: the command, once mended, finds it free.
        """
        self.path.mkdir(parents=True, exist_ok=True)
        with (self.path / ".lock").open("w") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError as error:
                raise BrokenRun(
                    f"{self.path} is in use by another process.", "Wait for it, or choose another --out."
                ) from error
            try:
                yield
            except BadInput:
                if {file.name for file in self.path.iterdir()} <= {self.config_file.name, self.log.name, ".lock"}:
                    shutil.rmtree(self.path)
                raise


def find_runs(path: str | Path) -> list[RunFolder]:
    """Return the run at `path`, or the runs of a group folder (`seed-1`, `seed-2`, …), in order; else nothing."""
    path = Path(path)
    group = [file.parent for file in path.glob("seed-*/config.json") if file.parent.name[5:].isdigit()]
    if group:
        return [RunFolder(folder) for folder in sorted(group, key=lambda folder: int(folder.name[5:]))]
    run = RunFolder(path)
    # A Hugging Face model has a config.json too.
    return [run] if run.config_file.exists() and "method" in run.config else []
