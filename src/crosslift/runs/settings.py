"""Settings of a run: small dataclasses, filled by name from keyword arguments or option strings."""

from __future__ import annotations

import math
import types
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, Field, dataclass, field, fields
from numbers import Integral, Real
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from crosslift.errors import BadInput, nearest


@dataclass(frozen=True)
class Optimisation:
    """How the weights move."""

    learning_rate: float = field(default=3e-5, metadata={"help": "Peak learning rate."})
    epochs: float = field(default=3.0, metadata={"help": "Passes over the training data."})
    steps: int | None = field(default=None, metadata={"help": "Optimiser steps; overrides epochs."})
    batch_size: int = field(default=32, metadata={"help": "Examples per optimiser step, over all processes."})
    warmup: float = field(default=0.1, metadata={"help": "Share of the steps in which the rate rises."})
    schedule: Literal["linear", "cosine", "constant"] = field(
        default="linear", metadata={"help": "How the rate falls after warm-up."}
    )
    floor: float = field(default=0.0, metadata={"help": "Rate at the end, as a share of the peak."})
    weight_decay: float = field(default=0.0, metadata={"help": "Decoupled weight decay; none on biases and norms."})
    clip: float = field(default=1.0, metadata={"help": "Largest gradient norm; 0 = no clipping."})
    beta2: float = field(default=0.999, metadata={"help": "Second-moment decay of AdamW."})
    frozen_layers: int | None = field(
        default=None, metadata={"help": "Keep the embeddings and so many of the lowest layers as they are."}
    )
    epsilon: float = field(default=1e-8, metadata={"help": "What AdamW adds to the root of the second moment."})

    def __post_init__(self) -> None:
        if not 0 < self.learning_rate < math.inf:
            raise BadInput(f"--learning-rate must be above 0, not {self.learning_rate:g}.")
        if self.batch_size < 1:
            raise BadInput(f"--batch-size must be at least 1, not {self.batch_size}.")
        if self.steps is not None and self.steps < 1:
            raise BadInput(f"--steps must be at least 1, not {self.steps}.")
        if self.steps is None and not 0 < self.epochs < math.inf:
            raise BadInput(f"--epochs must be above 0, not {self.epochs:g}.")
        if not 0 <= self.warmup < 1:
            raise BadInput(f"--warmup is a share of the steps: 0 ≤ warmup < 1, not {self.warmup:g}.")

    def rate(self, step: int, steps: int) -> float:
        """Return the learning rate of a step (counted from 0) of `steps`."""
        rising = math.ceil(self.warmup * steps)
        if step < rising:
            return self.learning_rate * (step + 1) / rising
        if self.schedule == "constant":
            return self.learning_rate
        share = (step - rising) / max(1, steps - rising)
        fall = 1 - share if self.schedule == "linear" else (1 + math.cos(math.pi * share)) / 2
        return self.learning_rate * (self.floor + (1 - self.floor) * fall)


