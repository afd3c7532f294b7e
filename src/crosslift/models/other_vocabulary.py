"""A model under another vocabulary: its word embeddings exchanged, its body untouched.

The two baselines of PlugIn-X work so. EmbMap maps the multilingual embeddings into the monolingual space by a linear
map, learnt on the strings that both vocabularies hold (Mikolov et al. 2013); EmbLearn trains new embeddings under the
frozen body.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from crosslift.errors import BadInput

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

RIDGE = 1e-3
_ROLES = (
    "cls_token_id",
    "sep_token_id",
    "pad_token_id",
    "unk_token_id",
    "mask_token_id",
    "bos_token_id",
    "eos_token_id",
)


def piece_strings(tokenizer: PreTrainedTokenizerBase) -> dict[str, int]:
    """Return what each piece stands for in a text, with a space where it begins a word -> its id.

    Special pieces, and bytes that are no text by themselves, are left out.
    """
    decoder = json.loads(tokenizer.backend_tokenizer.to_str())["decoder"] or {}
    kinds = {decoder.get("type"), *(part.get("type") for part in decoder.get("decoders", []))}
    special = set(tokenizer.all_special_ids)
    found: dict[str, int] = {}
    for piece, number in sorted(tokenizer.get_vocab().items(), key=lambda item: item[1]):
        if number in special:
            continue
        if "ByteLevel" in kinds:
            text = tokenizer.backend_tokenizer.decoder.decode([piece])
        elif "WordPiece" in kinds:
            text = piece[2:] if piece.startswith("##") else f" {piece}"
        else:
            text = piece.replace("▁", " ")
        if text.strip() and "\ufffd" not in text:
            found.setdefault(text, number)
    return found


def shared_pieces(multi: PreTrainedTokenizerBase, mono: PreTrainedTokenizerBase) -> tuple[Tensor, Tensor]:
    """Return the ids of strings that both vocabularies hold: (strings,) in each."""
    ours, theirs = piece_strings(multi), piece_strings(mono)
    both = [text for text in ours if text in theirs]
    if not both:
        raise BadInput("The two vocabularies have no piece in common: there is nothing to learn a map from.")
    return torch.tensor([ours[text] for text in both]), torch.tensor([theirs[text] for text in both])


def linear_map(source: Tensor, target: Tensor, ridge: float = RIDGE) -> Tensor:
    """Return W that minimises ‖source W − target‖² + ridge · n · ‖W‖² over n rows: (width, width')."""
    source, target = source.double(), target.double()
    gram = source.T @ source + ridge * len(source) * torch.eye(source.shape[1], dtype=torch.double)
    solved: Tensor = torch.linalg.solve(gram, source.T @ target)
    return solved.float()


def mapped_embeddings(
    multi: PreTrainedModel,
    mono: PreTrainedModel,
    multi_tokenizer: PreTrainedTokenizerBase,
    mono_tokenizer: PreTrainedTokenizerBase,
    ridge: float = RIDGE,
) -> Tensor:
    """Return the multilingual embeddings in the monolingual space: (multilingual vocabulary, width).

    Special pieces take the rows of their monolingual namesakes: the body knows them.
    """
    ours, theirs = (model.get_input_embeddings().weight.detach().float().cpu() for model in (multi, mono))
    left, right = shared_pieces(multi_tokenizer, mono_tokenizer)
    mapped: Tensor = ours @ linear_map(ours[left], theirs[right], ridge)
    for role in _ROLES:
        here, there = getattr(multi_tokenizer, role), getattr(mono_tokenizer, role)
        if here is not None and there is not None:
            mapped[here] = theirs[there]
    return mapped


def with_embeddings(model: PreTrainedModel, embeddings: Tensor, tokenizer: PreTrainedTokenizerBase) -> PreTrainedModel:
    """Give a model another vocabulary, in place: word embeddings (vocabulary, width), and the ids that go with it."""
    if model.config.pad_token_id != tokenizer.pad_token_id:
        raise BadInput(
            f"The vocabularies count padding differently ({model.config.pad_token_id} and {tokenizer.pad_token_id}); "
            "the positions of this family begin there.",
            "Use models whose padding ids agree.",
        )
    width = model.get_input_embeddings().weight.shape[1]
    if embeddings.shape[1] != width:
        raise BadInput(
            f"The embeddings have a width of {embeddings.shape[1]}, the model's of {width}.",
            "Make them for the model that the task model was tuned from.",
        )
    model.resize_token_embeddings(len(embeddings), mean_resizing=False)
    with torch.no_grad():
        model.get_input_embeddings().weight.copy_(embeddings)
    for role in ("bos_token_id", "eos_token_id", "cls_token_id", "sep_token_id"):
        if getattr(model.config, role, None) is not None and getattr(tokenizer, role) is not None:
            setattr(model.config, role, getattr(tokenizer, role))
    return model
