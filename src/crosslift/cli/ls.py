"""`crosslift ls`: what is at hand."""

from pathlib import Path
from typing import Annotated

import typer

from crosslift.cli.options import Json, show_json
from crosslift.errors import BadInput, nearest

THINGS = ("data", "models", "methods", "runs")


def ls(
    what: Annotated[str, typer.Argument(help="data, models, methods or runs.")] = "data",
    folder: Annotated[Path, typer.Option(help="Where runs are.")] = Path("runs"),
    as_json: Json = False,
) -> None:
    """List data sets, models, methods or runs."""
    if what not in THINGS:
        raise BadInput(f'ls knows {", ".join(THINGS)}, not "{what}".{nearest(what, THINGS)}')
    rows = {"data": _data, "models": _models, "methods": _methods}[what]() if what != "runs" else _runs(folder)
    if as_json:
        show_json(rows)
        return
    if not rows:
        typer.echo(f"No {what} here.")
        return
    widths = {name: max(len(name), *(len(str(row[name])) for row in rows)) for name in rows[0]}
    typer.echo("  ".join(name.ljust(width) for name, width in widths.items()).rstrip())
    for row in rows:
        typer.echo("  ".join(str(row[name]).ljust(width) for name, width in widths.items()).rstrip())


def _data() -> list[dict[str, object]]:
    from crosslift.data.catalog import available

    return [dict(row) for row in available()]


def _models() -> list[dict[str, object]]:
    from crosslift.models.load import embedded_names, load_config

    rows = []
    for name in embedded_names():
        config = load_config(name)
        shape = f"{config.num_hidden_layers} × {config.hidden_size}"
        rows.append({"name": name, "family": config.model_type, "shape": shape, "pieces": config.vocab_size})
    return rows


def _methods() -> list[dict[str, object]]:
    from crosslift.methods import METHODS, method_class

    return [
        {"name": name, "needs": ", ".join(method_class(name).needs), "what": method_class(name).title}
        for name in METHODS
    ]


def _runs(folder: Path) -> list[dict[str, object]]:
    from crosslift.runs.folder import RunFolder

    rows = []
    for file in sorted(folder.rglob("config.json")):
        run = RunFolder(file.parent)
        if "method" not in run.config:  # a model's configuration, not a run's
            continue
        state = "done" if run.done else "unfinished"
        evaluated = ", ".join(run.results())
        rows.append(
            {
                "run": str(run.path),
                "method": run.config["method"],
                "model": run.config.get("model", ""),
                "data": run.config.get("data", ""),
                "state": state,
                "evaluated": evaluated,
            }
        )
    return rows
