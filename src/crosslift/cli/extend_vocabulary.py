"""`crosslift extend-vocabulary`: more pieces for a language that a tokenizer cuts too fine."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from crosslift.cli.options import Json, Quiet, show_json, with_settings
from crosslift.cli.pretrain import by_language


def command(arguments: list[str]) -> Any:  # noqa: ANN401  a typer command
    """Return the verb; its settings are looked up only when it is called."""
    return with_settings(extend, _groups()) if arguments[:1] == ["extend-vocabulary"] else _light


def _groups() -> dict[str, type]:
    from crosslift.methods.pretrain import Sampling
    from crosslift.runs.settings import Execution
    from crosslift.runs.vocabulary import ExtensionOptimisation

    return {"A step": Sampling, "Optimisation": ExtensionOptimisation, "Execution": Execution}


def _light() -> None:
    raise AssertionError("unreachable: the verb that is called gets its full options")


_DOC = "Add pieces for a language to an encoder's vocabulary, and train its masked LM on text in that language."
_light.__doc__ = _DOC


def extend(
    model: Annotated[str, typer.Argument(help="Encoder: folder, embedded name or hub id.")],
    out: Annotated[Path, typer.Option("--out", "-o", help="Run folder; the encoder is in its model/.")],
    text: Annotated[
        list[str], typer.Option("--text", "-t", help="LANGUAGE=FILE, one sentence a line; repeat for more.")
    ],
    pieces: Annotated[int, typer.Option(min=1, help="How many pieces to add, at most.")] = 5000,
    least: Annotated[int, typer.Option(min=1, help="A new piece occurs at least so often.")] = 5,
    no_training: Annotated[
        bool, typer.Option("--no-training", help="Stop before the masked LM: new rows are means of old ones.")
    ] = False,
    seed: Annotated[int, typer.Option(help="Fixes batches and dropout.")] = 1,
    max_minutes: Annotated[float | None, typer.Option(help="Stop training after so long.")] = None,
    quiet: Quiet = False,
    as_json: Json = False,
    **settings: Any,  # noqa: ANN401
) -> None:
    """Add pieces for a language to an encoder's vocabulary, and train its masked LM on text in that language."""
    from crosslift.runs.progress import watch_screen
    from crosslift.runs.vocabulary import extend_vocabulary

    done = extend_vocabulary(
        model,
        out=out,
        text=by_language(text, "--text"),
        pieces=pieces,
        least=least,
        train=not no_training,
        seed=seed,
        max_minutes=max_minutes,
        watch=watch_screen(quiet or as_json),
        **settings,
    )
    if as_json:
        held_out = done.trained.held_out if done.trained else {}
        show_json({"model": str(done.model), **done.start.to_dict(), "held_out": held_out})
        return
    for language, scores in (done.trained.held_out if done.trained else {}).items():
        typer.echo(f"held out  {language}   loss {scores['loss']:.2f}   hidden pieces right {scores['accuracy']:.1f}%")
    typer.echo(f"model     {done.model}        opens with transformers alone")
