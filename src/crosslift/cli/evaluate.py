"""`crosslift evaluate`: scores by language."""

from functools import partial
from typing import Annotated, Any

import typer

from crosslift.cli.options import Json, Quiet, names, show_json


def evaluate(
    model: Annotated[str, typer.Argument(help="Run folder, or any task model by folder or name.")],
    data: Annotated[str | None, typer.Option("--data", "-d", help="File or catalog name; {lang} = language.")] = None,
    languages: Annotated[str, typer.Option("--languages", "-l", help="de,th,sw or all.")] = "all",
    split: Annotated[str, typer.Option(help="Part of the data.")] = "test",
    out: Annotated[str | None, typer.Option("--out", "-o", help="Where results go (default: the run).")] = None,
    metric: Annotated[str | None, typer.Option(help="Which score to show (default: the main one).")] = None,
    variants: Annotated[bool, typer.Option("--variants", help="Show best, last and average as well.")] = False,
    mix: Annotated[str | None, typer.Option(help="Source language for: sentences, question or context.")] = None,
    translator: Annotated[
        str | None, typer.Option(help="translate-test: put the data into the model's language first, with this.")
    ] = None,
    only_missing: Annotated[bool, typer.Option("--only-missing", help="Keep scores that are there already.")] = False,
    keep_unknown: Annotated[bool, typer.Option("--keep-unknown", help="Unknown gold labels are errors.")] = False,
    limit: Annotated[int | None, typer.Option(help="At most so many examples per language.")] = None,
    max_tokens: Annotated[int | None, typer.Option(help="Padded tokens per batch.")] = None,
    precision: Annotated[str, typer.Option(help="auto, fp32 or bf16.")] = "auto",
    quiet: Quiet = False,
    as_json: Json = False,
    **reading: Any,  # noqa: ANN401
) -> None:
    """Score a model in every language; results are written after each."""
    from crosslift.cli.reading import load_options
    from crosslift.runs.evaluate import evaluate as run_evaluate
    from crosslift.runs.progress import watch_screen
    from crosslift.runs.translate_baselines import translate_test
    from crosslift.translate import cache_folder

    # translate-test is evaluation with a translator in front.
    through = partial(translate_test, translator=translator, cache=cache_folder()) if translator else run_evaluate
    tables = [
        through(
            model,
            data,
            names(languages),
            split=split,
            out=out,
            variant=variant,
            mix=mix,
            only_missing=only_missing,
            keep_unknown=keep_unknown,
            limit=limit,
            max_tokens=max_tokens,
            precision=precision,
            reading=load_options(reading),
            watch=watch_screen(quiet or as_json),
        )
        for variant in (("best", "last", "average") if variants else (None,))
    ]
    if as_json:
        show_json([scores.to_dict() for scores in tables] if variants else tables[0].to_dict())
    else:
        typer.echo("\n\n".join(scores.table(metric) for scores in tables))
