"""Train a tokenizer for a new encoder: unigram pieces (XLM-R's way) or byte-level pairs (RoBERTa's).

Both carry the same five special tokens with the same ids, open with `AutoTokenizer`, and keep character
offsets, so that words and pieces can be mapped to each other.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Literal, get_args

import numpy as np
from numpy.typing import NDArray
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers
from tokenizers.processors import TemplateProcessing
from transformers import PreTrainedTokenizerFast

from crosslift.errors import BadInput, nearest

Kind = Literal["unigram", "bpe"]
KINDS: tuple[str, ...] = get_args(Kind)

SPECIAL_TOKENS = ("<s>", "<pad>", "</s>", "<unk>", "<mask>")
"""Ids 0 to 4, in this order, in every tokenizer trained here."""

# The mask swallows the space before it, as in RoBERTa: "in <mask>" is two tokens.
_MASK = AddedToken(SPECIAL_TOKENS[-1], lstrip=True, normalized=False, special=True)

# A mark or a digit is a piece of its own (with the word mark before it, if it opens a word): otherwise
# the vocabulary fills with "word," and "1998", and a lone word mark stands before every bracket.
_MARKS_AND_DIGITS = Regex(r"▁?[\p{P}\p{S}\p{N}&&[^▁]]")


_LONGEST_PIECE = 16  # characters
_PRUNING_ROUNDS = 3


@dataclass(frozen=True)
class TokenizerSettings:
    """What a new tokenizer looks like and what it is trained on."""

    kind: Kind = field(
        default="unigram",
        metadata={"help": "unigram: many languages; bpe: byte-level, one language, no unknown piece."},
    )
    pieces: int = field(default=24_000, metadata={"help": "Size of the vocabulary, special tokens included."})
    characters: int = field(
        default=40_000_000, metadata={"help": "Length of the training sample; more is slower, hardly better."}
    )
    balance: float = field(
        default=0.5, metadata={"help": "Languages enter the sample by size to this power: 1 as found, 0 all alike."}
    )
    coverage: float = field(
        default=0.9995, metadata={"help": "Unigram: share of characters that become pieces; the rarest are unknown."}
    )
    lowercase: float = field(default=0.2, metadata={"help": "Share of lines that are also shown in lower case."})

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise BadInput(f'Unknown tokenizer kind "{self.kind}".{nearest(self.kind, KINDS)}', "Use unigram or bpe.")


def train_tokenizer(
    texts: Mapping[str, Sequence[str]], settings: TokenizerSettings, seed: int = 0
) -> PreTrainedTokenizerFast:
    """Train a tokenizer on a language-balanced sample of the texts.

    Args:
        texts: Language -> lines of text.
        settings: Kind, size, balance.
        seed: Draws the sample.
    """
    sample = balanced_sample(texts, settings.characters, settings.balance, seed)
    rng = np.random.default_rng(seed)
    lowered = [line.lower() for line in sample if rng.random() < settings.lowercase]
    lines = sample + lowered
    if settings.kind == "unigram":
        return train_unigram(lines, settings.pieces, settings.coverage)
    return train_bpe(lines, settings.pieces)


def balanced_sample(
    texts: Mapping[str, Sequence[str]], characters: int, balance: float = 0.5, seed: int = 0
) -> list[str]:
    """Draw lines so that a language's share of characters is proportional to its size ** `balance`.

    A language too small for its share gives all it has, once; the others share what it leaves.

    Args:
        texts: Language -> lines.
        characters: Wanted length of the whole sample.
        balance: 1 keeps the sizes as they are, 0 makes all languages alike.
        seed: Which lines are drawn.
    """
    sizes = {language: sum(map(len, lines)) for language, lines in texts.items() if lines}
    if not sizes:
        raise BadInput("There is no text to train a tokenizer on.", "Give at least one text file with lines in it.")
    quota = _shares(np.array(list(sizes.values()), dtype=float), characters, balance)
    rng = np.random.default_rng(seed)
    sample: list[str] = []
    for (language, size), wanted in zip(sizes.items(), quota.tolist(), strict=True):
        lines = texts[language]
        keep = rng.random(len(lines)) < wanted / size
        sample.extend(line for line, kept in zip(lines, keep, strict=True) if kept)
    return sample


def _shares(sizes: np.ndarray, total: float, balance: float) -> np.ndarray:
    """Split `total` by sizes ** balance with no share above its size (water filling)."""
    quota = np.zeros_like(sizes)
    open_ = np.ones(len(sizes), dtype=bool)
    while open_.any():
        weights = np.where(open_, sizes**balance, 0)
        quota = np.where(open_, (total - quota[~open_].sum()) * weights / weights.sum(), quota)
        full = open_ & (quota >= sizes)
        if not full.any():
            break
        quota = np.where(full, sizes, quota)
        open_ &= ~full
    return quota


def train_unigram(lines: Sequence[str], pieces: int, coverage: float = 0.9995) -> PreTrainedTokenizerFast:
    """Train unigram pieces with XLM-R's normaliser (NFKC) and special tokens.

    The candidates are the merges of a larger byte-pair vocabulary, pruned by how much likelihood the text
    loses without each (Kudo 2018, section 3.2, with the best segmentation in place of the expectation).
    The trainer of the `tokenizers` package, which takes its candidates from all frequent substrings, left more
    lone word marks and longer texts in a trial on 25 languages.

    Args:
        lines: The training sample.
        pieces: Size of the vocabulary, special tokens included; a short text gives fewer.
        coverage: Share of the sample's characters that are surely pieces; rarer ones become `<unk>`.
    """
    tokenizer = _unigram_frame()
    words = _word_counts(tokenizer, lines, rare_characters(lines, coverage))
    candidates = _bpe_candidates(words, int(1.6 * pieces))
    wanted = pieces - len(SPECIAL_TOKENS)
    single = sum(len(piece) == 1 for piece in candidates)
    if single > wanted:
        raise BadInput(
            f"{pieces:,} pieces do not hold the {single:,} characters of the text.",
            "Ask for more pieces or a lower character coverage.",
        )
    scores = prune_pieces(candidates, words, wanted)
    special = [(token, 0.0) for token in SPECIAL_TOKENS]
    ordered = sorted(scores.items(), key=lambda item: (-item[1], item[0]))
    tokenizer.model = models.Unigram(special + ordered, unk_id=SPECIAL_TOKENS.index("<unk>"))
    return _wrap(tokenizer)


def _unigram_frame() -> Tokenizer:
    """Return a tokenizer with normaliser, word splitting and decoder, but no pieces yet."""
    tokenizer = Tokenizer(models.Unigram())
    tokenizer.normalizer = normalizers.Sequence(
        [
            normalizers.Nmt(),
            normalizers.NFKC(),
            normalizers.Replace(Regex(" {2,}"), " "),
            normalizers.Strip(),
        ]
    )
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Metaspace("▁", prepend_scheme="always", split=True),
            pre_tokenizers.Split(_MARKS_AND_DIGITS, "isolated"),
        ]
    )
    tokenizer.decoder = decoders.Metaspace("▁", prepend_scheme="always", split=True)
    return tokenizer


def _word_counts(tokenizer: Tokenizer, lines: Iterable[str], without: set[str]) -> Counter[str]:
    """Count the words of the lines as the tokenizer splits them; characters in `without` end a word."""
    table = str.maketrans(dict.fromkeys(without, " "))
    counts: Counter[str] = Counter()
    for line in lines:
        text = tokenizer.normalizer.normalize_str(line.translate(table))
        counts.update(word for word, _ in tokenizer.pre_tokenizer.pre_tokenize_str(text))
    return counts


def _bpe_candidates(words: Counter[str], size: int) -> dict[str, int]:
    """Return the pieces of a byte-pair vocabulary over the words, with how often it uses each."""
    bpe = Tokenizer(models.BPE())
    trainer = trainers.BpeTrainer(vocab_size=size, show_progress=False, max_token_length=_LONGEST_PIECE)
    # The trainer takes no counts; each word is repeated, up to a cap that spares time on "the" and ",".
    bpe.train_from_iterator(([word] * min(count, 5_000) for word, count in words.items()), trainer)
    pieces = sorted(bpe.get_vocab(), key=bpe.get_vocab().__getitem__)
    return dict(zip(pieces, _piece_counts(bpe, words, len(pieces)).tolist(), strict=True))


def _piece_counts(tokenizer: Tokenizer, words: Counter[str], pieces: int) -> NDArray[np.int64]:
    """Return (pieces,) how often each piece id occurs in the segmented words, weighted by their counts."""
    encoded = [e.ids for e in tokenizer.encode_batch_fast(list(words), add_special_tokens=False)]
    ids = np.fromiter(chain.from_iterable(encoded), dtype=np.int64)
    weights = np.repeat(np.fromiter(words.values(), dtype=np.int64), [len(e) for e in encoded])
    return np.bincount(ids, weights=weights, minlength=pieces).astype(np.int64)


def prune_pieces(candidates: Mapping[str, int], words: Counter[str], wanted: int) -> dict[str, float]:
    """Prune candidate pieces to `wanted`, dropping first those the text misses least.

    Each round re-segments the words with the pieces at hand, re-estimates p(piece) from the counts, and
    drops the pieces with the smallest loss  count(x) · (log p(x) − max over other cuts of x of Σ log p).
    Single characters stay.

    Args:
        candidates: Piece -> first guess of its count.
        words: Word -> how often it occurs.
        wanted: Number of pieces to keep.

    Returns:
        Piece -> log probability.
    """
    counts = dict(candidates)
    sizes = np.geomspace(max(len(counts), wanted), wanted, _PRUNING_ROUNDS + 1)[1:].astype(int).tolist()
    for size in [*sizes, wanted, wanted]:
        scores = _log_probabilities(counts)
        names = list(scores)
        unigram = Tokenizer(models.Unigram([("<unk>", 0.0), *scores.items()], unk_id=0))
        found = _piece_counts(unigram, words, len(names) + 1)[1:]
        counts = dict(zip(names, found.tolist(), strict=True))
        if len(counts) > size:
            scores = _log_probabilities(counts)
            losses = {piece: counts[piece] * _loss_of_removal(piece, scores) for piece in names}
            ranked = sorted(names, key=lambda piece: (len(piece) > 1, -losses[piece], piece))
            counts = {piece: counts[piece] for piece in ranked[:size]}
    return _log_probabilities(counts)


def _log_probabilities(counts: Mapping[str, int]) -> dict[str, float]:
    """Return log p of each piece, with half a count for those never seen."""
    values = np.array(list(counts.values()), dtype=float) + 0.5
    return dict(zip(counts, np.log(values / values.sum()).tolist(), strict=True))


def _loss_of_removal(piece: str, scores: Mapping[str, float]) -> float:
    """Return log p(piece) minus the score of its best cut into other pieces; characters cannot be cut."""
    best = [0.0] + [-np.inf] * len(piece)
    for end in range(1, len(piece) + 1):
        for start in range(end):
            part = scores.get(piece[start:end])
            if part is not None and end - start < len(piece):
                best[end] = max(best[end], best[start] + part)
    return float(scores[piece] - best[-1])


def rare_characters(lines: Iterable[str], coverage: float) -> set[str]:
    """Return the rarest characters that together make up at most `1 - coverage` of the text."""
    counts: Counter[str] = Counter()
    for line in lines:
        counts.update(line)
    ordered = counts.most_common()
    seen = np.cumsum([count for _, count in ordered])
    if len(seen) == 0:
        return set()
    # The character that reaches the coverage is still kept.
    kept = int(np.searchsorted(seen, coverage * seen[-1])) + 1
    return {character for character, _ in ordered[kept:]}


def train_bpe(lines: Sequence[str], pieces: int) -> PreTrainedTokenizerFast:
    """Train byte-level pair pieces as RoBERTa's, with a space before the first word too.

    Args:
        lines: The training sample.
        pieces: Size of the vocabulary, special tokens and the 256 bytes included.
    """
    if pieces < 256 + len(SPECIAL_TOKENS):
        raise BadInput(f"{pieces} pieces do not hold the 256 bytes.", "Ask for at least 300 pieces.")
    tokenizer = Tokenizer(models.BPE())
    # A word at the start of a text is the same word as elsewhere: a small model cannot learn each twice.
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=True)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=pieces,
        min_frequency=2,
        special_tokens=[*SPECIAL_TOKENS[:-1], _MASK],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(lines, trainer)
    return _wrap(tokenizer)


def _wrap(tokenizer: Tokenizer) -> PreTrainedTokenizerFast:
    """Add the special tokens' frame `<s> A </s>` and `<s> A </s></s> B </s>` and give it HF's face."""
    tokenizer.post_processor = TemplateProcessing(
        single="<s> $A </s>",
        pair="<s> $A </s> </s> $B </s>",
        special_tokens=[("<s>", 0), ("</s>", 2)],
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        bos_token="<s>",
        eos_token="</s>",
        cls_token="<s>",
        sep_token="</s>",
        pad_token="<pad>",
        unk_token="<unk>",
        mask_token=_MASK,
        model_max_length=512,
    )


def pieces_per_word(tokenizer: PreTrainedTokenizerFast, lines: Sequence[str]) -> float:
    """Return the mean number of pieces per whitespace-separated word; for zh, ja, th read it per character run."""
    encoded = tokenizer(list(lines), add_special_tokens=False)["input_ids"]
    words = sum(len(line.split()) for line in lines)
    return sum(map(len, encoded)) / max(words, 1)
