"""Run something that a JSON file describes, with nothing but the core packages: `python -m MODULE --config FILE`."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path

from crosslift.errors import BadInput

_NUMBERS: dict[str, type[int | float]] = {"max_minutes": float, "seed": int, "evaluations": int, "processes": int}
_WORDS: dict[str, bool | None] = {"none": None, "true": True, "false": False}


def read_arguments(arguments: Sequence[str] | None, call: str) -> dict[str, object]:
    """Return the arguments of a call by name: a JSON file, and what `--set NAME=VALUE` overrides.

    Args:
        arguments: Of the command line; `None`: the process's own.
        call: What is called, for the help.
    """
    parser = argparse.ArgumentParser(description=f"{call} as a JSON file says: its arguments by name.")
    parser.add_argument("--config", required=True, type=Path, help=f"JSON file with the arguments of `{call}`.")
    parser.add_argument("--set", action="append", default=[], metavar="NAME=VALUE", help="Override one of them.")
    options = parser.parse_args(arguments)
    given: dict[str, object] = json.loads(options.config.read_text(encoding="utf-8"))
    return given | {name: _value(name, value) for name, value in (item.split("=", 1) for item in options.set)}


def _value(name: str, value: str) -> object:
    """Return an argument from its text; settings are converted later."""
    if value in _WORDS:
        return _WORDS[value]
    try:
        return _NUMBERS[name](value) if name in _NUMBERS else value
    except ValueError:
        raise BadInput(f'{name} is a number, not "{value}".') from None
