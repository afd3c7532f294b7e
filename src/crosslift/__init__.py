"""crosslift takes an NLP task from the language you have to the languages you need.

>>> import crosslift as xl
>>> run = xl.fit("finetune", model="mini-x", data="demo-intent", out="runs/intents")   # doctest: +SKIP
>>> print(xl.evaluate(run, languages=["de", "sw"]).table())                            # doctest: +SKIP
"""

from importlib import import_module
from typing import TYPE_CHECKING

__version__ = "0.1.0"

if TYPE_CHECKING:
    from crosslift import measure
    from crosslift.align import align_words
    from crosslift.data import load
    from crosslift.data.examples import Examples
    from crosslift.errors import CrossliftError
    from crosslift.measure.scores import Scores
    from crosslift.models.load import load_encoder, load_model, load_tokenizer
    from crosslift.report.transferred import transfer
    from crosslift.runs.adjust import adjust
    from crosslift.runs.advise import advise
    from crosslift.runs.augment import augment
    from crosslift.runs.compare import compare
    from crosslift.runs.distill import distill, distill_two_steps
    from crosslift.runs.evaluate import evaluate, predict
    from crosslift.runs.fit import Run, fit, open_run
    from crosslift.runs.igap import igap
    from crosslift.runs.plug import fit_connector
    from crosslift.runs.plugged import plug
    from crosslift.runs.rank import rank
    from crosslift.runs.sweep import sweep

_HOMES = {
    "CrossliftError": "crosslift.errors",
    "Examples": "crosslift.data.examples",
    "Run": "crosslift.runs.fit",
    "Scores": "crosslift.measure.scores",
    "adjust": "crosslift.runs.adjust",
    "advise": "crosslift.runs.advise",
    "align_words": "crosslift.align",
    "augment": "crosslift.runs.augment",
    "compare": "crosslift.runs.compare",
    "distill": "crosslift.runs.distill",
    "distill_two_steps": "crosslift.runs.distill",
    "evaluate": "crosslift.runs.evaluate",
    "fit": "crosslift.runs.fit",
    "fit_connector": "crosslift.runs.plug",
    "igap": "crosslift.runs.igap",
    "load": "crosslift.data",
    "load_encoder": "crosslift.models.load",
    "load_model": "crosslift.models.load",
    "load_tokenizer": "crosslift.models.load",
    "measure": "",
    "open_run": "crosslift.runs.fit",
    "plug": "crosslift.runs.plugged",
    "predict": "crosslift.runs.evaluate",
    "rank": "crosslift.runs.rank",
    "sweep": "crosslift.runs.sweep",
    "transfer": "crosslift.report.transferred",
}

__all__ = [
    "CrossliftError",
    "Examples",
    "Run",
    "Scores",
    "adjust",
    "advise",
    "align_words",
    "augment",
    "compare",
    "distill",
    "distill_two_steps",
    "evaluate",
    "fit",
    "fit_connector",
    "igap",
    "load",
    "load_encoder",
    "load_model",
    "load_tokenizer",
    "measure",
    "open_run",
    "plug",
    "predict",
    "rank",
    "sweep",
    "transfer",
]


def __getattr__(name: str) -> object:
    # Loaded when first used: `crosslift --help` must not wait for torch.
    if name not in _HOMES:
        raise AttributeError(f"module 'crosslift' has no attribute {name!r}")
    home = _HOMES[name]
    return getattr(import_module(home), name) if home else import_module(f"crosslift.{name}")


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
