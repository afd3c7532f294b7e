"""What goes wrong on the user's side, said in one line: what we saw, and what to do about it.

Every error that a user can cause is a `CrossliftError`. The command line prints its text without a
traceback and exits with `exit_code`; in Python it is an ordinary exception.
"""

from collections.abc import Iterable
from difflib import get_close_matches
from pathlib import Path


class CrossliftError(Exception):
    """A mistake that a user can mend; its text says what was seen and what to do.

    Args:
        seen: What is wrong, in one line.
        remedy: What to do about it; shown on a line of its own.
    """

    exit_code = 1

    def __init__(self, seen: str, remedy: str = "") -> None:
        self.seen = seen
        self.remedy = remedy
        super().__init__(f"{seen}\n  {remedy}" if remedy else seen)


class BadInput(CrossliftError):
    """An option, a name or a combination of settings that cannot work."""

    exit_code = 2


class BadFile(BadInput):
    """A data file that cannot be read as asked: the file, the line and the reason.

    Args:
        path: The file.
        line: Line number as an editor counts it, from 1; `None` if the whole file is meant.
        seen: What is wrong there.
        remedy: What to do about it.
    """

    def __init__(self, path: str | Path, line: int | None, seen: str, remedy: str = "") -> None:
        self.path = Path(path)
        self.line = line
        place = f"{path}, line {line}" if line is not None else f"{path}"
        super().__init__(f"{place}: {seen}", remedy)


class BadLabels(BadInput):
    """Label lists that do not agree by name; the message shows both."""


class MissingExtra(CrossliftError):
    """An optional package is not installed; the message names the command that installs it."""

    exit_code = 2

    def __init__(self, what: str, extra: str) -> None:
        super().__init__(f"{what} is not installed.", f'Install it:  pip install "crosslift[{extra}]"')


class Unfinished(CrossliftError):
    """A run that stopped early with nothing lost; starting it again goes on."""

    exit_code = 130


class BrokenRun(CrossliftError):
    """A run folder or checkpoint that cannot be used as it is."""


def nearest(word: str, known: Iterable[str]) -> str:
    """Return ` Did you mean "x"?` for the known word nearest to `word`, or an empty string."""
    match = get_close_matches(word, list(known), n=1, cutoff=0.6)
    return f' Did you mean "{match[0]}"?' if match else ""
