"""Calling a model on a batch, whatever its family."""

from __future__ import annotations

from torch import Tensor, nn

from crosslift.errors import BadInput

OUTPUTS = ("logits", "start_logits", "end_logits")


def forward(model: nn.Module, batch: dict[str, Tensor]) -> dict[str, Tensor]:
    """Run a task model and return its logits by name.

    Args:
        model: A Hugging Face task model, plain, compiled or wrapped for several processes.
        batch: `input_ids` and `attention_mask` (batch, length), 1 = a real token; `token_type_ids` is passed on
            only to families that have them; everything else in the batch (labels) is left out.

    Returns:
        `logits` (batch, classes) or (batch, length, tags), or `start_logits` and `end_logits` (batch, length).
    """
    config = getattr(model, "module", model).config
    inputs = {name: batch[name] for name in ("input_ids", "attention_mask")}
    if "token_type_ids" in batch and getattr(config, "type_vocab_size", 0) > 1:
        inputs["token_type_ids"] = batch["token_type_ids"]
    outputs = model(**inputs)
    found = {name: outputs[name] for name in OUTPUTS if name in outputs}
    if not found:
        raise BadInput(f"{type(model).__name__} has no task head: its outputs are {', '.join(outputs.keys())}.")
    return found
