"""Many runs: a grid of them, on this machine or on a Ray cluster, with one table of results.

A run that is done is not run again, one that was begun goes on, one whose worker died is tried again; what the run
folders say is the truth. The same grid gives the same results on both engines.
"""

from __future__ import annotations

import fcntl
import json
import signal
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, Protocol, cast

from crosslift.data.storage import Json, check_folder, write_json
from crosslift.errors import BadInput, nearest
from crosslift.measure.scores import Score, Scores
from crosslift.runs.folder import RunFolder
from crosslift.runs.sweep_grid import Planned, naming, plan, read_grid
from crosslift.runs.sweep_methods import MEASURES
from crosslift.runs.sweep_work import SCRATCH, complete, scratch

ENGINES = ("local", "ray", "here")
WRITE_EVERY = 5.0
"""Seconds between two writings of `results.json`: with a thousand runs it takes longer than some of them."""
State = Literal["waiting", "running", "done", "kept", "failed"]


@dataclass
class Progress:
    """Where one run of a sweep is.

    Attributes:
        planned: The run.
        state: `kept` means that it was done before this sweep began.
        attempts: How often it was begun in this sweep.
        error: Why it failed, or was tried again.
        record: What its folder says, once it is done.
        far: What it is at, how much of that is done, and of how much.
    """

    planned: Planned
    state: State = "waiting"
    attempts: int = 0
    error: str | None = None
    record: Json = field(default_factory=dict)
    far: tuple[str, int, int] = ("", 0, 0)

    def to_dict(self) -> Json:
        """Return what `results.json` holds of the run."""
        one = self.planned
        base = {"run": one.name, "group": one.group, "seed": one.seed, "state": self.state, "fit": one.fit}
        return {**base, "attempts": self.attempts, "error": self.error, **self.record}


class Engine(Protocol):
    """Where runs are performed."""

    @property
    def free(self) -> int:
        """How many more runs can be taken now."""

    def submit(self, planned: Planned) -> None:
        """Begin a run."""

    def wait(self, seconds: float) -> list[tuple[Planned, Json]]:
        """Wait so long at most; return the runs that ended with `error` and `again`."""

    def close(self) -> None:
        """End what still runs; it can be gone on with."""


@dataclass(frozen=True)
class Sweep:
    """A finished sweep: its folder, and every run with its scores."""

    path: Path
    runs: list[Progress]

    @property
    def failed(self) -> list[Progress]:
        """The runs that failed."""
        return [run for run in self.runs if run.state == "failed"]

    @property
    def left(self) -> list[Progress]:
        """The runs for which there was no time."""
        return [run for run in self.runs if run.state == "waiting"]

    def scores(self) -> list[Scores]:
        """Return one table of scores per group of seeds and evaluation, in the order of the grid."""
        tables: dict[tuple[str, str], Scores] = {}
        for run in self.runs:
            found = cast("dict[str, dict[str, dict[str, Json]]]", run.record.get("evaluations", {}))
            for name, languages in found.items():
                source = str(run.planned.fit.get("source") or "en")
                table = tables.setdefault((name, run.planned.group), Scores(run.planned.group, name, source))
                for language, metrics in languages.items():
                    for score in metrics.values():
                        table.add(language, run.planned.seed, Score(**score))  # type: ignore[arg-type]
        return list(tables.values())

    def table(self) -> str:
        """Return a line per group: mean over seeds in each language, and the mean ± sd of the targets."""
        lines = []
        tables = self.scores()
        for name in dict.fromkeys(table.task for table in tables):
            rows = [table for table in tables if table.task == name]
            languages = list(dict.fromkeys(language for table in rows for language in table.rows))
            width = max(len(table.system) for table in rows)
            lines.append(f"{name}, {rows[0].metrics[0]}")
            lines.append(" " * width + "".join(f"{language:>7}" for language in languages) + "   targets")
            for table in rows:
                cells = [table.of_language(x) if x in table.rows else None for x in languages]
                shown = "".join(f"{cell.mean:7.1f}" if cell else f"{'–':>7}" for cell in cells)
                mean = table.mean("targets") if table.targets else None
                lines.append(f"{table.system:<{width}}{shown}   {mean or '–'}")
        return "\n".join(lines)

    def to_dict(self) -> Json:
        """Return everything as plain data, as `results.json` holds it."""
        counts = {state: sum(run.state == state for run in self.runs) for state in State.__args__}  # type: ignore[attr-defined]
        return {
            "counts": {state: count for state, count in counts.items() if count},
            "runs": [run.to_dict() for run in self.runs],
        }


