"""Models cut into parts: embeddings, layers i…j, and what follows them, in one way for every family.

A part is the model itself with modules taken out: its layers are a stretch of the original ones (shared, not
copied), its embeddings pass hidden states through, its last norm does nothing. Masks, positions, rotations and
attention kernels stay the library's own, so that running a model in parts equals running it whole.

    bottom = part(model, 0, 4)                        # token ids  -> states after layer 4
    middle = part(model, 4, 8, embeddings=False)      # states     -> states after layer 8
    top = headed(task_model, 8)                       # states     -> logits
"""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from transformers.modeling_layers import GenericForSequenceClassification

from crosslift.errors import BadInput

if TYPE_CHECKING:
    from transformers import PretrainedConfig, PreTrainedModel


@dataclass(frozen=True)
class Family:
    """Where the parts of a family's encoder are, as paths of modules.

    Attributes:
        layers: The list of layers.
        embeddings: What turns ids into the first hidden states; each is passed through in a part without it.
        norm: What follows the last layer.
        lm: What turns last hidden states into piece scores, in the masked-LM model, applied one after the other.
    """

    layers: str = "encoder.layer"
    embeddings: tuple[str, ...] = ("embeddings",)
    norm: tuple[str, ...] = ()
    lm: tuple[str, ...] = ()


FAMILIES = {
    "bert": Family(lm=("cls",)),
    "roberta": Family(lm=("lm_head",)),
    "xlm-roberta": Family(lm=("lm_head",)),
    "distilbert": Family(
        layers="transformer.layer", lm=("vocab_transform", "activation", "vocab_layer_norm", "vocab_projector")
    ),
    "electra": Family(
        embeddings=("embeddings", "embeddings_project"), lm=("generator_predictions", "generator_lm_head")
    ),
    "mpnet": Family(lm=("lm_head",)),
    "modernbert": Family(layers="layers", norm=("final_norm",), lm=("head", "decoder")),
    "gemma3_text": Family(layers="layers", embeddings=(), norm=("norm",)),
}
"""Family (`model_type`) -> its parts. Gemma 3 takes hidden states in place of ids by itself."""


def family_of(config: PretrainedConfig) -> Family:
    """Return where the parts of a model are."""
    if config.model_type not in FAMILIES:
        raise BadInput(
            f'A "{config.model_type}" model cannot be cut into parts.', f"Families: {', '.join(sorted(FAMILIES))}."
        )
    return FAMILIES[config.model_type]


def layers_of(model: PreTrainedModel) -> nn.ModuleList:
    """Return the layers of an encoder or a task model."""
    base = model.base_model
    found = base.get_submodule(family_of(base.config).layers)
    assert isinstance(found, nn.ModuleList)
    return found


def depth_of(model: PreTrainedModel) -> int:
    """Return how many layers a model has."""
    return len(layers_of(model))


def freeze_bottom(model: PreTrainedModel, layers: int) -> None:
    """Keep the embeddings and the first `layers` layers of an encoder or task model as they are."""
    base, stack = model.base_model, layers_of(model)
    if not 0 <= layers < len(stack):
        raise BadInput(
            f"{layers} of {len(stack)} layers cannot be frozen.", f"Freeze 0 (embeddings) to {len(stack) - 1}."
        )
    embeddings = [base.get_submodule(path) for path in family_of(base.config).embeddings if hasattr(base, path)]
    for part in [*embeddings, base.get_input_embeddings(), *stack[:layers]]:
        part.requires_grad_(False)


class Part(nn.Module):
    """A stretch of an encoder that can be run by itself.

    Attributes:
        body: The library's own encoder, with modules taken out.
        reads_ids: Whether it reads token ids (the bottom of a model) or hidden states.
    """

    def __init__(self, body: PreTrainedModel, reads_ids: bool) -> None:
        super().__init__()
        self.body = body
        self.reads_ids = reads_ids

    def forward(self, inputs: Tensor, mask: Tensor | None = None, token_types: Tensor | None = None) -> Tensor:
        """Return hidden states (batch, length, width).

        Args:
            inputs: Token ids (batch, length), or hidden states (batch, length, width).
            mask: (batch, length) 1 = a real token; `None`: all are.
            token_types: (batch, length), for families that have them, where ids are read.
        """
        given: dict[str, Any] = {"input_ids" if self.reads_ids else "inputs_embeds": inputs, "attention_mask": mask}
        if token_types is not None and self.reads_ids and getattr(self.body.config, "type_vocab_size", 0) > 1:
            given["token_type_ids"] = token_types
        states: Tensor = self.body(**given).last_hidden_state
        return states


