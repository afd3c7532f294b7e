"""Ways to make a step of the connector's training faster, for `benchmarks/plug.py --variants`.

    python benchmarks/plug.py --variants now fused bf16 bf16+last --out variants.json

Each name stands for one change to an `Adaptation`, made when its context is entered and undone when it is left; `+`
joins changes. What helps moves into the package, what does not is deleted.

    now      nothing: the package as it is
    fused    the compiler's own way, which makes one kernel of a norm's two gradients; the package parts them (`norms`
             in plug-variants.json)
    bf16     the connector computes in bf16 on rounded copies of its weights, as the frozen parts do, instead of under
             autocast, which keeps norms and the states between layers in float32
    last     the last layer's output and feed-forward maps run at the masked places alone; nothing else of it is read
    gelu     GELU by its sigmoid form: the exact one costs more arithmetic than memory traffic
    tuned    the compiler tries more launch settings for each kernel

`gelu` approximates the activation to 0.0005, which is about what bf16 rounds away. `last` needs layers as BERT's,
RoBERTa's and XLM-R's, and rows without padding.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext

import torch
from torch import Tensor, nn
from torch.func import functional_call

from crosslift.methods.plug import Adaptation, compiler_options, hidden_loss
from crosslift.models.anatomy import depth_of, layers_of, masked_lm_scores, part

OPTIONS: dict[str, dict[str, object]] = {
    "fused": {"triton.mix_order_reduction": True},
    "tuned": {"coordinate_descent_tuning": True},
}
"""Changes that are options of the compiler."""


def compile_with(lean: Adaptation, names: list[str]) -> None:
    """Compile as `Adaptation.compile_parts` does, with the options of some changes; whatever was compiled goes."""
    torch._dynamo.reset()
    torch._dynamo.config.automatic_dynamic_shapes = False
    torch._dynamo.config.cache_size_limit = 64
    options = (compiler_options() or {}) | {k: v for name in names for k, v in OPTIONS.get(name, {}).items()}
    # As options they reach the backward pass too, which another thread compiles.
    how = {"dynamic": False, "options": options} if options else {"dynamic": False}
    for layers in (*(layers_of(frozen.body) for frozen in lean._frozen[:2]), lean.connector.layers):
        for layer in layers:
            layer.compile(**how)
    lean.lm_loss = torch.compile(lean.lm_loss, **how)  # type: ignore[method-assign]


@contextmanager
def _instead(thing: object, **attributes: object) -> Iterator[None]:
    """Set attributes of one object, for a while."""
    before = {name: vars(thing)[name] for name in attributes if name in vars(thing)}
    vars(thing).update(attributes)
    try:
        yield
    finally:
        for name in attributes:
            vars(thing).pop(name)
        vars(thing).update(before)


def in_bf16(lean: Adaptation) -> AbstractContextManager[None]:
    """Let the connector compute in the frozen parts' number format; its own weights stay in float32."""

    def states(ids: Tensor, mask: Tensor | None) -> Tensor:
        with lean._plainly(ids):
            with torch.no_grad():
                below = lean._frozen[0](ids, mask)
            rounded = {name: weight.to(lean.dtype) for name, weight in lean.connector.named_parameters()}
            found: Tensor = functional_call(lean.connector, rounded, (below, mask))
        return found

    return _instead(lean, states=states)


def last_at_places(lean: Adaptation) -> AbstractContextManager[None]:
    """Run what follows the attention of the last layer where labels are, and nowhere else."""
    mono = lean._frozen[3]
    last = layers_of(mono)[-1]
    but_last = part(mono, lean.points.plug, depth_of(mono) - 1, embeddings=False, norm=False)

    def lm_loss(below: Tensor, places: Tensor, labels: Tensor) -> Tensor:
        with lean._plainly(below):
            attended = last.attention.self(below)[0]
            inner, outer = (side.flatten(0, 1)[places] for side in (attended, below))
            middle = last.attention.output(inner, outer)
            return hidden_loss(masked_lm_scores(mono, last.output(last.intermediate(middle), middle)), labels)

    frozen = (lean._frozen[0], but_last, *lean._frozen[2:])
    return _instead(lean, _frozen=frozen, lm_loss=lm_loss)


def sigmoid_gelu(states: Tensor) -> Tensor:
    """Return x σ(2 √(2/π) (x + 0.044715 x³)), which is the tanh form of GELU."""
    x = states.float()
    return (x * torch.sigmoid(1.5957691216057308 * x * (1 + 0.044715 * x * x))).to(states.dtype)


def by_sigmoid(lean: Adaptation) -> AbstractContextManager[None]:
    """Put the sigmoid form in place of every layer's activation."""
    stack = ExitStack()
    for layers in (layers_of(lean._frozen[0].body), lean.connector.layers, layers_of(lean._frozen[3])):
        for layer in layers:
            modules = layer.intermediate._modules
            stack.callback(modules.update, intermediate_act_fn=modules["intermediate_act_fn"])
            modules["intermediate_act_fn"] = _Sigmoid()
    return stack  # type: ignore[return-value]


class _Sigmoid(nn.Module):
    def forward(self, states: Tensor) -> Tensor:
        return sigmoid_gelu(states)


CHANGES: dict[str, Callable[[Adaptation], AbstractContextManager[None]]] = {
    "now": lambda lean: nullcontext(),
    "fused": lambda lean: nullcontext(),
    "tuned": lambda lean: nullcontext(),
    "bf16": in_bf16,
    "last": last_at_places,
    "gelu": by_sigmoid,
}


@contextmanager
def changed(lean: Adaptation, variant: str) -> Iterator[list[str]]:
    """Make the changes of a variant (`bf16+last`); give their names."""
    names = variant.split("+")
    unknown = [name for name in names if name not in CHANGES]
    if unknown:
        raise SystemExit(f"There is no change {unknown[0]!r}. Changes: {', '.join(CHANGES)}.")
    with ExitStack() as stack:
        for name in names:
            stack.enter_context(CHANGES[name](lean))
        # The compiled loss is forgotten on the way out.
        stack.enter_context(_instead(lean, lm_loss=lean.lm_loss))
        yield names
