"""`crosslift env`: what is installed, and what the machine can do."""

import typer

from crosslift.cli.options import Json, show_json


def env(as_json: Json = False) -> None:
    """Show versions, extras and the machine."""
    from crosslift import __version__
    from crosslift.models.load import embedded_names
    from crosslift.runs.machine import describe

    facts = {"crosslift": __version__, **describe(), "embedded": embedded_names()}
    if as_json:
        show_json(facts)
        return
    for name, value in facts.items():
        if name == "extras":
            for extra, there in facts["extras"].items():  # type: ignore[attr-defined]
                state = "installed" if there else f'missing: pip install "crosslift[{extra}]"'
                typer.echo(f"  extra {extra:<10} {state}")
        elif isinstance(value, dict):
            typer.echo(f"{name:<12} " + ", ".join(f"{k} {v}" for k, v in value.items()))
        elif isinstance(value, list):
            typer.echo(f"{name:<12} {', '.join(map(str, value)) or 'none'}")
        else:
            typer.echo(f"{name:<12} {value}")
