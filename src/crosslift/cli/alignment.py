"""`crosslift measure alignment`: are translated words near each other, and unrelated ones apart?"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal, cast

import typer

from crosslift.cli.adjust import BITEXT_HELP, bitexts
from crosslift.cli.options import Json, pairs, show_json
from crosslift.errors import BadInput


def alignment(
    model: Annotated[
        list[str], typer.Option("--model", "-m", help="NAME=MODEL (original=mini-x adjusted=runs/a …); repeat.")
    ],
    bitext: Annotated[str, typer.Option("--bitext", "-b", help=BITEXT_HELP.replace("; repeat for more", ""))],
    out: Annotated[Path | None, typer.Option("--out", "-o", help="Folder for alignment.json and a picture.")] = None,
    source: Annotated[str, typer.Option(help="Language of the first side.")] = "en",
    aligner: Annotated[str, typer.Option(help="As in crosslift align: statistical, eflomal, a file, an encoder.")] = (
        "statistical"
    ),
    cut: Annotated[str, typer.Option(help="Words by language (segment), or at spaces.")] = "segment",
    samples: Annotated[int, typer.Option(min=1, help="Word pairs to draw.")] = 5000,
    sentences: Annotated[int, typer.Option(min=2, help="Sentence pairs for retrieval.")] = 1000,
    layer: Annotated[int | None, typer.Option(min=1, help="Layer, from 1 (default: the last).")] = None,
    pooling: Annotated[str, typer.Option(help="A word is the mean of its pieces, the first or the last.")] = "mean",
    limit: Annotated[int | None, typer.Option(min=1, help="Read at most so many sentence pairs.")] = None,
    seed: Annotated[int, typer.Option(help="Draws the word pairs.")] = 0,
    as_json: Json = False,
) -> None:
    """Related against unrelated words: L2, cosine, AUC, overlap, retrieval; histograms with --out."""
    from crosslift.align import align_words
    from crosslift.data.bitext import read_bitext
    from crosslift.data.draft import UNKNOWN_LANGUAGE
    from crosslift.data.storage import write_json
    from crosslift.measure.alignment import measure_alignment

    if pooling not in ("mean", "first", "last"):
        raise BadInput(f"--pooling is mean, first or last, not {pooling!r}.")
    ((language, files),) = bitexts([bitext], "--bitext").items()
    models = pairs(model, "--model")
    if len(models) < len(model):
        raise BadInput("Two models have the same name.", "Say --model NAME=MODEL, each with a name of its own.")
    other = None if language == UNKNOWN_LANGUAGE else language
    aligned = align_words(
        read_bitext(files, language=source, pair_language=other, limit=limit), aligner=aligner, words=cut
    )
    how = cast("Literal['mean', 'first', 'last']", pooling)
    report = measure_alignment(models, aligned, samples=samples, sentences=sentences, seed=seed, layer=layer, how=how)
    if out is not None:
        write_json(out / "alignment.json", report.to_dict())
        report.draw(out / "alignment.png")
    if as_json:
        show_json(report.to_dict())
    else:
        typer.echo(report.table())
        if out is not None:
            typer.echo(f"written   {out / 'alignment.json'}, {out / 'alignment.png'}")
