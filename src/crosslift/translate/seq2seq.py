"""Hugging Face sequence-to-sequence models: M2M-100, NLLB, mBART, Marian, MADLAD and their like."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from functools import cached_property, lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import torch

from crosslift.data.batches import evaluation_batches
from crosslift.errors import BadInput, MissingExtra
from crosslift.models.load import from_hub_or_folder, load_config, locate, quiet_transformers, refuse_pickle
from crosslift.translate.languages import find_code, spellings

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

MAX_TOKENS = {"cpu": 2048, "cuda": 32768}
"""Padded source tokens per batch."""

MAX_NEW_TOKENS = 256
"""Where a translation that does not end is cut."""


class Direction(NamedTuple):
    """How a multilingual model is told its languages; all `None` for a model of one pair.

    Attributes:
        source: What its tokenizer calls the source language.
        first: The token that a translation must begin with.
        prefix: What is written before each text.
    """

    source: str | None = None
    first: str | None = None
    prefix: str = ""


class Seq2Seq:
    """A sequence-to-sequence model, loaded when it is first needed.

    Args:
        name: Folder or hub id.
        source: Language of the texts.
        target: Language of the translations.
        sample: Draw translations (temperature 1) instead of taking the likeliest; another number, another draw.
        beams: Width of the beam search; default: the model's own.
        max_tokens: Padded source tokens per batch.
    """

    chunk = 128

    def __init__(
        self,
        name: str,
        source: str,
        target: str,
        *,
        sample: int | None = None,
        beams: int | None = None,
        max_tokens: int | None = None,
    ) -> None:
        self.model_name, self.source, self.target = name, source, target
        self.sample, self.beams, self.max_tokens = sample, beams, max_tokens
        self.where = locate(name)
        drawn = "" if sample is None else f", draw {sample}"
        self.name = f"{Path(name).name} {source}-{target}{drawn}"

    @cached_property
    def fingerprint(self) -> str:
        """A digest of the model, the languages and how translations are chosen."""
        facts = f"{model_print(self.where)} {self.source} {self.target} {self.sample} {self.beams} {MAX_NEW_TOKENS}"
        return f"seq2seq-{hashlib.blake2b(facts.encode(), digest_size=8).hexdigest()}"

    def translate(self, texts: Sequence[str]) -> list[str]:
        """Translate texts in batches of like length."""
        model, tokenizer = _load(self.where)
        device = model.device
        way = _direction(self.where, self.source, self.target)
        longest = int(getattr(model.config, "max_position_embeddings", 0)) or 10**6
        rows = encode(self.where, tokenizer, way, texts, longest)
        first = None if way.first is None else int(tokenizer.convert_tokens_to_ids(way.first))
        options = self._options(first, longest)
        budget = self.max_tokens or MAX_TOKENS.get(device.type, 2048)
        made = [""] * len(texts)
        with torch.inference_mode(), torch.random.fork_rng():
            torch.manual_seed(self._seed(texts))
            for batch in evaluation_batches([len(row) for row in rows], budget):
                padded = tokenizer.pad({"input_ids": [rows[i] for i in batch]}, return_tensors="pt").to(device)
                written = model.generate(
                    input_ids=padded["input_ids"], attention_mask=padded["attention_mask"], **options
                )
                if first is not None:
                    written[written == first] = tokenizer.pad_token_id  # not every tokenizer knows it as special
                for row, text in zip(batch, tokenizer.batch_decode(written, skip_special_tokens=True), strict=True):
                    made[row] = text.strip()
        return made

    def _seed(self, texts: Sequence[str]) -> int:
        """Return a seed that depends on the texts, so that no two chunks are drawn alike."""
        digest = hashlib.blake2b("\n".join([str(self.sample), *texts]).encode(), digest_size=6).digest()
        return int.from_bytes(digest, "big")

    def _options(self, first: int | None, longest: int) -> dict[str, object]:
        options: dict[str, object] = {"max_new_tokens": min(MAX_NEW_TOKENS, longest - 1), "forced_bos_token_id": first}
        if self.sample is not None:
            return options | {"do_sample": True, "num_beams": 1, "temperature": 1.0, "top_k": 0}
        return options | {"do_sample": False} | ({"num_beams": self.beams} if self.beams else {})


# How families write languages in their vocabulary, and what is done with such a token.
_CODES = (
    (re.compile(r"__(\w+)__"), "first"),  # M2M-100: __es__
    (re.compile(r"([a-z]{3}_[A-Z][a-z]{3})"), "first"),  # NLLB: spa_Latn
    (re.compile(r"([a-z]{2})_[A-Z]{2}"), "first"),  # mBART: es_XX, de_DE
    (re.compile(r">>(\w+)<<"), "prefix"),  # Marian with several targets: >>spa<<
    (re.compile(r"<2(\w+)>"), "prefix"),  # MADLAD: <2es>
)


def direction(where: str, tokenizer: PreTrainedTokenizerBase, source: str, target: str) -> Direction:
    """Return how a model is told its languages, found in its tokenizer's vocabulary."""
    vocabulary = {*tokenizer.get_vocab(), *getattr(tokenizer, "lang_token_to_id", {})}
    told = hasattr(tokenizer, "src_lang")
    for pattern, use in _CODES:
        codes = {found[1]: token for token in vocabulary if (found := pattern.fullmatch(token))}
        there = find_code(target, codes)
        if there is None or told != (use == "first"):
            continue
        if use == "prefix":
            return Direction(prefix=codes[there] + " ")
        here = find_code(source, codes)
        if here is None:
            raise _unknown(where, source)
        # M2M-100's tokenizer is told "es", the others' the token.
        return Direction(source=here if codes[here].startswith("__") else codes[here], first=codes[there])
    if told:
        raise _unknown(where, target)
    return Direction()


