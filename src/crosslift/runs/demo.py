"""The demo: English intents to other languages, with what ships inside."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from crosslift.data import languages_of
from crosslift.data.storage import write_text
from crosslift.demo import load, load_parallel
from crosslift.measure.scores import Scores
from crosslift.models.load import embedded_names
from crosslift.runs.evaluate import evaluate
from crosslift.runs.fit import Run, fit
from crosslift.runs.pretrain import pretrain
from crosslift.runs.progress import Silent, Watch

ENCODER = "mini-x"
SETTINGS: dict[str, Any] = {"learning_rate": 3e-4, "epochs": 4, "evaluations": 4}
"""A small encoder wants a larger rate than a base-sized one."""

TOY: dict[str, Any] = {
    "layers": 2,
    "width": 128,
    "heads": 4,
    "feedforward": 256,
    "dropout": 0.0,
    "pieces": 4000,
    "masked": 0.0,
    "contrast": 1.0,
    "temperature": 0.07,
    "steps": 800,
    "pair_tokens": 2048,
    "pair_lengths": (24,),
    "learning_rate": 2e-3,
}
"""A toy encoder, made in about a minute: contrast between the translations of the embedded corpus, nothing else."""


def demo(out: str | Path = "runs/demo", *, model: str = ENCODER, watch: Watch | None = None) -> tuple[Run, Scores]:
    """Train an English intent model on the embedded corpus and score it in every language of the corpus.

    Args:
        out: Run folder; a demo that was interrupted goes on, one that is done is only scored.
        model: Encoder; by default the embedded one. A copy of crosslift that lacks it makes a toy encoder first.
        watch: Who is told about progress.
    """
    watch, out = watch or Silent(), Path(out)
    languages = ["en", *(x for x in languages_of("demo-intent", "test") if x != "en")]
    settings = SETTINGS
    if model == ENCODER and ENCODER not in embedded_names():
        watch.say(f"This copy of crosslift lacks its encoder {ENCODER}. A toy encoder is made from the corpus's own")
        watch.say("translations instead: it shows how things work, not how well they can.")
        model = str(_toy_encoder(out / "encoder", languages, watch))
        settings = SETTINGS | {"learning_rate": 1e-3}
    run = fit("finetune", model=model, data="demo-intent", out=out / "finetune", watch=watch, **settings)
    return run, evaluate(run, "demo-intent", languages, only_missing=True, watch=watch)


def _toy_encoder(out: Path, languages: list[str], watch: Watch) -> Path:
    """Pretrain on the training part of the embedded corpus: its sentences and their translations."""
    texts, pairs = {}, []
    for language in languages:
        texts[language] = out / "text" / f"{language}.txt"
        write_text(texts[language], "\n".join(load("demo-intent", language, "train").texts) + "\n")
        if language != "en":
            both = load_parallel("en", language, "train")
            pairs += [f"{language}\t{a}\t{b}" for a, b in zip(both.texts, both.pairs or (), strict=True)]
    write_text(out / "text" / "pairs.tsv", "\n".join(pairs) + "\n")
    bitext = [out / "text" / "pairs.tsv"]
    return pretrain(out=out / "run", text=texts, bitext=bitext, processes=1, watch=watch, **TOY).model
