"""`crosslift report RUN…`: one page to show to colleagues."""

from pathlib import Path
from typing import Annotated

import typer

from crosslift.cli.options import Json, show_json


def report(
    runs: Annotated[
        list[str], typer.Argument(help="Evaluated run folders, or the folder of a sweep, a transfer or a measurement.")
    ],
    out: Annotated[Path | None, typer.Option("--out", "-o", help="The file (default: report.html).")] = None,
    format_: Annotated[str | None, typer.Option("--format", "-f", help="html or md (default: by the file).")] = None,
    baseline: Annotated[str | None, typer.Option(help="What the others are compared with.")] = None,
    data: Annotated[str | None, typer.Option("--data", "-d", help="One evaluation alone, such as xnli/test.")] = None,
    title: Annotated[str | None, typer.Option(help="Title of the page.")] = None,
    examples: Annotated[int, typer.Option(help="Errors shown per language.")] = 3,
    as_json: Json = False,
) -> None:
    """Write one page that works offline: scores, how sure we are, where it fails, cost, how to repeat it."""
    from crosslift.report.content import gather
    from crosslift.report.page import report as write_report
    from crosslift.report.page import to_dict

    if as_json and out is None:
        show_json(to_dict(gather(list(runs), baseline=baseline, data=data, title=title)))
        return
    file = out or Path("report.md" if format_ == "md" else "report.html")
    written = write_report(
        list(runs), file, format=format_, baseline=baseline, data=data, title=title, examples=examples
    )
    if as_json:
        show_json({"report": str(written)})
    else:
        typer.echo(f"report    {written}")
