"""`crosslift sweep GRID`: many runs, on this machine or on a Ray cluster."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from contextlib import redirect_stdout
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from crosslift.cli.options import Json, Quiet, show_json

if TYPE_CHECKING:
    from rich.live import Live
    from rich.table import Table

    from crosslift.runs.sweep import Progress

ROWS = 20
"""Runs that a live table shows at most: those at work, then those that failed, then those that wait."""


def sweep(
    grid: Annotated[Path, typer.Argument(help="Grid file: .yaml, .toml or .json (docs/sweep.md).")],
    out: Annotated[Path | None, typer.Option("--out", "-o", help="Folder (default: the grid's, or runs/GRID).")] = None,
    engine: Annotated[str, typer.Option("--engine", "-e", help="local, ray, or here (this process).")] = "local",
    workers: Annotated[int | None, typer.Option(help="Runs at once (default: as many as fit).")] = None,
    cores: Annotated[int, typer.Option(help="Cores for each run.")] = 1,
    gpus: Annotated[float | None, typer.Option(help="Share of a GPU for each run, such as 0.25.")] = None,
    retries: Annotated[int, typer.Option(help="Further tries after a worker died or a run crashed.")] = 2,
    address: Annotated[str | None, typer.Option(help="Ray cluster, HOST:PORT (default: the one here).")] = None,
    minutes: Annotated[float | None, typer.Option(help="Begin no further run after so many.")] = None,
    dry: Annotated[bool, typer.Option("--dry", help="Check the grid and list its runs; nothing runs.")] = False,
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Train and score every run of a grid; what is done already is kept."""
    from crosslift.errors import CrossliftError, Unfinished
    from crosslift.runs.sweep import planned
    from crosslift.runs.sweep import sweep as run_sweep

    if dry:
        _, _, found = planned(grid, out)
        if as_json:
            show_json([one.to_dict() for one in found])
        else:
            typer.echo("\n".join(one.name for one in found))
            typer.echo(f"{len(found)} runs")
        return
    # Ray prints messages of its own.
    with Board(quiet or as_json) as board, redirect_stdout(sys.stderr):
        done = run_sweep(
            grid,
            out=out,
            engine=engine,
            workers=workers,
            cores=cores,
            gpus=gpus,
            retries=retries,
            address=address,
            minutes=minutes,
            show=board.show,
        )
    if as_json:
        show_json(done.to_dict())
    else:
        if table := done.table():  # measurements have no scores to show side by side
            typer.echo(table)
        typer.echo(f"results   {done.path / 'results.json'}")
    if done.failed:
        first = done.failed[0]
        raise CrossliftError(
            f"{len(done.failed)} of {len(done.runs)} runs failed; the first, {first.planned.name}: {first.error}",
            "The others are done. Start the same command again to try the failed ones.",
        )
    if done.left:
        raise Unfinished(f"{len(done.left)} of {len(done.runs)} runs are left: no time.", "The same command goes on.")


class Board:
    """One live table on a terminal, a plain line for each change elsewhere, nothing when quiet."""

    def __init__(self, quiet: bool = False) -> None:
        self.quiet = quiet
        self.live: Live | None = None
        self.said: dict[str, str] = {}
        self.began = time.monotonic()

    def __enter__(self) -> Board:
        if not self.quiet and sys.stderr.isatty():
            from rich.console import Console
            from rich.live import Live

            self.live = Live(console=Console(stderr=True, highlight=False), refresh_per_second=4)
            self.live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self.live:
            self.live.stop()

    def show(self, runs: Sequence[Progress]) -> None:
        """Show where the runs are."""
        if self.quiet:
            return
        if self.live:
            self.live.update(_table(runs, time.monotonic() - self.began))
            return
        kept = sum(run.state == "kept" for run in runs)
        if kept and not self.said:
            print(f"{kept}/{len(runs)}  done already", file=sys.stderr, flush=True)
            self.said[""] = "kept"
        for run in runs:
            state = f"{run.state} {run.attempts}"
            queued = run.state == "running" and not run.far[2]
            if run.state not in ("waiting", "kept") and not queued and self.said.get(run.planned.name) != state:
                self.said[run.planned.name] = state
                print(_line(runs, run), file=sys.stderr, flush=True)


def _line(runs: Sequence[Progress], run: Progress) -> str:
    ended = sum(one.state in ("done", "kept", "failed") for one in runs)
    again = f" (try {run.attempts})" if run.state == "running" and run.attempts > 1 else ""
    why = f": {run.error}" if run.error and run.state in ("running", "failed") else ""
    return f"{ended}/{len(runs)}  {run.planned.name}  {run.state}{again}  {_scores(run)}".rstrip() + why


def _scores(run: Progress) -> str:
    """Return the delivered weights' dev score and the mean over each evaluation's languages."""
    dev, selected = run.record.get("dev"), run.record.get("selected")
    shown = [f"dev {next(iter(dev[selected].values())):.1f}"] if isinstance(dev, dict) and selected in dev else []
    evaluations = run.record.get("evaluations")
    for name, languages in evaluations.items() if isinstance(evaluations, dict) else ():
        main = [next(iter(metrics.values()))["value"] for metrics in languages.values()]
        shown.append(f"{name} {sum(main) / len(main):.1f}")
    return "  ".join(shown)


def _table(runs: Sequence[Progress], seconds: float) -> Table:
    """Return the live table: a line per run, as many as a screen holds."""
    from rich.table import Table
    from rich.text import Text

    from crosslift.runs.progress import clock

    counts = {state: sum(run.state == state for run in runs) for state in ("done", "kept", "running", "failed")}
    ended = counts["done"] + counts["kept"] + counts["failed"]
    left = ""
    if counts["done"] and counts["running"]:
        left = f", about {clock(seconds / counts['done'] * (len(runs) - ended))} left"
    head = f"{ended} of {len(runs)} runs, {clock(seconds)}{left}"
    table = Table(title=Text(head), title_justify="left", box=None, padding=(0, 1), header_style="bold")
    for column in ("run", "state", "progress", "scores"):
        table.add_column(column, no_wrap=True, overflow="ellipsis")
    order = ["running", "failed", "waiting", "done", "kept"]
    first = sorted(runs, key=lambda run: order.index(run.state))[:ROWS]
    colours = {"running": "cyan", "failed": "red", "done": "green", "kept": "dim", "waiting": "dim"}
    for run in (run for run in runs if run in first):
        again = f", try {run.attempts}" if run.attempts > 1 else ""
        state = ("queued" if run.state == "running" and not run.far[2] else run.state) + again
        note = run.error or "" if run.state == "failed" else _scores(run)
        table.add_row(Text(run.planned.name), Text(state, style=colours[run.state]), Text(_bar(run)), Text(note))
    if len(runs) > len(first):
        table.add_row(Text(f"… and {len(runs) - len(first)} more", style="dim"))
    return table


def _bar(run: Progress, width: int = 16) -> str:
    if run.state != "running" or not run.far[2]:
        return ""
    label, done, total = run.far
    full = round(width * done / total)
    return f"{'━' * full}{'╌' * (width - full)} {label} {done}/{total}"
