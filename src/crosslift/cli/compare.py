"""`crosslift compare A B`: is one system really better than the other?"""

from typing import Annotated

import typer

from crosslift.cli.options import Json, names, show_json


def compare(
    a: Annotated[str, typer.Argument(help="Evaluated run.")],
    b: Annotated[str, typer.Argument(help="The run it is compared with.")],
    data: Annotated[str | None, typer.Option("--data", "-d", help="Which evaluation, such as xnli/test.")] = None,
    languages: Annotated[str, typer.Option("--languages", "-l", help="de,th,sw or all.")] = "all",
    metric: Annotated[str | None, typer.Option(help="Which score (default: the main one).")] = None,
    test: Annotated[str | None, typer.Option(help="t, permutation, bootstrap or mcnemar.")] = None,
    as_json: Json = False,
) -> None:
    """Compare two evaluated systems with paired tests, language by language."""
    from crosslift.runs.compare import compare as run_compare

    found = run_compare(a, b, data=data, languages=names(languages), metric=metric, test=test)
    if as_json:
        show_json(found.to_dict())
    else:
        typer.echo(found.table())
