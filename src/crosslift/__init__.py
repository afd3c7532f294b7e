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
    from crosslift.data import load
    from crosslift.data.examples import Examples
    from crosslift.errors import CrossliftError
    from crosslift.measure.scores import Scores
    from crosslift.models.load import load_encoder, load_model, load_tokenizer
    from crosslift.runs.compare import compare
    from crosslift.runs.evaluate import evaluate, predict
    from crosslift.runs.fit import Run, fit, open_run

_HOMES = {
    "CrossliftError": "crosslift.errors",
    "Examples": "crosslift.data.examples",
    "Run": "crosslift.runs.fit",
    "Scores": "crosslift.measure.scores",
    "compare": "crosslift.runs.compare",
    "evaluate": "crosslift.runs.evaluate",
    "fit": "crosslift.runs.fit",
    "load": "crosslift.data",
    "load_encoder": "crosslift.models.load",
    "load_model": "crosslift.models.load",
    "load_tokenizer": "crosslift.models.load",
    "measure": "",
    "open_run": "crosslift.runs.fit",
    "predict": "crosslift.runs.evaluate",
}

__all__ = [
    "CrossliftError",
    "Examples",
    "Run",
    "Scores",
    "compare",
    "evaluate",
    "fit",
    "load",
    "load_encoder",
    "load_model",
    "load_tokenizer",
    "measure",
    "open_run",
    "predict",
]


def __getattr__(name: str) -> object:
    # Loaded when first used: `crosslift --help` must not wait for torch.
    if name not in _HOMES:
        raise AttributeError(f"module 'crosslift' has no attribute {name!r}")
    home = _HOMES[name]
    return getattr(import_module(home), name) if home else import_module(f"crosslift.{name}")


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
