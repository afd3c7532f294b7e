"""`crosslift measure igap` and `crosslift measure rank`: what transfer loses, at equal training error."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from crosslift.cli.options import Json, Quiet, names, seeds, show_json
from crosslift.errors import BadInput

Rates = Annotated[
    str | None,
    typer.Option(
        "--learning-rate", help="One, or several that are pooled: 1e-5,2e-5. Default: by the encoder's width."
    ),
]
MaxLength = Annotated[int | None, typer.Option(help="Most tokens of a text (default: 128).")]
Out = Annotated[str | None, typer.Option("--out", "-o", help="Folder for the runs' errors; finished runs are kept.")]


def igap(
    models: Annotated[list[str], typer.Argument(help="Encoders, by folder or name.")],
    data: Annotated[str, typer.Option("--data", "-d", help="Parallel data: catalog name, or file with {lang}.")],
    sources: Annotated[str, typer.Option("--source", help="Languages to train in, each by itself: en,de.")] = "en",
    languages: Annotated[str, typer.Option("--languages", "-l", help="Targets: de,th,sw or all.")] = "all",
    methods: Annotated[str, typer.Option(help='finetune,gaussian,xtune or "ear:alpha=1;robust".')] = "finetune",
    split: Annotated[str, typer.Option(help="Part that is trained on and measured.")] = "dev",
    held_out: Annotated[str | None, typer.Option(help="Part for scores, transfer gap and intralingual gap.")] = None,
    errors: Annotated[str, typer.Option(help="Training errors E′ as shares: 0.2,0.1,0.")] = "0",
    epsilon: Annotated[float, typer.Option(help="Width of a band of training errors.")] = 0.001,
    every: Annotated[int, typer.Option(help="Steps between checkpoints.")] = 10,
    candidates: Annotated[int, typer.Option(help="Checkpoints per run and band, the first ones; 0 = all.")] = 10,
    seeds_text: Annotated[str, typer.Option("--seeds", help="1,2,3 or 1-5.")] = "1-3",
    learning_rate: Rates = None,
    random_labels: Annotated[
        bool, typer.Option("--random-labels", help="A fair coin per item; needs no task.")
    ] = False,
    noise: Annotated[str, typer.Option(help="Shares of labels made random: 0,0.5,1.")] = "0",
    extra: Annotated[str | None, typer.Option(help="More training data, not measured (mnli, or a file).")] = None,
    limit: Annotated[int | None, typer.Option(help="Use at most so many items.")] = None,
    max_length: MaxLength = None,
    heat_maps: Annotated[Path | None, typer.Option(help="Folder for transfer matrices as .svg.")] = None,
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", help="Folder for igap.json, which crosslift report shows; finished runs are kept."),
    ] = None,
    quiet: Quiet = False,
    as_json: Json = False,
    **settings: Any,  # noqa: ANN401
) -> None:
    """Measure what is lost between languages once the source is learnt: IGAP, and the parts of the error."""
    from crosslift.data import load
    from crosslift.data.storage import check_folder, write_json
    from crosslift.runs import igap as runs
    from crosslift.runs.progress import watch_screen

    from_languages = names(sources) or ["en"]
    if extra and len(from_languages) > 1:
        raise BadInput("--extra is in one language; give one --source.")
    specs = methods.split(";" if ";" in methods or ":" in methods else ",")
    if heat_maps:
        check_folder(heat_maps, "--heat-maps")
        if len(models) * len(specs) > 1:
            raise BadInput("--heat-maps are of one model and one method.", "Call it once for each of them.")
    results = {
        ratio: runs.igap(
            models,
            data,
            sources=from_languages,
            targets=names(languages),
            methods=specs,
            seeds=seeds(seeds_text),
            rates=numbers(learning_rate, "--learning-rate") if learning_rate else None,
            errors=numbers(errors, "--errors"),
            epsilon=epsilon,
            every=every,
            candidates=candidates or None,
            split=split,
            held_out=held_out,
            labels="random" if random_labels else "gold",
            noise=ratio,
            extra=load(extra, language=from_languages[0], split="train") if extra else None,
            limit=limit,
            out=out / "igap" if out else None,
            watch=watch_screen(quiet or as_json),
            **_lengths(max_length),
            **settings,
        )
        for ratio in numbers(noise, "--noise")
    }
    if heat_maps:
        from crosslift.measure.ranking import heat_map, save_heat_map

        heat_maps.mkdir(parents=True, exist_ok=True)
        for what in ("igap", "score", "gap") if held_out else ("igap",):
            save_heat_map(heat_map(next(iter(results.values())).matrix(what)), heat_maps / f"{what}.svg")
    found = {f"{ratio:g}": result.to_dict() for ratio, result in results.items()}
    several = len(found) > 1
    files = [out / (f"igap-noise-{ratio}.json" if several else "igap.json") for ratio in found] if out else []
    for file, content in zip(files, found.values(), strict=False):
        write_json(file, content)
    if as_json:
        show_json(found if several else next(iter(found.values())))
    else:
        typer.echo("\n\n".join(map(str, results.values())))
        if files:
            typer.echo(f"written   {', '.join(map(str, files))}")


def rank(
    model: Annotated[str, typer.Argument(help="Encoder, by folder or name.")],
    languages: Annotated[str, typer.Option("--languages", "-l", help="Targets: de,th,sw or all.")] = "all",
    parallel: Annotated[str, typer.Option("--parallel", "-p", help="Catalog name, or file with {lang}.")] = "ntrex",
    source: Annotated[str, typer.Option(help="Language of the task.")] = "en",
    split: Annotated[str | None, typer.Option(help="Part of the data.")] = None,
    sentences: Annotated[int, typer.Option(help="Use at most so many.")] = 300,
    seeds_text: Annotated[str, typer.Option("--seeds", help="1,2,3 or 1-5; each draws its own labels.")] = "1-3",
    learning_rate: Rates = None,
    error: Annotated[float, typer.Option(help="Training error at which languages are compared.")] = 0.0,
    epsilon: Annotated[float, typer.Option(help="Width of the band of training errors.")] = 0.01,
    every: Annotated[int, typer.Option(help="Steps between checkpoints.")] = 5,
    candidates: Annotated[int, typer.Option(help="Checkpoints per seed, then stop.")] = 5,
    layer: Annotated[int | None, typer.Option(help="Layer of the cosine (default: 7 of 12).")] = None,
    max_length: MaxLength = None,
    out: Out = None,
    quiet: Quiet = False,
    as_json: Json = False,
    **settings: Any,  # noqa: ANN401
) -> None:
    """Say where transfer will hurt, from translated sentences alone: no task, no labels."""
    from crosslift.runs import rank as runs
    from crosslift.runs.progress import watch_screen

    found = runs.rank(
        model,
        names(languages),
        parallel=parallel,
        source=source,
        split=split,
        sentences=sentences,
        seeds=seeds(seeds_text),
        rates=numbers(learning_rate, "--learning-rate") if learning_rate else None,
        error=error,
        epsilon=epsilon,
        every=every,
        candidates=candidates or None,
        layer=layer,
        out=out,
        watch=watch_screen(quiet or as_json),
        **_lengths(max_length),
        **settings,
    )
    if as_json:
        show_json(found.to_dict())
    else:
        typer.echo(found.table())


def _lengths(max_length: int | None) -> dict[str, Any]:
    return {} if max_length is None else {"max_length": max_length}


def numbers(text: str, what: str) -> list[float]:
    """Read `0.2,0.1,0`; without a number there is nothing to do."""
    try:
        found = [float(part) for part in text.split(",") if part.strip()]
    except ValueError:
        found = []
    if not found:
        raise BadInput(f'{what} takes numbers such as 0.2,0.1,0, not "{text}".')
    return found
