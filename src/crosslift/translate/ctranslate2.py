"""CTranslate2: seq2seq models converted for fast inference on a CPU, also in int8.

Convert one with `ct2-transformers-converter --model facebook/m2m100_418M --output_dir m2m-ct2 --quantization int8
--copy_files tokenizer_config.json vocab.json sentencepiece.bpe.model …`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from crosslift.errors import BadInput, CrossliftError, MissingExtra
from crosslift.translate.seq2seq import MAX_NEW_TOKENS, Direction, direction, encode, model_print, translation_tokenizer

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase


class CTranslate2:
    """A model in CTranslate2's format, loaded when it is first needed.

    Args:
        folder: Where its `model.bin` is.
        source: Language of the texts.
        target: Language of the translations.
        sample: Draw translations instead of taking the likeliest; another number, another draw.
        beams: Width of the beam search (default 2, CTranslate2's own).
        tokenizer: Folder or hub id of the tokenizer, if it is not in `folder`.
    """

    chunk = 512

    def __init__(
        self,
        folder: Path,
        source: str,
        target: str,
        *,
        sample: int | None = None,
        beams: int | None = None,
        tokenizer: str | None = None,
    ) -> None:
        if not (folder / "model.bin").is_file():
            raise BadInput(
                f"{folder} holds no CTranslate2 model (no model.bin).",
                "Make one:  ct2-transformers-converter --model NAME --output_dir FOLDER",
            )
        self.folder, self.source, self.target = folder, source, target
        self.sample, self.beams, self.tokenizer_name = sample, beams, tokenizer or str(folder)
        drawn = "" if sample is None else f", draw {sample}"
        self.name = f"{folder.name} {source}-{target} (CTranslate2{drawn})"

    @cached_property
    def fingerprint(self) -> str:
        """A digest of the model, the languages and how translations are chosen."""
        facts = f"{model_print(str(self.folder))} {self.tokenizer_name} {self.source} {self.target}"
        facts += f" {self.sample} {self.beams} {MAX_NEW_TOKENS}"
        return f"ctranslate2-{hashlib.blake2b(facts.encode(), digest_size=8).hexdigest()}"

    @cached_property
    def _model(self) -> Any:  # noqa: ANN401  CTranslate2 has no types
        try:
            import ctranslate2
        except ImportError:
            raise MissingExtra("ctranslate2", "translate") from None
        device = "cuda" if ctranslate2.get_cuda_device_count() else "cpu"
        if self.sample is not None:
            ctranslate2.set_random_seed(self.sample)
        return ctranslate2.Translator(str(self.folder), device=device)

    @cached_property
    def _tokenizer(self) -> PreTrainedTokenizerBase:
        return translation_tokenizer(self.tokenizer_name)

    @cached_property
    def _direction(self) -> Direction:
        return direction(str(self.folder), self._tokenizer, self.source, self.target)

    def translate(self, texts: Sequence[str]) -> list[str]:
        """Translate texts; CTranslate2 makes the batches."""
        tokenizer = self._tokenizer
        way = self._direction
        rows = encode(str(self.folder), tokenizer, way, texts, longest=10**6)
        options: dict[str, object] = {"max_decoding_length": MAX_NEW_TOKENS}
        if self.sample is not None:
            options |= {"beam_size": 1, "sampling_topk": 0, "sampling_temperature": 1.0}
        elif self.beams:
            options["beam_size"] = self.beams
        try:
            results = self._model.translate_batch(
                [tokenizer.convert_ids_to_tokens(row) for row in rows],
                target_prefix=None if way.first is None else [[way.first]] * len(rows),
                max_batch_size=2048,
                batch_type="tokens",
                max_input_length=0,
                **options,
            )
        except RuntimeError as error:  # a text that is too long, a full memory
            raise CrossliftError(f"{self.name} failed: {str(error).splitlines()[0]}.") from error
        heard = [[token for token in result.hypotheses[0] if token != way.first] for result in results]
        ids = [tokenizer.convert_tokens_to_ids(tokens) for tokens in heard]
        return [text.strip() for text in tokenizer.batch_decode(ids, skip_special_tokens=True)]
