"""What a long job shows while it runs: a bar on a terminal, plain lines elsewhere, nothing when quiet."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING, Protocol, TextIO

if TYPE_CHECKING:
    from rich.progress import TaskID


class Watch(Protocol):
    """Somebody who wants to know how far a job is."""

    def start(self, label: str, total: int, done: int = 0) -> None:
        """A job of `total` steps begins, `done` of them finished earlier."""

    def advance(self, done: int, note: str = "") -> None:
        """`done` steps are finished in all."""

    def finish(self, note: str = "") -> None:
        """The job has ended."""

    def say(self, text: str) -> None:
        """A line worth reading."""


class Silent:
    """Shows nothing."""

    def start(self, label: str, total: int, done: int = 0) -> None:
        """Show nothing."""

    def advance(self, done: int, note: str = "") -> None:
        """Show nothing."""

    def finish(self, note: str = "") -> None:
        """Show nothing."""

    def say(self, text: str) -> None:
        """Show nothing."""


class Lines:
    """A plain line every `every` seconds: for logs, pipes and continuous integration."""

    def __init__(self, out: TextIO | None = None, every: float = 15.0) -> None:
        self.out = out or sys.stderr
        self.every = every
        self.label, self.total, self.begun_at = "", 0, 0
        self.began = self.last = time.monotonic()

    def start(self, label: str, total: int, done: int = 0) -> None:
        """Remember the job; it is shown with its first progress."""
        self.label, self.total, self.begun_at = label, total, done
        self.began = self.last = time.monotonic()

    def advance(self, done: int, note: str = "") -> None:
        """Write a line if the last one is old enough."""
        now = time.monotonic()
        if now - self.last < self.every or done <= self.begun_at:
            return
        self.last = now
        left = (now - self.began) / (done - self.begun_at) * (self.total - done)
        self.say(f"{self.label}  {done}/{self.total}  {clock(left)} left  {note}".rstrip())

    def finish(self, note: str = "") -> None:
        """Write the closing line."""
        self.say(f"{self.label}  done in {clock(time.monotonic() - self.began)}  {note}".rstrip())

    def say(self, text: str) -> None:
        """Write a line."""
        self.out.write(text + "\n")
        self.out.flush()


class Bar:
    """A bar with time left, drawn by rich on a terminal."""

    def __init__(self) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

        self.console = Console(stderr=True, highlight=False)
        self.progress = Progress(
            TextColumn("  {task.description:<10}"),
            BarColumn(bar_width=26),
            TextColumn("{task.percentage:>3.0f}%"),
            TimeElapsedColumn(),
            TimeRemainingColumn(),
            TextColumn("{task.fields[note]}"),
            console=self.console,
        )
        self.task: TaskID | None = None

    def start(self, label: str, total: int, done: int = 0) -> None:
        """Draw a new bar."""
        self.progress.start()
        self.task = self.progress.add_task(label, total=total, completed=done, note="")

    def advance(self, done: int, note: str = "") -> None:
        """Move the bar."""
        if self.task is not None:
            self.progress.update(self.task, completed=done, note=note)

    def finish(self, note: str = "") -> None:
        """Leave the bar at its end."""
        if self.task is not None:
            self.progress.update(self.task, note=note)
            self.progress.stop()
            self.task = None

    def say(self, text: str) -> None:
        """Write a line above the bar."""
        self.console.print(text, markup=False)


def watch_screen(quiet: bool = False) -> Watch:
    """Return what fits where we run: a bar, plain lines, or nothing."""
    if quiet:
        return Silent()
    if sys.stderr.isatty():
        try:
            return Bar()
        except ImportError:  # rich is part of the command line's needs, not of a bare GPU box
            return Lines()
    return Lines()


def clock(seconds: float) -> str:
    """Write a duration as 0:42, 12:05 or 3:07:00."""
    minutes, secs = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{secs:02d}" if hours else f"{minutes}:{secs:02d}"
