"""Rank languages by how well a model transfers to them, from translated sentences alone: no task, no labels."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any, cast

from crosslift.data.examples import Examples
from crosslift.data.storage import Json
from crosslift.errors import BadInput, nearest
from crosslift.measure.igap import Errors, gap_resamples, igaps
from crosslift.measure.ranking import Ranking, best_layer, forecasts, similarities
from crosslift.measure.retrieval import sentence_vectors
from crosslift.models.load import load_config, load_encoder, load_tokenizer
from crosslift.runs.folder import find_runs
from crosslift.runs.igap import igap
from crosslift.runs.igap_data import parallel_sets
from crosslift.runs.progress import Silent, Watch


def rank(
    model: str | Path,
    languages: Sequence[str] | None = None,
    *,
    parallel: str | Path | Mapping[str, Examples] = "ntrex",
    source: str = "en",
    split: str | None = None,
    sentences: int = 300,
    seeds: Sequence[int] = (1, 2, 3),
    rates: Sequence[float] | None = None,
    error: float = 0.0,
    epsilon: float = 0.01,
    every: int = 5,
    candidates: int | None = 5,
    layer: int | None = None,
    out: str | Path | None = None,
    reading: Mapping[str, object] | None = None,
    watch: Watch | None = None,
    **settings: Any,  # noqa: ANN401  checked by `igap`
) -> Ranking:
    """Say in which languages a transfer will lose most: IGAP of random labels on parallel sentences.

    Args:
        model: Encoder by folder, embedded name or hub id.
        languages: Targets; default: all that the parallel data has.
        parallel: Catalog name, file with `{lang}`, or language -> examples; labels are not read.
        source: Language of the task.
        split: Part of the data; default: its first one.
        sentences: Use at most so many.
        seeds: Runs; each draws its own labels.
        rates: Learning rates; default by the encoder's width.
        error: Training error E′ at which gaps are compared.
        epsilon: Width of the band of training errors.
        every: Steps between checkpoints.
        candidates: Checkpoints per seed after which a run stops.
        layer: Layer of the similarities that are shown beside; default 7 of 12, and its like in other depths.
        out: Folder for the runs' errors, so that a stopped ranking goes on.
        reading: Further arguments of `crosslift.load`.
        watch: Who is told about progress.
        settings: Anything of `Training`, `Execution` or the task, by name.
    """
    watch = watch or Silent()
    if sentences < 1:
        raise BadInput(f"--sentences must be at least 1, not {sentences}.")
    if isinstance(languages, str):
        languages = None if languages == "all" else [languages]
    wanted = None if languages is None else [source, *(x for x in languages if x != source)]
    sets = parallel_sets(parallel, wanted, split, sentences, reading, labelled=False, watch=watch)
    if source not in sets:
        raise BadInput(f'The parallel data has no "{source}"; there is {", ".join(sets)}.')
    best_layer(int(load_config(model).num_hidden_layers), layer)  # before anything is trained
    measured = igap(
        model, sets, sources=source, labels="random", seeds=seeds, rates=rates, errors=[error], epsilon=epsilon,
        every=every, candidates=candidates, out=out, watch=watch, **settings,
    )  # fmt: skip
    (errors,) = measured.systems.values()
    band = measured.bands[0]
    found = igaps(errors, band)
    if not all(score.defined for score in found.values()):
        ended = errors.final(source, held_out=False)
        raise BadInput(
            f"No checkpoint of {model} has a training error from {error:g} to {error + epsilon:g}; the runs ended at "
            f"{(ended.mean if ended else 100) / 100:.3f}.",
            "Train longer (--epochs), with another --learning-rate, or on fewer --sentences.",
        )
    layers, alike = _similarities(model, sets, errors, layer)
    gaps = {target: score.expected.mean for target, score in found.items() if score.expected}
    rows = forecasts(gaps, gap_resamples(errors, band), alike)
    some = next(iter(found.values()))
    learnt, seeds_run = sum(count > 0 for count in some.used.values()), len(some.used)
    said = f"{seeds_run}" if learnt == seeds_run else f"{learnt} of {seeds_run}"  # a seed may lack a checkpoint
    about = f"random labels on {errors.items} sentences, {said} seeds, training error below {error + epsilon:g}"
    return Ranking(Path(model).name, source, about, rows, some.used, layers)


def gold_scores(run: str | Path, data: str | None = None) -> dict[str, float]:
    """Return language -> main score of a run, mean over its seeds: what a ranking should have foretold.

    Args:
        run: Folder of a run, or of its seeds, that was evaluated.
        data: Which evaluated data ("sib200/test"); default: the only one there is.
    """
    found = [folder.results() for folder in find_runs(run)]
    if not found:
        raise BadInput(f"{run} is not a run folder.")
    names = [name for name in found[0] if all(name in results for results in found)]
    if not names:
        raise BadInput(f"{run} has no scores.", "Run crosslift evaluate on it first.")
    if data is None and len(names) > 1:
        raise BadInput(f"Which scores of {run} are meant? It has {', '.join(names)}.", "Name them with --gold-data.")
    if data is not None and data not in names:
        raise BadInput(f'{run} has no scores on "{data}".{nearest(data, names)}', f"It has {', '.join(names)}.")
    kept = [cast("dict[str, dict[str, dict[str, Json]]]", results[data or names[0]]) for results in found]
    shared = [language for language in kept[0] if all(language in results for results in kept)]

    def main(scores: Mapping[str, Json]) -> float:
        return float(cast("float", next(iter(scores.values()))["value"]))

    return {language: fmean(main(results[language]["scores"]) for results in kept) for language in shared}


def _similarities(
    model: str | Path, sets: Mapping[str, Examples], errors: Errors, layer: int | None
) -> tuple[int, dict[str, dict[str, float]]]:
    encoder, tokenizer = load_encoder(model), load_tokenizer(model)
    chosen = best_layer(int(encoder.config.num_hidden_layers), layer)
    length = min(128, int(tokenizer.model_max_length))
    vectors = {
        language: sentence_vectors(encoder, tokenizer, sets[language].texts, max_length=length)[chosen]
        for language in (errors.source, *errors.targets)
    }
    return chosen, {target: similarities(vectors[errors.source], vectors[target]) for target in errors.targets}
