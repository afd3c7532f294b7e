"""Steps as CUDA graphs: what one shape of batch launches is recorded once and replayed from then on.

A small model leaves a GPU waiting for Python, which launches hundreds of kernels a step, one by one; a graph launches
them all at once. The same kernels run in the same order on the same random numbers, so the result is that of the plain
loop, up to the rounding of attention without a mask (transformers leaves a mask out where nothing is padded, which a
recording cannot know). What cannot be recorded runs plainly.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, cast

import torch
from torch import Tensor

Batch = dict[str, Tensor]
Backward = Callable[[Batch, "Tensor | float"], dict[str, Tensor]]
"""(batch on the device, its share of the step) -> the loss terms; gradients are added to those of the weights."""

_MOST = 64
"""Shapes that are recorded; batches of further shapes run as they come."""


@dataclass(frozen=True)
class _Recorded:
    graph: torch.cuda.CUDAGraph
    inputs: Batch
    share: Tensor
    terms: dict[str, Tensor]


class Replay:
    """Runs `backward` on batches, recorded by shape.

    A shape is recorded at its second batch: the first one runs plainly, which also makes the gradients that a
    recording adds to. They must stay where they are: set them to zero between steps, never to `None`.

    Args:
        backward: Must not look at values on the device, nor do anything else than launch kernels that the shapes of
            its arguments decide.
        device: A GPU. Everything must run on one stream of it that is not the default one.
    """

    def __init__(self, backward: Backward, device: torch.device) -> None:
        self.backward, self.device = backward, device
        self.recorded: dict[tuple[object, ...], _Recorded] = {}
        self.refused: str | None = None
        """Why nothing is recorded any more: something that a recording cannot hold was launched."""
        self._seen: set[tuple[object, ...]] = set()
        # One memory for all recordings: they never run at the same time, and what they return is copied.
        self._pool = cast("Any", torch.cuda.graph_pool_handle())

    def __call__(self, batch: Batch, share: float) -> dict[str, Tensor]:
        """Run one batch forwards and backwards; return its loss terms."""
        shape = tuple((name, tensor.shape, tensor.dtype) for name, tensor in sorted(batch.items()))
        recorded = self.recorded.get(shape)
        if recorded is None:
            on_device = {name: to_device(tensor, self.device) for name, tensor in batch.items()}
            known = shape in self._seen
            self._seen.add(shape)
            recorded = self._record(on_device) if known and not self.refused and len(self.recorded) < _MOST else None
            if recorded is None:
                return self.backward(on_device, share)
            self.recorded[shape] = recorded
        else:
            for name, tensor in batch.items():
                recorded.inputs[name].copy_(pinned(tensor, self.device), non_blocking=True)
        recorded.share.fill_(share)
        recorded.graph.replay()
        return {name: term.clone() for name, term in recorded.terms.items()}

    def _record(self, inputs: Batch) -> _Recorded | None:
        """Record one shape; nothing is computed yet."""
        share = torch.ones((), device=self.device)
        graph = torch.cuda.CUDAGraph()
        torch.cuda.synchronize()
        # Other threads may go on talking to the device while this one records.
        graph.capture_begin(pool=self._pool, capture_error_mode="thread_local")
        try:
            terms = self.backward(inputs, share)
            graph.capture_end()
        except RuntimeError as error:
            self.refused = str(error).partition("\n")[0]
            with suppress(RuntimeError):
                graph.capture_end()
            _forget_recording(share)
            return None
        return _Recorded(graph, inputs, share, terms)


def _forget_recording(scalar: Tensor) -> None:
    """Record something that succeeds: after a failure the random numbers would believe in a recording for ever."""
    graph = torch.cuda.CUDAGraph()
    graph.capture_begin()
    scalar.add_(0)  # an empty recording is warned about
    graph.capture_end()


def to_device(tensor: Tensor, device: torch.device) -> Tensor:
    """Copy a tensor to a device without waiting for what the device is busy with."""
    return pinned(tensor, device).to(device, non_blocking=True)


def pinned(tensor: Tensor, device: torch.device) -> Tensor:
    """Return a tensor in memory from which a GPU copies by itself; on other devices the tensor."""
    return tensor.pin_memory() if device.type == "cuda" and tensor.device.type == "cpu" else tensor
