"""A frozen sentence encoder as teacher: its vectors of texts, and of words in them, computed once."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import normalize

from crosslift.data.storage import atomic, read_json
from crosslift.data.streams import Rows
from crosslift.data.tokenise import Workers, tokenise_words
from crosslift.errors import BadFile
from crosslift.models.load import load_encoder, load_tokenizer, locate

if TYPE_CHECKING:
    from transformers import PreTrainedModel

Pooling = Literal["mean", "cls"]

WORDS_PER_TEXT = 1024
"""Word w of text t has the key t * WORDS_PER_TEXT + w; later words of a text have no vector."""
_LAYERS = 4
_LONGEST = 128


@dataclass(frozen=True)
class TeacherVectors:
    """What a teacher says about a list of texts.

    Attributes:
        sentences: (texts, width) unit vectors, half precision, on the device.
        words: (words, width) vectors of the words asked for: the mean over their pieces and the last four
            layers, each dimension standardised over all words; half precision, on the device.
    """

    sentences: Tensor
    words: Tensor


def pooling_of(folder: str | Path) -> Pooling:
    """Return how a sentence-transformers folder pools tokens; `mean` where it does not say."""
    file = Path(locate(folder)) / "1_Pooling" / "config.json"
    return "cls" if file.exists() and read_json(file).get("pooling_mode_cls_token") else "mean"


def teacher_vectors(
    folder: str | Path,
    texts: Sequence[str],
    word_keys: NDArray[np.int64],
    device: torch.device,
    workers: Workers,
    *,
    pooling: Pooling | None = None,
    tokens_per_batch: int = 65_536,
) -> TeacherVectors:
    """Run the teacher over the texts, long ones with long ones.

    Args:
        folder: Sentence encoder in Hugging Face or sentence-transformers format.
        texts: What it reads.
        word_keys: Sorted keys of the words whose vectors are wanted (`WORDS_PER_TEXT`).
        device: Where it runs and the vectors stay.
        workers: Processes that tokenise.
        pooling: Default: what the folder says.
        tokens_per_batch: Padded tokens at once.
    """
    pooling = pooling or pooling_of(folder)
    tokenizer = load_tokenizer(folder).backend_tokenizer
    tokenizer.no_padding()
    tokenizer.enable_truncation(_LONGEST)
    ids, lengths, word_of = tokenise_words(texts, tokenizer, workers)
    model = load_encoder(folder).to(device).eval()
    if device.type == "cuda":
        model = model.to(torch.bfloat16)
    reader = _Reader(model, Rows.of(ids, lengths).to(device), torch.from_numpy(word_of).to(device), pooling)
    keys = torch.from_numpy(word_keys).to(device)
    width = model.config.hidden_size
    sentences = torch.empty((len(texts), width), dtype=torch.float16, device=device)
    sums = torch.zeros((len(keys) + 1, width), device=device)
    counts = torch.zeros(len(keys) + 1, device=device)
    order = np.argsort(lengths, kind="stable")
    longest = np.maximum.accumulate(lengths[order])
    with torch.inference_mode():
        begin = 0
        while begin < len(order):
            size = max(1, tokens_per_batch // int(longest[min(begin + 256, len(order) - 1)]))
            rows = torch.from_numpy(order[begin : begin + size]).to(device)
            vectors, hidden, word_keys_of = reader.read(rows, int(longest[min(begin + size, len(order)) - 1]))
            sentences[rows] = vectors.half()
            if len(keys):
                place = torch.searchsorted(keys, word_keys_of).clamp_(max=len(keys) - 1)
                place = torch.where(keys[place] == word_keys_of, place, len(keys))
                sums.index_add_(0, place, hidden)
                counts.index_add_(0, place, torch.ones_like(place, dtype=counts.dtype))
            begin += size
    words = sums[:-1] / counts[:-1, None].clamp_(min=1)
    if len(words) > 1:
        # A few dimensions of every such encoder are large everywhere; unscaled they would be all a cosine sees.
        words = (words - words.mean(0)) / words.std(0).clamp_(min=1e-6)
    return TeacherVectors(sentences, words.half())


class _Reader:
    """Runs the teacher on some rows."""

    def __init__(self, model: PreTrainedModel, rows: Rows, word_of: Tensor, pooling: Pooling) -> None:
        self.model, self.rows, self.pooling = model, rows, pooling
        self.words = Rows(word_of, rows.starts)

    def read(self, rows: Tensor, length: int) -> tuple[Tensor, Tensor, Tensor]:
        """Return (rows, width) unit vectors; (tokens, width) states and (tokens,) word keys, -1 = no word."""
        pad = self.model.config.pad_token_id or 0
        ids, mask = self.rows.pad(rows, length, pad)
        states = self.model(input_ids=ids, attention_mask=mask, output_hidden_states=True).hidden_states
        last = states[-1].float()
        if self.pooling == "cls":
            vectors = last[:, 0]
        else:
            weights = mask.unsqueeze(-1)
            vectors = (last * weights).sum(1) / weights.sum(1)
        hidden = torch.stack([state.float() for state in states[-_LAYERS:]]).mean(0)
        word, _ = self.words.pad(rows, length, -1)
        keys = torch.where(word >= 0, rows[:, None] * WORDS_PER_TEXT + word, -1)
        return normalize(vectors, dim=-1), hidden.flatten(0, 1), keys.flatten()


def write_vectors(path: Path, texts: Sequence[str], vectors: NDArray[np.floating]) -> None:
    """Store vectors of texts for later lookup by text; the texts themselves are not stored.

    Args:
        path: An `.npz` file.
        texts: One text per vector.
        vectors: (texts, width).
    """
    keys = _text_keys(texts)
    order = np.argsort(keys, kind="stable")
    with atomic(path) as draft, draft.open("wb") as file:
        np.savez(file, keys=keys[order], vectors=vectors.astype(np.float16)[order])


class StoredVectors:
    """Vectors of texts from a file of `write_vectors`.

    Args:
        path: The `.npz` file.
    """

    def __init__(self, path: Path) -> None:
        try:
            with np.load(path, allow_pickle=False) as stored:
                self.keys, self.vectors = stored["keys"], stored["vectors"]
        except (OSError, KeyError, ValueError) as error:
            raise BadFile(
                path, None, f"is no file of text vectors ({error}).", "Write it with write_vectors."
            ) from None

    def known(self, texts: Sequence[str]) -> NDArray[np.bool_]:
        """Return (texts,) whether each text has a vector."""
        return self._find(texts)[1]

    def of(self, texts: Sequence[str]) -> NDArray[np.float16]:
        """Return (texts, width) vectors; all zeros for a text without one."""
        place, known = self._find(texts)
        found: NDArray[np.float16] = self.vectors[place]
        found[~known] = 0
        return found

    def _find(self, texts: Sequence[str]) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
        wanted = _text_keys(texts)
        place = np.minimum(np.searchsorted(self.keys, wanted), len(self.keys) - 1)
        return place, self.keys[place] == wanted


def _text_keys(texts: Sequence[str]) -> NDArray[np.uint64]:
    digests = b"".join(hashlib.blake2b(text.encode(), digest_size=8).digest() for text in texts)
    return np.frombuffer(digests, dtype="<u8").astype(np.uint64)
