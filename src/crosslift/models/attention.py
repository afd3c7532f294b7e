"""Reading and disturbing a forward pass from outside: one layer's attention, hidden states, embeddings.

Fused attention gives no probabilities. Where a loss reads those of one layer, they are computed once more from
that layer's queries and keys, caught by hooks; all layers, this one included, keep their fused kernels.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from crosslift.errors import BadInput

_BERTS = ("bert", "roberta", "xlm-roberta", "electra")


@dataclass
class Taken:
    """What one forward pass left behind."""

    heads: int
    caught: dict[str, Tensor] = field(default_factory=dict)

    @property
    def embeddings(self) -> Tensor:
        """What the first layer read, transformers' `hidden_states[0]`: (batch, length, width)."""
        return self.caught["embeddings"]

    @property
    def hidden(self) -> Tensor:
        """What the chosen layer gave: (batch, length, width)."""
        return self.caught["hidden"]

    def attention(self, mask: Tensor) -> Tensor:
        """Return the chosen layer's attention before dropout: (batch, heads, length, length), float32.

        Args:
            mask: (batch, length) 1 = a real token. Padded keys get no attention; padded queries still have rows.
        """
        if "probabilities" in self.caught:
            return self.caught["probabilities"].float()
        return attention_probabilities(self.caught["query"], self.caught["key"], mask, self.heads)


def attention_probabilities(query: Tensor, key: Tensor, mask: Tensor, heads: int) -> Tensor:
    """Return softmax(Q Kᵀ / √d) over real keys, in float32 whatever autocast says.

    Args:
        query: (batch, length, heads · d).
        key: (batch, length, heads · d).
        mask: (batch, length) 1 = a real token.
        heads: Number of heads.

    Returns:
        (batch, heads, length, length).
    """
    with torch.autocast(query.device.type, enabled=False):
        shape = (*query.shape[:2], heads, -1)
        q, k = (part.float().view(shape).transpose(1, 2) for part in (query, key))
        scores: Tensor = q @ k.transpose(2, 3) * q.shape[-1] ** -0.5
        hidden = (mask == 0)[:, None, None, :]
        return scores.masked_fill(hidden, torch.finfo(torch.float32).min).softmax(-1)


@contextlib.contextmanager
def layer_attention(model: nn.Module, layer: int, *, attention: bool = True) -> Iterator[Taken]:
    """Catch what one layer computes in the forward passes inside the context.

    Gradients flow through everything caught. The newest forward pass counts.

    Args:
        model: A Hugging Face model, plain or wrapped for several processes.
        layer: Which layer, from 1; more than the model has means its last one.
        attention: Whether its attention is wanted; hidden states can be had of more families.

    Raises:
        BadInput: This family's attention cannot be read (ModernBERT, Gemma 3).
    """
    parts = _parts(getattr(model, "module", model), layer, attention)
    taken = Taken(parts.heads)

    def keep(name: str) -> Callable[..., None]:
        def hook(module: nn.Module, args: tuple[Any, ...], output: Any) -> None:  # noqa: ANN401  torch's signature
            taken.caught[name] = output if isinstance(output, Tensor) else output[0]

        return hook

    def keep_input(name: str) -> Callable[..., None]:
        def hook(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
            taken.caught[name] = args[0] if args else kwargs["hidden_states"]

        return hook

    handles = [
        parts.first.register_forward_pre_hook(keep_input("embeddings"), with_kwargs=True),
        parts.last.register_forward_hook(keep("hidden")),
    ]
    if attention and parts.probabilities is not None:
        handles.append(parts.probabilities.register_forward_pre_hook(keep_input("probabilities"), with_kwargs=True))
    elif attention:
        assert parts.query is not None
        assert parts.key is not None
        handles.append(parts.query.register_forward_hook(keep("query")))
        handles.append(parts.key.register_forward_hook(keep("key")))
    try:
        yield taken
    finally:
        for handle in handles:
            handle.remove()


@dataclass(frozen=True)
class _Parts:
    """Where to listen: the module that reads the embeddings, the one whose output is the layer's, and its inside."""

    first: nn.Module
    last: nn.Module
    heads: int
    query: nn.Module | None = None
    key: nn.Module | None = None
    probabilities: nn.Module | None = None


def _parts(model: nn.Module, layer: int, attention: bool) -> _Parts:
    base: Any = getattr(model, "base_model", model)
    family = base.config.model_type
    heads = base.config.num_attention_heads
    if family == "xlm":
        at = _index(layer, len(base.attentions))
        own = base.attentions[at]
        return _Parts(base.attentions[0], base.layer_norm2[at], heads, own.q_lin, own.k_lin)
    layers = _layers(base)
    if layers is None:
        raise BadInput(f'The layers of a "{family}" model cannot be read.', f"Families: {', '.join(FAMILIES)}.")
    own = layers[_index(layer, len(layers))]
    if family in _BERTS:
        inside = own.attention.self
        return _Parts(layers[0], own, heads, inside.query, inside.key)
    if family == "distilbert":
        return _Parts(layers[0], own, heads, own.attention.q_lin, own.attention.k_lin)
    if family == "mpnet":
        # Its attention is never fused and adds a position bias: what enters the dropout is what we want.
        return _Parts(layers[0], own, heads, probabilities=own.attention.attn.dropout)
    if attention:
        raise BadInput(
            f'The attention of a "{family}" model cannot be read yet.',
            f"Use one of {', '.join(FAMILIES)}; for ear: --pull sentence or --pull none.",
        )
    return _Parts(layers[0], own, heads)


FAMILIES = (*_BERTS, "distilbert", "mpnet", "xlm")
"""Families (`model_type`) whose attention can be read."""


def _layers(base: Any) -> Any:  # noqa: ANN401  a list of layers, or None
    for path in ("encoder.layer", "transformer.layer", "layers"):
        try:
            found = base.get_submodule(path)
        except AttributeError:
            continue
        if isinstance(found, nn.ModuleList):
            return found
    return None


def _index(layer: int, depth: int) -> int:
    if layer < 1:
        raise BadInput(f"Layers are counted from 1; there is no layer {layer}.")
    return min(layer, depth) - 1


@contextlib.contextmanager
def disturbed(model: nn.Module, noise: Tensor) -> Iterator[None]:
    """Add to the word embeddings in the forward passes inside the context.

    The sum is made before positions, segments and layer norm.

    Args:
        model: A Hugging Face model, plain or wrapped for several processes.
        noise: (batch, length, width of the word embeddings), or what broadcasts to it.
    """
    embedding: Any = getattr(model, "module", model)

    def add(module: nn.Module, args: tuple[Any, ...], output: Tensor) -> Tensor:
        return output + noise.to(output.dtype)

    handle = embedding.get_input_embeddings().register_forward_hook(add)
    try:
        yield
    finally:
        handle.remove()
