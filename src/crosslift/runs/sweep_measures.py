"""Measurements as runs: what `fit` does not train, but a sweep should do once and keep.

Each function fills one run folder. Measurements write `results.json` in the shape of scores (name -> language or
target -> `scores` -> metric -> value), so that whoever reads a sweep reads all of it alike.
"""

from __future__ import annotations

import inspect
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, cast

import numpy as np
import torch
from torch import nn

from crosslift import demo
from crosslift.data import load
from crosslift.data.bitext import read_bitext
from crosslift.data.examples import Examples
from crosslift.data.storage import Json, write_json
from crosslift.errors import BadInput
from crosslift.runs.folder import RunFolder
from crosslift.runs.progress import Watch

if TYPE_CHECKING:
    from crosslift.measure.igap import Band

Model = TypeVar("Model", bound=nn.Module)
SETTINGS = ()
"""These functions take named arguments alone."""


def measure_igap(
    *,
    model: str,
    data: str,
    out: str | Path,
    seed: int = 1,
    source: str = "en",
    targets: Sequence[str] | None = None,
    tuning: str = "finetune",
    errors: float | Sequence[float | Sequence[float]] = (0.0,),
    epsilon: float = 0.001,
    every: int = 10,
    candidates: int | None = 10,
    split: str = "dev",
    held_out: str | None = None,
    labels: str = "gold",
    noise: float = 0.0,
    extra: str | None = None,
    extra_limit: int | None = None,
    limit: int | None = None,
    epochs: float | None = None,
    learning_rate: float | None = None,
    max_tokens: int = 8192,
    watch: Watch | None = None,
) -> None:
    """Measure IGAP of one seed: per target and band its gap, and with held-out data the score and its parts.

    Args are those of `runs.igap.igap`, with `tuning` for its method, `extra` the name of a set whose training rows
    join, bands written as `[error, epsilon]`, and 0 `candidates` for all of them.
    """
    from crosslift.measure.igap import igaps
    from crosslift.runs.igap import igap

    errors = [errors] if isinstance(errors, int | float | str) else errors  # one of an axis of the grid
    asked = [_band(band, epsilon) for band in errors]
    for error, _ in asked:
        if [other for other, _ in asked].count(error) > 1:
            raise BadInput(f"errors has two bands at E′ = {error:g}; results are named by E′ alone.")
    folder = _start("igap", locals())
    given: dict[str, Any] = {"epochs": epochs, "learning_rate": learning_rate, "max_tokens": max_tokens}
    more = load(extra, language=source, split="train") if extra else None
    if more is not None and extra_limit:
        more = more.take(extra_limit)
    result = igap(
        model, data, sources=source, targets=targets, methods=tuning, seeds=[seed], errors=asked, every=every,
        candidates=candidates or None, split=split, held_out=held_out, labels=labels, noise=noise,
        extra=more, limit=limit, watch=watch, **{name: value for name, value in given.items() if value is not None},
    )  # fmt: skip
    (found,) = result.systems.values()
    results: Json = {}
    for place, band in enumerate(result.bands):
        cells = {}
        for target, one in igaps(found, band).items():
            scores: dict[str, float | None] = {"igap": one.minimum}
            parts = found.decomposition(target)
            if parts is not None:
                scores |= {"score": 100 - parts.error, "intralingual": parts.intralingual, "gap": parts.transfer_gap}
                scores |= {"interlingual": parts.interlingual}
            ended = found.final(target, held_out=False)
            scores["translated"] = 100 - ended.mean if ended else None
            cells[target] = _cell(scores)
        own, trained = found.final(source), found.final(source, held_out=False)
        cells[source] = _cell({"score": 100 - own.mean if own else None, "training": trained.mean if trained else None})
        results |= {f"igap@{band.error:g}": cells} | ({"igap": cells} if place == 0 else {})
    _finish(folder, results, {"about": result.about, "texts": result.texts})


def _band(given: Any, epsilon: Any) -> Band:  # noqa: ANN401  whatever a grid holds
    """Read E′, or a pair of E′ and ε. YAML takes 1e-3, without a dot, for text."""
    from crosslift.measure.igap import Band

    try:
        error, width = (given, epsilon) if isinstance(given, int | float | str) else given
        return Band(float(error), float(width))
    except (TypeError, ValueError):
        raise BadInput(
            f"errors and epsilon in the grid are numbers, not {given!r} and {epsilon!r}.",
            "Several bands of one run are a list in a list: [[0.2, 0.1, 0]], or [[[0.2, 0.025], [0, 0.001]]].",
        ) from None


