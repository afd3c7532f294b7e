"""Plug task models onto a trained connector."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import torch

from crosslift.errors import BadInput
from crosslift.models.connectors import LoadedConnector, check_descent, load_connector
from crosslift.models.load import AUTO, load_tokenizer, locate, model_kind, quiet_transformers
from crosslift.models.reassembled import Reassembled, to_native
from crosslift.runs.deliver import save_model

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase


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
        out: Folder of the new model.
        multi: Where the multilingual model is, if it has moved.
    """
    began = time.monotonic()
    kind, task, loaded = _ready(task_model, connector, multi)
    facts = loaded.facts
    native = to_native(loaded.multi, loaded.connector, task, facts.plug_layer, kind)
    save_model(native, load_tokenizer(facts.multi), Path(out))
    layers = (facts.encoder_layers, facts.connector_layers, facts.depth - facts.plug_layer)
    return Plugged(Path(out), kind, layers, round(time.monotonic() - began, 2))


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
    where = locate(task_model)
    with quiet_transformers():
        task = (
            AUTO[kind]
            .from_pretrained(where, use_safetensors=True, dtype=torch.float32, local_files_only=Path(where).is_dir())
            .eval()
        )
    check_descent(task, str(task_model), loaded)
    return kind, task, loaded
