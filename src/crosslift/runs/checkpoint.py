"""Checkpoints: written whole or not at all, checked when read, no pickle.

A checkpoint is a folder `state/step-00000120` with the weights, the optimiser's moments, the best and the
averaged weights so far, and `state.json`, which holds the step and a checksum per file. The two newest are
kept, so that a torn one costs a few minutes and not the run. Random states are not stored: the loop derives
them from (seed, step).
"""

import hashlib
import os
import shutil
from dataclasses import dataclass, field
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from crosslift.data.storage import atomic, read_json, write_json
from crosslift.errors import BrokenRun

Weights = dict[str, Tensor]


@dataclass
class State:
    """What a run is at one step.

    Attributes:
        step: Optimiser steps done.
        tensors: File stem -> named tensors: `model`, `optimizer`, and where they exist `best`, `average`.
        facts: Small plain values: best score and its step, number of averaged snapshots.
    """

    step: int
    tensors: dict[str, Weights]
    facts: dict[str, float] = field(default_factory=dict)


def optimizer_tensors(optimizer: torch.optim.Optimizer) -> Weights:
    """Flatten the optimiser's moments to named tensors on the CPU."""
    state = optimizer.state_dict()["state"]
    return {
        f"{index}.{name}": torch.as_tensor(value).detach().cpu().clone()
        for index, values in state.items()
        for name, value in values.items()
    }


def restore_optimizer(optimizer: torch.optim.Optimizer, tensors: Weights) -> None:
    """Put back what `optimizer_tensors` took; groups and rates come from the settings."""
    state: dict[int, Weights] = {}
    for key, tensor in tensors.items():
        index, name = key.split(".", 1)
        state.setdefault(int(index), {})[name] = tensor
    optimizer.load_state_dict({"state": state, "param_groups": optimizer.state_dict()["param_groups"]})


def save(folder: Path, state: State, *, unchanged: tuple[str, ...] = (), keep: int = 2) -> Path:
    """Write a checkpoint; tensors named in `unchanged` are hard-linked from the newest one."""
    target = folder / f"step-{state.step:08d}"
    previous = _newest_first(folder)
    with atomic(target) as draft:
        draft.mkdir()
        sums = {}
        for name, tensors in state.tensors.items():
            file = draft / f"{name}.safetensors"
            old = previous[0] / file.name if previous else None
            if name in unchanged and old is not None and old.exists():
                os.link(old, file)
            else:
                save_file({k: v.contiguous() for k, v in tensors.items()}, file)
            sums[file.name] = _checksum(file)
        write_json(draft / "state.json", {"step": state.step, "facts": state.facts, "checksums": sums})
    for stale in _newest_first(folder)[keep:]:
        shutil.rmtree(stale, ignore_errors=True)
    return target


def load_newest(folder: Path) -> tuple[State | None, list[str]]:
    """Return the newest whole checkpoint, and a line for each torn one that was passed over."""
    passed_over: list[str] = []
    for path in _newest_first(folder):
        try:
            return _load(path), passed_over
        except BrokenRun as error:
            passed_over.append(str(error))
    return None, passed_over


def _newest_first(folder: Path) -> list[Path]:
    return sorted(folder.glob("step-*"), reverse=True)


def _load(path: Path) -> State:
    record = read_json(path / "state.json")
    if not {"step", "facts", "checksums"} <= record.keys():
        raise BrokenRun(f"{path / 'state.json'} is damaged (a part is missing).")
    sums = record["checksums"]
    assert isinstance(sums, dict)
    tensors = {}
    for name, expected in sums.items():
        file = path / name
        if not file.exists() or _checksum(file) != expected:
            raise BrokenRun(f"{file} is damaged (its checksum does not match).")
        tensors[file.stem] = load_file(file)
    facts = record["facts"]
    assert isinstance(facts, dict)
    return State(step=int(str(record["step"])), tensors=tensors, facts=facts)


def _checksum(file: Path) -> str:
    with file.open("rb") as handle:
        return hashlib.file_digest(handle, "blake2b").hexdigest()[:32]
