"""`crosslift fit plug`: train a connector; `crosslift plug`: put a task model on it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from crosslift.cli.options import Json, Quiet, show_json


def groups() -> dict[str, type]:
    """Return the settings of `fit plug` by heading."""
    from crosslift.runs.plug import SETTINGS

    return dict(zip(("Settings of plug", "Optimisation", "Execution"), SETTINGS, strict=True))


def verb(
    multi: Annotated[str, typer.Option("--multi", help="Multilingual encoder: folder, embedded name or hub id.")],
    mono: Annotated[str, typer.Option("--mono", help="Public model that the task models were tuned from.")],
    text: Annotated[list[Path], typer.Option("--text", "-t", help="Text in that model's language; repeat for more.")],
    out: Annotated[Path, typer.Option("--out", "-o", help="Run folder.")],
    preset: Annotated[
        str,
        typer.Option(
            help="paper (models of base size) or small (the minis). What it sets goes before the defaults below: "
            "length, packing, lines, dropout, steps, batch size, rate, schedule, warm-up and clipping."
        ),
    ] = "small",
    bitext: Annotated[
        list[Path] | None,
        typer.Option("--bitext", "-b", help="LANGUAGE, English, translation, by tabs. Beyond the paper's setting."),
    ] = None,
    exclude: Annotated[
        list[Path] | None, typer.Option("--exclude", help="File of lines that are never trained on.")
    ] = None,
    seed: Annotated[int, typer.Option(help="Fixes rows, masks and dropout.")] = 1,
    max_minutes: Annotated[
        float | None, typer.Option(help="Stop training after so long and keep what is there.")
    ] = None,
    evaluations: Annotated[int, typer.Option(help="How often held-out text is predicted.")] = 5,
    keep_steps: Annotated[bool, typer.Option("--keep-steps", help="Keep the connector of every evaluation.")] = False,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace a run that is there already.")] = False,
    quiet: Quiet = False,
    as_json: Json = False,
    **settings: Any,  # noqa: ANN401
) -> None:
    """Train a connector between a multilingual and a monolingual model, from text alone (PlugIn-X)."""
    from crosslift.runs.plug import fit_connector
    from crosslift.runs.progress import watch_screen

    done = fit_connector(
        multi=multi,
        mono=mono,
        text=text,
        out=out,
        preset=preset,
        bitext=bitext or [],
        exclude=exclude or [],
        seed=seed,
        max_minutes=max_minutes,
        evaluations=evaluations,
        keep_steps=keep_steps,
        overwrite=overwrite,
        watch=watch_screen(quiet or as_json),
        **settings,
    )
    if as_json:
        show_json({"run": str(done.path), "connector": str(done.connector), "held_out": done.held_out, **done.summary})
        return
    held = "   ".join(f"{name} {value:.2f}" for name, value in done.held_out.items())
    typer.echo(f"held out  {held}   ({done.summary['setting']})")
    typer.echo(f"connector {done.connector}")
    typer.echo(f"Now:  crosslift plug TASK_MODEL --connector {done.path} --out DIR")


def plug(
    task_model: Annotated[str, typer.Argument(help="Task model: folder, run or hub id.")],
    connector: Annotated[
        str, typer.Option("--connector", "-c", help="Run of `crosslift fit plug`, or an embedded one: mini-x/mini-en.")
    ],
    out: Annotated[Path, typer.Option("--out", "-o", help="Folder of the new model.")],
    multi: Annotated[str | None, typer.Option(help="Where the multilingual model is, if it has moved.")] = None,
    as_json: Json = False,
) -> None:
    """Plug a monolingual task model onto a connector: the task in other languages, with no task data."""
    from crosslift.runs.plugged import plug as run_plug

    done = run_plug(task_model, connector, out, multi=multi)
    if as_json:
        shown = {"model": str(done.model), "kind": done.kind, "layers": list(done.layers), "seconds": done.seconds}
        show_json(shown)
        return
    layers = " + ".join(map(str, done.layers))
    typer.echo(
        f"model     {done.model}   {done.kind}, {layers} layers, {done.seconds:.1f} s   opens with transformers alone"
    )