def sweep(
    grid: str | Path | Mapping[str, object],
    *,
    out: str | Path | None = None,
    engine: str = "local",
    workers: int | None = None,
    cores: int = 1,
    gpus: float | None = None,
    retries: int = 2,
    address: str | None = None,
    minutes: float | None = None,
    show: Callable[[Sequence[Progress]], None] | None = None,
) -> Sweep:
    """Train and score every run of a grid; started again, it goes on.

    The whole grid is checked before anything runs. While runs end, `results.json` in the folder is rewritten every few
    seconds.

    Args:
        grid: A file (YAML, TOML or JSON), or its content.
        out: Folder of the sweep; default: the grid's `out`, then `runs/` and the grid file's name.
        engine: `local` (worker processes), `ray`, or `here` (one run after another in this process).
        workers: How many runs at once; default: as many as fit.
        cores: Cores for each run.
        gpus: Share of a GPU for each run; default: one where there are any.
        retries: How often a run is tried again after its worker died or it failed for no reason of the user's.
        address: `HOST:PORT` of a Ray cluster; default: the one that runs here, else a new one on this machine.
        minutes: Begin no further run after so many; those that were begun are finished, the others keep waiting.
        show: Called with all runs a few times a second.

    Returns:
        The sweep; runs that failed are in `failed`, and do not sink the rest.
    """
    if engine not in ENGINES:
        raise BadInput(f'There is no engine "{engine}".{nearest(engine, ENGINES)}', "It is local, ray or here.")
    if engine != "ray" and address:
        raise BadInput("--address is for --engine ray.")
    if engine == "here" and (gpus is not None or (workers or 1) > 1):
        raise BadInput("--engine here has one worker, this process; --workers and --gpus are for the others.")
    if gpus is not None and not (0 <= gpus <= 1 or (gpus > 1 and gpus % 1 == 0)):
        raise BadInput(f"--gpus is a share of one GPU or a whole number, not {gpus:g}.")
    if cores < 1 or retries < 0 or (workers is not None and workers < 1):
        raise BadInput("--cores and --workers are at least 1, --retries at least 0.")
    if minutes is not None and not minutes >= 0:
        raise BadInput(f"--minutes is 0 or more, not {minutes:g}.")
    content, folder, found = planned(grid, out)
    runs = [Progress(one) for one in found]
    for run in runs:
        _adopt(folder, run, "kept")
    (folder / SCRATCH).mkdir(parents=True, exist_ok=True)
    with _only_one(folder), _terminable():
        write_json(folder / "grid.json", content)
        done = Sweep(folder, runs)
        write_json(folder / "results.json", done.to_dict())
        if any(run.state == "waiting" for run in runs):
            crew = _engine(engine, folder, workers, cores, gpus, address)
            try:
                end = float("inf") if minutes is None else time.monotonic() + 60 * minutes
                _perform(done, crew, retries, end, show or (lambda _: None))
            finally:
                crew.close()
                write_json(folder / "results.json", done.to_dict())
        elif show:
            show(runs)
    return done


@contextmanager
def _terminable() -> Iterator[None]:
    """Take SIGTERM, which `kill` and schedulers send, for Ctrl-C: the workers save, and end."""

    def end(signum: int, frame: object) -> None:
        raise KeyboardInterrupt

    try:
        before = signal.signal(signal.SIGTERM, end)
    except ValueError:  # not the main thread: signals stay with whoever has them
        yield
        return
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def planned(
    grid: str | Path | Mapping[str, object], out: str | Path | None = None
) -> tuple[Mapping[str, object], Path, list[Planned]]:
    """Read and check a grid; return it, the folder of its sweep, and its runs by the names that they have there."""
    content = read_grid(grid) if isinstance(grid, (str, Path)) else grid
    stem = Path(grid).stem if isinstance(grid, (str, Path)) else "sweep"
    # Absolute, because workers of a cluster start elsewhere.
    folder = Path(str(out or content.get("out") or Path("runs") / stem)).absolute()
    check_folder(folder, "--out")
    with naming(grid) if isinstance(grid, (str, Path)) else nullcontext():
        return content, folder, plan(content, groups(folder), folder)


