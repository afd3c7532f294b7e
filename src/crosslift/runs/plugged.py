"""Plug task models onto a trained connector."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from crosslift.data.storage import write_json
from crosslift.errors import BadInput
from crosslift.models.connectors import LoadedConnector, check_descent, load_connector
from crosslift.models.load import load_model, load_tokenizer, model_kind
from crosslift.models.reassembled import Reassembled, to_native
from crosslift.runs.deliver import save_model

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

FACTS = "plug.json"
"""In the folder of a plugged model: what it was put together from."""


@dataclass(frozen=True)
class Plugged:
    """A task model on a connector.

    Attributes:
        model: Hugging Face folder, opened by transformers alone.
        kind: `classification`, `tagging` or `qa`.
        layers: Its layers: encoder, connector, end-task module.
        seconds: What it took.
    """

    model: Path
    kind: str
    layers: tuple[int, int, int]
    seconds: float


def plug(task_model: str | Path, connector: str | Path, out: str | Path, *, multi: str | Path | None = None) -> Plugged:
    """Plug a monolingual task model onto a connector and write one plain Hugging Face model.

    Args:
        task_model: Task model (folder, run or hub id) tuned from the connector's monolingual model.
        connector: Run of `fit_connector`, its connector folder, or an embedded one.
        out: Folder of the new model; an earlier plugged model there is replaced, anything else is refused.
        multi: Where the multilingual model is, if it has moved.
    """
    began = time.monotonic()
    out = Path(out)
    if out.exists() and not (out.is_dir() and (not any(out.iterdir()) or (out / FACTS).exists())):
        raise BadInput(f"{out} holds something that is no plugged model.", "Choose another --out.")
    kind, task, loaded = _ready(task_model, connector, multi)
    facts = loaded.facts
    native = to_native(loaded.multi, loaded.connector, task, facts.plug_layer, kind)
    save_model(native, load_tokenizer(facts.multi), out)
    layers = (facts.encoder_layers, facts.connector_layers, facts.depth - facts.plug_layer)
    parts = {"task_model": str(task_model), "connector": str(connector), "multi": facts.multi, "layers": list(layers)}
    write_json(out / FACTS, {**parts, "setting": facts.setting})
    return Plugged(out, kind, layers, round(time.monotonic() - began, 2))


def reassemble(
    task_model: str | Path, connector: str | Path, *, multi: str | Path | None = None
) -> tuple[Reassembled, PreTrainedTokenizerBase]:
    """Plug a task model onto a connector in memory, whatever their families, and return it with its tokenizer."""
    _, task, loaded = _ready(task_model, connector, multi)
    whole = Reassembled(loaded.multi, loaded.connector, task, loaded.facts.plug_layer)
    return whole.eval(), load_tokenizer(loaded.facts.multi)


def _ready(
    task_model: str | Path, connector: str | Path, multi: str | Path | None
) -> tuple[str, PreTrainedModel, LoadedConnector]:
    kind = model_kind(task_model)
    if kind is None:
        raise BadInput(f"{task_model} is an encoder without a task head.", "Tune it for a task first.")
    loaded = load_connector(connector, multi)
    task = load_model(task_model).eval()
    check_descent(task, str(task_model), loaded)
    return kind, task, loaded
