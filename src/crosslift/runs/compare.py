"""Two systems, language by language, from their predictions on disk."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import cast

from crosslift.data.storage import Json
from crosslift.errors import BadInput
from crosslift.measure.scores import Comparisons, SeedPairs
from crosslift.measure.scores import compare as compare_metrics
from crosslift.runs.folder import RunFolder, find_runs
from crosslift.runs.predictions import read_predictions, rescore
from crosslift.tasks.metrics import Metric


def compare(
    a: object,
    b: object,
    *,
    data: str | None = None,
    languages: Sequence[str] | None = None,
    metric: str | None = None,
    test: str | None = None,
) -> Comparisons:
    """Compare two evaluated systems with paired tests; differences are a − b.

    Args:
        a: A run, its folder, or a folder that `evaluate` wrote.
        b: The other one; the seeds of the two are paired in order.
        data: Which evaluated data ("massive-intent/test"); default: the only one both have.
        languages: Default: all that both were evaluated in.
        metric: Default: the task's main score.
        test: `t`, `permutation`, `bootstrap` or `mcnemar`; default: by the kind of score.
    """
    left, right = _folders(a), _folders(b)
    if len(left) != len(right):
        raise BadInput(
            f"{left[0].path.parent} has {len(left)} seeds and {right[0].path.parent} has {len(right)}.",
            "Compare runs with equal numbers of seeds.",
        )
    name = data or _common_data(left + right)
    known = [cast("dict[str, Json]", folder.results().get(name, {})) for folder in left + right]
    shared = [language for language in known[0] if all(language in k for k in known)]
    chosen = list(languages or shared)
    missing = [language for language in chosen if language not in shared]
    if missing or not chosen:
        raise BadInput(
            f'Not evaluated by both on "{name}": {", ".join(missing) or "any language"}.',
            f"Both have {', '.join(shared) or 'none'}. Run crosslift evaluate on both first.",
        )
    pairs, groups = {}, {}
    for language in chosen:
        files = [[_predictions(f, name, language) for f in folders] for folders in (left, right)]
        examples = [read_predictions(file)[0] for side in files for file in side]
        if any((e.ids, e.labels) != (examples[0].ids, examples[0].labels) for e in examples):
            raise BadInput(f"{name} ({language}): the two were not evaluated on the same examples.")
        pairs[language] = [
            (_metric(first, metric), _metric(second, metric)) for first, second in zip(*files, strict=True)
        ]
        groups[language] = examples[0].ids
    source = str(left[0].config.get("source", "")) or None
    return compare_metrics(cast("dict[str, SeedPairs]", pairs), source=source, groups=groups, test=test)


def _folders(system: object) -> list[RunFolder]:
    folders = getattr(system, "folders", None) or find_runs(str(system))
    if not folders:
        raise BadInput(f"{system} is not a run folder.")
    return list(folders)


def _common_data(folders: Sequence[RunFolder]) -> str:
    shared = set.intersection(*(set(folder.results()) for folder in folders))
    if len(shared) != 1:
        what = f"they share {', '.join(sorted(shared))}" if shared else "they share none"
        raise BadInput(f"Which evaluation should be compared? ({what})", "Name it with --data.")
    return shared.pop()


def _predictions(folder: RunFolder, name: str, language: str) -> Path:
    entry = cast("dict[str, Json]", folder.results()[name])[language]
    return folder.path / str(entry["predictions"])


def _metric(file: Path, name: str | None) -> Metric:
    metrics = rescore(file)
    if name is None:
        return next(iter(metrics.values()))
    if name not in metrics:
        raise BadInput(f'There is no metric "{name}".', f"Metrics: {', '.join(metrics)}.")
    return metrics[name]
