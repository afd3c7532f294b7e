"""`crosslift predict`: predictions for a file or for texts given on the spot."""

import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from crosslift.cli.options import Quiet


def predict(
    model: Annotated[str, typer.Argument(help="Run folder, or any task model by folder or name.")],
    texts: Annotated[list[str] | None, typer.Argument(help="Texts; without any, lines of standard input.")] = None,
    data: Annotated[str | None, typer.Option("--data", "-d", help="A file or a catalog name instead.")] = None,
    language: Annotated[str | None, typer.Option("--language", "-l", help="Language of the texts.")] = None,
    split: Annotated[str, typer.Option(help="Part of the data.")] = "test",
    out: Annotated[Path | None, typer.Option("--out", "-o", help="Write JSON lines there.")] = None,
    quiet: Quiet = False,
    **reading: Any,  # noqa: ANN401
) -> None:
    """Print one JSON line per text: the prediction, and what the task adds."""
    import json

    from crosslift.cli.reading import load_options
    from crosslift.data.storage import write_jsonl
    from crosslift.runs.evaluate import predict as run_predict
    from crosslift.runs.progress import watch_screen

    given = data or texts or [line.rstrip("\n") for line in sys.stdin]
    options = load_options(reading)
    rows = run_predict(model, given, language=language, split=split, reading=options, watch=watch_screen(quiet))
    if out:
        write_jsonl(out, rows)
    else:
        for row in rows:
            typer.echo(json.dumps(row, ensure_ascii=False))