def measure_similarities(
    *,
    model: str,
    data: str,
    out: str | Path,
    seed: int = 1,
    source: str = "en",
    targets: Sequence[str] | None = None,
    split: str | None = None,
    limit: int | None = None,
    layer: int | None = None,
    watch: Watch | None = None,
) -> None:
    """Measure how alike an untuned encoder's vectors of translated sentences are: minus L2, dot product, cosine."""
    from crosslift.measure.ranking import best_layer, similarities
    from crosslift.measure.retrieval import sentence_vectors
    from crosslift.models.load import load_encoder, load_tokenizer
    from crosslift.runs.igap_data import parallel_sets

    folder = _start("similarities", locals())
    targets = [targets] if isinstance(targets, str) else targets
    wanted = None if targets is None else list(dict.fromkeys([source, *targets]))
    sets = parallel_sets(data, wanted, split, limit, labelled=False, watch=watch)
    encoder, tokenizer = _placed(load_encoder(model)), load_tokenizer(model)
    chosen = best_layer(int(encoder.config.num_hidden_layers), layer)
    length = min(128, int(tokenizer.model_max_length))
    vectors = {x: sentence_vectors(encoder, tokenizer, s.texts, max_length=length)[chosen] for x, s in sets.items()}
    cells = {x: _cell(dict(similarities(vectors[source], vectors[x]))) for x in sets if x != source}
    _finish(folder, {"similarities": cells}, {"layer": chosen})


def measure_words(
    *,
    model: str,
    bitext: Mapping[str, str],
    out: str | Path,
    seed: int = 1,
    aligner: str = "statistical",
    samples: int = 2000,
    sentences: int = 500,
    layer: int | None = None,
    limit: int | None = None,
    picture: int = 0,
    watch: Watch | None = None,
) -> None:
    """Measure distances of related and unrelated words of sentence pairs, with their histograms.

    With `picture` at most so many words of each language are put into the plane as well, as the model's output has
    them.
    """
    from crosslift.align import align_words
    from crosslift.measure.alignment import measure_alignment
    from crosslift.measure.pictures import placed, translated_words
    from crosslift.models.load import load_encoder, load_tokenizer

    folder = _start("words", locals())
    cells = {}
    for language, file in bitext.items():
        pairs = named_bitext(file, language)
        pairs = pairs if isinstance(pairs, Examples) else read_bitext(pairs, language="en", pair_language=language)
        pairs = pairs.take(limit) if limit else pairs
        aligned = align_words(pairs, aligner=aligner)
        report = measure_alignment({"it": model}, aligned, samples=samples, sentences=sentences, layer=layer)
        one = report.encoders["it"]
        scores = {
            "l2 related": one.l2.related,
            "l2 unrelated": one.l2.unrelated,
            "l2 auc": one.l2.auc,
            "cosine related": one.cosine.related,
            "cosine unrelated": one.cosine.unrelated,
            "auc": one.cosine.auc,
            "retrieval": one.retrieval,
        }
        cells[language] = {**_cell(scores), "histogram": asdict(one.l2)}
        if picture:
            points = translated_words(load_encoder(model), load_tokenizer(model), aligned, picture)
            cells[language]["picture"] = placed(points)
    _finish(folder, {"words": cells}, {})


def measure_synonyms(
    *,
    model: str,
    data: str,
    out: str | Path,
    seed: int = 1,
    synonyms: str = "neighbours",
    layer: int = 0,
    within: str = "words",
    count: int = 200,
    picture: int = 0,
    watch: Watch | None = None,
) -> None:
    """Measure how much closer a word is to its synonym than to other words: mean cosine above that of all pairs.

    Args:
        model: Encoder or task model.
        data: Set whose English training texts are read.
        out: Run folder.
        seed: Draws the synonyms.
        synonyms: As for `ear`.
        layer: 0 = embedding layer, -1 = the output.
        within: `words`: each word a text of its own; `texts`: words of a text and of its copy with synonyms.
        count: Words, or texts.
        picture: Put at most so many words and their synonyms into the plane as well.
        watch: Who is told about progress.
    """
    from crosslift.data.augment import Source, SynonymSettings
    from crosslift.measure.pictures import placed, pull_together, replaced_words, words_of
    from crosslift.models.load import load_encoder, load_tokenizer

    folder = _start("synonyms", locals())
    encoder, tokenizer = load_encoder(model), load_tokenizer(model)
    texts = load(data, language="en", split="train")
    short = np.array([row for row, text in enumerate(texts.texts) if 4 <= len(text.split()) <= 16][: max(count, 20)])
    chosen = texts.select(short.tolist())
    source = Source(SynonymSettings(synonyms=synonyms), chosen)
    if synonyms == "neighbours":
        source.look_among_neighbours(tokenizer, encoder.get_input_embeddings().weight.detach().float().numpy())
    drawn, spans = source.draw(np.arange(len(chosen)), seed, 0)
    before, after = source.spans[0], spans[0]
    if within == "texts":
        rows = list(range(min(24, len(chosen))))
        x = words_of(encoder, tokenizer, [chosen.texts[i] for i in rows], "x", layer=layer, linked=True,
                     spans=[before[i] for i in rows])  # fmt: skip
        xa = words_of(encoder, tokenizer, [drawn.texts[i] for i in rows], "xᵃ", layer=layer, linked=True,
                      spans=[after[i] for i in rows])  # fmt: skip
    else:
        cut = [
            (chosen.texts[i][a:b], drawn.texts[i][c:d])
            for i in range(len(chosen))
            for (a, b), (c, d) in zip(before[i].tolist(), after[i].tolist(), strict=True)
        ]
        pairs = list(dict.fromkeys(pair for pair in cut if pair[0] != pair[1]))[:count]
        if len(pairs) < 2:
            raise BadInput(f"Hardly a word of {data} has a synonym in {synonyms}.")
        x, xa = (
            words_of(encoder, tokenizer, [pair[side] for pair in pairs], group, layer=layer, linked=True,
                     spans=[np.array([[0, len(pair[side])]]) for pair in pairs])
            for side, group in enumerate(("word", "synonym"))
        )  # fmt: skip
    cell = _cell({"closer": pull_together(x + xa)})
    if picture:
        cell["picture"] = placed(replaced_words(x, xa, picture))
    _finish(folder, {"synonyms": {"en": cell}}, {"words": len(x.words)})


