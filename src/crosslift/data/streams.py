"""Token streams and sentence rows that live on the device: a training step draws its batch there.

Nothing is tokenised or copied during training. A *stream* is all the text of one language (or all its pairs,
one after the other) as one run of token ids, of which a step cuts windows. *Rows* are sentences of unequal
length, stored flat, of which a step pads as many as it needs. What a step draws depends on its generator alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from crosslift.errors import BadInput


def step_generator(seed: int, step: int, rank: int, device: torch.device) -> torch.Generator:
    """Return the random source of one step of one process: a function of its arguments alone."""
    mixed = np.random.SeedSequence([seed, step, rank]).generate_state(1, np.uint64)[0]
    return torch.Generator(device).manual_seed(int(mixed) % 2**63)


@dataclass(frozen=True)
class Rows:
    """Token rows of unequal length, stored flat.

    Attributes:
        ids: (total,) int32 token ids of all rows, one after the other.
        starts: (rows + 1,) int64 where each row begins; the last entry is the total.
    """

    ids: Tensor
    starts: Tensor

    def __len__(self) -> int:
        return len(self.starts) - 1

    @staticmethod
    def of(ids: NDArray[np.integer], lengths: NDArray[np.integer]) -> Rows:
        """Make rows from flat ids and the length of each row."""
        starts = np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)])
        return Rows(torch.from_numpy(ids.astype(np.int32)), torch.from_numpy(starts))

    @property
    def lengths(self) -> Tensor:
        """(rows,) tokens per row."""
        return self.starts[1:] - self.starts[:-1]

    def to(self, device: torch.device) -> Rows:
        """Return the rows on another device."""
        return Rows(self.ids.to(device), self.starts.to(device))

    def pad(self, rows: Tensor, length: int, pad_id: int) -> tuple[Tensor, Tensor]:
        """Return (len(rows), length) ids and a mask (1 = a real token); longer rows are cut."""
        begin = self.starts[rows]
        have = self.starts[rows + 1] - begin
        place = torch.arange(length, device=self.ids.device)
        mask = place[None, :] < have[:, None]
        where = (begin[:, None] + place[None, :]).clamp_(max=len(self.ids) - 1)
        ids = torch.where(mask, self.ids[where].long(), pad_id)
        return ids, mask.long()


@dataclass(frozen=True)
class Streams:
    """Runs of tokens, one per name, of which windows are drawn.

    Attributes:
        names: What each stream holds: a language, or a language and a kind.
        ids: (total,) int32 token ids of all streams, one after the other.
        starts: (streams,) where each begins.
        sizes: (streams,) tokens in each.
        weights: (streams,) probability of drawing a window from each.
    """

    names: tuple[str, ...]
    ids: Tensor
    starts: Tensor
    sizes: Tensor
    weights: Tensor

    @staticmethod
    def of(runs: Mapping[str, NDArray[np.integer]], exponent: float = 0.5) -> Streams:
        """Join runs of tokens; windows come from each in proportion to its size ** `exponent`."""
        kept = {name: ids for name, ids in runs.items() if len(ids)}
        if not kept:
            raise BadInput("There is no text to train on.", "Give at least one text file with lines in it.")
        sizes = np.array([len(ids) for ids in kept.values()], dtype=np.int64)
        weights = sizes**exponent / (sizes**exponent).sum()
        return Streams(
            tuple(kept),
            torch.from_numpy(np.concatenate(list(kept.values())).astype(np.int32)),
            torch.from_numpy(np.cumsum(sizes) - sizes),
            torch.from_numpy(sizes),
            torch.from_numpy(weights),
        )

    def to(self, device: torch.device) -> Streams:
        """Return the streams on another device."""
        moved = {name: getattr(self, name).to(device) for name in ("ids", "starts", "sizes", "weights")}
        return replace(self, **moved)

    def draw(self, rows: int, length: int, generator: torch.Generator) -> Tensor:
        """Draw (rows, length) windows: the stream by weight, the place evenly; a short stream wraps around."""
        stream = torch.multinomial(self.weights, rows, replacement=True, generator=generator)
        size = self.sizes[stream]
        room = (size - length + 1).clamp_(min=1)
        share = torch.rand(rows, generator=generator, device=self.ids.device, dtype=torch.float64)
        offset = (share * room).long()
        place = offset[:, None] + torch.arange(length, device=self.ids.device)[None, :]
        return self.ids[self.starts[stream][:, None] + place % size[:, None]].long()


def mixed(parts: Sequence[tuple[Streams, float]]) -> Streams:
    """Join several sets of streams; a window comes from set i with probability proportional to its share."""
    total = sum(share for _, share in parts)
    kept = [(streams, share / total) for streams, share in parts if share > 0]
    offsets = np.cumsum([0] + [len(streams.ids) for streams, _ in kept])[:-1].tolist()
    return Streams(
        tuple(name for streams, _ in kept for name in streams.names),
        torch.cat([streams.ids for streams, _ in kept]),
        torch.cat([streams.starts + offset for (streams, _), offset in zip(kept, offsets, strict=True)]),
        torch.cat([streams.sizes for streams, _ in kept]),
        torch.cat([streams.weights * share for streams, share in kept]),
    )


def hold_out(
    runs: Mapping[str, NDArray[np.integer]], length: int, windows: int
) -> tuple[dict[str, NDArray[np.integer]], dict[str, NDArray[np.integer]]]:
    """Cut the end off each run as held-out windows: at most `windows`, at most a twentieth of the run.

    Returns:
        The runs without their ends; name -> (windows, length) held-out ids, for runs long enough.
    """
    kept, held = {}, {}
    for name, ids in runs.items():
        count = min(windows, len(ids) // (20 * length))
        cut = len(ids) - count * length
        kept[name] = ids[:cut]
        if count:
            held[name] = ids[cut:].reshape(count, length)
    return kept, held


def framed(windows: Tensor, first: int, last: int) -> Tensor:
    """Put `<s>` before and `</s>` after each window: (rows, length) -> (rows, length + 2)."""
    rows = len(windows)
    begin = windows.new_full((rows, 1), first)
    end = windows.new_full((rows, 1), last)
    return torch.cat([begin, windows, end], dim=1)


@dataclass(frozen=True)
class Masked:
    """Rows with some tokens hidden.

    Attributes:
        input_ids: (rows, length) what the model sees.
        places: (rows, hidden) where tokens were hidden; the same number in every row, so shapes never change.
        targets: (rows, hidden) what stood there; -100 where a row has too few tokens that may be hidden.
    """

    input_ids: Tensor
    places: Tensor
    targets: Tensor


def mask_tokens(
    ids: Tensor, rate: float, mask_id: int, special: Sequence[int], vocabulary: int, generator: torch.Generator
) -> Masked:
    """Hide tokens as BERT does: of the chosen ones 80% become the mask, 10% a random piece, 10% stay.

    Args:
        ids: (rows, length) token ids.
        rate: Share of each row that is chosen.
        mask_id: Id of the mask token.
        special: Ids that are never chosen nor put in.
        vocabulary: Number of pieces.
        generator: Random source of the step.
    """
    device = ids.device
    never = torch.tensor(list(special), device=device)
    forbidden = torch.isin(ids, never)
    scores = torch.rand(ids.shape, generator=generator, device=device).masked_fill_(forbidden, -1.0)
    hidden = max(1, round(rate * ids.shape[1]))
    best, places = scores.topk(hidden, dim=1)
    original = ids.gather(1, places)
    targets = original.masked_fill(best < 0, -100)
    fate = torch.rand(places.shape, generator=generator, device=device)
    other = torch.randint(vocabulary, places.shape, generator=generator, device=device)
    other = torch.where(torch.isin(other, never), original, other)
    shown = torch.where(fate < 0.8, mask_id, torch.where(fate < 0.9, other, original))
    shown = torch.where(best < 0, original, shown)
    return Masked(ids.scatter(1, places, shown), places, targets)


def positions(mask: Tensor, pad_id: int, longest: int, shifted: float, generator: torch.Generator) -> Tensor:
    """Return position ids; a share of the rows begins at a random place instead of the first.

    Short rows would leave late positions untrained, and a longer text at fine-tuning would meet noise.

    Args:
        mask: (rows, length) 1 = a real token; padding comes last.
        pad_id: Position of padding; real positions begin after it (RoBERTa's way).
        longest: Number of positions the model has for real tokens.
        shifted: Share of the rows that begin elsewhere.
        generator: Random source of the step.
    """
    rows, length = mask.shape
    room = max(0, longest - length)
    draw = torch.rand((2, rows), generator=generator, device=mask.device)
    offset = torch.where(draw[0] < shifted, (draw[1] * (room + 1)).long().clamp_(max=room), 0)
    place = torch.arange(1, length + 1, device=mask.device)[None, :] + offset[:, None]
    return torch.where(mask.bool(), place + pad_id, pad_id)


def unigram_loss(
    train: NDArray[np.integer], held: NDArray[np.integer], vocabulary: int, special: Sequence[int]
) -> float:
    """Return the cross-entropy (nats) of held-out tokens under the piece frequencies of the training text.

    A masked LM that has learnt nothing but frequencies ends here; special tokens do not count.
    """
    counts = np.bincount(train.ravel(), minlength=vocabulary).astype(float) + 0.1
    counts[list(special)] = 0
    tokens = held[~np.isin(held, list(special))]
    return float(-np.log(counts[tokens] / counts.sum()).mean()) if len(tokens) else 0.0
