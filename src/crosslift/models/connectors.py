"""Trained connectors on disk, and the check that a task model belongs to one.

A connector's folder holds `connector.safetensors` (its layers, and samples of both models' weights) and
`connector.json` (which models, where they are cut). The samples say whether a model at hand is the one that the
connector was trained with, without that model being there.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from crosslift.data.storage import atomic, read_json, write_json
from crosslift.errors import BadInput, nearest
from crosslift.models import load
from crosslift.models.anatomy import layers_of
from crosslift.models.load import load_encoder
from crosslift.models.reassembled import Connector

if TYPE_CHECKING:
    from transformers import PreTrainedModel

_SAMPLE = 2048  # weights per layer
_DESCENDS = 0.5  # cosine of sampled weights; strangers have 0, a model after fine-tuning 0.9 and more
_EQUAL = 0.999


@dataclass(frozen=True)
class ConnectorFacts:
    """What a connector connects.

    Attributes:
        multi: Name or folder of the multilingual model.
        mono: Name or folder of the monolingual model.
        encoder_layers: Multilingual layers below the connector.
        connector_layers: Its own layers.
        plug_layer: Monolingual layers that it stands for.
        family: Family (`model_type`) of the monolingual model.
        width: Its width.
        depth: Its number of layers.
        setting: What training saw: `English text alone`, or also pairs.
    """

    multi: str
    mono: str
    encoder_layers: int
    connector_layers: int
    plug_layer: int
    family: str
    width: int
    depth: int
    setting: str = "English text alone"


@dataclass(frozen=True)
class LoadedConnector:
    """A connector with its multilingual model, ready for a task model."""

    facts: ConnectorFacts
    connector: Connector
    multi: PreTrainedModel
    samples: dict[str, Tensor]


def save_connector(
    folder: Path, facts: ConnectorFacts, connector: Connector, multi: PreTrainedModel, mono: PreTrainedModel
) -> None:
    """Write a connector in half precision, whole or not at all."""
    weights = {name: tensor.detach().to("cpu", torch.float16) for name, tensor in connector.state_dict().items()}
    for which, model in (("multi", multi), ("mono", mono)):
        weights |= {f"sample.{which}.{name}": tensor.half() for name, tensor in sample(model).items()}
    with atomic(folder) as draft:
        draft.mkdir()
        save_file({name: tensor.contiguous() for name, tensor in weights.items()}, draft / "connector.safetensors")
        write_json(draft / "connector.json", asdict(facts))


def locate_connector(name: str | Path) -> Path:
    """Return the folder of a connector: a run's, the folder itself, or an embedded one such as `mini-x/mini-en`."""
    path = Path(name)
    embedded = {p.parent.name.replace("_", "/"): p.parent for p in load.EMBEDDED.glob("*/connector.json")}
    for candidate in (path / "connector", path, embedded.get(str(name), path)):
        if (candidate / "connector.json").exists():
            return candidate
    raise BadInput(
        f"{name} is no connector.{nearest(str(name), embedded)}",
        "Name the run of `crosslift fit plug`" + (f", or one of {', '.join(embedded)}." if embedded else "."),
    )


def load_connector(name: str | Path, multi: str | Path | None = None) -> LoadedConnector:
    """Load a connector and the multilingual model that it was trained with.

    Args:
        name: Run folder, connector folder or embedded name.
        multi: Where the multilingual model is now, if it has moved.
    """
    folder = locate_connector(name)
    try:
        facts = ConnectorFacts(**read_json(folder / "connector.json"))  # type: ignore[arg-type]
        weights = load_file(folder / "connector.safetensors")
    except (TypeError, OSError, SafetensorError) as error:
        raise BadInput(f"The connector in {folder} is damaged: {error}.", "Copy or train it again.") from error
    facts = replace(facts, multi=str(multi or facts.multi))
    samples = {k.removeprefix("sample."): v.float() for k, v in weights.items() if k.startswith("sample.")}
    try:
        encoder = load_encoder(facts.multi)
    except BadInput as error:
        if multi:
            raise
        raise BadInput(
            f'{folder} was trained with the multilingual model "{facts.multi}", which is not here: {error.seen}',
            "Say where that one is with --multi.",
        ) from error
    agreement = _agreement(sample(encoder), samples, "multi")
    if min(agreement.values()) < _EQUAL:
        worst = min(agreement, key=lambda key: agreement[key])
        raise BadInput(
            f"{facts.multi} is not the multilingual model that {folder} was trained with ({worst} differs).",
            "Say where that one is with --multi.",
        )
    connector = Connector(encoder, facts.encoder_layers, facts.connector_layers, facts.width)
    own = {k: v.float() for k, v in weights.items() if not k.startswith("sample.")}
    connector.load_state_dict(own)
    return LoadedConnector(facts, connector.eval(), encoder, samples)


def check_descent(task: PreTrainedModel, name: str, loaded: LoadedConnector) -> None:
    """Refuse a task model that was not tuned from the connector's monolingual model, with the reason.

    Args:
        task: The task model.
        name: What the user calls it.
        loaded: The connector.
    """
    facts = loaded.facts
    remedy = (
        "Train a connector for its base model:  "
        f"crosslift fit plug --mono BASE --multi {facts.multi} --text en.txt --out RUN"
    )
    config = task.config
    said = f"{name} does not descend from {facts.mono}"
    if config.model_type != facts.family:
        raise BadInput(f'{said}: it is a "{config.model_type}" model, not "{facts.family}".', remedy)
    top = f"its layers {facts.plug_layer + 1}–{facts.depth}"
    if config.hidden_size != facts.width:
        raise BadInput(f"{said}: {top} differ in shape ({config.hidden_size}, expected {facts.width}).", remedy)
    layers = len(layers_of(task))
    if layers != facts.depth:
        raise BadInput(f"{said}: it has {layers} layers, expected {facts.depth}.", remedy)
    agreement = _agreement(sample(task), loaded.samples, "mono")
    # Plugged in behind the last layer, only the head is used; the dropped layers still say whose head it is.
    kept = {key: value for key, value in agreement.items() if int(key.split()[1]) > facts.plug_layer} or agreement
    worst = min(kept, key=lambda key: kept[key])
    if kept[worst] < _DESCENDS:
        raise BadInput(
            f"{said}: the weights of {worst} have a cosine of {kept[worst]:.2f} with its own "
            f"(tuned models keep more than {_DESCENDS:g}).",
            remedy,
        )


def sample(model: PreTrainedModel) -> dict[str, Tensor]:
    """Return some weights of each layer: `layer 1` … -> (2048,), the same places in every model of a shape."""
    found = {}
    for number, layer in enumerate(layers_of(model), start=1):
        matrices = [p.detach().flatten() for _, p in sorted(layer.named_parameters()) if p.ndim == 2]
        flat = torch.cat(matrices)
        places = torch.randint(len(flat), (_SAMPLE,), generator=torch.Generator().manual_seed(len(flat)))
        found[f"layer {number}"] = flat[places.to(flat.device)].float().cpu()
    return found


def _agreement(own: dict[str, Tensor], samples: dict[str, Tensor], which: str) -> dict[str, float]:
    """Return layer -> cosine of its weights with those that were sampled in training."""
    kept = {key.removeprefix(f"{which}."): tensor for key, tensor in samples.items() if key.startswith(f"{which}.")}
    return {key: float(torch.cosine_similarity(own[key], kept[key], dim=0)) if key in own else 0.0 for key in kept}
