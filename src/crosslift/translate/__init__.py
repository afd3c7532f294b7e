"""Translators: texts of one language in, texts of another out.

All of them look the same (`Translator`), are opened by name (`open_translator`), and are called through
`translate_all`, which keeps what they said on disk.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from crosslift.errors import BadInput, nearest
from crosslift.translate.cache import cache_folder, translate_all
from crosslift.translate.chain import Chain
from crosslift.translate.text import translate_examples

__all__ = [
    "DETERMINISTIC",
    "KINDS",
    "Chain",
    "Translator",
    "cache_folder",
    "open_paraphrasers",
    "open_translator",
    "translate_all",
    "translate_examples",
]

KINDS = ("apertium", "dictionary", "dictionary-back", "file", "ctranslate2", "seq2seq")
"""What can stand before the colon of a translator's name; without a colon it is a seq2seq model."""

DETERMINISTIC = ("apertium", "dictionary", "file")
"""Kinds that always say the same: they cannot draw."""


class Translator(Protocol):
    """Somebody who translates from one language into another."""

    @property
    def name(self) -> str:
        """What it is, for people."""

    @property
    def fingerprint(self) -> str:
        """Another one where another translation may come out: what is kept on disk is kept under it."""

    @property
    def source(self) -> str:
        """Language code of the texts."""

    @property
    def target(self) -> str:
        """Language code of the translations."""

    @property
    def chunk(self) -> int:
        """How many texts it is given at once; after each chunk the translations are saved. 0: not worth saving."""

    def translate(self, texts: Sequence[str]) -> list[str]:
        """Translate texts, none of which is empty; as many come out, in the same order."""


def open_translator(
    name: str | Path,
    source: str,
    target: str,
    *,
    via: str | None = None,
    sample: int | None = None,
    beams: int | None = None,
    tokenizer: str | None = None,
) -> Translator:
    """Open a translator by name; a neural model is loaded only when it is first needed.

    Args:
        name: `apertium`; `dictionary:FILE` (lines `source TAB target`; `dictionary-back:FILE` reads them the other way
            round); `file:FILE` with existing translations; `ctranslate2:FOLDER`; or a Hugging Face seq2seq model by
            folder or hub id. `{lang}` in it stands for the language that is not English, or else the target.
        source: Language of the texts.
        target: Language to translate into.
        via: Translate into this language first and from there into the target.
        sample: Draw the translation instead of taking the likeliest; another number, another draw. Neural models only.
        beams: Width of the beam search; default: as the model's own settings say.
        tokenizer: CTranslate2: where the tokenizer is, if not in the model's folder.
    """
    if via is not None:
        legs = [(source, via), (via, target)]
        options = {"sample": sample, "beams": beams, "tokenizer": tokenizer}
        return Chain([open_translator(name, *leg, **options) for leg in legs])  # type: ignore[arg-type]
    filled = str(name).replace("{lang}", source if target == "en" else target)
    kind, colon, rest = filled.partition(":")
    if not colon and kind != "apertium":
        kind, rest = "seq2seq", filled
    if kind not in KINDS:
        raise BadInput(
            f'There is no kind of translator "{kind}".{nearest(kind, KINDS)}',
            f"It is apertium, {', '.join(f'{k}:…' for k in KINDS[1:-1])}, or a seq2seq model.",
        )
    if kind.startswith(DETERMINISTIC) and sample is not None:
        raise BadInput(f"{kind} always says the same: it cannot draw translations.", "Use a neural model, or noise.")
    if kind == "apertium":
        from crosslift.translate.apertium import Apertium

        return Apertium(source, target)
    if kind.startswith("dictionary"):
        from crosslift.translate.dictionary import Dictionary

        return Dictionary(Path(rest), source, target, back=kind == "dictionary-back")
    if kind == "file":
        from crosslift.translate.file import TranslationFile

        return TranslationFile(Path(rest), source, target)
    if kind == "ctranslate2":
        from crosslift.translate.ctranslate2 import CTranslate2

        return CTranslate2(Path(rest), source, target, sample=sample, beams=beams, tokenizer=tokenizer)
    from crosslift.translate.seq2seq import Seq2Seq

    return Seq2Seq(rest, source, target, sample=sample, beams=beams)


def open_paraphrasers(
    name: str | Path,
    language: str,
    *,
    samples: int,
    via: str | None = None,
    beams: int | None = None,
    tokenizer: str | None = None,
) -> list[Translator]:
    """Open translators from a language into itself, one per paraphrase; of one that always says the same, one.

    Args:
        name: As for `open_translator`.
        language: Of the texts and the paraphrases.
        samples: How many draws.
        via: Translate into this language first and from there back.
        beams: Width of the beam search.
        tokenizer: CTranslate2: where the tokenizer is.
    """
    draws = [None] if str(name).startswith(DETERMINISTIC) else list(range(1, samples + 1))
    options = {"via": via, "beams": beams, "tokenizer": tokenizer}
    return [open_translator(name, language, language, sample=draw, **options) for draw in draws]  # type: ignore[arg-type]
