"""How near a connector's sentence vectors are to the monolingual model's (PlugIn-X, Figs. 5 and 6, Table 4).

For parallel sentences, s the English one and t its translation: the L2 distance and the cosine between the
monolingual model's vector of s at the plug layer and the connector's vector of t. Vectors are means over the tokens
that are not special. A few large dimensions can rule the cosine, so both are given.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from crosslift.data.batches import evaluation_batches
from crosslift.errors import BadInput
from crosslift.models.anatomy import part

if TYPE_CHECKING:
    from collections.abc import Callable

    from transformers import PreTrainedModel, PreTrainedTokenizerBase

    from crosslift.models.connectors import LoadedConnector

_LONGEST = 128  # tokens of a sentence; the rest is cut
BINS = 30
QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95)


@dataclass(frozen=True)
class CrossModel:
    """Distances of one language's sentences.

    Attributes:
        l2: (sentences,) L2 distances.
        cosine: (sentences,) cosines.
    """

    l2: Tensor
    cosine: Tensor

    def to_dict(self) -> dict[str, object]:
        """Return means and quantiles."""
        return {
            name: {
                "mean": round(float(values.mean()), 4),
                "quantiles": [round(float(q), 4) for q in values.quantile(torch.tensor(QUANTILES))],
            }
            for name, values in (("l2", self.l2), ("cosine", self.cosine))
        }


def histogram(values: NDArray[np.floating], bins: int = BINS) -> dict[str, list[float]]:
    """Return how values are spread: `edges` (bins + 1) and the `share` of the values between two of them."""
    counts, edges = np.histogram(values, bins)
    return {
        "edges": [round(float(edge), 5) for edge in edges],
        "share": [round(float(share), 5) for share in counts / len(values)],
    }


def cross_model_alignment(
    loaded: LoadedConnector,
    mono: PreTrainedModel,
    tokenizers: tuple[PreTrainedTokenizerBase, PreTrainedTokenizerBase],
    english: Sequence[str],
    translations: Mapping[str, Sequence[str]],
    *,
    max_tokens: int = 8192,
) -> dict[str, CrossModel]:
    """Compare translations through encoder and connector with English through the monolingual bottom.

    Args:
        loaded: A connector with its multilingual model.
        mono: The monolingual model (any head), on the device of the connector and its multilingual model.
        tokenizers: Of the multilingual and of the monolingual model.
        english: English sentences.
        translations: Language -> the same sentences in it; English may be among them.
        max_tokens: Padded tokens per batch.
    """
    facts = loaded.facts
    if not english:
        raise BadInput("There are no sentences to compare.")
    for language, texts in translations.items():
        if len(texts) != len(english):
            raise BadInput(f"{len(texts)} sentences in {language}, {len(english)} in English: they are not parallel.")
    encoder = part(loaded.multi, 0, facts.encoder_layers, embeddings=True, norm=False).eval()
    bottom = part(mono, 0, facts.plug_layer, embeddings=True, norm=False).eval()
    device = next(mono.parameters()).device
    target = _vectors(bottom, tokenizers[1], english, max_tokens, device)

    def through(ids: Tensor, mask: Tensor) -> Tensor:
        states: Tensor = loaded.connector(encoder(ids, mask), mask)
        return states

    found = {}
    for language, texts in translations.items():
        ours = _vectors(through, tokenizers[0], texts, max_tokens, device)
        found[language] = CrossModel((ours - target).norm(dim=1), torch.cosine_similarity(ours, target))
    return found


@torch.inference_mode()
def _vectors(
    run: Callable[[Tensor, Tensor], Tensor],
    tokenizer: PreTrainedTokenizerBase,
    texts: Sequence[str],
    max_tokens: int,
    device: torch.device,
) -> Tensor:
    """Return the mean over tokens that are not special: (sentences, width), on the CPU."""
    longest = min(_LONGEST, tokenizer.model_max_length)
    encoded = tokenizer(list(texts), truncation=True, max_length=longest, return_special_tokens_mask=True)
    lengths = np.array([len(row) for row in encoded["input_ids"]])
    rows_of: list[Tensor] = [torch.empty(0)] * len(texts)
    for rows in evaluation_batches(lengths, max_tokens):
        width = int(lengths[rows].max())
        ids = torch.full((len(rows), width), int(tokenizer.pad_token_id))
        mask, kept = torch.zeros(len(rows), width, dtype=torch.long), torch.zeros(len(rows), width)
        for place, row in enumerate(rows.tolist()):
            size = int(lengths[row])
            ids[place, :size] = torch.tensor(encoded["input_ids"][row])
            mask[place, :size] = 1
            kept[place, :size] = 1 - torch.tensor(encoded["special_tokens_mask"][row], dtype=torch.float)
        states = run(ids.to(device), mask.to(device)).float().cpu()
        means = (states * kept.unsqueeze(-1)).sum(1) / kept.sum(1, keepdim=True).clamp(min=1)
        for place, row in enumerate(rows.tolist()):
            rows_of[row] = means[place]
    return torch.stack(rows_of)
