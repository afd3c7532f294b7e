"""Tiny random translation models in the hub's own format: M2M-100, NLLB and Marian, two layers of width 32."""

import json
from pathlib import Path

import torch
from tokenizers import Tokenizer, models, pre_tokenizers, trainers
from transformers import (
    M2M100Config,
    M2M100ForConditionalGeneration,
    M2M100Tokenizer,
    MarianConfig,
    MarianMTModel,
    MarianTokenizer,
    NllbTokenizer,
)
from transformers.models.m2m_100.tokenization_m2m_100 import FAIRSEQ_LANGUAGE_CODES

from tests.tiny import TEXTS

SHAPE = {
    "d_model": 32,
    "encoder_layers": 2,
    "decoder_layers": 2,
    "encoder_attention_heads": 2,
    "decoder_attention_heads": 2,
    "encoder_ffn_dim": 64,
    "decoder_ffn_dim": 64,
    "max_position_embeddings": 512,
    "init_std": 0.12,  # wide enough that what is written depends on what is read
}


def _sentencepiece(file: Path) -> list[str]:
    """Train a SentencePiece model on a few lines; return its pieces."""
    import sentencepiece

    text = file.with_suffix(".txt")
    text.write_text("\n".join(TEXTS), encoding="utf-8")
    sentencepiece.SentencePieceTrainer.train(
        input=str(text), model_prefix=str(file.with_suffix("")), vocab_size=200, hard_vocab_limit=False, minloglevel=2
    )
    file.with_suffix(".model").rename(file)
    text.unlink()
    file.with_suffix(".vocab").unlink()
    loaded = sentencepiece.SentencePieceProcessor(str(file))
    return [loaded.id_to_piece(i) for i in range(len(loaded)) if not loaded.is_control(i)]


def save_m2m(folder: Path, **shape) -> Path:
    """Write a random M2M-100 with its hundred languages."""
    folder.mkdir(parents=True)
    pieces = ["<s>", "<pad>", "</s>", "<unk>", *_sentencepiece(folder / "sentencepiece.bpe.model")]
    (folder / "vocab.json").write_text(json.dumps({p: i for i, p in enumerate(dict.fromkeys(pieces))}))
    files = (str(folder / "vocab.json"), str(folder / "sentencepiece.bpe.model"))
    codes = [f"__{code}__" for code in FAIRSEQ_LANGUAGE_CODES["m2m100"]]
    tokenizer = M2M100Tokenizer(*files, additional_special_tokens=codes)
    tokenizer.save_pretrained(folder)
    ids = {"pad_token_id": 1, "bos_token_id": 0, "eos_token_id": 2, "decoder_start_token_id": 2}
    config = M2M100Config(vocab_size=len(tokenizer) + 8, **{**SHAPE, **shape}, **ids)
    torch.manual_seed(0)
    M2M100ForConditionalGeneration(config).save_pretrained(folder)
    return folder


def save_nllb(folder: Path) -> Path:
    """Write a random NLLB that knows English, Spanish and Chinese; its tokenizer needs no sentencepiece."""
    special = ["<s>", "<pad>", "</s>", "<unk>"]
    trained = Tokenizer(models.BPE(unk_token="<unk>", fuse_unk=True))
    trained.pre_tokenizer = pre_tokenizers.Metaspace()
    trained.train_from_iterator(TEXTS, trainers.BpeTrainer(vocab_size=250, special_tokens=special, show_progress=False))
    model = json.loads(trained.to_str())["model"]
    merges = [tuple(merge) for merge in model["merges"]]
    codes = ["eng_Latn", "spa_Latn", "zho_Hans"]
    tokenizer = NllbTokenizer(vocab=model["vocab"], merges=merges, extra_special_tokens=codes)
    tokenizer.save_pretrained(folder)
    ids = {"pad_token_id": 1, "bos_token_id": 0, "eos_token_id": 2, "decoder_start_token_id": 2}
    torch.manual_seed(1)
    M2M100ForConditionalGeneration(M2M100Config(vocab_size=len(tokenizer), **SHAPE, **ids)).save_pretrained(folder)
    return folder


def save_marian(folder: Path, codes: tuple[str, ...] = ()) -> Path:
    """Write a random Marian model of one pair, or with target codes such as `>>spa<<`."""
    folder.mkdir(parents=True)
    pieces = _sentencepiece(folder / "source.spm")
    (folder / "target.spm").write_bytes((folder / "source.spm").read_bytes())
    names = dict.fromkeys(["</s>", "<unk>", *pieces, *codes, "<pad>"])
    (folder / "vocab.json").write_text(json.dumps({p: i for i, p in enumerate(names)}))
    files = [str(folder / name) for name in ("source.spm", "target.spm", "vocab.json")]
    tokenizer = MarianTokenizer(*files)
    tokenizer.save_pretrained(folder)
    pad = tokenizer.pad_token_id
    ids = {"pad_token_id": pad, "eos_token_id": 0, "decoder_start_token_id": pad, "forced_eos_token_id": 0}
    torch.manual_seed(2)
    MarianMTModel(MarianConfig(vocab_size=len(names), **SHAPE, **ids)).save_pretrained(folder)
    return folder
