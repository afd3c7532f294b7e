"""`crosslift fit adjust`: sentence pairs and an encoder in, an encoder out."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from crosslift.cli.options import Json, Quiet, show_json
from crosslift.errors import BadInput

BITEXT_HELP = "LANGUAGE=FILE of source TAB target lines, or LANGUAGE=SOURCE,TARGET files; repeat for more."


def groups() -> dict[str, type]:
    """Return the settings by heading."""
    from crosslift.runs.adjust import SETTINGS

    headings = ("Settings of adjust", "From sentences to words", "Optimisation", "Execution")
    return dict(zip(headings, SETTINGS, strict=True))


def verb(
    model: Annotated[str, typer.Option("--model", "-m", help="Encoder: folder, embedded name or hub id.")],
    bitext: Annotated[list[str], typer.Option("--bitext", "-b", help=BITEXT_HELP)],
    out: Annotated[Path, typer.Option("--out", "-o", help="Run folder; the encoder is in its model/.")],
    source: Annotated[str, typer.Option(help="Language of the first side.")] = "en",
    seed: Annotated[int, typer.Option(help="Fixes the drawn pairs, batches and dropout.")] = 1,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace a run that is there already.")] = False,
    quiet: Quiet = False,
    as_json: Json = False,
    **settings: Any,  # noqa: ANN401
) -> None:
    """Pull translated words together with sentence pairs; no labels."""
    from crosslift.runs.adjust import adjust
    from crosslift.runs.progress import watch_screen

    done = adjust(
        bitext=bitexts(bitext, "--bitext"),
        model=model,
        out=out,
        source=source,
        seed=seed,
        overwrite=overwrite,
        watch=watch_screen(quiet or as_json),
        **settings,
    )
    if as_json:
        show_json({"model": str(done.model), **done.summary})
        return
    before, after = done.summary["before"], done.summary["after"]
    for term in ("pull", "anchor"):
        typer.echo(f"{term:<8}  {before[term]:.4f} before, {after[term]:.4f} after")  # type: ignore[index]
    typer.echo(f"model     {done.model}        for --model of any other method")


def bitexts(items: list[str], what: str) -> dict[str, str | list[str]]:
    """Read repeated LANGUAGE=FILE or LANGUAGE=FILE,FILE options."""
    found: dict[str, str | list[str]] = {}
    for item in items:
        language, sign, files = item.partition("=")
        if not sign or not language or Path(item).exists():
            language, files = "und", item
        if language in found:
            raise BadInput(f"{what} names {language} twice.", "Put the pairs of a language into one file.")
        parts = files.split(",")
        found[language] = files if len(parts) == 1 or Path(files).exists() else parts
    return found
