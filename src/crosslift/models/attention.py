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


class Listener:
    """Catches what one layer computes in the forward passes inside `with listener:`.

    Its hooks stay on the model until `close`: a compiled model is traced with them once, where hooks that come and
    go would have it compiled anew at every step. Outside the context they catch nothing. What was caught is there
    until the context is entered again or `forget` is called; gradients flow through it, and the newest forward pass
    counts.

    Args:
        model: A Hugging Face model, plain or wrapped for several processes.
        layer: Which layer, from 1; more than the model has means its last one.
        attention: Whether its attention is wanted; hidden states can be had of more families.

    Raises:
        BadInput: The attention or the layers of this family cannot be read.
    """

    def __init__(self, model: nn.Module, layer: int, *, attention: bool = True) -> None:
        parts = _parts(getattr(model, "module", model), layer, attention)
        self.heads, self.scaling = parts.heads, parts.scaling
        self.caught: dict[str, Tensor] = {}
        self.on = False
        self._handles = [
            parts.first.register_forward_pre_hook(self._input("embeddings"), with_kwargs=True),
            parts.last.register_forward_hook(self._output("hidden")),
        ]
        if attention:
            for name, part in parts.outputs.items():
                self._handles.append(part.register_forward_hook(self._output(name)))
            if parts.probabilities is not None:
                hook = self._input("probabilities")
                self._handles.append(parts.probabilities.register_forward_pre_hook(hook, with_kwargs=True))
            if parts.rotating is not None:
                self._handles.append(parts.rotating.register_forward_pre_hook(self._rotation, with_kwargs=True))

    def __enter__(self) -> Listener:
        self.forget()
        self.on = True
        return self

    def __exit__(self, *error: object) -> None:
        self.on = False

    def forget(self) -> None:
        """Let go of what was caught."""
        self.caught.clear()

    def close(self) -> None:
        """Take the hooks off the model."""
        for handle in self._handles:
            handle.remove()

    def _output(self, name: str) -> Callable[..., None]:
        def hook(module: nn.Module, args: tuple[Any, ...], output: Any) -> None:  # noqa: ANN401  torch's signature
            if self.on:
                self.caught[name] = output if isinstance(output, Tensor) else output[0]

        return hook

    def _input(self, name: str) -> Callable[..., None]:
        def hook(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
            if self.on:
                self.caught[name] = args[0] if args else kwargs["hidden_states"]

        return hook

    def _rotation(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        if not self.on:
            return
        self.caught["cos"], self.caught["sin"] = kwargs["position_embeddings"]
        mask = kwargs.get("attention_mask")
        if getattr(module, "local_attention", (-1, -1)) != (-1, -1):  # transformers 5.0 hands over both masks
            mask = kwargs.get("sliding_window_mask", mask)
        self.caught.pop("mask", None)
        if mask is not None:
            self.caught["mask"] = mask

    @property
    def embeddings(self) -> Tensor:
        """What the first layer read, transformers' `hidden_states[0]`: (batch, length, width)."""
        return self.caught["embeddings"]

    @property
    def hidden(self) -> Tensor:
        """What the chosen layer gave, before any norm behind the last layer: (batch, length, width)."""
        return self.caught["hidden"]

    def attention(self, mask: Tensor) -> Tensor:
        """Return the chosen layer's attention before dropout: (batch, heads, length, length), float32.

        Args:
            mask: (batch, length) 1 = a real token. Padded keys get no attention; padded queries still have rows.
        """
        caught = self.caught
        if "probabilities" in caught:
            return caught["probabilities"].float()
        visible = mask.bool()[:, None, None, :]
        if "cos" not in caught:
            q, k = (_by_head(caught[name], self.heads) for name in ("query", "key"))
            return attention_probabilities(q, k, visible)
        if "qkv" in caught:
            q, k, _ = (_by_head(part, self.heads) for part in caught["qkv"].chunk(3, dim=-1))
        else:
            q, k = caught["query"], caught["key"]
        # A window, where the layer has one, is in the mask that it was given.
        window = caught.get("mask")
        if window is not None:
            visible = visible & (window if window.dtype == torch.bool else window > torch.finfo(window.dtype).min / 2)
        q, k = (_rotated(part.float(), caught["cos"].float(), caught["sin"].float()) for part in (q, k))
        return attention_probabilities(q, k, visible, self.scaling)


def attention_probabilities(query: Tensor, key: Tensor, visible: Tensor, scaling: float | None = None) -> Tensor:
    """Return softmax(Q Kᵀ · scaling) over visible keys, in float32 whatever autocast says.

    Args:
        query: (batch, heads, length, d).
        key: (batch, heads or fewer, length, d); neighbouring heads share a key where there are fewer.
        visible: (batch, 1, 1 or length, length) whether a query may see a key.
        scaling: Default: 1 / √d.

    Returns:
        (batch, heads, length, length).
    """
    with torch.autocast(query.device.type, enabled=False):
        shared = key.float().repeat_interleave(query.shape[1] // key.shape[1], dim=1)
        scores = query.float() @ shared.transpose(2, 3) * (scaling or query.shape[-1] ** -0.5)
        return scores.masked_fill(~visible, torch.finfo(torch.float32).min).softmax(-1)


def _by_head(states: Tensor, heads: int) -> Tensor:
    """Cut (batch, length, heads · d) into (batch, heads, length, d)."""
    return states.view(*states.shape[:2], heads, -1).transpose(1, 2)


def _rotated(states: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Turn queries or keys by their positions: (batch, heads, length, d), angles (batch, length, d)."""
    left, right = states.chunk(2, dim=-1)
    return states * cos.unsqueeze(1) + torch.cat([-right, left], dim=-1) * sin.unsqueeze(1)


@dataclass(frozen=True)
class _Parts:
    """Where to listen.

    Attributes:
        first: Reads the embeddings.
        last: Its output is the layer's.
        heads: Number of heads.
        outputs: Name -> module of the layer whose output is wanted: `query` and `key`, or `qkv`.
        probabilities: Module whose input is the attention, for attention that is never fused.
        rotating: Module that is given rotary positions and the mask.
        scaling: Of the scores, where it is not 1 / √d.
    """

    first: nn.Module
    last: nn.Module
    heads: int
    outputs: dict[str, nn.Module] = field(default_factory=dict)
    probabilities: nn.Module | None = None
    rotating: nn.Module | None = None
    scaling: float | None = None


FAMILIES = (*_BERTS, "distilbert", "mpnet", "xlm", "modernbert", "gemma3_text")
"""Families (`model_type`) whose attention can be read."""


def _parts(model: nn.Module, layer: int, attention: bool) -> _Parts:
    base: Any = getattr(model, "base_model", model)
    family = base.config.model_type
    heads = base.config.num_attention_heads
    if family == "xlm":
        at = _index(layer, len(base.attentions))
        own = base.attentions[at]
        return _Parts(base.attentions[0], base.layer_norm2[at], heads, {"query": own.q_lin, "key": own.k_lin})
    layers = _layers(base)
    if layers is None or (attention and family not in FAMILIES):
        raise BadInput(
            f'The {"layers" if layers is None else "attention"} of a "{family}" model cannot be read.',
            f"Use one of {', '.join(FAMILIES)}.",
        )
    own = layers[_index(layer, len(layers))]
    if not attention:
        return _Parts(layers[0], own, heads)
    if family == "distilbert":
        return _Parts(layers[0], own, heads, {"query": own.attention.q_lin, "key": own.attention.k_lin})
    if family == "mpnet":
        # Its attention is never fused and adds a position bias: what enters the dropout is what we want.
        return _Parts(layers[0], own, heads, probabilities=own.attention.attn.dropout)
    if family == "modernbert":
        return _Parts(layers[0], own, heads, {"qkv": own.attn.Wqkv}, rotating=own.attn)
    if family == "gemma3_text":
        inside = own.self_attn
        outputs = {"query": inside.q_norm, "key": inside.k_norm}
        return _Parts(layers[0], own, heads, outputs, rotating=inside, scaling=inside.scaling)
    inside = own.attention.self
    return _Parts(layers[0], own, heads, {"query": inside.query, "key": inside.key})


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


class Disturbance:
    """Adds noise to the word embeddings in the forward passes inside `with disturbance(noise):`.

    The sum is made before positions, segments and layer norm. Its hook stays on the model, as those of `Listener`.

    Args:
        model: A Hugging Face model, plain or wrapped for several processes.
    """

    def __init__(self, model: nn.Module) -> None:
        self.noise: Tensor | None = None
        embedding: Any = getattr(model, "module", model)
        self._handle = embedding.get_input_embeddings().register_forward_hook(self._add)

    @contextlib.contextmanager
    def __call__(self, noise: Tensor) -> Iterator[None]:
        """Add `noise`: (batch, length, width of the word embeddings), or what broadcasts to it."""
        self.noise = noise
        try:
            yield
        finally:
            self.noise = None

    def close(self) -> None:
        """Take the hook off the model."""
        self._handle.remove()

    def _add(self, module: nn.Module, args: tuple[Any, ...], output: Tensor) -> Tensor:
        return output if self.noise is None else output + self.noise.to(output.dtype)
