"""Links from the word vectors of an encoder: no training, and no bitext beyond the pairs themselves.

A word's vector is the mean of its sub-words' at one layer; s(i, j) is the cosine of two words' vectors, brought to 0…1.

    argmax    i and j are each other's best partner                          (Jalili Sabet et al. 2020)
    itermax   the same again for what is left: s is set to 0 where both words have a link, times 0.9 where one has
    softmax   both softmax over j and over i of the vectors' dot product exceed a threshold     (Dou & Neubig 2021)

Pairs are sorted by length and go through the encoder many at a time; similarities are batched products. A text that is
too long for the encoder is read in overlapping windows, and each word takes the window in which it stands furthest
from the edge.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, get_args

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from crosslift.align.links import Alignment, Candidates, symmetrise
from crosslift.data.examples import Examples, Spans
from crosslift.data.words import pool_words, ranges, row_starts, token_spans, word_maps
from crosslift.errors import BadInput, nearest
from crosslift.models.anatomy import FAMILIES, part
from crosslift.models.load import load_encoder, load_tokenizer
from crosslift.tasks.encoded import Ragged

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

Method = Literal["argmax", "itermax", "softmax"]
METHODS: tuple[str, ...] = get_args(Method)

Encode = Callable[[Tensor, Tensor], Tensor]
"""Token ids and mask, (batch, length) each, to hidden states (batch, length, width) on the device."""

_SLAB = 20_000  # pairs that are tokenised at once
_BLOCK_WORDS = 60_000  # words of both sides whose vectors are held at once
_CELLS = 1_000_000  # similarities held at once
_OVERLAP = 0.5  # of a window, with the next one
_ONE_LINKED = 0.9
_ROUNDS = 2


@dataclass(frozen=True)
class EmbeddingSettings:
    """How word vectors become links."""

    method: Method = field(default="argmax", metadata={"help": "argmax, itermax or softmax."})
    layer: int | None = field(default=None, metadata={"help": "Layer, counted from 1; default: two thirds up."})
    threshold: float = field(default=0.001, metadata={"help": "softmax: both shares must exceed it."})
    tokens: int = field(default=8192, metadata={"help": "Sub-words in one forward pass, padding included."})
    device: str = field(default="auto", metadata={"help": "cpu, cuda, or auto."})

    def __post_init__(self) -> None:
        if self.method not in METHODS:
            raise BadInput(
                f'There is no method "{self.method}".{nearest(self.method, METHODS)}', f"One of {', '.join(METHODS)}."
            )
        if self.tokens < 1:
            raise BadInput("--tokens must be at least 1.")
        if not 0 <= self.threshold < 1:
            raise BadInput(f"--threshold is a share from 0 to 1, not {self.threshold:g}.")


def align_embeddings(
    model: str | PreTrainedModel,
    bitext: Examples,
    source: list[Spans],
    target: list[Spans],
    settings: EmbeddingSettings | None = None,
    how: str = "intersection",
    tokenizer: PreTrainedTokenizerBase | None = None,
) -> tuple[Alignment, Candidates, Candidates]:
    """Link words whose vectors are alike.

    Args:
        model: An encoder, by name or loaded.
        bitext: Sentence pairs.
        source: The words of each source side, as character spans.
        target: The words of each target side.
        settings: Method, layer, sizes.
        how: argmax: how the two directions become one.
        tokenizer: Of a loaded encoder.

    Returns:
        The links, and the most similar partner of each source word and of each target word.
    """
    settings = settings or EmbeddingSettings()
    device = _device(settings.device)
    if isinstance(model, str):
        model, tokenizer = load_encoder(model), load_tokenizer(model)
    assert tokenizer is not None and bitext.pairs is not None
    encode = _encoder(model.to(device).eval(), settings.layer, device)
    slabs = [slice(first, first + _SLAB) for first in range(0, len(bitext), _SLAB)]
    texts, pairs = list(bitext.texts), list(bitext.pairs)
    found = [
        _align(
            _Side(texts[slab], source[slab], tokenizer),
            _Side(pairs[slab], target[slab], tokenizer),
            encode,
            settings,
            how,
        )
        for slab in slabs
    ]
    return (
        Alignment.join([links for links, _, _ in found]),
        Candidates.join([own for _, own, _ in found]),
        Candidates.join([other for _, _, other in found]),
    )


def _device(name: str) -> torch.device:
    """Return a device that torch has here."""
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    try:
        return torch.empty(0, device=name).device
    except (RuntimeError, AssertionError):  # no such name; none here, or torch was built without it
        raise BadInput(f"--device {name}: torch has no such device here.", "Say --device auto, cpu or cuda.") from None


def _align(
    left: _Side, right: _Side, encode: Encode, settings: EmbeddingSettings, how: str
) -> tuple[Alignment, Candidates, Candidates]:
    """Link the words of some pairs."""
    own, other = Candidates.empty(left.words), Candidates.empty(right.words)
    links: list[NDArray[np.int64]] = []
    weights: list[NDArray[np.float32]] = []
    with torch.inference_mode():
        for rows in _blocks(left.words, right.words):
            vectors = [side.vectors(rows, encode, settings.tokens) for side in (left, right)]
            for some in _batches(left.words[rows], right.words[rows]):
                one = _padded(vectors[0], left.words[rows], some)
                two = _padded(vectors[1], right.words[rows], some)
                like, link = _links(one, two, settings)
                _note(own, rows[some], like, 2)
                _note(other, rows[some], like, 1)
                if link is not None:
                    pair, i, j = (part.cpu().numpy() for part in torch.nonzero(link, as_tuple=True))
                    links.append(np.stack([rows[some][pair], i, j]))
                    weights.append(like[link].float().cpu().numpy())
    if settings.method == "argmax":
        return symmetrise(other.links("target"), own.links("source"), how), own, other
    flat = np.concatenate([np.empty((3, 0), dtype=np.int64), *links], axis=1)
    scores = np.concatenate([np.empty(0, dtype=np.float32), *weights])
    return Alignment.build(len(left.words), flat[0], flat[1], flat[2], scores), own, other


def _encoder(model: PreTrainedModel, layer: int | None, device: torch.device) -> Encode:
    """Return what turns ids and mask into the hidden states of a layer; the layers above it are not run."""
    depth = int(model.config.num_hidden_layers)
    chosen = round(depth * 2 / 3) if layer is None else layer
    if not 1 <= chosen <= depth:
        raise BadInput(f"There is no layer {chosen}: the encoder has {depth}.", f"Say --layer 1 to {depth}.")
    if model.config.model_type in FAMILIES:
        bottom = part(model, 0, chosen)
        return lambda ids, mask: bottom(ids.to(device), mask.to(device))
    return lambda ids, mask: model(
        input_ids=ids.to(device), attention_mask=mask.to(device), output_hidden_states=True
    ).hidden_states[chosen]


class _Side:
    """One side of the pairs, tokenised once into windows.

    Args:
        texts: The sentences.
        spans: Their words.
        tokenizer: The encoder's.
    """

    def __init__(self, texts: list[str], spans: list[Spans], tokenizer: PreTrainedTokenizerBase) -> None:
        self.words = np.array([len(part) for part in spans], dtype=np.int64)
        self.starts = row_starts(self.words)
        most = tokenizer.model_max_length
        room = most - tokenizer.num_special_tokens_to_add()
        encoded = (
            tokenizer(
                texts,
                truncation=True,
                max_length=most,
                stride=int(room * _OVERLAP),
                return_overflowing_tokens=True,
                return_offsets_mapping=True,
                return_token_type_ids=False,
            )
            if texts
            else {"input_ids": [], "overflow_to_sample_mapping": []}
        )
        self.ids = Ragged.of(encoded["input_ids"])
        self.example = np.array(encoded["overflow_to_sample_mapping"], dtype=np.int64)
        self.first_row = np.searchsorted(self.example, np.arange(len(texts) + 1))
        self.padding = tokenizer.pad_token_id
        if texts:
            self.maps = word_maps(token_spans(encoded, tokenizer), spans, example_of=self.example)
            self.place = self._places()

    def _places(self) -> NDArray[np.int64]:
        """Return, by word of each window, its place among all words; -1 = another window has more of it around."""
        maps = self.maps
        counts = np.diff(maps.starts)
        row = np.repeat(np.arange(len(maps)), counts)
        place = ranges(self.starts[self.example], counts)
        margin = np.minimum(maps.first - 1, self.ids.lengths()[row] - 1 - maps.stop)
        margin[maps.first < 0] = -1
        order = np.lexsort((row, -margin, place))
        best = order[np.append(True, np.diff(place[order]) != 0)] if len(order) else order
        best = best[margin[best] >= 0]
        chosen = np.full(len(place), -1, dtype=np.int64)
        chosen[best] = place[best]
        return chosen

    def vectors(self, pairs: NDArray[np.int64], encode: Encode, tokens: int) -> Tensor:
        """Return the vectors of all words of these pairs, in their order: (words, width); zeros for vanished words."""
        counts = self.words[pairs]
        # Where a word stands among those of the block.
        shift = np.full(len(self.words), -1, dtype=np.int64)
        shift[pairs] = row_starts(counts)[:-1] - self.starts[pairs]
        rows = ranges(self.first_row[pairs], self.first_row[pairs + 1] - self.first_row[pairs])
        lengths = self.ids.lengths()[rows]
        rows, lengths = rows[np.argsort(lengths, kind="stable")], np.sort(lengths)
        found: Tensor | None = None
        for some in _by_tokens(lengths, tokens):
            batch = rows[some]
            ids = torch.as_tensor(self.ids.pad(batch, int(lengths[some[-1]]), self.padding), dtype=torch.long)
            mask = torch.arange(ids.shape[1]) < torch.as_tensor(lengths[some])[:, None]
            hidden = encode(ids, mask.long())
            device = hidden.device
            if found is None:
                found = torch.zeros((int(counts.sum()), hidden.shape[-1]), device=device)
            first, stop = (torch.as_tensor(table, device=device) for table in self.maps.pad(batch))
            each = np.diff(self.maps.starts)[batch]
            place = self.place[ranges(self.maps.starts[batch], each)]
            own = np.repeat(shift[self.example[batch]], each) + place
            inside = torch.as_tensor(np.arange(first.shape[1]) < each[:, None], device=device)
            pooled = pool_words(hidden, first, stop)[inside]
            used = torch.as_tensor(place >= 0, device=device)
            found[torch.as_tensor(own, device=device)[used]] = pooled[used].float()
        assert found is not None, "a block has at least one pair, and its sides at least one word each"
        return found


def _blocks(source: NDArray[np.int64], target: NDArray[np.int64]) -> Iterator[NDArray[np.int64]]:
    """Yield pairs in order of length, as many as their words' vectors fit; pairs with an empty side are in none."""
    rows = np.flatnonzero((source > 0) & (target > 0))
    rows = rows[np.lexsort((target[rows], source[rows]))]
    block = np.cumsum(source[rows] + target[rows]) // _BLOCK_WORDS
    yield from (part for part in np.split(rows, np.flatnonzero(np.diff(block)) + 1) if len(part))


