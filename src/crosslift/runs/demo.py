"""The demo: English intents to other languages, with what ships inside."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from crosslift.data import languages_of
from crosslift.measure.scores import Scores
from crosslift.runs.evaluate import evaluate
from crosslift.runs.fit import Run, fit
from crosslift.runs.progress import Silent, Watch

ENCODER = "mini-x"
SETTINGS: dict[str, Any] = {"learning_rate": 3e-4, "epochs": 4, "evaluations": 4}
"""A small encoder wants a larger rate than a base-sized one."""


def demo(out: str | Path = "runs/demo", *, model: str = ENCODER, watch: Watch | None = None) -> tuple[Run, Scores]:
    """Train an English intent model on the embedded corpus and score it in every language of the corpus.

    Args:
        out: Run folder; a demo that was interrupted goes on, one that is done is only scored.
        model: Encoder; by default the embedded one.
        watch: Who is told about progress.
    """
    watch, out = watch or Silent(), Path(out)
    languages = ["en", *(x for x in languages_of("demo-intent", "test") if x != "en")]
    run = fit("finetune", model=model, data="demo-intent", out=out / "finetune", watch=watch, **SETTINGS)
    return run, evaluate(run, "demo-intent", languages, only_missing=True, watch=watch)
