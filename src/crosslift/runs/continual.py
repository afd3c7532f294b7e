"""Fine-tuning with adjustment: a batch of aligned pairs joins every step of any method.

    L = L_task + α · pull + β · anchor

Where the method runs the model once and plainly, task rows and sentence pairs share that pass if padding them to one
length costs less than a pass of its own: on a GPU a pass over a small batch takes as long as launching it does. One
length for both also means few shapes of batches, which a GPU can record.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import pad

from crosslift.data.batches import micro_batches, training_batches
from crosslift.data.examples import Examples
from crosslift.errors import BadInput
from crosslift.methods.adjust import Adjust, Settings
from crosslift.models.frozen import tokenizer_fingerprint
from crosslift.models.load import load_encoder, load_tokenizer
from crosslift.runs.adjust import (
    Bitexts,
    Pairing,
    anchor_rows,
    describe_pairs,
    fingerprint,
    make_pairs,
    read_bitexts,
)
from crosslift.runs.folder import RunFolder
from crosslift.runs.plan import Plan
from crosslift.runs.replay import Batch
from crosslift.runs.settings import Execution
from crosslift.tasks.encoded import IGNORED

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

PRESETS = {"paper": (0.01, 0.01), "released": (0.01, 1.0)}
"""Weights of pull and anchor: the paper's equation, and what the released code computes."""

ONE_PASS = ("finetune",)
"""Methods that call the model once with nothing but the batch."""

_MARK = "pairs/"
# Padding, in tokens, that costs about what a pass of its own adds to the pairs' own arithmetic: on an H200, at BERT's
# size, the two broke even between 1,500 and 1,700.
_CHEAP = {"cuda": 1536, "cpu": 64}
# In a pass of their own, lengths of pairs are filled up to a multiple of this: every length of the task meets every
# length of the pairs, and a GPU replays a shape only after it has come twice.
_MULTIPLE = {"cuda": 32, "cpu": 8}
_NOTHING = {
    "attention_mask": 0,
    "token_type_ids": 0,
    "labels": IGNORED,
    "word_first": -1,
    "word_stop": -1,
    "link_source": -1,
    "link_target": -1,
    "anchor": 0,
}
"""What stands where a row of a batch has ended."""


@dataclass(frozen=True)
class Continual:
    """Settings of `--with-adjustment`."""

    adjustment_preset: Literal["paper", "released"] = field(
        default="paper", metadata={"help": "Weights of pull and anchor: paper 0.01, 0.01; released 0.01, 1."}
    )
    adjustment_pull: float | None = field(
        default=None, metadata={"help": "Weight of the pull (default: the preset's)."}
    )
    adjustment_anchor: float | None = field(
        default=None, metadata={"help": "Weight of the anchor (default: the preset's)."}
    )
    adjustment_model: str = field(
        default="original",
        metadata={"help": "Where the anchor holds: original (before adjustment), start (--model), or a model."},
    )
    adjustment_batch: int = field(default=16, metadata={"help": "Sentence pairs per step."})
    adjustment_pooling: Literal["mean", "first", "last", "subwords"] = field(
        default="mean", metadata={"help": "As --pooling of adjust."}
    )
    adjustment_pull_to: Literal["moving", "frozen"] = field(
        default="moving", metadata={"help": "As --pull-to of adjust."}
    )
    adjustment_linked: Literal["all", "words", "specials", "cls"] = field(
        default="all", metadata={"help": "As --linked of adjust."}
    )
    adjustment_layer: int | None = field(default=None, metadata={"help": "As --layer of adjust."})

    def __post_init__(self) -> None:
        if self.adjustment_batch < 1:
            raise BadInput(f"--adjustment-batch must be at least 1, not {self.adjustment_batch}.")
        self.adjust()  # refuses what adjust would refuse

    def adjust(self) -> Settings:
        """Return the same as settings of `adjust`."""
        pull, anchor = PRESETS[self.adjustment_preset]
        return Settings(
            pooling=self.adjustment_pooling,
            pull_to=self.adjustment_pull_to,
            linked=self.adjustment_linked,
            layer=self.adjustment_layer,
            pull_weight=pull if self.adjustment_pull is None else self.adjustment_pull,
            anchor_weight=anchor if self.adjustment_anchor is None else self.adjustment_anchor,
        )


SETTINGS = (Continual, Pairing)
"""Dataclasses whose fields `fit` takes by name when it adjusts as well."""


