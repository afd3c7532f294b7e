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
    from crosslift.cli.transfer import show
    from crosslift.report.transferred import write_page
    from crosslift.runs.demo import demo as run_demo
    from crosslift.runs.progress import clock, watch_screen

    if not as_json:
        typer.echo(f"crosslift demo · offline · {os.cpu_count()} cores · nothing leaves this machine\n")
    watch = watch_screen(quiet or as_json)
    done = run_demo(out, model=model, watch=watch)
    write_page(done, watch)
    if as_json:
        show_json(done.to_dict())
        return
    show(done)
    chosen = done.runs[done.chosen]
    typer.echo(f'try it    crosslift predict {chosen} --language de "Weck mich morgen um sieben Uhr"')
    typer.echo(f"time      {clock(time.monotonic() - began)}")