def _perform(done: Sweep, crew: Engine, retries: int, end: float, show: Callable[[Sequence[Progress]], None]) -> None:
    by_name = {run.planned.name: run for run in done.runs}
    waiting = deque(run for run in done.runs if run.state == "waiting")
    busy, written = 0, time.monotonic()
    while busy or (waiting and time.monotonic() < end):
        while waiting and crew.free > 0 and time.monotonic() < end:
            run = waiting.popleft()
            run.state, run.attempts, busy = "running", run.attempts + 1, busy + 1
            crew.submit(run.planned)
        for run in done.runs:
            run.far = _how_far(done.path, run) if run.state == "running" else ("", 0, 0)
        show(done.runs)
        for planned, reply in crew.wait(0.3):
            busy -= 1
            run = by_name[planned.name]
            run.error = cast("str | None", reply["error"])
            if run.error is None and not complete(done.path, planned):
                run.error = f"its worker calls it done, but {done.path / planned.name} does not hold all of it"
            if run.error is None:
                _adopt(done.path, run, "done")
            elif reply["again"] and run.attempts <= retries:
                run.state = "waiting"
                waiting.appendleft(run)
            else:
                run.state = "failed"
            if time.monotonic() - written > WRITE_EVERY:
                write_json(done.path / "results.json", done.to_dict())
                written = time.monotonic()
    show(done.runs)


def _adopt(folder: Path, run: Progress, state: State) -> None:
    """Take in what a complete run's folder says; a run that is not complete waits."""
    if not complete(folder, run.planned):
        return
    one = RunFolder(folder / run.planned.name)
    facts, results = one.summary, one.results()
    evaluations = {}
    for name, asked in zip(run.planned.names, run.planned.evaluations, strict=True):
        found = cast("dict[str, dict[str, Any]]", results[name])
        wanted = cast("list[str]", asked["languages"])
        evaluations[name] = {language: found[language]["scores"] for language in wanted}
    kept: Json = {name: facts[name] for name in ("dev", "selected", "steps", "seconds") if name in facts}
    run.state, run.record = state, {**kept, "evaluations": evaluations}
    if run.planned.fit["method"] in MEASURES:
        run.record["measured"] = {
            name: {language: cell["scores"] for language, cell in cells.items()}
            for name, cells in cast("dict[str, dict[str, Json]]", results).items()
        }


def _how_far(folder: Path, run: Progress) -> tuple[str, int, int]:
    """Return what a running run is at, how much of it is done, and of how much."""
    try:
        found = json.loads(scratch(folder, run.planned, "progress").read_text(encoding="utf-8"))
        return str(found["label"]), int(found["done"]), int(found["total"])
    except (OSError, ValueError):
        return "", 0, 0


def groups(folder: Path) -> list[str]:
    """Return the groups of runs that a sweep's folder has."""
    return sorted({path.parent.parent.name for path in folder.glob("*/seed-*/config.json")})


def _engine(
    name: str, folder: Path, workers: int | None, cores: int, gpus: float | None, address: str | None
) -> Engine:
    if name == "ray":
        from crosslift.runs.sweep_ray import Ray

        return Ray(folder, workers, cores, gpus, address)
    if name == "here":
        from crosslift.runs.sweep_here import Here

        return Here(folder, cores)
    from crosslift.runs.sweep_local import Local

    return Local(folder, workers, cores, gpus)


@contextmanager
def _only_one(folder: Path) -> Iterator[None]:
    """Hold the sweep: a second one on the same folder is refused."""
    with (folder / SCRATCH / "sweep.lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise BadInput(f"Another sweep is at work in {folder}.", "Wait for it, or choose another --out.") from None
        yield
