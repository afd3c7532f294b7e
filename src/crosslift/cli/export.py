"""`crosslift export`: a task model as ONNX, in a folder that works without torch and crosslift."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from crosslift.cli.options import Json, show_json
from crosslift.errors import BadInput


def export(
    model: Annotated[str, typer.Argument(help="Task model: run, folder or hub id; of several seeds the first.")],
    out: Annotated[Path, typer.Option("--out", "-o", help="Folder to write.")],
    int8: Annotated[bool, typer.Option("--int8/--no-int8", help="Also a file with weights in 8 bits.")] = True,
    as_json: Json = False,
) -> None:
    """Write a task model as ONNX, checked against the original, with a script that predicts."""
    from crosslift.models.export import INT8, ONNX, export_onnx
    from crosslift.models.load import model_kind
    from crosslift.runs.fit import open_run
    from crosslift.runs.folder import find_runs

    where = open_run(model).model if find_runs(model) else model
    if model_kind(where) is None:
        raise BadInput(f"{model} is an encoder without a task head.", "Fine-tune it first: crosslift fit finetune.")
    facts = export_onnx(where, out, int8=int8)
    if as_json:
        show_json({"out": str(out), **facts})
        return
    typer.echo(
        f"model     {out / ONNX}   {facts['megabytes']:.1f} MB, no output differs by more than "
        f"{facts['largest_difference']:.1g}"
    )
    if int8:
        typer.echo(
            f"int8      {out / INT8}   {facts['int8_megabytes']:.1f} MB, the same label for "
            f"{facts['int8_agreement']:.1%} of random inputs"
        )
    typer.echo(f"predict   python {out / 'predict.py'}        needs onnxruntime, tokenizers and numpy alone")
