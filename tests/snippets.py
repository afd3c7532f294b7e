"""What pages show, taken from them: fenced snippets, and whether a command is one there is."""

import re
import shlex
from typing import Any, NamedTuple

import typer

from crosslift import cli

FENCE = re.compile(
    r"^(?P<mark><!-- not run[^\n]*-->\n+)?(?P<indent> *)```(?P<language>\w*)\n(?P<text>.*?)^(?P=indent)```$",
    re.MULTILINE | re.DOTALL,
)


class Snippet(NamedTuple):
    """A fenced block of a page; `<!-- not run: why -->` before it says that its Python is only compiled."""

    language: str
    text: str
    line: int
    run: bool


def snippets(page: str, language: str | None = None) -> list[Snippet]:
    """Return the fenced blocks of a page, of one language or of all."""
    found = []
    for match in FENCE.finditer(page):
        text = re.sub(f"^{match['indent']}", "", match["text"], flags=re.MULTILINE)
        line = page.count("\n", 0, match.start("text")) + 1
        found.append(Snippet(match["language"], text, line, run=match["mark"] is None))
    return [one for one in found if language in (None, one.language)]


def commands(page: str) -> list[list[str]]:
    """Return the commands of a page's `sh` blocks as words; a backslash joins lines, comments are left out."""
    texts = [one.text.replace("\\\n", " ") for one in snippets(page, "sh")]
    lines = [line for text in texts for line in text.splitlines()]
    return [words for line in lines if (words := shlex.split(line, comments=True))]


def verbs() -> list[list[str]]:
    """Return every verb there is as words: `["compare"]`, `["fit", "ear"]`."""
    top = typer.main.get_command(cli.build([])).commands
    below = {name: list(getattr(verb, "commands", {})) for name, verb in top.items()}
    return [words for name, more in below.items() for words in ([[name, x] for x in more] or [[name]])]


def options(words: list[str]) -> set[str]:
    """Return the options of a verb."""
    return {option for one in _command(list(words)).params for option in (*one.opts, *one.secondary_opts)}


def parse(words: list[str]) -> None:
    """Read a crosslift command as the command line does, without doing its work.

    Raises:
        KeyError: There is no such verb.
        cli.UsageError: An option is unknown, or a needed one is missing.
    """
    rest = list(words)
    _command(rest).make_context(words[0], rest)


def _command(words: list[str]) -> Any:
    """Return the verb that the words begin with, and take it away from them."""
    command = typer.main.get_command(cli.build(words))
    while hasattr(command, "commands"):
        command = command.commands[words.pop(0)]
    return command