def part(
    model: PreTrainedModel,
    first: int,
    stop: int,
    *,
    embeddings: bool | None = None,
    norm: bool | None = None,
    layers: nn.ModuleList | None = None,
) -> Part:
    """Return layers `first` … `stop` − 1 of a model as a part that shares their weights.

    Args:
        model: An encoder or task model of a family in `FAMILIES`.
        first: First layer, counted from 0.
        stop: One past the last layer; equal to `first` for none.
        embeddings: Whether the part begins with the embeddings and reads ids; default: if `first` is 0.
        norm: Whether it ends with the norm behind the last layer, in families with one; default: if `stop` is
            the model's depth.
        layers: Other layers of the same family to run in place of these (`first` … `stop` then only says which
            kinds of attention they have).
    """
    depth = depth_of(model)
    if not 0 <= first <= stop <= depth:
        raise BadInput(f"There are no layers {first} to {stop} in a model of {depth}.")
    reads_ids = first == 0 if embeddings is None else embeddings
    chosen = nn.ModuleList(layers_of(model)[first:stop]) if layers is None else layers
    kinds = list(range(first, stop)) if layers is None else [min(first + i, depth - 1) for i in range(len(layers))]
    body = _body(model.base_model, chosen, kinds, reads_ids, stop == depth if norm is None else norm)
    if getattr(body, "pooler", None) is not None:
        body._modules["pooler"] = None
    return Part(body, reads_ids)


def headed(model: PreTrainedModel, first: int) -> PreTrainedModel:
    """Return a task model without its embeddings and its first layers: called with `inputs_embeds`, it gives logits.

    Weights are shared with `model`.
    """
    depth = depth_of(model)
    body = _body(model.base_model, nn.ModuleList(layers_of(model)[first:]), list(range(first, depth)), False, True)
    top = _shallow(model)
    # This head reads a text's last token and finds it by its id, which a top does not see: it takes the row's last one.
    ends = isinstance(model, GenericForSequenceClassification)
    top._modules[model.base_model_prefix] = _LastTokenLast(body) if ends else body
    return top


def masked_lm_scores(model: PreTrainedModel, states: Tensor) -> Tensor:
    """Return piece scores (…, vocabulary) of last hidden states (…, width) through a masked-LM model's head."""
    names = family_of(model.config).lm
    if not names or not all(hasattr(model, name) for name in names):
        raise BadInput(
            f"{type(model).__name__} has no masked-LM head.",
            "HMLM needs the monolingual model's own; without one, train with --hmlm 0 --align 1.",
        )
    for name in names:
        states = getattr(model, name)(states)
    return states


class _PassThrough(nn.Module):
    """Stands for embeddings: gives back the hidden states that it was given."""

    def forward(self, *args: object, **kwargs: object) -> Tensor:
        given = [value for value in (*args, *kwargs.values()) if isinstance(value, Tensor) and value.ndim == 3]
        return given[0]


class _LastTokenLast(nn.Module):
    """An encoder whose last state of a row is that of its last real token, also where padding follows."""

    def __init__(self, body: PreTrainedModel) -> None:
        super().__init__()
        self.body = body

    def forward(self, *args: object, attention_mask: Tensor | None = None, **kwargs: object) -> Any:  # noqa: ANN401
        outputs = self.body(*args, attention_mask=attention_mask, **kwargs)
        if attention_mask is not None:
            states = outputs.last_hidden_state
            places = torch.arange(states.shape[1], device=states.device)
            last = (places * (attention_mask != 0)).argmax(1)
            ended = states[torch.arange(len(states), device=states.device), last]
            outputs.last_hidden_state = torch.cat([states[:, :-1], ended.unsqueeze(1)], 1)
        return outputs


def _body(base: PreTrainedModel, layers: nn.ModuleList, kinds: list[int], reads_ids: bool, norm: bool) -> Any:  # noqa: ANN401
    family = family_of(base.config)
    body = _shallow(base)
    body.config = _shortened(base.config, kinds)
    _put(body, family.layers, layers)
    for path in () if reads_ids else family.embeddings:
        if hasattr(base, path):
            _put(body, path, _PassThrough())
    for path in () if norm else family.norm:
        _put(body, path, nn.Identity())
    return body


def _shortened(config: PretrainedConfig, kinds: list[int]) -> PretrainedConfig:
    """Return the configuration of a body with other layers; families with two kinds of attention list them here."""
    short = copy.deepcopy(config)
    setattr(short, config.attribute_map.get("num_hidden_layers", "num_hidden_layers"), len(kinds))
    short.use_cache = False  # a cache counts layers from the first one of the whole model
    types = getattr(config, "layer_types", None)
    if types is not None:
        short.layer_types = [types[kind] for kind in kinds]
    return short


def _shallow(module: Any) -> Any:  # noqa: ANN401  whatever module it is
    """Copy a module without copying what is in it, so that parts can be exchanged without touching the original."""
    twin = copy.copy(module)
    for name in ("_modules", "_parameters", "_buffers"):
        twin.__dict__[name] = dict(module.__dict__[name])
    return twin


def _put(module: Any, path: str, new: nn.Module) -> None:  # noqa: ANN401
    """Set a module at a dotted path, copying the modules on the way so that the original keeps its own."""
    *way, name = path.split(".")
    for step in way:
        module._modules[step] = _shallow(module._modules[step])
        module = module._modules[step]
    module._modules[name] = new
