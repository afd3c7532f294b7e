"""Sentence retrieval: does the nearest sentence in the other language mean the same?

For sentences s₁…sₙ and their translations t₁…tₙ, retrieval is right for i if cos(sᵢ, tᵢ) is the largest of
cos(sᵢ, t₁)…cos(sᵢ, tₙ); the score is the mean of both directions, in percent. Vectors are centred per language
first: the mean of a language says which language it is, not what is said.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal

import numpy as np
import torch
from torch import Tensor

from crosslift.data.batches import evaluation_batches

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

Pooling = Literal["first", "mean"]


@torch.inference_mode()
def sentence_vectors(
    encoder: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    texts: Sequence[str],
    *,
    pooling: Pooling = "mean",
    max_length: int = 128,
    max_tokens: int = 8192,
) -> Tensor:
    """Return sentence vectors of every layer.

    Args:
        encoder: An encoder without head.
        tokenizer: Its tokenizer.
        texts: The sentences.
        pooling: `first`: the vector at the first token; `mean`: over all tokens, special ones too.
        max_length: Longer sentences are cut, in tokens.
        max_tokens: Padded tokens per batch.

    Returns:
        (layers + 1, sentences, width), on the CPU; entry 0 is the embedding output.
    """
    device = next(encoder.parameters()).device
    ids = tokenizer(list(texts), truncation=True, max_length=max_length)["input_ids"]
    lengths = np.array([len(row) for row in ids])
    encoder.eval()
    vectors: Tensor | None = None
    for rows in evaluation_batches(lengths, max_tokens):
        padded = tokenizer.pad({"input_ids": [ids[i] for i in rows]}, return_tensors="pt").to(device)
        states = torch.stack(
            encoder(
                input_ids=padded["input_ids"], attention_mask=padded["attention_mask"], output_hidden_states=True
            ).hidden_states
        ).float()
        if pooling == "first":
            pooled = states[:, :, 0]
        else:
            mask = padded["attention_mask"][None, :, :, None].float()
            pooled = (states * mask).sum(2) / mask.sum(2)
        if vectors is None:
            vectors = torch.empty(len(states), len(texts), states.shape[-1])
        vectors[:, torch.from_numpy(rows)] = pooled.cpu()
    assert vectors is not None
    return vectors


def retrieval_accuracy(source: Tensor, target: Tensor) -> float:
    """Return the share of sentences whose translation is their nearest neighbour, both directions, in percent.

    Args:
        source: (sentences, width).
        target: (sentences, width); row i translates row i of `source`.
    """
    s, t = (torch.nn.functional.normalize(x - x.mean(0), dim=-1) for x in (source, target))
    similarity = s @ t.T
    right = torch.arange(len(s), device=s.device)
    forth = (similarity.argmax(1) == right).double().mean()
    back = (similarity.argmax(0) == right).double().mean()
    return float(100 * (forth + back) / 2)