@dataclass(frozen=True)
class Adjustment:
    """What a fine-tuning run with adjustment has besides its method.

    Attributes:
        sets: Target language -> sentence pairs.
        settings: Weights, anchor, batch.
        pairing: How pairs become word pairs.
    """

    sets: Mapping[str, Examples]
    settings: Continual
    pairing: Pairing

    def config(self) -> dict[str, object]:
        """Return what the run folder keeps of it."""
        return {
            "bitext": {language: bitext.name for language, bitext in self.sets.items()},
            "settings": asdict(self.settings),
            "pairing": asdict(self.pairing),
            "fingerprint": fingerprint(self.sets, self.pairing.aligner),
        }

    def join(
        self,
        plan: Plan,
        method: str,
        model: str,
        tokenizer: PreTrainedTokenizerBase,
        execution: Execution,
        device: torch.device,
    ) -> tuple[Plan, list[str]]:
        """Align the pairs, compute the anchor's vectors, and let both join a plan.

        Args:
            plan: The method's own plan.
            method: Its name.
            model: What fine-tuning starts from.
            tokenizer: Its tokenizer.
            execution: Precision.
            device: Where the anchor's vectors are computed.

        Returns:
            The new plan, and what to say about it.
        """
        own = self.settings.adjust()
        name = anchor_model(self.settings.adjustment_model, model)
        if tokenizer_fingerprint(load_tokenizer(name)) != tokenizer_fingerprint(tokenizer):
            raise BadInput(f"{name} and {model} cut words differently, so one cannot be the other's anchor.")
        pairs = make_pairs(self.sets, tokenizer, own, self.pairing, plan.seed)
        anchors = anchor_rows(load_encoder(name).to(device), tokenizer, pairs, own, execution)
        adjust = Adjust(own, pairs, anchors, int(tokenizer.pad_token_id))
        cheap, multiple = padding_on(device, tokenizer.model_max_length)
        joined = ContinualPlan(
            plan, adjust, self.settings.adjustment_batch, cheap if method in ONE_PASS else None, multiple
        )
        return joined, [*describe_pairs(pairs), f"anchor    {name}"]


def read_adjustment(bitext: Bitexts, source: str, settings: Continual, pairing: Pairing) -> Adjustment:
    """Read the sentence pairs; broken files are refused here, before anything is trained."""
    return Adjustment(read_bitexts(bitext, source, pairing), settings, pairing)


def padding_on(device: torch.device, longest: int) -> tuple[int, int]:
    """Return `cheap` and `multiple` of a `ContinualPlan` for a device and a model of so many positions."""
    multiple = _MULTIPLE.get(device.type, 8)
    # Padding must not run past the last position.
    return _CHEAP.get(device.type, 0), 8 if longest % multiple else multiple


def anchor_model(asked: str, model: str) -> str:
    """Return the model that the anchor holds to: `original` is what an adjusted model was made from."""
    if asked == "start":
        return model
    if asked != "original":
        return asked
    path = Path(model).absolute()
    for run in (RunFolder(path), RunFolder(path.parent)):
        # A name such as mini-x is no folder, wherever one stands.
        if path.is_dir() and path in (run.path, run.model) and run.config_file.exists():
            config = run.config
            if config.get("method") == "adjust":
                return str(config["model"])
    return model