@dataclass(frozen=True)
class Execution:
    """How the machine is used; nothing here changes what is computed, up to rounding."""

    precision: Literal["auto", "fp32", "bf16"] = field(
        default="auto", metadata={"help": "auto: bf16 on a GPU that has it, fp32 elsewhere."}
    )
    max_tokens: int = field(default=8192, metadata={"help": "Padded tokens per micro-batch; bounds the memory."})
    gradient_checkpointing: bool = field(default=False, metadata={"help": "Less memory, about a third slower."})
    compile: bool = field(default=False, metadata={"help": "Compile the model (worth it on GPUs and long runs)."})
    cuda_graphs: bool | None = field(
        default=None,
        metadata={"help": "Record a step per shape of batch and replay it (default: on one GPU, where it can be)."},
    )
    checkpoint_every: int | None = field(
        default=None, metadata={"help": "Steps between checkpoints (default: by time, at most 5% of it)."}
    )
    log_every: int = field(default=10, metadata={"help": "Steps between lines of metrics.jsonl."})
    trackers: tuple[str, ...] = field(default=(), metadata={"help": "tensorboard, wandb, …, through accelerate."})

    def __post_init__(self) -> None:
        for name in ("max_tokens", "checkpoint_every", "log_every"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise BadInput(f"{option(name)} must be at least 1, not {value}.")


@dataclass(frozen=True)
class Selection:
    """Which weights are delivered; always decided on source-language dev data."""

    select: Literal["best", "last", "average"] = field(
        default="best", metadata={"help": "best on source dev, last, or the average of evaluated checkpoints."}
    )
    evaluations: int = field(default=10, metadata={"help": "Evaluations on source dev during the run."})
    average_from: float = field(
        default=0.5, metadata={"help": "Share of the run after which checkpoints enter the average."}
    )

    def __post_init__(self) -> None:
        check_evaluations(self.evaluations)
        if not 0 <= self.average_from < 1:
            raise BadInput(f"--average-from is a share of the run from 0 to below 1, not {self.average_from:g}.")


def check_evaluations(evaluations: int) -> None:
    """Refuse a run that would never be looked at."""
    if evaluations < 1:
        raise BadInput(f"--evaluations must be at least 1, not {evaluations}.")


def sort_settings(classes: Sequence[type], given: Mapping[str, object]) -> list[dict[str, Any]]:
    """Give each settings dataclass its share of a flat mapping; a name that none of them has is an error.

    Args:
        classes: Dataclasses whose field names do not clash.
        given: Setting name -> value; strings are converted to the field's type.

    Returns:
        One mapping per class: keyword arguments for it.
    """
    homes = {setting.name: cls for cls in classes for setting in fields(cls)}
    for name in given:
        if name not in homes:
            raise BadInput(
                f'There is no setting "{name}".{nearest(name, homes)}',
                f"Settings: {', '.join(sorted(homes))}.",
            )
    hints = {cls: get_type_hints(cls) for cls in classes}
    return [
        {name: convert(name, value, hints[cls][name]) for name, value in given.items() if homes[name] is cls}
        for cls in classes
    ]


def convert(name: str, value: object, hint: Any) -> object:  # noqa: ANN401  a type hint
    """Convert a value (often a string from the command line) to a field's type, or say what is expected."""
    origin, args = get_origin(hint), get_args(hint)
    if origin in (Union, types.UnionType):
        if value is None or value == "none":
            return None
        return convert(name, value, next(a for a in args if a is not type(None)))
    if origin is Literal:
        if value not in args:
            raise BadInput(f"{option(name)} is one of {', '.join(args)}, not {value!r}.{nearest(str(value), args)}")
        return value
    if origin is tuple:
        if not isinstance(value, (str, list, tuple)):
            raise BadInput(f"{option(name)} takes a list, not {value!r}.")
        parts = value.split(",") if isinstance(value, str) else value
        return tuple(convert(name, part.strip() if isinstance(part, str) else part, args[0]) for part in parts if part)
    if hint is bool and isinstance(value, str):
        words = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}
        if value.lower() not in words:
            raise BadInput(f"{option(name)} is yes or no, not {value!r}.")
        return words[value.lower()]
    number = {int: Integral, float: Real}.get(hint)
    if number and type(value) is not bool and isinstance(value, (str, number)):
        try:
            return hint(value)
        except (ValueError, OverflowError):
            pass
    elif not number and isinstance(value, hint):
        return value
    raise BadInput(f"{option(name)} takes {_plain(hint)}, not {value!r}.")


def option(name: str) -> str:
    """Return the command-line spelling of a setting."""
    return "--" + name.replace("_", "-")


def default(setting: Field[object]) -> object:
    """Return a field's default value."""
    if setting.default is not MISSING:
        return setting.default
    return setting.default_factory() if setting.default_factory is not MISSING else None


def _plain(hint: type) -> str:
    return {int: "a whole number", float: "a number", str: "text", bool: "yes or no"}.get(hint, hint.__name__)
