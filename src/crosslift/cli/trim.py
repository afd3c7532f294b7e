"""`crosslift trim`: a multilingual model with the vocabulary of a few languages."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from crosslift.cli.options import Json, Quiet, show_json
from crosslift.cli.pretrain import by_language


def trim(
    model: Annotated[str, typer.Argument(help="Encoder or task model: folder, embedded name or hub id.")],
    out: Annotated[Path, typer.Option("--out", "-o", help="Folder of the smaller model.")],
    text: Annotated[
        list[str], typer.Option("--text", "-t", help="LANGUAGE=FILE, text in a language to keep; repeat for more.")
    ],
    least: Annotated[int, typer.Option(min=1, help="Drop pieces that occur less often in the text.")] = 1,
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Cut a model's vocabulary down to some languages; its outputs on their text stay the same."""
    from crosslift.data.plain import read_language
    from crosslift.models.vocabulary import trim_vocabulary

    lines = {language: read_language(paths, language) for language, paths in by_language(text, "--text").items()}
    done = trim_vocabulary(model, out, lines, least=least)
    if as_json:
        show_json(done.to_dict())
    elif not quiet:
        typer.echo(f"pieces     {done.pieces[0]:>13,} -> {done.pieces[1]:,}")
        typer.echo(f"parameters {done.parameters[0]:>13,} -> {done.parameters[1]:,}")
        typer.echo(f"lines of the text that are cut as before: {done.unchanged:.2%}")
        typer.echo(f"model     {done.folder}        opens with transformers alone")
