"""`crosslift demo`: the main job on what ships inside, offline."""

from pathlib import Path
from typing import Annotated

import typer

from crosslift.cli.options import Json, Quiet, show_json


def demo(
    out: Annotated[Path, typer.Option("--out", "-o", help="Run folder.")] = Path("runs/demo"),
    model: Annotated[str, typer.Option("--model", "-m", help="Encoder.")] = "mini-x",
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Train an English intent model, take it to other languages, and show the scores."""
    import os
    import time

    began = time.monotonic()
    os.environ["HF_HUB_OFFLINE"] = "1"
    from crosslift.runs.demo import demo as run_demo
    from crosslift.runs.progress import clock, watch_screen

    if not as_json:
        typer.echo(f"crosslift demo · offline · {os.cpu_count()} cores · nothing leaves this machine\n")
    run, scores = run_demo(out, model=model, watch=watch_screen(quiet or as_json))
    if as_json:
        show_json({"run": str(run.path), "model": str(run.model), "scores": scores.to_dict()})
        return
    typer.echo(f"\n{scores.table()}\n")
    typer.echo("chosen    by English dev data; no target label was read to choose it")
    typer.echo(f"model     {run.model}        opens with transformers alone")
    typer.echo(f'try it    crosslift predict {run.path} --language de "Weck mich morgen um sieben Uhr"')
    typer.echo(f"time      {clock(time.monotonic() - began)}")