def _unknown(where: str, language: str) -> BadInput:
    return BadInput(f"{where} does not know the language {language}.", f"Tried {', '.join(spellings(language))}.")


def encode(
    where: str, tokenizer: PreTrainedTokenizerBase, way: Direction, texts: Sequence[str], longest: int
) -> list[list[int]]:
    """Return the token ids of each text; a text that is too long for the model is an error, never cut."""
    if way.source is not None:
        tokenizer.src_lang = way.source
    rows: list[list[int]] = tokenizer([way.prefix + " ".join(text.split()) for text in texts], verbose=False)[
        "input_ids"
    ]
    for row, text in zip(rows, texts, strict=True):
        if len(row) > longest:
            raise BadInput(
                f"A text of {len(row):,} tokens is longer than the {longest:,} that {where} can read: {text[:60]!r} …",
                "Cut it into sentences first.",
            )
    return rows


@lru_cache(maxsize=1)  # both legs through a pivot, and every draw, share one model
def _load(where: str) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
    from transformers import AutoModelForSeq2SeqLM

    if Path(where).is_dir():
        refuse_pickle(Path(where))
    device = "cuda" if torch.cuda.is_available() else "cpu"
    dtype = torch.bfloat16 if device == "cuda" else torch.float32
    with quiet_transformers():
        tokenizer = translation_tokenizer(where)
        model = from_hub_or_folder(AutoModelForSeq2SeqLM.from_pretrained, where, use_safetensors=True, dtype=dtype)
    return model.to(device).eval(), tokenizer


@lru_cache(maxsize=8)  # a look through a quarter of a million tokens
def _direction(where: str, source: str, target: str) -> Direction:
    return direction(where, _load(where)[1], source, target)


def translation_tokenizer(where: str) -> PreTrainedTokenizerBase:
    """Load a model's tokenizer; those of M2M-100 and Marian need sentencepiece."""
    from transformers import AutoTokenizer
    from transformers.utils import is_sentencepiece_available

    folder = Path(where)
    pieces = folder.is_dir() and not (folder / "tokenizer.json").exists() and any(folder.glob("*.spm"))
    if pieces and not is_sentencepiece_available():
        raise MissingExtra("sentencepiece, which this model's tokenizer needs,", "translate")
    return from_hub_or_folder(AutoTokenizer.from_pretrained, where)


def model_print(where: str) -> str:
    """Return a digest of a model: of its files in a folder, of its revision on the hub."""
    if not Path(where).is_dir():
        return f"{where}@{getattr(load_config(where), '_commit_hash', None)}"
    digest = hashlib.blake2b(digest_size=12)
    for file in sorted(Path(where).iterdir()):
        if file.is_file() and file.suffix in (".json", ".safetensors", ".bin", ".spm", ".model", ".txt"):
            digest.update(file.name.encode())
            with file.open("rb") as content:
                while block := content.read(1 << 22):
                    digest.update(block)
    return digest.hexdigest()
