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
    to: Annotated[str | None, typer.Option(help="Target languages, for the commands: de,th.")] = None,
    no_timing: Annotated[bool, typer.Option("--no-timing", help="Do not time a few steps here.")] = False,
    as_json: Json = False,
) -> None:
    """Say which methods apply, what the others lack, cost on this machine, measured gain, and the command."""
    from crosslift.runs.advise import advise as give_advice
    from crosslift.runs.advise import in_words, main_command, table

    given, languages = names(have) or [], names(to) or []
    found = give_advice(given, kind, model=model, examples=examples, to=languages, timed=not no_timing)
    if as_json:
        show_json([one.to_dict() for one in found])
        return
    typer.echo(f"{in_words(given, languages)}\n\n{table(found)}")
    if command := main_command(given, model, languages):
        typer.echo(f"\nRun all that applies:  {command}")
    if not no_timing:
        typer.echo(
            f"\nTimes: {examples:,} examples, steps of 32 timed on embedded short texts; longer texts cost more."
        )
