"""`crosslift augment`: copies of labelled data with words replaced by synonyms."""

from pathlib import Path
from typing import Annotated, Any

import typer

from crosslift.cli.options import Json, show_json, with_settings


def command(arguments: list[str]) -> Any:  # noqa: ANN401  a typer command
    """Return the verb; its settings are looked up only when it is called."""
    if arguments[:1] != ["augment"]:
        return _light
    from crosslift.cli.reading import FileOptions
    from crosslift.data.augment import SynonymSettings

    return with_settings(augment, {"Synonyms": SynonymSettings, "Reading files": FileOptions})


def _light() -> None:
    """Write copies of labelled data with words replaced by synonyms."""
    raise AssertionError("unreachable: the verb that is called gets its full options")


def augment(
    data: Annotated[str, typer.Option("--data", "-d", help="Labelled data: a file or a catalog name.")],
    out: Annotated[Path, typer.Option("--out", "-o", help="Written there: .conll for tagging, else .jsonl.")],
    copies: Annotated[int, typer.Option("--copies", "-k", help="Copies of each example.")] = 1,
    source: Annotated[str, typer.Option(help="Language of the data.")] = "en",
    split: Annotated[str, typer.Option(help="Part of the data.")] = "train",
    seed: Annotated[int, typer.Option(help="Another seed, other words.")] = 1,
    originals: Annotated[bool, typer.Option("--originals", help="Keep the examples as they are, too.")] = False,
    model: Annotated[str | None, typer.Option("--model", "-m", help="For --synonyms neighbours: whose.")] = None,
    as_json: Json = False,
    **settings: Any,  # noqa: ANN401
) -> None:
    """Write copies of labelled data with words replaced by synonyms."""
    from crosslift.cli.reading import read, split_options
    from crosslift.runs.augment import augment as run_augment
    from crosslift.runs.augment import check_out
    from crosslift.runs.progress import watch_screen

    check_out(data, out)
    reading, settings = split_options(settings)
    examples = read(data, source, split, reading)
    made = run_augment(
        examples, out=out, source=source, split=split, copies=copies, seed=seed, originals=originals, model=model,
        watch=watch_screen(as_json), **settings,
    )  # fmt: skip
    if as_json:
        show_json({"out": str(out), "kind": made.kind, "examples": len(made)})
    else:
        typer.echo(f"{out}: {len(made):,} × {made.kind} ({made.language})")