def _batches(source: NDArray[np.int64], target: NDArray[np.int64]) -> Iterator[NDArray[np.int64]]:
    """Yield places of pairs whose padded tables fit: at least one at a time."""
    first = 0
    while first < len(source):
        wide, high = np.maximum.accumulate(source[first:]), np.maximum.accumulate(target[first:])
        cells = wide * high * np.arange(1, len(wide) + 1)
        count = max(1, int(np.searchsorted(cells, _CELLS, side="right")))
        yield np.arange(first, first + count)
        first += count


def _by_tokens(lengths: NDArray[np.int64], tokens: int) -> Iterator[NDArray[np.int64]]:
    """Yield places of rows, sorted by length, whose padded batch has at most so many tokens: at least one."""
    first = 0
    while first < len(lengths):
        size = lengths[first:] * np.arange(1, len(lengths) - first + 1)
        count = max(1, int(np.searchsorted(size, tokens, side="right")))
        yield np.arange(first, first + count)
        first += count


def _padded(vectors: Tensor, counts: NDArray[np.int64], some: NDArray[np.int64]) -> Tensor:
    """Return the word vectors of some pairs: (pairs, most words, width), zeros as padding."""
    starts = row_starts(counts)
    inside = np.arange(counts[some].max()) < counts[some][:, None]
    table = torch.zeros((*inside.shape, vectors.shape[-1]), device=vectors.device)
    table[torch.as_tensor(inside, device=vectors.device)] = vectors[
        torch.as_tensor(ranges(starts[some], counts[some]), device=vectors.device)
    ]
    return table


