"""`crosslift env`: what is installed, and what the machine can do."""

import typer

from crosslift.cli.options import Json, show_json


def env(as_json: Json = False) -> None:
    """Show versions, extras and the machine."""
    from crosslift import __version__
    from crosslift.models.load import embedded_names
    from crosslift.runs.machine import cpu_bf16_gain, describe

    gain = cpu_bf16_gain()
    facts = {"crosslift": __version__, **describe(), "cpu_bf16_gain": gain, "embedded": embedded_names()}
    if as_json:
        show_json(facts)
        return
    for name, value in facts.items():
        if name == "extras":
            for extra, there in facts["extras"].items():  # type: ignore[attr-defined]
                state = "installed" if there else f'missing: pip install "crosslift[{extra}]"'
                typer.echo(f"  extra {extra:<10} {state}")
        elif name == "cpu_bf16_gain":
            typer.echo(f"{'bf16':<12} {_bf16(gain)}")
        elif isinstance(value, dict):
            typer.echo(f"{name:<12} " + ", ".join(f"{k} {v}" for k, v in value.items()))
        elif isinstance(value, list):
            typer.echo(f"{name:<12} {', '.join(map(str, value)) or 'none'}")
        else:
            typer.echo(f"{name:<12} {value}")


def _bf16(gain: float | None) -> str:
    if gain is None:
        return "crashes on this CPU (illegal instruction): stay with fp32, the default"
    if gain < 1.2:
        return f"{gain} times as fast as fp32 on this CPU: no use"
    return f"{gain} times as fast as fp32 in a matrix product on this CPU: --precision bf16"
