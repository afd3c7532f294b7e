"""A new encoder: XLM-R's or RoBERTa's architecture at any size, with weights that start to learn at once."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

import torch
from torch import Tensor, nn
from transformers import RobertaConfig, RobertaForMaskedLM, XLMRobertaConfig, XLMRobertaForMaskedLM

from crosslift.errors import BadInput

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase


_SMALL = 0.2  # gain of everything a layer adds to its input; with 1 (Xavier's) short trials stayed at frequencies


def _help(text: str) -> dict[str, str]:
    return {"help": text}


@dataclass(frozen=True)
class Architecture:
    """Family and size of a new encoder."""

    family: Literal["xlm-roberta", "roberta"] = field(
        default="xlm-roberta", metadata=_help("Architecture by its Hugging Face name.")
    )
    layers: int = field(default=8, metadata=_help("Transformer layers."))
    width: int = field(default=256, metadata=_help("Width of the hidden states."))
    heads: int = field(default=4, metadata=_help("Attention heads."))
    feedforward: int = field(default=1024, metadata=_help("Width inside the feed-forward part."))
    max_positions: int = field(default=512, metadata=_help("Longest text in tokens."))
    dropout: float = field(default=0.1, metadata=_help("Dropout on hidden states and attention."))

    def __post_init__(self) -> None:
        if self.width % self.heads or self.width % 2:
            raise BadInput(f"--width {self.width} must be even and a multiple of --heads {self.heads}.")


def new_encoder(architecture: Architecture, tokenizer: PreTrainedTokenizerBase, seed: int) -> PreTrainedModel:
    """Return a fresh masked-LM model for a tokenizer.

    A post-norm stack easily falls into a state in which it knows piece frequencies and nothing else, and stays
    there for thousands of steps. Three things keep it out: what a layer adds to its input starts small (so the
    stack starts near the identity, as DeepNorm's does), queries and keys start large enough that attention is
    uneven from the first step, and positions start as waves, of which near places are alike and a shift is a
    linear map. None of them changes the architecture. The learning rate matters as much: see
    `crosslift.runs.pretrain.PretrainOptimisation`.

    Args:
        architecture: Family and size.
        tokenizer: Gives the vocabulary and the special ids.
        seed: Fixes the weights.
    """
    config_class, model_class = {
        "xlm-roberta": (XLMRobertaConfig, XLMRobertaForMaskedLM),
        "roberta": (RobertaConfig, RobertaForMaskedLM),
    }[architecture.family]
    pad_id = int(tokenizer.pad_token_id)
    config = config_class(
        vocab_size=len(tokenizer),
        hidden_size=architecture.width,
        num_hidden_layers=architecture.layers,
        num_attention_heads=architecture.heads,
        intermediate_size=architecture.feedforward,
        max_position_embeddings=architecture.max_positions + pad_id + 1,
        hidden_dropout_prob=architecture.dropout,
        attention_probs_dropout_prob=architecture.dropout,
        type_vocab_size=1,
        layer_norm_eps=1e-5,
        pad_token_id=pad_id,
        bos_token_id=tokenizer.bos_token_id,
        eos_token_id=tokenizer.eos_token_id,
    )
    torch.manual_seed(seed)
    model: PreTrainedModel = model_class(config)
    with torch.no_grad():
        for name, module in model.base_model.encoder.named_modules():
            if isinstance(module, nn.Linear):
                gain = 1.0 if name.endswith(("query", "key")) else _SMALL
                nn.init.normal_(module.weight, std=gain / math.sqrt(module.in_features))
        table = model.base_model.embeddings.position_embeddings.weight
        table[pad_id + 1 :] = 0.02 * waves(architecture.max_positions, architecture.width)
    return model


def waves(positions: int, width: int) -> Tensor:
    """Return (positions, width) sines and cosines of falling frequency (Vaswani et al. 2017, section 3.5)."""
    place = torch.arange(positions, dtype=torch.float32)[:, None]
    rate = torch.exp(torch.arange(0, width, 2, dtype=torch.float32) * (-math.log(10_000.0) / width))
    return torch.stack([torch.sin(place * rate), torch.cos(place * rate)], dim=-1).flatten(1)


def take_body(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    donor: PreTrainedModel,
    donor_tokenizer: PreTrainedTokenizerBase,
) -> None:
    """Start `model` from another encoder of the same shape but another vocabulary, in place.

    Layers and positions are copied. A piece starts as the mean of the donor's pieces for the same characters.

    Args:
        model: The new encoder.
        tokenizer: Its tokenizer.
        donor: The trained encoder, of any RoBERTa family.
        donor_tokenizer: Its tokenizer.
    """
    own = model.base_model.state_dict()
    theirs = donor.base_model.state_dict()
    body = {name for name in own if "word_embeddings" not in name}
    wrong = [name for name in body if name not in theirs or theirs[name].shape != own[name].shape]
    if wrong:
        raise BadInput(
            f"The encoder to start from has another shape ({wrong[0]}).",
            "Use the same layers, width, heads and feedforward, or start from random weights.",
        )
    pieces = tokenizer.convert_ids_to_tokens(list(range(len(tokenizer))))
    special = set(tokenizer.all_special_tokens)
    # Pieces that continue a word begin without a space; only the donor's own space tells them apart.
    texts = ["" if p in special else tokenizer.convert_tokens_to_string([p]) or " " for p in pieces]
    encoded = donor_tokenizer(texts, add_special_tokens=False)["input_ids"]
    rows = torch.tensor([row for row, ids in enumerate(encoded) for _ in ids])
    ids = torch.tensor([i for one in encoded for i in one])
    table = theirs["embeddings.word_embeddings.weight"]
    sums = torch.zeros(len(pieces), table.shape[1]).index_add_(0, rows, table[ids].float())
    counts = torch.bincount(rows, minlength=len(pieces))[:, None]
    with torch.no_grad():
        for name in body:
            own[name].copy_(theirs[name])
        words = own["embeddings.word_embeddings.weight"]
        words.copy_(torch.where(counts > 0, sums / counts.clamp(min=1), words))
        for token in special & set(donor_tokenizer.all_special_tokens):
            words[tokenizer.convert_tokens_to_ids(token)] = table[donor_tokenizer.convert_tokens_to_ids(token)]
        head, other = (getattr(m, "lm_head", None) for m in (model, donor))
        if head is not None and other is not None:
            head.dense.load_state_dict(other.dense.state_dict())
            head.layer_norm.load_state_dict(other.layer_norm.state_dict())
