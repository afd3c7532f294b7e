"""Errors of a model in training, on parallel data, with as few forward passes as the question needs.

IGAP asks for the lowest interlingual gap among the checkpoints whose training error lies in a band. So a checkpoint
is first run on the source language, items that were wrong last time first, and given up as soon as its training error
can lie in no band; and in a band, a target is given up as soon as its gap can no longer be the lowest of the run.
What is left out could not have changed the result: it equals that of evaluating everything.

Texts are tokenised once for all checkpoints and runs; nothing is written to disk.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from crosslift.data.batches import evaluation_batches
from crosslift.data.words import ranges, row_starts
from crosslift.errors import BadInput
from crosslift.measure.igap import Band, Checkpoint, Final
from crosslift.models.forward import forward
from crosslift.models.tokenised import encode_once
from crosslift.runs.evaluate import MAX_TOKENS
from crosslift.runs.machine import autocast_for
from crosslift.tasks import Encoded, Task
from crosslift.tasks.tagging import Tagging

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

    from crosslift.data.examples import Examples

Items = NDArray[np.int64]
Flags = NDArray[np.bool_]
Floats = NDArray[np.floating]

SMALLEST = 32
"""Items run at a time at least: fewer cost a call of the model as much."""


@dataclass
class Passes:
    """What was spent: texts that went through the model, and calls of it."""

    texts: int = 0
    calls: int = 0


class Measured:
    """One set in one language, tokenised, with its gold labels: says which items a model gets wrong.

    For classification an item is wrong if its class is; for tagging, if the tag of any of its words is, since
    translations do not match word by word.
    """

    def __init__(
        self, examples: Examples, task: Task, tokenizer: PreTrainedTokenizerBase, max_tokens: int | None = None
    ) -> None:
        if examples.labels is None:
            raise BadInput(f"{examples.name or 'The data'} ({examples.language}) has no labels to measure errors by.")
        self.task, self.examples, self.max_tokens = task, examples, max_tokens
        self.pad_id = int(tokenizer.pad_token_id)
        self.encoded: Encoded = encode_once(task, examples.unlabelled(), tokenizer)
        self.lengths = -(-self.encoded.lengths() // 8) * 8  # as they are padded
        # A long text may have several rows; rows of an item follow each other.
        self.starts = row_starts(np.bincount(self.encoded.example_of, minlength=len(examples)))
        self.gold = _Tags(task, self.encoded, examples) if isinstance(task, Tagging) else _Classes(task, examples)

    def __len__(self) -> int:
        return len(self.examples)

    def relabelled(self, examples: Examples) -> Measured:
        """Return the same texts with other labels, without tokenising them again."""
        other = object.__new__(Measured)
        other.__dict__ |= self.__dict__ | {"examples": examples}
        other.gold = _Classes(self.task, examples)
        return other

    def run(self, model: nn.Module, items: Items, passes: Passes) -> tuple[Flags, Floats]:
        """Run some items; return which of them are wrong, and by how much they are right: (len(items),) each.

        How much an item is right says how likely it is to turn: the difference between the logit of the gold class
        and the best other one. For tagging it is 1 or -1.
        """
        rows = ranges(self.starts[items], self.starts[items + 1] - self.starts[items])
        right = np.zeros(len(self.encoded.example_of), dtype=bool)
        lead = np.zeros(len(right), dtype=np.float32)
        device = next(model.parameters()).device
        with torch.inference_mode(), autocast_for("fp32", device):
            for part in evaluation_batches(self.lengths[rows], self.max_tokens or MAX_TOKENS[device.type]):
                batch = self.task.collate(self.encoded, rows[part], self.pad_id)
                outputs = forward(model, {name: tensor.to(device) for name, tensor in batch.items()})
                right[rows[part]], lead[rows[part]] = self.gold.read(outputs["logits"], rows[part])
                passes.texts += len(part)
                passes.calls += 1
        missed = row_starts(~right)
        wrong = np.asarray((missed[self.starts[items + 1]] > missed[self.starts[items]]) | self.gold.lost[items])
        return wrong, lead[self.starts[items]]


class _Classes:
    """Gold classes; a class that the model does not know is always wrong."""

    def __init__(self, task: Task, examples: Examples) -> None:
        place = {label: number for number, label in enumerate(task.labels)}
        self.numbers = np.array([place.get(cast("str", label), -1) for label in examples.labels or ()], dtype=np.int64)
        self.lost = np.zeros(len(examples), dtype=bool)

    def read(self, logits: torch.Tensor, rows: Items) -> tuple[Flags, Floats]:
        scores, gold = logits.float().cpu().numpy(), self.numbers[rows]
        right = scores.argmax(-1) == gold
        own = scores[np.arange(len(rows)), gold]
        np.put_along_axis(scores, gold[:, None], -np.inf, axis=1)
        return right, np.where(gold < 0, -np.inf, own - scores.max(-1))


class _Tags:
    """Gold tags, compared as `Tagging.decode` would predict them, without making lists of names."""

    def __init__(self, task: Tagging, encoded: Encoded, examples: Examples) -> None:
        self.task, self.encoded = task, encoded
        first, word = encoded.maps["first"], encoded.maps["word"]
        counts = np.array([len(spans) for spans in examples.spans or ()], dtype=np.int64)
        starts = row_starts(counts)
        gold = np.array([tag for tags in examples.labels or () for tag in cast("Sequence[str]", tags)], dtype=object)
        place = np.repeat(starts[encoded.example_of], first.lengths()) + word.values
        shared = np.zeros(len(place), dtype=bool)  # a word on the same token as the one before it
        shared[1:] = (first.values[1:] == first.values[:-1]) & (np.diff(place) == 1)
        begins = first.starts[:-1]
        shared[begins[begins < len(shared)]] = False
        names = [list(task.labels), [f"I-{tag[2:]}" if tag.startswith("B-") else tag for tag in task.labels]]
        tags = {tag: number for number, tag in enumerate(dict.fromkeys(gold.tolist()))}
        self.fits = np.zeros((2, len(task.labels), len(tags)), dtype=bool)
        for kind, row in enumerate(names):
            for number, name in enumerate(row):
                if name in tags:
                    self.fits[kind, number, tags[name]] = True
        self.tag = np.array([tags[name] for name in gold[place]], dtype=np.int64)
        self.shared = shared.astype(np.int64)
        # A word that vanished in tokenisation is predicted as O.
        vanished = np.ones(len(gold), dtype=bool)
        vanished[place] = False
        wrong = row_starts(vanished & (gold != "O"))
        self.lost = np.asarray(wrong[starts[1:]] > wrong[starts[:-1]])

    def read(self, logits: torch.Tensor, rows: Items) -> tuple[Flags, Floats]:
        first = self.encoded.maps["first"]
        counts = first.lengths()[rows]
        kept = self.task.keep({"logits": logits}, self.encoded, rows)
        best = np.concatenate([row["logits"] for row in kept]).argmax(axis=1)
        words = ranges(first.starts[rows], counts)
        fits = self.fits[self.shared[words], best, self.tag[words]]
        ends = row_starts(counts)
        missed = row_starts(~fits)
        right = missed[ends[1:]] == missed[ends[:-1]]
        return right, np.where(right, 1.0, -1.0)


class _Search:
    """Items of one language in the order in which mistakes are expected: the least right of last time come first."""

    def __init__(self, measured: Measured) -> None:
        self.measured = measured
        self.lead = np.zeros(len(measured))
        self.begin()

    def begin(self) -> None:
        """Start on another checkpoint."""
        self.order = np.argsort(self.lead, kind="stable")
        self.done, self.found = 0, 0
        self.flags = np.zeros(len(self.order), dtype=bool)

    @property
    def left(self) -> int:
        """Items not yet run."""
        return len(self.order) - self.done

    def run(self, model: nn.Module, count: int, passes: Passes) -> None:
        """Run the next `count` items."""
        items = self.order[self.done : self.done + count]
        wrong, self.lead[items] = self.measured.run(model, items, passes)
        self.flags[items] = wrong
        self.done += len(items)
        self.found += int(wrong.sum())

    def finish(self, model: nn.Module, passes: Passes) -> None:
        """Run what is left."""
        if self.left:
            self.run(model, self.left, passes)

    def until(self, model: nn.Module, enough: int, passes: Passes) -> None:
        """Run items until `enough` of them are wrong, or all are run.

        So many that `enough` could be reached are run at a time, and never fewer than half of those run before: a
        checkpoint that is better than hoped costs a few calls, not many.
        """
        while self.left and self.found < enough:
            self.run(model, max(enough - self.found, SMALLEST, self.done // 2), passes)

    def mistakes(self) -> list[int]:
        """Return the items that are wrong."""
        return [int(item) for item in np.flatnonzero(self.flags)]


class Gate:
    """Looks at the checkpoints of one run, one after another, and keeps what IGAP needs of them.

    Args:
        source: The training items in the source language.
        targets: target -> their translations, aligned with `source`.
        asked: The bands of training error that are wanted.
        candidates: Checkpoints per band after which no more are looked at; `None`: all.
        held_out: language -> held-out data, run where the run ends.
        whole: Evaluate everything at every checkpoint: the plain, costly way.
        seed: Seed of the run.
        rate: Its learning rate.
    """

    def __init__(
        self,
        source: Measured,
        targets: Mapping[str, Measured],
        asked: Sequence[Band],
        *,
        candidates: int | None = None,
        held_out: Mapping[str, Measured] | None = None,
        whole: bool = False,
        seed: int = 0,
        rate: float = 0.0,
    ) -> None:
        self.items, self.asked, self.limit, self.whole = len(source), tuple(asked), candidates, whole
        self.seed, self.rate, self.language = seed, rate, source.examples.language
        self.source = _Search(source)
        self.targets = {language: _Search(measured) for language, measured in targets.items()}
        self.held_out = {language: _Search(measured) for language, measured in (held_out or {}).items()}
        self.inside = [band.counts(self.items) for band in self.asked]
        never = self.items + 1  # above every gap there can be
        self.lowest = {language: [never] * len(self.asked) for language in targets}
        self.used = [0] * len(self.asked)
        self.begun = -1  # the step whose answers the searches hold
        self.checkpoints: list[Checkpoint] = []
        self.end: Final | None = None
        self.passes = Passes()

    @property
    def full(self) -> bool:
        """Whether every band has its candidates: nothing more can be learnt from this run."""
        return self.limit is not None and all(count >= self.limit for count in self.used)

    def look(self, model: nn.Module, step: int) -> Checkpoint:
        """Look at one checkpoint; nothing is run once every band has its candidates."""
        if self.full and not self.whole:
            self.checkpoints.append(Checkpoint(self.seed, self.rate, step, None))
            return self.checkpoints[-1]
        model.eval()
        self.begun = step
        for search in (self.source, *self.targets.values()):
            search.begin()
        if self.whole:
            self._finish(model, (self.source, *self.targets.values()))
        else:
            self._training_error(model)
        wrong = None if self.source.left else self.source.found
        open_bands = [k for k, inside in enumerate(self.inside) if wrong is not None and wrong in inside]
        open_bands = [k for k in open_bands if self.limit is None or self.used[k] < self.limit]
        if wrong is not None and open_bands:
            self._gaps(model, wrong, open_bands)
            for k in open_bands:
                self.used[k] += 1
        known = {language: s for language, s in self.targets.items() if not s.left}
        mistakes = {language: search.mistakes() for language, search in known.items()} if open_bands else {}
        if mistakes:
            mistakes[self.language] = self.source.mistakes()
        translated = {language: search.found for language, search in known.items()}
        found = Checkpoint(self.seed, self.rate, step, wrong, translated, mistakes)
        self.checkpoints.append(found)
        return found

    def last(self, model: nn.Module, step: int) -> Final:
        """Run everything at the end of the run."""
        model.eval()
        again = () if self.begun == step else (self.source, *self.targets.values())
        for search in (*again, *self.held_out.values()):
            search.begin()
        self._finish(model, (self.source, *self.targets.values(), *self.held_out.values()))

        def shares(searches: Mapping[str, _Search]) -> dict[str, float]:
            return {language: 100 * search.found / len(search.order) for language, search in searches.items()}

        self.end = Final(
            self.seed, self.rate, step, shares({self.language: self.source, **self.targets}), shares(self.held_out)
        )
        return self.end

    def _finish(self, model: nn.Module, searches: Sequence[_Search]) -> None:
        for search in searches:
            search.finish(model, self.passes)

    def _training_error(self, model: nn.Module) -> None:
        """Run the source language until the training error is known, or known to lie in no band."""
        while self.source.left:
            found, most = self.source.found, self.source.found + self.source.left
            possible = [inside for inside in self.inside if len(inside) and inside[0] <= most and found <= inside[-1]]
            if not possible:
                return
            highest = max(inside[-1] for inside in possible)
            self.source.run(model, max(highest + 1 - found, SMALLEST, self.source.done // 2), self.passes)

    def _gaps(self, model: nn.Module, wrong: int, open_bands: Sequence[int]) -> None:
        """Run each target until its gap is known, or known not to be the lowest of the run in any of the bands."""
        for language, search in self.targets.items():
            lowest = self.lowest[language]
            search.until(model, max(lowest[k] for k in open_bands) + wrong, self.passes)
            if not search.left:
                for k in open_bands:
                    lowest[k] = min(lowest[k], search.found - wrong)
