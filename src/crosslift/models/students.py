"""Students: small models for one language, trained from nothing on what a teacher says.

| name | layers | width | parameters with 10,000 pieces |
| --- | --- | --- | --- |
| `transformer` | 4 | 256 (4 heads, feed-forward 768) | 5.3M |
| `bilstm` | 2 | 256 in, 256 in each direction | 5.3M |
| `cnn` | kernels 3, 4, 5 | 256 in, 768 channels each | 5.0M |
| `cnn` for words | dilations 1, 1, 2, three times with the same weights | 256 in, 512 channels | 5.1M |

The Transformer is of XLM-R's architecture and opens with transformers alone; the others open with
`crosslift.load_model`. A student can also be any encoder, whole or with some of its layers (`with_layers`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal, get_args

import numpy as np
import torch
from torch import nn

from crosslift.data.storage import atomic
from crosslift.errors import BadInput
from crosslift.models.load import load_encoder, load_tokenizer, quiet_transformers, save_tokenizer
from crosslift.models.new_encoder import Architecture, new_encoder
from crosslift.models.small_networks import BiLstmConfig, BiLstmModel, CnnConfig, CnnModel
from crosslift.models.tokenizer_training import TokenizerSettings, train_tokenizer

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

StudentName = Literal["transformer", "bilstm", "cnn"]
STUDENTS: tuple[str, ...] = get_args(StudentName)
Pooling = Literal["default", "mean", "max", "last", "padded"]

PIECES = 10_000
_POSITIONS = {"classification": 128, "tagging": 128, "qa": 384}


def student_tokenizer(
    texts: Mapping[str, Sequence[str]], pieces: int = PIECES, seed: int = 0
) -> PreTrainedTokenizerBase:
    """Train a student's byte-pair vocabulary; a short text gives fewer pieces than asked for.

    Args:
        texts: Language -> lines of text: the user's own, or any other text of the language.
        pieces: Size of the vocabulary.
        seed: Draws the sample where there is very much text.
    """
    return train_tokenizer(texts, TokenizerSettings(kind="bpe", pieces=pieces), seed)


def new_student(
    name: str, tokenizer: PreTrainedTokenizerBase, kind: str, *, pooling: str = "default", seed: int = 0
) -> PreTrainedModel:
    """Return the untrained encoder of a student.

    Args:
        name: `transformer`, `bilstm` or `cnn`.
        tokenizer: Gives the vocabulary.
        kind: The task: a CNN that labels words is a dilated one.
        pooling: How a BiLSTM or CNN makes one vector of a text: `mean` (a BiLSTM's default) or `max` (a CNN's) over
            real tokens, `last` (the paper's BiLSTM), `padded` (the released code).
        seed: Fixes the weights.
    """
    if name not in STUDENTS:
        raise BadInput(f'There is no student "{name}".', f"Students: {', '.join(STUDENTS)}.")
    if name == "transformer":
        if pooling != "default":
            raise BadInput("The Transformer reads its first token; --pooling is for BiLSTM and CNN.")
        shape = Architecture(layers=4, width=256, heads=4, feedforward=768, max_positions=_POSITIONS[kind])
        encoder: PreTrainedModel = new_encoder(shape, tokenizer, seed).base_model
        return encoder
    torch.manual_seed(seed)
    pieces, pad_id = len(tokenizer), int(tokenizer.pad_token_id)
    if name == "bilstm":
        by = "mean" if pooling == "default" else pooling
        return BiLstmModel(BiLstmConfig(pieces, pooling=by, pad_token_id=pad_id))
    if kind == "classification":
        by = "max" if pooling == "default" else pooling
        return CnnModel(CnnConfig(pieces, pooling=by, pad_token_id=pad_id))
    return CnnModel(CnnConfig(pieces, channels=512, dilations=(1, 1, 2), pad_token_id=pad_id))


def with_layers(name: str | Path, count: int) -> PreTrainedModel:
    """Return an encoder with `count` of its layers, the first, the last, and others evenly between them.

    Args:
        name: Encoder by folder, embedded name or hub id.
        count: How many layers stay.
    """
    model = load_encoder(name)
    depth = int(model.config.num_hidden_layers)
    if not 1 <= count <= depth:
        raise BadInput(f"{name} has {depth} layers; {count} of them cannot stay.", f"Say 1 to {depth}.")
    stacks = [module for module in model.modules() if isinstance(module, nn.ModuleList) and len(module) == depth]
    if len(stacks) != 1:
        raise BadInput(f"The layers of {type(model).__name__} cannot be told apart.", "Use a whole encoder.")
    kept = np.linspace(0, depth - 1, count).round().astype(int).tolist()
    layers = [stacks[0][i] for i in kept]
    del stacks[0][count:]
    for place, layer in enumerate(layers):
        stacks[0][place] = layer
    model.config.num_hidden_layers = count
    if getattr(model.config, "layer_types", None):
        model.config.layer_types = [model.config.layer_types[i] for i in kept]
    return model


def save_student(encoder: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, folder: Path) -> None:
    """Write an encoder and its tokenizer as a Hugging Face folder, whole or not at all."""
    with atomic(folder) as draft, quiet_transformers():
        encoder.save_pretrained(draft, save_original_format=False)
        save_tokenizer(tokenizer, draft)


def save_with_layers(name: str | Path, count: int, folder: Path) -> None:
    """Write an encoder with `count` of its layers, and its tokenizer, as a folder of its own."""
    save_student(with_layers(name, count), load_tokenizer(name), folder)
