"""One run of a sweep, in whatever process it is given to; `python -m` of this file is a local worker.

Everything a run leaves is in its run folder; beside the runs, `.sweep/` holds how far each of them is, a lock per run,
the workers' logs, and `events.jsonl`, a line for each time a run was begun, trained and scored.
"""

from __future__ import annotations

import argparse
import fcntl
import gc
import json
import os
import queue
import socket
import sys
import threading
import time
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import cast

from crosslift.data.storage import Json
from crosslift.errors import BadInput, CrossliftError, Unfinished
from crosslift.runs.folder import RunFolder
from crosslift.runs.sweep_grid import Planned
from crosslift.runs.sweep_methods import call

SCRATCH = ".sweep"


def scratch(out: Path, planned: Planned, ending: str) -> Path:
    """Return the file of one run below `.sweep/`."""
    return out / SCRATCH / ending / f"{planned.group}.seed-{planned.seed}.{ending}"


def complete(out: Path, planned: Planned) -> bool:
    """Whether a run is trained and scored as planned: what its folder says is the truth."""
    folder = RunFolder(out / planned.name)
    if not folder.done:
        return False
    results = folder.results()
    for name, asked in zip(planned.names, planned.evaluations, strict=True):
        found = cast("dict[str, Json]", results.get(name, {}))
        for language in cast("list[str]", asked["languages"]):
            if language not in found or found[language].get("limit") != asked.get("limit"):
                return False
    return True


def perform(planned: Planned, out: Path, cores: int) -> None:
    """Train and score one run; what is done already is not done again."""
    import torch

    from crosslift.runs.evaluate import evaluate

    if not (out / SCRATCH).is_dir():
        raise BadInput(
            f"{socket.gethostname()} does not see {out}.", "All machines of a sweep must share its folder (--out)."
        )
    folder = RunFolder(out / planned.name)
    # As many threads on every engine: sums in another order would round differently.
    torch.set_num_threads(cores)
    with _held(scratch(out, planned, "lock")):
        if complete(out, planned):
            return
        note(out, planned, "begun")
        watch = ProgressFile(scratch(out, planned, "progress"))
        if not folder.done:
            call(planned.fit, planned.seed, folder.path, watch)
            note(out, planned, "trained")
        for asked in planned.evaluations:
            evaluate(folder.path, **asked, only_missing=True, watch=watch)  # type: ignore[arg-type]
        note(out, planned, "scored")


def attempt(planned: Planned, out: Path, cores: int, *, alone: bool = False) -> Json:
    """Perform a run and say how it went: `error` (`None` if well), and whether trying `again` may help.

    Args:
        planned: The run.
        out: Folder of the sweep.
        cores: Threads.
        alone: There is no other process that would know of an interruption: it is passed on.
    """
    try:
        perform(planned, out, cores)
    except Unfinished as error:
        if alone:
            raise
        return {"error": error.seen, "again": True}
    except CrossliftError as error:  # the same input would fail the same way
        note(out, planned, "failed", error=str(error))
        return {"error": str(error), "again": False}
    except Exception as error:
        traceback.print_exc()
        note(out, planned, "failed", error=repr(error))
        return {"error": f"{type(error).__name__}: {error}".splitlines()[0], "again": True}
    finally:
        _free()
    return {"error": None, "again": False}


def _free() -> None:
    """Give back what a run held of a GPU, which other workers may share."""
    import torch

    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()


def note(out: Path, planned: Planned, event: str, **more: object) -> None:
    """Append a line to events.jsonl; short lines of several processes do not mix."""
    line = {"run": planned.name, "event": event, "host": socket.gethostname(), "pid": os.getpid(), **more}
    if (out / SCRATCH).is_dir():
        with (out / SCRATCH / "events.jsonl").open("a", encoding="utf-8") as file:
            file.write(json.dumps({"time": round(time.time(), 2), **line}, ensure_ascii=False) + "\n")


class ProgressFile:
    """Writes how far a run is into a small file, at most twice a second."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self.label, self.total, self.last = "", 0, 0.0

    def start(self, label: str, total: int, done: int = 0) -> None:
        """A job of `total` steps begins."""
        self.label, self.total = label, total
        self._write(done)

    def advance(self, done: int, note: str = "") -> None:
        """`done` steps are finished in all."""
        if time.monotonic() - self.last > 0.5:
            self._write(done)

    def finish(self, note: str = "") -> None:
        """The job has ended."""
        self._write(self.total)

    def say(self, text: str) -> None:
        """What is worth reading is in the run's log."""

    def _write(self, done: int) -> None:
        self.last = time.monotonic()
        content = {"label": self.label, "done": done, "total": self.total, "pid": os.getpid()}
        draft = self.path.with_suffix(f".{os.getpid()}")
        draft.write_text(json.dumps(content), encoding="utf-8")
        draft.replace(self.path)


@contextmanager
def _held(lock: Path) -> Iterator[None]:
    """Wait for a run: after a lost connection its former worker may still be at it for a moment."""
    lock.parent.mkdir(parents=True, exist_ok=True)
    with lock.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def main() -> None:
    """Be a local worker: plans as JSON lines on standard input, how they went on standard output."""
    parser = argparse.ArgumentParser(description="A worker of crosslift sweep.")
    parser.add_argument("out", type=Path)
    parser.add_argument("cores", help="Cores to stay on: 0,1")
    arguments = parser.parse_args()
    cores = [int(core) for core in arguments.cores.split(",")]
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, cores)
    # Whatever a library prints goes to the log; the channel carries our lines alone.
    channel = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    plans: queue.SimpleQueue[str] = queue.SimpleQueue()

    def listen() -> None:
        for line in sys.stdin:
            plans.put(line)
        os._exit(0)  # the sweep has ended, or died: nobody waits for this run

    threading.Thread(target=listen, daemon=True).start()
    while True:
        reply = attempt(Planned.from_dict(json.loads(plans.get())), arguments.out, len(cores))
        channel.write(json.dumps(reply) + "\n")
        channel.flush()


if __name__ == "__main__":
    main()