class ContinualPlan(Plan):
    """A method's batches, the first of each step with some aligned pairs beside it.

    Args:
        plan: The method's own plan.
        adjust: The pairs.
        batch_pairs: Pairs per step.
        cheap: Padding, in tokens, up to which pairs share the task's pass, all rows filled up to one length; `None`:
            they never do, for methods that do more than to call the model once.
        multiple: In a pass of their own, lengths of pairs are filled up to a multiple of this.
    """

    def __init__(
        self, plan: Plan, adjust: Adjust, batch_pairs: int, cheap: int | None = None, multiple: int = 8
    ) -> None:
        vars(self).update(vars(plan))
        self.adjust, self.batch_pairs = adjust, min(batch_pairs, len(adjust.lengths))
        self.cheap, self.multiple = cheap, multiple
        self._pairs: tuple[int, list[np.ndarray]] = (-1, [])

    def pairs(self, step: int) -> np.ndarray:
        """Return the aligned pairs of a step, over all processes: none comes again while enough others are left."""
        epoch, place = divmod(step, len(self.adjust.lengths) // self.batch_pairs)
        if self._pairs[0] != epoch:
            lengths = self.adjust.lengths
            batches = training_batches(lengths, self.batch_pairs, self.seed + 1, epoch, drop_last=True)
            self._pairs = (epoch, batches)
        return self._pairs[1][place]

    def batches(self, step: int, rank: int, world: int) -> Iterator[tuple[Batch, float]]:
        """Return this process's micro-batches; its share of the step's pairs comes with the first one."""
        pairs = self.pairs(step)
        # A process without task rows would weigh its pairs by nothing.
        busy = min(world, len(self.rows(step)))
        own = micro_batches(pairs, self.adjust.lengths, size=len(pairs), rank=rank, world=busy) if rank < busy else []
        units, words = self.adjust.units(pairs).sum(), self.adjust.words[pairs].sum()
        for batch, share in super().batches(step, rank, world):
            if own and share:
                rows = own.pop()
                batch, added = self._fitted(batch, self.adjust.batch(rows, step))
                # The loop weighs everything by the task's share; each of these terms has its own.
                added["pull_scale"] = torch.tensor(float(self.adjust.units(rows).sum() / units / share))
                added["anchor_scale"] = torch.tensor(float(self.adjust.words[rows].sum() / words / share))
                batch = batch | {_MARK + name: tensor for name, tensor in added.items()}
            yield batch, share

    def _fitted(self, task: Batch, pairs: Batch) -> tuple[Batch, Batch]:
        """Fill up task rows and pairs to one length if they are to share a pass, else only the pairs."""
        parts = task["input_ids"], pairs["input_ids"]
        longest = max(ids.shape[1] for ids in parts)
        padding = sum(longest * len(ids) - ids.numel() for ids in parts)
        if self.cheap is not None and padding <= self.cheap:
            return _filled(task, longest, self.adjust.pad_id), _filled(pairs, longest, self.adjust.pad_id)
        length = -(-pairs["input_ids"].shape[1] // self.multiple) * self.multiple
        return task, _filled(pairs, length, self.adjust.pad_id)

    def loss(self, model: nn.Module, batch: Batch) -> dict[str, Tensor]:
        """Return the method's terms, and pull and anchor where the batch has pairs."""
        pairs = {name.removeprefix(_MARK): tensor for name, tensor in batch.items() if name.startswith(_MARK)}
        task = {name: tensor for name, tensor in batch.items() if not name.startswith(_MARK)}
        if not pairs:
            return self.method.loss(model, task)
        if self.cheap is not None and task["input_ids"].shape[1] == pairs["input_ids"].shape[1]:
            both = JoinedPass(model, pairs, self.adjust.settings.layer)
            terms = self.method.loss(both, task)  # type: ignore[arg-type]
            found = self.adjust.terms(both.hidden, pairs)
        else:
            # First the pairs, without any wrapper for several processes; the task's pass then shares all gradients.
            found = self.adjust.loss(model, pairs)
            terms = self.method.loss(model, task)
        scaled = {name: found[name] * pairs[f"{name}_scale"] for name in ("pull", "anchor")}
        return {**terms, **scaled}


def _filled(batch: Batch, length: int, pad_id: int) -> Batch:
    """Return a batch whose rows (rows, length, …) are at least so long."""
    found = {}
    for name, tensor in batch.items():
        missing = length - tensor.shape[1] if tensor.ndim > 1 else 0
        if missing > 0:
            nothing = pad_id if name == "input_ids" else _NOTHING[name]
            tensor = pad(tensor, (*(0, 0) * (tensor.ndim - 2), 0, missing), value=nothing)
        found[name] = tensor
    return found


class JoinedPass:
    """A model that reads sentence pairs below the rows it is given, and keeps their hidden states to itself.

    Args:
        model: A task model, plain or wrapped for several processes.
        pairs: `input_ids` and `attention_mask` of the pairs, as long as the rows.
        layer: Whose hidden states; `None`: the last one.
    """

    def __init__(self, model: nn.Module, pairs: Batch, layer: int | None) -> None:
        self.model, self.pairs, self.layer = model, pairs, layer
        plain: Any = getattr(model, "module", model)
        self.config = plain.config
        self.hidden: Tensor

    def __call__(self, **inputs: Tensor) -> dict[str, Tensor]:
        """Return the model's outputs for the given rows alone."""
        rows = len(inputs["input_ids"])
        below = {name: self.pairs[name] for name in ("input_ids", "attention_mask")}
        if "token_type_ids" in inputs:
            below["token_type_ids"] = torch.zeros_like(below["input_ids"])
        both = {name: torch.cat([tensor, below[name]]) for name, tensor in inputs.items()}
        outputs = self.model(**both, output_hidden_states=True)
        states = outputs["hidden_states"]
        if self.layer is not None and self.layer >= len(states):
            raise BadInput(f"--adjustment-layer {self.layer}: this model has {len(states) - 1} layers.")
        self.hidden = states[-1 if self.layer is None else self.layer][rows:]
        return {name: outputs[name][:rows] for name in outputs if name.endswith("logits")}
