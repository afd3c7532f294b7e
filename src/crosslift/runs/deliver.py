"""What a run delivers: models in Hugging Face format, written whole or not at all."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch import nn

from crosslift.data.storage import Json, atomic, write_json
from crosslift.errors import BadInput
from crosslift.models.load import quiet_transformers, save_tokenizer
from crosslift.runs.folder import RunFolder
from crosslift.runs.machine import describe
from crosslift.runs.train import Trained

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase


def deliver(
    folder: RunFolder,
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    trained: Trained,
    score: Callable[[nn.Module], dict[str, float]],
    *,
    select: str,
    selected_on: str,
    steps: int,
    **facts: object,
) -> None:
    """Write the selected weights and their variants, score each, and mark the run as done.

    Args:
        folder: The run.
        model: What was trained; it takes each of the weights in turn.
        tokenizer: Goes with every model.
        trained: What the loop left: weights by selection rule, and the history of the run.
        score: Scores a model; the scores of all variants are kept.
        select: Which of the weights are delivered: best, last or average.
        selected_on: What decided, in words.
        steps: Steps of the run.
        facts: Further entries of the summary.
    """
    scores = {}
    for name, weights in trained.weights.items():
        model.load_state_dict(weights)
        model.eval()
        scores[name] = score(model)
        save_model(model, tokenizer, folder.model if name == select else folder.variants / name)
    summary: Json = {
        "selected": select,
        "selected_on": selected_on,
        "dev": scores,
        "history": trained.history,
        "steps": steps,
        "best_step": trained.best_step,
        **facts,
        "seconds": round(trained.seconds, 3),
        "machine": describe(),
    }
    folder.finish(summary)


def save_model(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, folder: Path) -> None:
    """Write a Hugging Face folder: weights, configuration and tokenizer, whole or not at all."""
    with atomic(folder) as draft, quiet_transformers():
        # The names of the model itself: some versions would write those of very old checkpoints (LayerNorm.gamma).
        model.save_pretrained(draft, save_original_format=False)
        save_tokenizer(tokenizer, draft)


def average_models(folders: Sequence[Path], out: Path) -> None:
    """Write the mean of several models' weights (one architecture, one head) as a model of its own."""
    from safetensors.torch import load_file, save_file

    states = [load_file(folder / "model.safetensors") for folder in folders]
    names = {frozenset((k, tuple(v.shape)) for k, v in state.items()) for state in states}
    if len(names) != 1:
        raise BadInput(f"Only models of one shape can be averaged: {', '.join(map(str, folders))}.")
    with atomic(out) as draft:
        draft.mkdir()
        for file in folders[0].iterdir():
            if file.is_file() and file.suffix not in (".safetensors", ".md"):  # its card is another's
                (draft / file.name).write_bytes(file.read_bytes())
        mean = {k: torch.stack([s[k].float() for s in states]).mean(0).to(v.dtype) for k, v in states[0].items()}
        save_file(mean, draft / "model.safetensors", metadata={"format": "pt"})
        write_json(draft / "averaged.json", {"models": [str(folder) for folder in folders]})