def _links(left: Tensor, right: Tensor, settings: EmbeddingSettings) -> tuple[Tensor, Tensor | None]:
    """Return similarities (pairs, I, J), 0 where there is no word, and links where the method decides by itself.

    Args:
        left: (pairs, I, width) vectors of source words; zeros = no such word.
        right: (pairs, J, width) vectors of target words.
        settings: The method.
    """
    there = (left != 0).any(dim=-1)[:, :, None] & (right != 0).any(dim=-1)[:, None, :]
    if settings.method == "softmax":
        dot = (left @ right.transpose(1, 2)).masked_fill(~there, float("-inf"))
        shares = [dot.softmax(dim=axis).nan_to_num(0) for axis in (2, 1)]
        link = (shares[0] > settings.threshold) & (shares[1] > settings.threshold)
        return (shares[0] * shares[1]).sqrt(), link
    unit = [torch.nn.functional.normalize(side, dim=-1) for side in (left, right)]
    like = (((unit[0] @ unit[1].transpose(1, 2)) + 1) / 2).clamp(0, 1) * there
    return like, itermax(like) if settings.method == "itermax" else None


def mutual(like: Tensor) -> Tensor:
    """Return which cells are the largest of their row and of their column: (pairs, I, J); 0 is never one."""
    row = torch.zeros_like(like, dtype=torch.bool).scatter_(2, like.argmax(dim=2, keepdim=True), True)
    column = torch.zeros_like(like, dtype=torch.bool).scatter_(1, like.argmax(dim=1, keepdim=True), True)
    return row & column & (like > 0)


def itermax(like: Tensor) -> Tensor:
    """Return mutual best partners, then those among what is left.

    Args:
        like: (pairs, I, J) similarities from 0 to 1; 0 = no such words.
    """
    links = mutual(like)
    for _ in range(1, _ROUNDS):
        row, column = links.any(dim=2, keepdim=True), links.any(dim=1, keepdim=True)
        weight = torch.where(row & column, 0.0, torch.where(row | column, _ONE_LINKED, 1.0))
        links = links | mutual(like * weight)
    return links


def _note(candidates: Candidates, rows: NDArray[np.int64], like: Tensor, axis: int) -> None:
    """Write down the most similar partner of each word of some pairs."""
    best, partner = (part.cpu().numpy() for part in like.max(dim=axis))
    counts = np.diff(candidates.starts)[rows]
    inside = np.arange(best.shape[1]) < counts[:, None]
    where = ranges(candidates.starts[rows], counts)
    candidates.score[where] = best[inside]
    candidates.partner[where] = np.where(best[inside] > 0, partner[inside], -1)
    candidates.none[where] = 0