def measure_plug(
    *,
    multi: str,
    mono: str,
    data: str,
    out: str | Path,
    connector: str | None = None,
    seed: int = 1,
    targets: Sequence[str] = (),
    split: str = "test",
    limit: int = 500,
    watch: Watch | None = None,
) -> None:
    """Measure L2 distance and cosine between English in the monolingual model and translations through a connector.

    How both are spread over the sentences is kept as histograms.

    Without a connector the multilingual model's own vectors of the same depth take its place.
    """
    from crosslift.measure.plug_alignment import cross_model_alignment, histogram
    from crosslift.models.connectors import ConnectorFacts, LoadedConnector, load_connector
    from crosslift.models.load import load_encoder, load_tokenizer

    folder = _start("plug-alignment", locals())
    texts = {x: list(load(data, language=x, split=split).texts)[:limit] for x in ("en", *targets)}
    base = _placed(load_encoder(mono))
    if connector:
        loaded = load_connector(connector, multi)
        _placed(loaded.connector)
    else:
        encoder = load_encoder(multi)
        depth, middle = int(base.config.num_hidden_layers), int(base.config.num_hidden_layers) // 2
        facts = ConnectorFacts(
            multi, mono, int(encoder.config.num_hidden_layers) // 2, 0, middle, base.config.model_type,
            base.config.hidden_size, depth, "none",
        )  # fmt: skip
        loaded = LoadedConnector(facts, cast("Any", lambda states, mask: states), encoder, {})
    _placed(loaded.multi)
    found = cross_model_alignment(loaded, base, (load_tokenizer(multi), load_tokenizer(mono)), texts["en"], texts)
    cells = {
        x: {
            **_cell(
                {"l2": float(one.l2.mean()), "cosine": float(one.cosine.mean()), "cosine sd": float(one.cosine.std())}
            ),
            "histograms": {"l2": histogram(one.l2.numpy()), "cosine": histogram(one.cosine.numpy())},
        }
        for x, one in found.items()
    }
    _finish(folder, {"plug": cells}, {})


def _start(method: str, given: Mapping[str, Any]) -> RunFolder:
    """Open the folder of a measurement, known by the arguments that decide its outcome."""
    settings = {name: value for name, value in given.items() if name in _ARGUMENTS}
    return RunFolder.start(given["out"], {"method": method, **settings})


def named_bitext(name: Any, language: str) -> Any:  # noqa: ANN401  a file's name or examples
    """Return the sentence pairs behind a name: `bitext`, an embedded set (`demo-intent/dev`), or a file, as it is."""
    if name == "bitext":
        return load("bitext", language=language, split="train")
    if str(name).startswith("demo-"):
        known, _, split = str(name).partition("/")
        return demo.load_translations(known, language, split or "train")
    return name


def _placed(model: Model) -> Model:
    """Put a model onto the GPU where there is one."""
    return model.to("cuda" if torch.cuda.is_available() else "cpu")


def _cell(scores: Mapping[str, float | None]) -> Json:
    return {"scores": {name: {"metric": name, "value": value} for name, value in scores.items() if value is not None}}


def _finish(folder: RunFolder, results: Json, summary: Json) -> None:
    shutil.rmtree(folder.state, ignore_errors=True)
    write_json(folder.results_file, results)
    folder.finish(summary)


_ARGUMENTS = {
    name
    for function in (measure_igap, measure_similarities, measure_words, measure_synonyms, measure_plug)
    for name in inspect.signature(function).parameters
} - {"out", "watch", "max_tokens"}
"""What decides the outcome; a run may go on with another use of the machine, as those of `fit` may."""
