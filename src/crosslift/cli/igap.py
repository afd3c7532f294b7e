"""`crosslift measure igap` and `crosslift measure rank`: what transfer loses, at equal training error."""

from __future__ import annotations

from collections.abc import Mapping
from math import isnan
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
    sources: Annotated[str, typer.Option("--source", help="Languages to train in, each alone: en,de or all.")] = "en",
    languages: Annotated[str, typer.Option("--languages", "-l", help="Targets: de,th,sw or all.")] = "all",
    methods: Annotated[str, typer.Option(help='finetune,gaussian,xtune or "ear:alpha=1;robust".')] = "finetune",
    split: Annotated[str, typer.Option(help="Part that is trained on and measured.")] = "dev",
    held_out: Annotated[
        str | None, typer.Option(help="Part, or file with {lang}, for scores, transfer gap and intralingual gap.")
    ] = None,
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
    whole: Annotated[
        bool, typer.Option("--whole", help="Run everything at every checkpoint: costly; adds the best single one.")
    ] = False,
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
    from crosslift.data.parallel import require_share
    from crosslift.data.storage import check_folder, write_json
    from crosslift.measure.ranking import heat_map, require_drawing, save_heat_map
    from crosslift.runs import igap as runs
    from crosslift.runs.progress import watch_screen

    from_languages = names(sources)
    if extra and (from_languages is None or len(from_languages) > 1):
        raise BadInput("--extra is in one language; give one --source.")
    specs = methods.split(";" if ";" in methods or ":" in methods else ",")
    ratios = list(dict.fromkeys(numbers(noise, "--noise")))
    for ratio in ratios:
        require_share(ratio)  # before the first of them is measured
    if random_labels and any(ratios):
        raise BadInput("Random labels are noise already; leave out --noise.")
    if heat_maps:
        check_folder(heat_maps, "--heat-maps")
        require_drawing()
        if len(models) * len(specs) * len(ratios) > 1:
            raise BadInput(
                "--heat-maps are of one model, one method and one share of noise.", "Call it once for each of them."
            )
    more = load(extra, language=from_languages[0], split="train") if extra and from_languages else None
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
            extra=more,
            limit=limit,
            whole=whole,
            out=out / "igap" if out else None,
            watch=watch_screen(quiet or as_json),
            **_lengths(max_length),
            **settings,
        )
        for ratio in ratios
    }
    found = {f"{ratio:g}": result.to_dict() for ratio, result in results.items()}
    several = len(found) > 1
    files = [out / (f"igap-noise-{ratio}.json" if several else "igap.json") for ratio in found] if out else []
    for file, content in zip(files, found.values(), strict=False):
        write_json(file, content)
    if heat_maps:
        heat_maps.mkdir(parents=True, exist_ok=True)
        for what in ("igap", "score", "gap") if held_out else ("igap",):
            save_heat_map(heat_map(next(iter(results.values())).matrix(what)), heat_maps / f"{what}.svg")
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
    gold: Annotated[
        Path | None, typer.Option(help="Evaluated run: how well is the order of its scores foretold?")
    ] = None,
    gold_data: Annotated[str | None, typer.Option(help="Which of its evaluations (sib200/test).")] = None,
    max_length: MaxLength = None,
    out: Out = None,
    quiet: Quiet = False,
    as_json: Json = False,
    **settings: Any,  # noqa: ANN401
) -> None:
    """Say where transfer will hurt, from translated sentences alone: no task, no labels."""
    from crosslift.data import languages_of
    from crosslift.runs import rank as runs
    from crosslift.runs.progress import watch_screen

    if gold_data and not gold:
        raise BadInput("--gold-data says which scores of a run are meant; name the run with --gold.")
    scores = runs.gold_scores(gold, gold_data) if gold else {}
    wanted = names(languages)
    if gold:
        ranked = [x for x in wanted or languages_of(parallel, split) if x != source]
        if sum(language in scores for language in ranked) < 2:
            raise BadInput(
                f"{gold} has scores in {', '.join(scores)}; a ranking needs two or more of {', '.join(ranked)}."
            )
    found = runs.rank(
        model,
        wanted,
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
        show_json({**found.to_dict(), **({"accuracy": _plain(found.accuracy(scores))} if gold else {})})
    else:
        typer.echo(found.table() + (f"\n\n{found.accuracy_table(scores)}" if gold else ""))


def _plain(accuracy: Mapping[str, Mapping[str, float]]) -> dict[str, dict[str, float | None]]:
    """Return forecast -> figures as JSON has them: where all languages tie there is no correlation."""
    return {kind: {name: None if isnan(x) else x for name, x in found.items()} for kind, found in accuracy.items()}


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
