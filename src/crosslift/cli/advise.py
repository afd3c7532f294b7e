"""`crosslift advise`: which methods apply to what you have."""

from typing import Annotated

import typer

from crosslift.cli.options import Json, names, show_json


def advise(
    have: Annotated[
        str,
        typer.Option(
            help="What you have: labels,task-model,source-text,target-text,bitext,translator,synonyms,dictionary."
        ),
    ],
    kind: Annotated[str, typer.Option(help="classification, tagging or qa.")] = "classification",
    model: Annotated[str, typer.Option("--model", "-m", help="Encoder that would be used.")] = "mini-x",
    examples: Annotated[int, typer.Option(help="How many labelled examples or texts you have.")] = 10_000,
    no_timing: Annotated[bool, typer.Option("--no-timing", help="Do not time a few steps here.")] = False,
    as_json: Json = False,
) -> None:
    """Say which methods apply, what the others lack, cost on this machine, measured gain, and the command."""
    from crosslift.runs.advise import advise as give_advice
    from crosslift.runs.advise import table

    found = give_advice(names(have) or [], kind, model=model, examples=examples, timed=not no_timing)
    if as_json:
        show_json([one.to_dict() for one in found])
        return
    typer.echo(table(found))
    if not no_timing:
        typer.echo(
            f"\nTimes: {examples:,} examples, steps of 32 timed on embedded short texts; longer texts cost more."
        )
