"""Random-label IGAP of the candidates of a transfer: how much each way of learning loses between languages.

Candidates learn a fair coin per sentence on the source side of sentence pairs that nothing else is trained on; the gap
is the error that the other side adds. It is a matter of seconds per candidate and language, and goes beside the other
signals; see `benchmarks/experiments/selection` for what it is worth.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from statistics import fmean

from crosslift.data.examples import Examples
from crosslift.errors import BadInput
from crosslift.measure.igap import igaps
from crosslift.runs.fit import Run
from crosslift.runs.igap import igap
from crosslift.runs.progress import Watch
from crosslift.runs.transfer_candidates import parts_of
from crosslift.runs.transfer_inputs import Inputs

SENTENCES = 64
SETTINGS = {"epsilon": 0.05, "every": 4, "candidates": 3, "epochs": 40}
"""Short runs: gaps at a training error of 5 % or less, at the first checkpoints that reach it."""


def add_gaps(
    signals: Mapping[str, Mapping[str, float]], runs: Mapping[str, Run], inputs: Inputs, out: Path, watch: Watch
) -> dict[str, dict[str, float]]:
    """Return the signals with `random-label igap` (points, mean over languages; less is better) where there is one.

    Args:
        signals: Candidate -> signal -> value.
        runs: Candidates that succeeded.
        inputs: What there is; the pairs that are kept to judge by are used.
        out: Folder in which measured gaps are kept for the next start.
        watch: Who is told about progress.
    """
    found = {name: dict(values) for name, values in signals.items()}
    for name in runs:
        way = _way(name, inputs, out.parents[1] / "runs")
        gaps = _gaps(*way, inputs, out, watch) if way else []
        if gaps:
            found.setdefault(name, {})["random-label igap"] = round(fmean(gaps), 2)
    return found


def _way(name: str, inputs: Inputs, runs: Path) -> tuple[str, str] | None:
    """Return the encoder and the method of a candidate that learns from labels alone; `None` of another."""
    parts = parts_of(name)
    method = {"finetune": "finetune", "adjust": "finetune", "ear": "ear", "robust": "gaussian"}.get(parts[-1])
    if method is None:
        return None
    if method in ("ear", "gaussian") and inputs.synonyms:
        method = f"{'ear' if method == 'ear' else 'rs-da'}:synonyms={inputs.synonyms}"
    return str(runs / "adjusted-encoder" / "model") if parts[0] == "adjust" else inputs.model, method


def _gaps(model: str, method: str, inputs: Inputs, out: Path, watch: Watch) -> list[float]:
    """Return the gap of each language in points; a language whose runs never learn their labels has none."""
    gaps = []
    for language, pairs in inputs.judging_pairs().items():
        some = pairs.select(range(min(SENTENCES, len(pairs))))
        source = replace(some, kind="classification", pairs=None, pair_language=None, parallel_ids=some.ids)
        sides: dict[str, Examples] = {
            inputs.source: source,
            language: replace(source, texts=list(some.pairs or ()), language=language),
        }
        try:
            result = igap(
                model, sides, sources=inputs.source, methods=method, labels="random", seeds=inputs.seeds[:1],
                out=out, watch=watch, **SETTINGS,  # type: ignore[arg-type]
            )  # fmt: skip
        except BadInput as error:
            watch.say(f"igap      {method}, {language}: {error.seen}")
            continue
        (errors,) = result.systems.values()
        expected = igaps(errors, result.bands[0])[language].expected
        if expected is not None:
            gaps.append(expected.mean)
    return gaps
