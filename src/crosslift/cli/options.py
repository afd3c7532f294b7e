"""Options that several verbs share, and dataclasses as options."""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable, Mapping
from dataclasses import MISSING, fields
from typing import Annotated, Any, Literal, get_args, get_origin, get_type_hints

import typer

from crosslift.errors import BadInput
from crosslift.runs.settings import default, option

Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Show no progress.")]
Json = Annotated[bool, typer.Option("--json", help="Print plain JSON for machines.")]


def names(text: str | None) -> list[str] | None:
    """Split a comma-separated list; `None` and "all" mean everything."""
    return None if text in (None, "", "all") else [part.strip() for part in str(text).split(",") if part.strip()]


def seeds(text: str) -> list[int]:
    """Read `1,2,3` or `1-5`."""
    try:
        found: list[int] = []
        for part in text.split(","):
            first, _, last = part.partition("-")
            found += range(int(first), int(last or first) + 1)
    except ValueError:
        raise BadInput(f'--seeds takes whole numbers such as 1,2,3 or 1-5, not "{text}".') from None
    return found


def pairs(items: list[str] | None, what: str) -> dict[str, str]:
    """Read repeated `name=value` options."""
    found = {}
    for item in items or []:
        name, sign, value = item.partition("=")
        if not sign:
            raise BadInput(f'{what} takes name=value, not "{item}".')
        found[name] = value
    return found


def show_json(content: object) -> None:
    """Print JSON on standard output."""
    typer.echo(json.dumps(content, ensure_ascii=False, indent=2))


def with_settings(verb: Callable[..., None], groups: Mapping[str, type]) -> Callable[..., None]:
    """Return `verb` with one option per field of some dataclasses, passed on by name where they are given.

    Args:
        verb: A typer command that takes `**settings`.
        groups: Heading in `--help` -> dataclass; a field's `help` metadata is its help text.
    """
    signature = inspect.signature(verb, eval_str=True)
    parameters = [p for p in signature.parameters.values() if p.kind is not inspect.Parameter.VAR_KEYWORD]
    for heading, cls in groups.items():
        hints = get_type_hints(cls)
        for setting in fields(cls):
            # A task's labels are read from the data, never set by hand; what two tasks share is shown once.
            if setting.default is MISSING or any(p.name == setting.name for p in parameters):
                continue
            help_text = f"{setting.metadata.get('help', '')} Default: {_shown(default(setting))}."
            choices = f" One of {', '.join(get_args(hints[setting.name]))}." if _is_choice(hints[setting.name]) else ""
            flag = hints[setting.name] is bool
            off = [option(f"no_{setting.name}")] if flag and default(setting) else []
            mark = typer.Option(
                "/".join([option(setting.name), *off]),
                help=str(setting.metadata.get("help", "")) if flag else help_text + choices,
                rich_help_panel=heading,
                show_default=False,
                metavar=None if flag else _metavar(hints[setting.name]),
            )
            annotation = Annotated[bool | None, mark] if flag else Annotated[str | None, mark]
            parameters.append(
                inspect.Parameter(setting.name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=annotation)
            )

    def call(**given: Any) -> None:  # noqa: ANN401  whatever typer read
        verb(**{k: v for k, v in given.items() if k in signature.parameters or v is not None})

    call.__doc__ = verb.__doc__
    call.__name__ = verb.__name__
    call.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
    call.__annotations__ = {p.name: p.annotation for p in parameters}
    return call


def _is_choice(hint: object) -> bool:
    return get_origin(hint) is Literal


def _metavar(hint: object) -> str:
    if _is_choice(hint):
        return "NAME"
    return "N" if hint in (int, int | None) else "X" if hint is float else "VALUE"


def _shown(value: object) -> str:
    if value is None or value == ():
        return "none"
    return f"{value:g}" if isinstance(value, float) else str(value)
