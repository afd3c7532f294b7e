"""The demo: the main job on what ships inside, English intents to other languages."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from crosslift.data import languages_of
from crosslift.runs.progress import Watch
from crosslift.runs.transfer import Transferred, transfer

ENCODER = "mini-x"
METHODS = ("finetune", "frozen")
SETTINGS: dict[str, Any] = {"learning_rate": 3e-4, "epochs": 3, "evaluations": 3}
"""A small encoder wants a larger rate than a base-sized one."""


def demo(
    out: str | Path = "runs/demo", *, model: str = ENCODER, watch: Watch | None = None, **settings: object
) -> Transferred:
    """Transfer intents from English to every language of the embedded corpus.

    Args:
        out: Folder; a demo that was interrupted goes on, one that is done is only shown.
        model: Encoder; by default the embedded one.
        watch: Who is told about progress.
        settings: Settings of the fits that replace those of the demo.
    """
    languages = ["en", *(x for x in languages_of("demo-intent", "test") if x != "en")]
    return transfer(
        out=out,
        model=model,
        data="demo-intent",
        text=dict.fromkeys(languages, "demo-intent"),  # without labels: what the choice goes by
        test="demo-intent",
        languages=languages,
        methods=METHODS,
        watch=watch,
        **{**SETTINGS, **settings},
    )
