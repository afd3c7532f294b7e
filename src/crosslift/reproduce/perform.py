"""Plans performed: wave after wave of steps, each wave one sweep, so that everything is resumable and parallel."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from crosslift.data.storage import Json
from crosslift.errors import BadInput
from crosslift.reproduce.plan import Plan, Step
from crosslift.runs.evaluation_data import evaluation_name
from crosslift.runs.folder import FINISHED
from crosslift.runs.sweep import Progress, groups, sweep
from crosslift.runs.sweep_grid import OWN
from crosslift.runs.sweep_grid import plan as grid
from crosslift.runs.sweep_work import complete

WEIGHTS = ("model", "connector", "steps", "embeddings.safetensors", "teacher")
"""What other steps may build on."""


@dataclass
class Performed:
    """Where the steps of a plan lie, and which failed.

    Attributes:
        folders: Key of a step -> its run folder.
        failed: Key -> why.
        left: Keys of the steps that nobody has run yet.
    """

    folders: dict[str, Path] = field(default_factory=dict)
    failed: dict[str, str] = field(default_factory=dict)
    left: set[str] = field(default_factory=set)


def perform(
    plan: Plan,
    out: str | Path,
    *,
    show: Callable[[Sequence[Progress]], None] | None = None,
    say: Callable[[str], None] = lambda text: None,
    light: bool = False,
    minutes: float | None = None,
    **engine: Any,  # noqa: ANN401  those of `sweep`: engine, workers, cores, gpus, retries, address
) -> Performed:
    """Do every step of a plan that is not done; started again, it goes on.

    Args:
        plan: The plan.
        out: Folder of the runs; a run that is there is kept, whichever table it was made for.
        show: Called with the runs of the wave at work, a few times a second.
        say: Told where a wave begins.
        light: Remove the weights of a run as soon as no other step needs them; scores and predictions stay.
        minutes: Begin no further run after so many; 0: take what is there.
        engine: Arguments of `sweep` that say where runs are performed.
    """
    if minutes is not None and minutes < 0:
        raise BadInput(f"--minutes is 0 or more, not {minutes:g}.")
    done = Performed()
    end = float("inf") if minutes is None else time.monotonic() + 60 * minutes
    waiting = list(plan.steps.values())
    standing = _standing(waiting, Path(out).absolute())
    if minutes == 0:
        return Performed(standing, left={step.key for step in waiting if step.key not in standing})
    again = _lacking(waiting, standing)
    if again:
        say(f"{len(again)} runs are made again: their weights are needed and gone")
    for key in again:
        (standing.pop(key) / FINISHED).unlink()
    wave = 0
    while waiting:
        for step in waiting:
            broken = [need for need in step.needs if need in done.failed]
            if broken:
                done.failed[step.key] = f"what it builds on failed: {done.failed[broken[0]]}"
        ready = [
            step for step in waiting if step.key not in done.failed and all(need in done.folders for need in step.needs)
        ]
        waiting = [step for step in waiting if step.key not in done.failed and step not in ready]
        if not ready:
            break
        wave += 1
        say(f"wave {wave}: {len(ready)} runs{f', {len(waiting)} wait for them' if waiting else ''}")
        needed = {need for step in waiting if step.key not in standing for need in step.needs}
        # The longest first, so that none of them is at work alone in the end.
        ready.sort(key=lambda step: -step.seconds)
        left = max(0.0, end - time.monotonic()) / 60
        _wave(ready, needed, done, out, light, show, {**engine, "minutes": None if minutes is None else left})
    done.left = {key for key in plan.steps if key not in done.folders and key not in done.failed}
    return done


def _standing(steps: Sequence[Step], out: Path) -> dict[str, Path]:
    """Return key -> folder of the steps that are trained and scored already."""
    known = groups(out)
    found: dict[str, Path] = {}
    waiting = list(steps) if known else []
    while ready := [step for step in waiting if all(need in found for need in step.needs)]:
        waiting = [step for step in waiting if step not in ready]
        blocks = grid_blocks(ready, found)
        runs = grid({"fit": [block for block, _ in blocks]}, known, out)
        planned = {(_alike(run.fit), run.seed): run for run in runs}
        for block, step in ((block, step) for block, own in blocks for step in own):
            run = planned[_alike(_single(block)), step.seed]
            if complete(out, run):
                found[step.key] = out / run.name
    return found


def _lacking(steps: Sequence[Step], standing: Mapping[str, Path]) -> list[str]:
    """Return the steps that are done, but whose weights are gone and needed by steps that are not."""
    by_key = {step.key: step for step in steps}
    found: dict[str, None] = {}
    undone = [step for step in steps if step.key not in standing]
    while undone:
        for need in undone.pop().needs:
            if need in standing and need not in found and _bare(standing[need]):
                found[need] = None
                undone.append(by_key[need])
    return list(found)


def _wave(
    ready: Sequence[Step],
    needed: set[str],
    done: Performed,
    out: str | Path,
    light: bool,
    show: Callable[[Sequence[Progress]], None] | None,
    engine: Mapping[str, Any],
) -> None:
    """Perform steps that do not need one another, and note where they lie or why they failed."""
    blocks = grid_blocks(ready, done.folders)
    steps = {(_alike(_single(block)), step.seed): step for block, own in blocks for step in own}
    gone: set[str] = set()

    def watch(runs: Sequence[Progress]) -> None:
        if show:
            show(runs)
        for run in runs if light else ():
            if run.state in ("done", "kept") and run.planned.name not in gone:
                gone.add(run.planned.name)
                kept = steps[_alike(run.planned.fit), run.planned.seed].key in needed
                remove_weights(Path(out) / run.planned.name, variants_only=kept)

    finished = sweep({"fit": [block for block, _ in blocks]}, out=out, show=watch, **engine)
    found = {(_alike(run.planned.fit), run.planned.seed): run for run in finished.runs}
    for block, step in ((block, step) for block, own in blocks for step in own):
        run = found[_alike(_single(block)), step.seed]
        if run.state == "failed":
            done.failed[step.key] = str(run.error).splitlines()[0]
        elif run.state != "waiting":
            done.folders[step.key] = finished.path / run.planned.name


def remove_weights(folder: Path, *, variants_only: bool = False) -> None:
    """Remove what a run learnt and keep what it scored; a run that others build on loses its variants alone."""
    for name in ("variants",) if variants_only else ("variants", *WEIGHTS):
        path = folder / name
        if path.is_dir():
            shutil.rmtree(path)
        elif path.exists():
            path.unlink()


def _bare(folder: Path) -> bool:
    return not any((folder / name).exists() for name in WEIGHTS)


def _single(block: Json) -> Json:
    """Return the settings of a block whose axes have one value each."""
    return {k: v[0] if isinstance(v, list) else v for k, v in block.items() if k not in OWN}


def grid_blocks(steps: Sequence[Step], folders: Mapping[str, Path]) -> list[tuple[Json, list[Step]]]:
    """Return the blocks of a grid with the steps of each: seeds of one setting are one block."""
    found: dict[str, tuple[Json, list[Step]]] = {}
    for step in steps:
        config = _resolved(step.config, folders)
        assert isinstance(config, dict)
        name = repr(config)
        if name not in found:
            # A list in a grid is an axis: one that is a value is put into another.
            axes = {k: [v] if isinstance(v, list) else v for k, v in config.items()}
            found[name] = ({**axes, "seeds": [], "evaluate": list(step.evaluations.values())}, [])
        found[name][0]["seeds"].append(step.seed)  # type: ignore[attr-defined]
        found[name][1].append(step)
    return list(found.values())


def _resolved(value: object, folders: Mapping[str, Path]) -> object:
    """Put folders in the place of `@KEY`."""
    if isinstance(value, dict):
        return {k: _resolved(v, folders) for k, v in value.items()}
    if isinstance(value, list):
        return [_resolved(one, folders) for one in value]
    if isinstance(value, str) and value.startswith("@"):
        key, slash, rest = value[1:].partition("/")
        return f"{folders[key]}{slash}{rest}"
    return value


def _alike(value: object) -> str:
    """Return a text that is the same for settings that are: 1 and 1.0, lists and tuples."""
    if isinstance(value, dict):
        kept = sorted((str(name), _alike(one)) for name, one in value.items() if one is not None)
        return str(kept)
    if isinstance(value, list | tuple):
        return str([_alike(one) for one in value])
    return str(float(value)) if isinstance(value, int | float) and not isinstance(value, bool) else str(value)


def results_name(evaluation: Mapping[str, Any], source: str = "en") -> str:
    """Return under which name `results.json` holds an evaluation."""
    name = evaluation_name(
        evaluation["data"], evaluation.get("split") or "test", mix=evaluation.get("mix"), source=source
    )
    return f"{name}@{evaluation['variant']}" if evaluation.get("variant") else name
