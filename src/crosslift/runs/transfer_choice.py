"""Which candidate to deliver, without a target label.

What can be known of a candidate without labels in the target language:

- its score on source-language dev data (with labels);
- whether it says of a translation what was said of the original, on sentences that nothing was trained on
  (single-text classification). With labels the original's answer is its own, and counts as much as its dev score says
  it is worth: `carried` = dev score × agreement. Without labels it is the task model's;
- its agreement with the task model on source text;
- random-label IGAP, where it was asked for.

`benchmarks/experiments/selection` measures how often such rules find what gold labels would have picked.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import fmean
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from crosslift.data.examples import Examples
from crosslift.data.parallel import align
from crosslift.data.storage import read_json, write_json
from crosslift.errors import CrossliftError
from crosslift.runs.compare import compare
from crosslift.runs.evaluate import evaluate, predict
from crosslift.runs.fit import Run
from crosslift.runs.folder import find_runs
from crosslift.runs.predictions import rescore
from crosslift.runs.progress import Watch
from crosslift.runs.transfer_candidates import needs
from crosslift.runs.transfer_inputs import Inputs

BASELINE = "finetune"
FEWEST = 30
"""Translated sentences below which agreement says nothing."""
MOST, MOST_IN_ALL = 200, 800
"""Translated sentences that are read: per language, and of all languages together."""

_NAMED = 4  # languages

Floats = NDArray[np.float64]
Pairs = dict[str, tuple[Examples, Examples]]
"""Target language -> sentences in the source language and their translations, row by row."""


@dataclass(frozen=True)
class Choice:
    """What was chosen, and by what.

    Attributes:
        chosen: Name of the candidate.
        rule: How it was chosen, in words.
        signals: Candidate -> signal -> its value, in percent.
        aside: Candidate -> why it could not be judged with the others.
    """

    chosen: str
    rule: str
    signals: dict[str, dict[str, float]]
    aside: dict[str, str] = field(default_factory=dict)


def by_gold(means: Mapping[str, float]) -> Choice:
    """Choose by gold dev data of target languages; the first, so the plainer, where two are equal."""
    chosen = max(means, key=lambda name: means[name])
    rule = "GOLD TARGET DEV DATA, as allowed: the highest mean over its target languages"
    return Choice(chosen, rule, {name: {"gold target dev": round(mean, 2)} for name, mean in means.items()})


def choose(runs: Mapping[str, Run], inputs: Inputs, out: Path, watch: Watch) -> Choice:
    """Choose without target labels.

    Args:
        runs: Candidates that succeeded, the plainer first.
        inputs: What there is.
        out: Folder in which what candidates say is kept for the next start.
        watch: Who is told about progress.
    """
    kind = str(next(iter(runs.values())).folders[0].config["kind"])
    if inputs.data is not None:
        return _with_labels(runs, inputs, kind, out, watch)
    return _with_task_model(runs, inputs, kind, out, watch)


def _with_labels(runs: Mapping[str, Run], inputs: Inputs, kind: str, out: Path, watch: Watch) -> Choice:
    """Choose by the dev score, and by whether answers survive translation."""
    pairs, general = _translated(inputs, kind)
    dev = replace(inputs.source_dev(), name="source-dev")
    scores: dict[str, float] = {}
    aside: dict[str, str] = {}
    for name, run in runs.items():
        try:
            found = evaluate(run, {inputs.source: dev}, out=out / name, only_missing=True, watch=watch)
        except CrossliftError as error:  # such as a task model with other labels
            aside[name] = error.seen
            continue
        summary = found.of_language(inputs.source)
        scores[name] = summary.mean if summary else 0.0
    signals = {name: {"source dev": round(score, 2)} for name, score in scores.items()}
    where = f"{inputs.source} dev data"
    if pairs:
        agreed = {name: _self_agreement(runs[name], pairs, out / name, watch) for name in scores}
        for name in scores:
            signals[name]["translation agreement"] = round(100 * _mean(agreed[name]), 2)
            signals[name]["carried"] = round(scores[name] * _mean(agreed[name]), 2)
        carried = {name: signals[name]["carried"] for name in scores}
        items = {name: (_right(out / name, inputs.source), *agreed[name]) for name in scores}
        ahead = [name for name in scores if BASELINE in scores and surely_more(items[name], items[BASELINE])]
        rule = f"score on {where} × share of translated sentences with an unchanged answer ({_some(pairs)})"
        if general:
            # Adjustment learns to make such pairs alike: ahead on them alone says little about the task.
            learnt = {name for name in scores if "bitext" in needs(name)}
            ahead = [name for name in ahead if name not in learnt or _surely_better(out, name, inputs.source)]
            if learnt:
                rule = f"{rule}, and for what learnt from sentence pairs the score on {where} alone"
        chosen, why = guarded(carried, ahead)
    else:
        ahead = [name for name in scores if BASELINE in scores and _surely_better(out, name, inputs.source)]
        chosen, why = guarded(scores, ahead)
        rule = f"score on {where}"
    return Choice(chosen, f"{rule}: {why}; no target label was read", signals, aside)


def _with_task_model(runs: Mapping[str, Run], inputs: Inputs, kind: str, out: Path, watch: Watch) -> Choice:
    """Choose by agreement with the task model: on translations, else on text of its own language."""
    pairs, _ = _translated(inputs, kind)
    teacher = cast("str", inputs.task_model)
    if pairs:
        originals = {language: sides[0] for language, sides in pairs.items()}
        said = _kept(out / "task-model.translations.json", lambda: _answers(teacher, originals, watch))
        signals = {}
        for name, run in runs.items():
            translations = {language: sides[1] for language, sides in pairs.items()}
            file = out / f"{name}.translations.json"
            ours = _kept(file, lambda run=run, texts=translations: _answers(run, texts, watch))  # type: ignore[misc]
            agreed = [fmean(a == b for a, b in zip(said[x], ours[x], strict=True)) for x in pairs]
            signals[name] = {"agreement on translations": round(100 * fmean(agreed), 2)}
        chosen = max(signals, key=lambda name: signals[name]["agreement on translations"])
        rule = f"says of most translations what the task model says of the originals ({_some(pairs)})"
        return Choice(chosen, f"{rule}; no label was read", signals)
    own = inputs.judging_texts(kind).get(inputs.source)
    signals, aside = {}, {}
    for name, run in runs.items():
        if own is not None and kind != "qa" and not name.endswith("+student"):
            signals[name] = {"agreement": round(_agreement(teacher, run, name, own, out, watch), 2)}
        elif len(runs) == 1 or (own is None and name == "distill"):
            signals[name] = {"agreement": round(_dev(run), 2)}
        else:
            aside[name] = "it has no common scale with the others"
    if not signals:  # students alone: each by its own teacher
        signals, aside = {name: {"agreement": round(_dev(run), 2)} for name, run in runs.items()}, {}
    chosen = max(signals, key=lambda name: signals[name]["agreement"])
    return Choice(chosen, "agreement with the task model; no label was read", signals, aside)


def guarded(scores: Mapping[str, float], ahead: Sequence[str]) -> tuple[str, str]:
    """Return the candidate with the highest score, unless the baseline may be as good, and the reason in words.

    Args:
        scores: Candidate -> what counts; the plainer first, which wins where two are equal.
        ahead: Candidates whose lead over the baseline is more than chance.
    """
    best = max(scores, key=lambda name: scores[name])
    if BASELINE not in scores:
        return best, "the highest"
    if best == BASELINE:
        return best, "no candidate is ahead of the plain baseline"
    if not ahead:
        return BASELINE, "no candidate is ahead of the plain baseline beyond chance"
    return max(ahead, key=lambda name: scores[name]), "the highest, and ahead of the plain baseline beyond chance"


def surely_more(ours: Sequence[Floats], theirs: Sequence[Floats], samples: int = 1000) -> bool:
    """Say whether dev score × mean agreement is more than theirs: the 95 % interval of a paired bootstrap is above 0.

    Args:
        ours: Values of dev examples, then those of translated sentences, one array per language; 0 to 1.
        theirs: The same examples and sentences of the other system.
        samples: Resamples.
    """
    draw = np.random.default_rng(0)
    rows = [draw.integers(0, len(part), (samples, len(part))) for part in theirs]

    def value(parts: Sequence[Floats]) -> Floats:
        dev, *agreed = (part[place].mean(axis=1) for part, place in zip(parts, rows, strict=True))
        return cast("Floats", dev * np.mean(agreed, axis=0))

    return bool(np.quantile(value(ours) - value(theirs), 0.025) > 0)


def _surely_better(out: Path, name: str, language: str) -> bool:
    if name == BASELINE:
        return False
    found = compare(out / name, out / BASELINE, data="source-dev", languages=[language], test="bootstrap")
    return found.languages[language].low > 0


def _translated(inputs: Inputs, kind: str) -> tuple[Pairs, bool]:
    """Return sentences with translations on which nothing was trained, and whether they are general pairs.

    Text of the task, if there is some whose rows are tied by an id; else sentence pairs.
    """
    if kind != "classification":
        return {}, False
    texts = inputs.judging_texts(kind)
    read = [*texts.values(), *([inputs.source_dev()] if inputs.data is not None else [])]
    if any(examples.pairs is not None for examples in read):  # a translated sentence is half of such a text
        return {}, False
    found = _cut(_tied(texts, inputs.source))
    return (found, False) if found else (_cut(_judging_pairs(inputs)), True)


def _tied(texts: Mapping[str, Examples], source: str) -> Pairs:
    """Return the texts of the source language with their translations, by the ids that they share."""
    found: Pairs = {}
    for language, text in texts.items():
        if language == source or source not in texts or not (text.parallel_ids and texts[source].parallel_ids):
            continue
        try:
            both = align({source: texts[source], language: text})
        except CrossliftError:  # nothing in common
            continue
        found[language] = both[source], both[language]
    return found


def _judging_pairs(inputs: Inputs) -> Pairs:
    """Return the sentence pairs that are kept to judge by, as texts."""
    found: Pairs = {}
    try:
        judging = inputs.judging_pairs()
    except CrossliftError:  # broken files are reported by the candidates that learn from them
        return {}
    for language, some in judging.items():
        texts = replace(some, kind="classification", pairs=None, pair_language=None)
        found[language] = texts, replace(texts, texts=list(some.pairs or ()), language=language)
    return found


def _cut(found: Pairs) -> Pairs:
    """Return as many sentences as are read, of languages that have enough of them."""
    enough = {language: sides for language, sides in found.items() if len(sides[0]) >= FEWEST}
    most = min(MOST, max(FEWEST, MOST_IN_ALL // max(1, len(enough))))
    return {
        language: (first.select(range(min(most, len(first)))), second.select(range(min(most, len(second)))))
        for language, (first, second) in enough.items()
    }


def _self_agreement(run: Run, pairs: Pairs, out: Path, watch: Watch) -> list[Floats]:
    """Return by language, for each sentence, the share of seeds whose answer is that to its translation."""
    texts = {f"{language} {side}": pairs[language][i] for language in pairs for i, side in enumerate(("from", "to"))}
    seeds = [
        _kept(out / f"translations.{folder.config['seed']}.json", lambda f=folder: _answers(f.path, texts, watch))  # type: ignore[misc]
        for folder in run.folders
    ]
    return [
        np.mean([[a == b for a, b in zip(s[f"{x} from"], s[f"{x} to"], strict=True)] for s in seeds], axis=0)
        for x in pairs
    ]


def _answers(model: object, texts: Mapping[str, Examples], watch: Watch) -> dict[str, list[str]]:
    """Return what a model says of some texts; what several languages translate is asked once."""
    different = list(dict.fromkeys(text for some in texts.values() for text in some.texts))
    watch.start("translations", len(different))
    said = {t: str(p["prediction"]) for t, p in zip(different, predict(model, different, watch=watch), strict=True)}
    watch.finish()
    return {name: [said[text] for text in some.texts] for name, some in texts.items()}


def _kept(file: Path, make: Callable[[], dict[str, list[str]]]) -> dict[str, list[str]]:
    """Return what is in a file, or make it and keep it there."""
    if not file.exists():
        write_json(file, make())
    return cast("dict[str, list[str]]", read_json(file))


def _agreement(teacher: str, run: Run, name: str, own: Examples, out: Path, watch: Watch) -> float:
    """Return how often (or, for tags, by which F1) a candidate says what the task model says of source text."""
    said = [cast("Any", p["prediction"]) for p in predict(teacher, own)]
    judged = replace(own, labels=said, name="task-model-says")
    found = evaluate(run, {own.language: judged}, out=out / name, only_missing=True, watch=watch)
    summary = found.of_language(own.language)
    return summary.mean if summary else 0.0


def _right(folder: Path, language: str) -> Floats:
    """Return for each dev example the share of seeds that get it right."""
    found = []
    for run in find_runs(folder):
        entry = cast("dict[str, Any]", run.results()["source-dev"])[language]
        found.append(next(iter(rescore(run.path / entry["predictions"]).values())).per_example / 100)
    return cast("Floats", np.mean(found, axis=0))


def _dev(run: Run) -> float:
    """Return the mean over seeds of the delivered weights' main score on dev data."""
    facts = cast("list[dict[str, Any]]", run.summary())
    return fmean(float(next(iter(one["dev"][one["selected"]].values()))) for one in facts)


def _some(languages: Iterable[str]) -> str:
    names = list(languages)
    return ", ".join(names) if len(names) <= _NAMED else f"{len(names)} languages"


def _mean(parts: Sequence[Floats]) -> float:
    return fmean(float(part.mean()) for part in parts)
