"""Tiny random encoders of every family, built in memory: two layers of width 32."""

from pathlib import Path

import torch
from transformers import (
    AutoModel,
    BertConfig,
    DistilBertConfig,
    ElectraConfig,
    Gemma3TextConfig,
    ModernBertConfig,
    MPNetConfig,
    RobertaConfig,
    XLMConfig,
    XLMRobertaConfig,
)

from tests.tiny import bpe_tokenizer, unigram_tokenizer, wordpiece_tokenizer

SHAPE = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 64}

FAMILIES = ("bert", "roberta", "xlm-roberta", "xlm", "distilbert", "electra", "mpnet", "modernbert", "gemma3")


def tokenizer_for(family: str):
    if family in ("bert", "distilbert", "electra", "mpnet", "xlm"):
        return wordpiece_tokenizer()
    if family in ("roberta", "modernbert"):
        return bpe_tokenizer()
    return unigram_tokenizer()


def config_for(family: str, tokenizer):
    size = len(tokenizer)
    pad, bos, eos = tokenizer.pad_token_id, tokenizer.cls_token_id, tokenizer.sep_token_id
    ids = {"vocab_size": size, "pad_token_id": pad}
    roberta = {**SHAPE, **ids, "max_position_embeddings": 132, "type_vocab_size": 1}
    match family:
        case "bert":
            return BertConfig(**SHAPE, **ids, max_position_embeddings=128)
        case "roberta":
            return RobertaConfig(**roberta, bos_token_id=bos, eos_token_id=eos)
        case "xlm-roberta":
            return XLMRobertaConfig(**roberta, bos_token_id=bos, eos_token_id=eos)
        case "xlm":
            return XLMConfig(
                vocab_size=size, pad_index=pad, pad_token_id=pad, emb_dim=32, n_layers=2, n_heads=2, n_langs=1,
                max_position_embeddings=128, use_lang_emb=False, summary_type="first",
            )  # fmt: skip
        case "distilbert":
            return DistilBertConfig(**ids, dim=32, n_layers=2, n_heads=2, hidden_dim=64, max_position_embeddings=128)
        case "electra":
            return ElectraConfig(**SHAPE, **ids, embedding_size=16, max_position_embeddings=128)
        case "mpnet":
            return MPNetConfig(**SHAPE, **ids, max_position_embeddings=132)
        case "modernbert":
            return ModernBertConfig(
                **SHAPE, **ids, max_position_embeddings=128, cls_token_id=bos, sep_token_id=eos,
                bos_token_id=bos, eos_token_id=eos,
            )  # fmt: skip
        case "gemma3":
            return Gemma3TextConfig(
                **SHAPE, **ids, num_key_value_heads=1, head_dim=16, max_position_embeddings=128,
                use_bidirectional_attention=True, bos_token_id=bos, eos_token_id=eos, sliding_window=64,
            )  # fmt: skip
    raise ValueError(family)


def save_encoder(folder: Path, family: str = "xlm-roberta", seed: int = 0, **changes) -> Path:
    """Write a random encoder with its tokenizer in Hugging Face format and return the folder."""
    tokenizer = tokenizer_for(family)
    config = config_for(family, tokenizer)
    for name, value in changes.items():
        assert hasattr(config, name), name
        setattr(config, name, value)
    torch.manual_seed(seed)
    AutoModel.from_config(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder
