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


_SPREAD = 0.02  # standard deviation of a piece's vector
_SMALL = 0.2  # gain of everything a layer adds to its input; with 1 (Xavier's) short trials stayed at frequencies
_LOUD = 3.0  # height of the position waves, in spreads
_SHARP = 6.0  # nats by which a head of the first layer prefers its neighbour to the place beside it
_SHORTEST, _LONGEST = 2.5, 125.0  # wavelengths in tokens


@dataclass(frozen=True)
class Architecture:
    """Family and size of a new encoder."""

    family: Literal["xlm-roberta", "roberta"] = field(
        default="xlm-roberta", metadata={"help": "Architecture by its Hugging Face name."}
    )
    layers: int = field(default=8, metadata={"help": "Transformer layers."})
    width: int = field(default=256, metadata={"help": "Width of the hidden states."})
    heads: int = field(default=4, metadata={"help": "Attention heads."})
    feedforward: int = field(default=1024, metadata={"help": "Width inside the feed-forward part."})
    max_positions: int = field(default=512, metadata={"help": "Longest text in tokens."})
    dropout: float = field(default=0.1, metadata={"help": "Dropout on hidden states and attention while pretraining."})
    later_dropout: float = field(default=0.1, metadata={"help": "Dropout that the saved config asks of fine-tuning."})

    def __post_init__(self) -> None:
        if self.width % self.heads or self.width % 2:
            raise BadInput(f"--width {self.width} must be even and a multiple of --heads {self.heads}.")


def new_encoder(architecture: Architecture, tokenizer: PreTrainedTokenizerBase, seed: int) -> PreTrainedModel:
    """Return a fresh masked-LM model for a tokenizer.

    A post-norm stack easily falls into a state in which it knows piece frequencies and nothing else, and stays
    there for thousands of steps: a hidden piece can be told only from its neighbours, and nothing yet finds them.
    So the heads of the first layer start out looking at the neighbours (`look_at_neighbours`). Besides, what later
    layers add to their input starts small (the stack starts near the identity, as DeepNorm's does), and their
    queries and keys large enough that attention is uneven from the first step. None of this changes the
    architecture: it is a start that training is free to leave.

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
        look_at_neighbours(model, pad_id)
    return model


def look_at_neighbours(model: PreTrainedModel, pad_id: int) -> None:
    """Let head h of the first layer start by attending to one neighbour: h = 0, 1, 2, 3, … to place -1, +1, -2, +2, ….

    As many dimensions as a head is wide are set aside for positions, which start there as waves; pieces start with
    zeros there, so that they do not disturb. A shift of all waves by one place is a rotation: a query that rotates
    and a key that does not meet at the neighbour, wherever the text begins.

    Args:
        model: A new model of the RoBERTa family, changed in place.
        pad_id: Positions of real tokens come after it.
    """
    config, embeddings = model.config, model.base_model.embeddings
    width, head = config.hidden_size, config.hidden_size // config.num_attention_heads
    rates = wave_rates(head // 2)
    used = 2 * len(rates)
    table = embeddings.position_embeddings.weight
    table.zero_()
    table[pad_id + 1 :, :used] = _LOUD * _SPREAD * waves(len(table) - pad_id - 1, rates)
    embeddings.word_embeddings.weight[:, :used] = 0
    embeddings.token_type_embeddings.weight.zero_()
    attention = model.base_model.encoder.layer[0].attention
    # What a wave is like after the norm that follows the embeddings.
    variance = _SPREAD**2 * (1 - used / width + (used / width) * _LOUD**2 / 2)
    height = _LOUD * _SPREAD / math.sqrt(variance)
    gain = math.sqrt(_SHARP / float((1 - torch.cos(rates)).sum()) * math.sqrt(head)) / height
    attention.self.query.weight.zero_()
    attention.self.key.weight.zero_()
    for number in range(config.num_attention_heads):
        neighbour = (number // 2 + 1) * (1 if number % 2 else -1)
        rows = slice(number * head, number * head + used)
        attention.self.query.weight[rows, :used] = gain * rotation(rates * neighbour)
        attention.self.key.weight[rows, :used] = gain * torch.eye(used)
    for module in (attention.self.value, attention.output.dense):
        nn.init.normal_(module.weight, std=1 / math.sqrt(module.in_features))


def wave_rates(count: int) -> Tensor:
    """Return (count,) angles per place, from the shortest wave to the longest in equal ratios."""
    turns = torch.tensor([2 * math.pi / _SHORTEST, 2 * math.pi / _LONGEST]).log()
    return torch.exp(torch.linspace(float(turns[0]), float(turns[1]), count))


def waves(positions: int, rates: Tensor) -> Tensor:
    """Return (positions, 2 * rates): sine and cosine of each rate in turn (after Vaswani et al. 2017, section 3.5)."""
    angle = torch.arange(positions, dtype=torch.float32)[:, None] * rates
    return torch.stack([torch.sin(angle), torch.cos(angle)], dim=-1).flatten(1)


def rotation(angles: Tensor) -> Tensor:
    """Return the (2n, 2n) matrix that turns each (sine, cosine) by one of (n,) angles."""
    sine = 2 * torch.arange(len(angles))
    cosine = sine + 1
    matrix = torch.zeros(2 * len(angles), 2 * len(angles))
    matrix[sine, sine] = matrix[cosine, cosine] = angles.cos()
    matrix[sine, cosine], matrix[cosine, sine] = angles.sin(), -angles.sin()
    return matrix


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
