"""Small fast tokenizers of the three common kinds, trained in memory on a few lines in many scripts."""

import json
from functools import cache

from tokenizers import (
    Regex,
    Tokenizer,
    decoders,
    models,
    normalizers,
    pre_tokenizers,
    processors,
    trainers,
)
from transformers import PreTrainedTokenizerFast

TEXTS = [
    "The quick brown fox jumps over the lazy dog, and the dog does not mind.",
    "Berlin is the capital of Germany; Paris is the capital of France.",
    "Where was Marie Curie born? She was born in Warsaw in 1867.",
    "Der schnelle braune Fuchs springt über den faulen Hund.",
    "L'homme n'a pas vu la rivière, mais il l'a entendue.",
    "Быстрая коричневая лиса прыгает через ленивую собаку.",
    "Η γρήγορη καφέ αλεπού πηδάει πάνω από το τεμπέλικο σκυλί.",
    "الثعلب البني السريع يقفز فوق الكلب الكسول",
    "तेज भूरी लोमड़ी आलसी कुत्ते के ऊपर कूदती है।",
    "我爱北京天安门。北京是中国的首都。",
    "吾輩は猫である。名前はまだ無い。",
    "สวัสดีครับ วันนี้อากาศดีมาก",
]


@cache
def wordpiece_tokenizer() -> PreTrainedTokenizerFast:
    """Like BERT's: lower-cased, accents stripped, control characters removed, token types for pairs."""
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=True)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    trainer = trainers.WordPieceTrainer(vocab_size=300, special_tokens=special, show_progress=False)
    tokenizer.train_from_iterator(TEXTS, trainer)
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]",
        pair="[CLS] $A [SEP] $B:1 [SEP]:1",
        special_tokens=[("[CLS]", 2), ("[SEP]", 3)],
    )
    tokenizer.decoder = decoders.WordPiece()
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        pad_token="[PAD]",
        unk_token="[UNK]",
        cls_token="[CLS]",
        sep_token="[SEP]",
        mask_token="[MASK]",
        model_max_length=512,
        model_input_names=["input_ids", "token_type_ids", "attention_mask"],
    )


@cache
def bpe_tokenizer(trim_offsets: bool = True) -> PreTrainedTokenizerFast:
    """Like RoBERTa's: byte-level, every byte in the vocabulary, offsets with or without the leading space."""
    special = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=True, trim_offsets=trim_offsets)
    trainer = trainers.BpeTrainer(
        vocab_size=400,
        special_tokens=special,
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    tokenizer.train_from_iterator(TEXTS, trainer)
    tokenizer.post_processor = processors.RobertaProcessing(
        ("</s>", 2), ("<s>", 0), trim_offsets=trim_offsets, add_prefix_space=True
    )
    tokenizer.decoder = decoders.ByteLevel()
    return _roberta_like(tokenizer)


@cache
def unigram_tokenizer() -> PreTrainedTokenizerFast:
    """Like XLM-R's, with byte fallback: unknown characters become several pieces with equal offsets."""
    special = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
    normalizer = normalizers.Sequence([normalizers.NFKC(), normalizers.Replace(Regex(r"\s+"), " ")])
    metaspace = pre_tokenizers.Metaspace(replacement="▁", prepend_scheme="always")
    trained = Tokenizer(models.Unigram())
    trained.normalizer = normalizer
    trained.pre_tokenizer = metaspace
    trainer = trainers.UnigramTrainer(vocab_size=250, special_tokens=special, unk_token="<unk>", show_progress=False)
    trained.train_from_iterator(TEXTS, trainer)
    pieces = [(piece, score) for piece, score in json.loads(trained.to_str())["model"]["vocab"]]
    known = {piece for piece, _ in pieces}
    pieces += [(f"<0x{byte:02X}>", -20.0) for byte in range(256)]
    pieces += [] if "▁" in known else [("▁", -5.0)]
    tokenizer = Tokenizer(models.Unigram(pieces, unk_id=special.index("<unk>"), byte_fallback=True))
    tokenizer.normalizer = normalizer
    tokenizer.pre_tokenizer = metaspace
    tokenizer.add_special_tokens(special)
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<s> $A </s>",
        pair="<s> $A </s> </s> $B </s>",
        special_tokens=[("<s>", 0), ("</s>", 2)],
    )
    tokenizer.decoder = decoders.Sequence([decoders.ByteFallback(), decoders.Metaspace()])
    return _roberta_like(tokenizer)


def _roberta_like(tokenizer: Tokenizer) -> PreTrainedTokenizerFast:
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        bos_token="<s>",
        eos_token="</s>",
        sep_token="</s>",
        cls_token="<s>",
        unk_token="<unk>",
        pad_token="<pad>",
        mask_token="<mask>",
        model_max_length=512,
        model_input_names=["input_ids", "attention_mask"],
    )
