"""`crosslift pretrain`: text (and bitext) in, tokenizer and encoder out."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from crosslift.cli.options import Json, Quiet, pairs, show_json, with_settings
from crosslift.errors import BadInput


def command(arguments: list[str]) -> Any:  # noqa: ANN401  a typer command
    """Return the verb; its many settings are looked up only when it is called."""
    return with_settings(pretrain, _groups()) if arguments[:1] == ["pretrain"] else _light


def _groups() -> dict[str, type]:
    from crosslift.runs.pretrain import SETTINGS

    headings = ("Encoder", "Tokenizer", "Objectives, by weight", "A step", "Optimisation", "Execution")
    return dict(zip(headings, SETTINGS, strict=True))


def _light() -> None:
    raise AssertionError("unreachable: the verb that is called gets its full options")


_DOC = "Train an encoder on text files: tokenizer, masked LM, and what pairs and teachers add."
_light.__doc__ = _DOC


def pretrain(
    out: Annotated[Path, typer.Option("--out", "-o", help="Run folder; the encoder is in its model/.")],
    text: Annotated[
        list[str], typer.Option("--text", "-t", help="LANGUAGE=FILE, one sentence a line; repeat for more.")
    ],
    bitext: Annotated[
        list[Path] | None, typer.Option("--bitext", "-b", help="File of LANGUAGE, English, translation, by tabs.")
    ] = None,
    lexicon: Annotated[
        list[str] | None, typer.Option("--lexicon", "-l", help="LANGUAGE=FILE of English and word, by a tab.")
    ] = None,
    teacher: Annotated[
        list[str] | None, typer.Option("--teacher", help="Sentence encoder (folder) or file of text vectors (.npz).")
    ] = None,
    start: Annotated[str | None, typer.Option("--from", help="Continue this encoder, with its tokenizer.")] = None,
    body: Annotated[
        str | None, typer.Option("--body", help="Start from this encoder's layers, with another vocabulary.")
    ] = None,
    tokenizer: Annotated[str | None, typer.Option("--tokenizer", help="Use this tokenizer (folder).")] = None,
    exclude: Annotated[
        list[Path] | None, typer.Option("--exclude", help="File of lines that are never trained on.")
    ] = None,
    phrases: Annotated[
        list[str] | None,
        typer.Option("--phrases", help="LANGUAGE=FILE of words and phrases, learnt from a teacher's vectors alone."),
    ] = None,
    seed: Annotated[int, typer.Option(help="Fixes weights, batches and dropout.")] = 1,
    max_minutes: Annotated[
        float | None, typer.Option(help="Stop training after so long and write what is there.")
    ] = None,
    overwrite: Annotated[bool, typer.Option(help="Replace a run that is there already.")] = False,
    quiet: Quiet = False,
    as_json: Json = False,
    **settings: Any,  # noqa: ANN401
) -> None:
    """Train an encoder on text files: tokenizer, masked LM, and what pairs and teachers add."""
    from crosslift.runs.pretrain import pretrain as run_pretrain
    from crosslift.runs.progress import watch_screen

    if start is not None and (tokenizer is not None or body is not None):
        raise BadInput("--from keeps the encoder's tokenizer and layers.", "Leave out --tokenizer and --body.")
    done = run_pretrain(
        out=out,
        text=by_language(text, "--text"),
        bitext=bitext or [],
        lexicons=pairs(lexicon, "--lexicon"),
        teachers=teacher or [],
        start=start,
        body=body,
        tokenizer=tokenizer,
        exclude=exclude or [],
        phrases=by_language(phrases or [], "--phrases"),
        seed=seed,
        max_minutes=max_minutes,
        overwrite=overwrite,
        watch=watch_screen(quiet or as_json),
        **settings,
    )
    if as_json:
        show_json({"model": str(done.model), "held_out": done.held_out, "stuck": done.stuck, **done.summary})
        return
    typer.echo("held out        loss  hidden pieces right   piece frequencies alone")
    for language, scores in done.held_out.items():
        typer.echo(
            f"  {language:<12}{scores['loss']:6.2f}{scores['accuracy']:14.1f}%"
            f"{scores['unigram_loss']:14.2f}{scores['unigram_accuracy']:8.1f}%"
        )
    typer.echo(f"model     {done.model}        opens with transformers alone")


def by_language(items: list[str], what: str) -> dict[str, list[str]]:
    """Read repeated LANGUAGE=FILE options; a language may come more than once."""
    found: dict[str, list[str]] = {}
    for item in items:
        for language, path in pairs([item], what).items():
            found.setdefault(language, []).append(path)
    return found
