"""The batches of a connector's training with an eye on the clock, and text that is held out."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn.functional import pad

from crosslift.data.hmlm import Frame, Rows, hmlm_rows
from crosslift.data.pairs import read_pairs
from crosslift.data.row_plan import RowPlan
from crosslift.data.streams import Rows as TokenRows
from crosslift.data.tokenise import flat_ids
from crosslift.data.word_corpus import WordCorpus
from crosslift.data.word_pieces import WordPieces
from crosslift.errors import BadInput
from crosslift.methods.plug import Adaptation, Batch, Settings, hidden_loss, pooled, relative_distance
from crosslift.runs.progress import Watch
from crosslift.runs.settings import Execution, Optimisation
from crosslift.runs.timed_work import TimeIsUp, time_is_up

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

_HELD_OUT = 128  # rows


class Translations:
    """Sentence pairs on the device: English in monolingual ids, the other side in multilingual ones.

    Args:
        files: Lines of `language TAB english TAB translation`.
        exclude: Lines that are never trained on, spaces aside: a pair with one of them is left out.
        multi: Tokenizer of the other side.
        mono: Tokenizer of the English side.
        device: Where they are kept.
        longest: Tokens of a side; what is longer is cut.
        size: Pairs of a micro-batch.
    """

    def __init__(
        self,
        files: Sequence[Path],
        multi: PreTrainedTokenizerBase,
        mono: PreTrainedTokenizerBase,
        device: torch.device,
        exclude: Collection[str] = (),
        longest: int = 64,
        size: int = 256,
    ) -> None:
        left_out = {" ".join(line.split()) for line in exclude}
        pairs = [
            pair
            for file in files
            for pair in read_pairs(file)
            if left_out.isdisjoint(" ".join(side.split()) for side in pair[1:])
        ]
        if not pairs:
            raise BadInput("Every pair of --bitext holds a line of --exclude.", "Give other pairs, or none.")
        self.languages = sorted({language for language, _, _ in pairs})
        self.longest, self.size = longest, min(size, len(pairs))
        self.pads = int(multi.pad_token_id), int(mono.pad_token_id)
        self.sides = tuple(
            TokenRows.of(*flat_ids(tokenizer.backend_tokenizer.encode_batch_fast([p[side] for p in pairs]))).to(device)
            for tokenizer, side in ((multi, 2), (mono, 1))
        )
        self.device = device

    def draw(self, seed: int, step: int, number: int) -> Batch:
        """Return some pairs: a function of its arguments alone."""
        generator = torch.Generator(self.device).manual_seed((seed * 1_000_003 + step) * 4_099 + number)
        chosen = torch.randint(len(self.sides[0]), (self.size,), generator=generator, device=self.device)
        (ids, mask), (english, english_mask) = (
            rows.pad(chosen, self.longest, pad_id) for rows, pad_id in zip(self.sides, self.pads, strict=True)
        )
        return {"pair_ids": ids, "pair_mask": mask, "english_ids": english, "english_mask": english_mask}


class PlugWork:
    """The batches of a connector's training: a function of (seed, step) alone, until a deadline.

    Args:
        numbers: The text as word numbers.
        pieces: What both vocabularies make of each word; on the training device.
        frame: Special ids.
        plans: Rows over the corpus or documents, and rows that are lines (for a share of the steps).
        settings: What is learnt.
        steps: Optimiser steps.
        batch_size: Rows per step.
        max_tokens: Tokens of a micro-batch.
        mono_length: Longest row that the monolingual model reads.
        seed: Fixes rows, order and masks.
        translations: Sentence pairs of which every micro-batch brings some.

    Attributes:
        at: Steps drawn so far.
        tokens: Tokens drawn since the run was begun or taken up again, padding included.
        deadline: When to stop, by `time.monotonic`.
    """

    replayable = True
    at = 0
    tokens = 0
    deadline = float("inf")

    def __init__(
        self,
        numbers: NDArray[np.int32],
        pieces: WordPieces,
        frame: Frame,
        plans: tuple[RowPlan, RowPlan | None],
        settings: Settings,
        *,
        steps: int,
        batch_size: int,
        max_tokens: int,
        mono_length: int,
        seed: int,
        translations: Translations | None = None,
    ) -> None:
        self.translations = translations
        self.numbers, self.pieces, self.frame, self.plans, self.settings = numbers, pieces, frame, plans, settings
        self.steps, self.batch_size, self.max_tokens, self.seed = steps, batch_size, max_tokens, seed
        self.mono_length = mono_length if settings.align else 0
        self.device = pieces.labels.device
        self._ahead: tuple[int, Future[list[Rows]]] | None = None
        self._thread = ThreadPoolExecutor(1) if self.device.type == "cuda" else None
        self._stream: Any = None
        if self.device.type == "cuda":
            # Its kernels are tiny and waited for: they go first.
            self._stream = torch.cuda.Stream(self.device, priority=-1)  # type: ignore[no-untyped-call]

    def batches(self, step: int, rank: int, world: int) -> Iterator[tuple[Batch, float]]:
        """Return this process's micro-batches with their share of the step's labels (of its words, without any).

        Raises:
            TimeIsUp: The deadline is past.
        """
        if time_is_up(self.deadline, world, self.device):
            raise TimeIsUp
        parts = self.rows_of(step)
        units = [len(rows.labels) if self.settings.hmlm else rows.count for rows in parts]
        total = max(1, sum(units))
        own = range(rank, len(parts), world)
        for number in own or [0]:
            batch = self.as_batch(parts[number])
            if self.translations is not None:
                batch |= self.translations.draw(self.seed, step, number)
            yield batch, units[number] / total if own else 0.0
        self.tokens += sum(rows.ids.numel() for rows in parts)
        self.at = step + 1

    def loss(self, model: nn.Module, batch: Batch) -> dict[str, Tensor]:
        """Return the loss terms."""
        terms: dict[str, Tensor] = model(batch)
        return terms

    def rows_of(self, step: int) -> list[Rows]:
        """Return the micro-batches of a step; on a GPU they are made while the step before is still running."""
        if self._thread is None or self._stream is None:
            return self.draw(step)
        ready = (
            self._ahead[1] if self._ahead and self._ahead[0] == step else self._thread.submit(self._draw_aside, step)
        )
        rows = ready.result()
        if step + 1 < self.steps:
            self._ahead = (step + 1, self._thread.submit(self._draw_aside, step + 1))
        here = torch.cuda.current_stream(self.device)
        here.wait_stream(self._stream)
        for each in rows:
            for tensor in vars(each).values():
                if isinstance(tensor, Tensor):
                    tensor.record_stream(here)
        return rows

    def _draw_aside(self, step: int) -> list[Rows]:
        assert self._stream is not None
        with torch.cuda.device(self.device), torch.cuda.stream(self._stream):
            return self.draw(step)

    def draw(self, step: int) -> list[Rows]:
        """Draw and mask the rows of a step, in micro-batches."""
        plan, place = self._plan(step)
        first, stop = plan.step(self.seed, place, self.batch_size)
        full = plan.packing == "corpus"
        length = self.settings.length
        longest = length if full else int(min((plan.before[stop] - plan.before[first]).max() + 2, length))
        size = max(1, self.max_tokens // max(longest, 1))
        pass_seed = self.seed * 1_000_003 + step
        return [
            self.mask(first[i : i + size], stop[i : i + size], pass_seed, full=full) for i in range(0, len(first), size)
        ]

    def _plan(self, step: int) -> tuple[RowPlan, int]:
        """Return which rows a step draws from, and how many steps drew from them before."""
        packed, lines = self.plans
        if lines is None:
            return packed, step
        earlier = int(step * self.settings.lines)
        return (lines, earlier) if int((step + 1) * self.settings.lines) > earlier else (packed, step - earlier)

    def mask(self, first: NDArray[np.int64], stop: NDArray[np.int64], seed: int, *, full: bool) -> Rows:
        """Mask the words from `first` to `stop` of each row."""
        counts = stop - first
        ends = np.cumsum(counts)
        places = np.repeat(first - (ends - counts), counts) + np.arange(ends[-1])
        on = {"device": self.device, "non_blocking": True}
        return hmlm_rows(
            self.pieces,
            torch.from_numpy(self.numbers[places].astype(np.int64)).to(**on),  # type: ignore[call-overload]
            torch.from_numpy(counts).to(**on),  # type: ignore[call-overload]
            torch.from_numpy(places).to(**on),  # type: ignore[call-overload]
            self.frame,
            length=self.settings.length,
            rate=self.settings.rate,
            seed=seed,
            full=full,
            mono_length=self.mono_length,
        )

    def as_batch(self, rows: Rows) -> Batch:
        """Return rows as the tensors that `Adaptation` reads.

        Labels and words are filled up to round numbers: few shapes instead of as many as steps, so that one compiled or
        recorded graph serves many of them.
        """
        batch = {name: value for name, value in vars(rows).items() if isinstance(value, Tensor)}
        tokens = rows.ids.numel()
        if rows.count:
            places = _rounded(rows.count, tokens // 16)
            batch["real_words"] = (torch.arange(places, device=self.device) < rows.count).float()
        more = _rounded(len(rows.labels), tokens // 64) - len(rows.labels)
        batch["places"] = pad(rows.places, (0, more))
        batch["labels"] = pad(rows.labels, (0, more), value=-100)
        return batch


def _rounded(count: int, step: int) -> int:
    """Return the next multiple of a step."""
    step = max(step, 1)
    return -(-count // step) * step


def plug_work(
    corpus: WordCorpus,
    pieces: WordPieces,
    tokenizers: tuple[PreTrainedTokenizerBase, PreTrainedTokenizerBase],
    own: Settings,
    optimisation: Optimisation,
    execution: Execution,
    scratch: Path,
    seed: int,
    translations: Translations | None,
) -> tuple[PlugWork, RowPlan]:
    """Return the batches of a run, and the rows of the end of its text, which is held out."""
    lengths, _ = pieces.lengths()
    room = own.length - 2
    numbers = corpus.numbers
    held = max(2, min(len(numbers) // 50, _HELD_OUT * room))
    train_on = numbers[: len(numbers) - held]
    packed = RowPlan(train_on, lengths, room, own.packing, scratch / "running.i64")
    lines = RowPlan(train_on, lengths, room, "lines", scratch / "lines.i64") if own.lines else None
    work = PlugWork(
        train_on,
        pieces,
        Frame.of(*tokenizers),
        (packed, lines),
        own,
        steps=optimisation.steps or 0,
        batch_size=optimisation.batch_size,
        max_tokens=execution.max_tokens,
        mono_length=tokenizers[1].model_max_length,
        seed=seed,
        translations=translations,
    )
    return work, RowPlan(numbers[len(numbers) - held :], lengths, room, "corpus", scratch / "held.i64")


class HeldOutText:
    """How well hidden pieces of held-out text are predicted, and how far word vectors are from the target."""

    def __init__(self, work: PlugWork, plan: RowPlan, mono_length: int, watch: Watch) -> None:
        self.work, self.watch = work, watch
        self.keep: Callable[[int], None] | None = None
        own = replace(work.settings, lines=0.0, align=1.0)
        self.other = PlugWork(
            plan.numbers, work.pieces, work.frame, (plan, None), own, steps=1, batch_size=1, max_tokens=1,
            mono_length=mono_length, seed=0,
        )  # fmt: skip
        first, stop = plan.rows(0, 0)
        size = max(1, 16_384 // own.length)
        self.parts = [(first[i : i + size], stop[i : i + size]) for i in range(0, min(len(first), _HELD_OUT), size)]

    @torch.no_grad()
    def __call__(self, module: nn.Module) -> dict[str, float]:
        """Return the score that selects first (higher is better), then losses."""
        assert isinstance(module, Adaptation)
        loss = right = apart = 0.0
        hidden = 0
        for first, stop in self.parts:
            rows = self.other.mask(first, stop, 0, full=True)
            batch = self.other.as_batch(rows)
            with torch.compiler.set_stance("force_eager"):
                states = module.states(rows.ids, rows.mask).float()
                target = module.target(batch["mono_ids"], batch["mono_mask"])
                ours = pooled(states, batch["words"], rows.count)
                theirs = pooled(target, batch["mono_words"], rows.count)
                apart += float(relative_distance(ours, theirs)) / len(self.parts)
                if self.other.settings.hmlm:
                    scores = module.scores(module.top(states, rows.mask), rows.places)
                    loss += float(hidden_loss(scores, rows.labels)) * len(rows.labels)
                    right += 100 * float((scores.argmax(-1) == rows.labels).sum())
                    hidden += len(rows.labels)
        loss, right = loss / max(hidden, 1), right / max(hidden, 1)  # a very short text may have none
        if self.keep is not None:
            self.keep(self.work.at)
        self.watch.say(f"held out  loss {loss:.3f}, {right:.1f}% of hidden pieces right, distance {apart:.3f}")
        found = {"accuracy": right, "loss": loss} if self.other.settings.hmlm else {}
        return {**found, "closeness": 100 * (1 - apart)}
