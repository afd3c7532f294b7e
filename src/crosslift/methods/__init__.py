"""The methods, one file each. A method is a class with `Settings`, batches and a loss.

Adding one: its file, one line in `METHODS`, one row in the test matrix, one page of docs (CONTRIBUTING.md).
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

from crosslift.errors import BadInput, nearest

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
    from torch import Tensor, nn

METHODS = {
    "finetune": "crosslift.methods.finetune:Finetune",
    "robust": "crosslift.methods.robust:Robust",
    "ear": "crosslift.methods.ear:Ear",
}
"""Method name -> where its class is; imported when it is used, so that `--help` stays light."""


class Method(Protocol):
    """Source-language examples, batched and turned into a loss.

    `Method(settings, task, tokenizer, examples)` tokenises once. A method that needs the run's seed or the
    untrained model also has `prepare(model, seed)`, called once before training; one that has something to say of
    the data has `notes()`, lines for the log. Attributes and calls:
    """

    title: ClassVar[str]
    needs: ClassVar[tuple[str, ...]]
    lengths: NDArray[np.int64]

    def units(self, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the loss units of each row, by which micro-batches are weighed."""

    def batch(self, rows: NDArray[np.int64], step: int) -> dict[str, Tensor]:
        """Return the batch of some rows; what is drawn at random depends on the step alone."""

    def loss(self, model: nn.Module, batch: dict[str, Tensor]) -> dict[str, Tensor]:
        """Return named, weighted loss terms, each a mean over the batch's units."""


def method_class(name: str) -> Any:  # noqa: ANN401  a class that satisfies `Method`
    """Return the class of a method."""
    if name not in METHODS:
        raise BadInput(f'There is no method "{name}".{nearest(name, METHODS)}', f"Methods: {', '.join(METHODS)}.")
    module, cls = METHODS[name].split(":")
    return getattr(import_module(module), cls)


def method_settings(name: str) -> Any:  # noqa: ANN401  a dataclass type
    """Return the settings dataclass of a method."""
    return import_module(method_class(name).__module__).Settings
