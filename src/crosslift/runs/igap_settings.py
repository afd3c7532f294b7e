"""How runs are trained when transferability is measured: as in the paper, unless asked otherwise."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from crosslift.runs.settings import Optimisation


@dataclass(frozen=True)
class Training(Optimisation):
    """`Optimisation` with the defaults of Chi, Huang and Mao (2023): long, and at a constant rate after warm-up."""

    epochs: float = field(default=40.0, metadata={"help": "Passes over the training data."})
    schedule: Literal["linear", "cosine", "constant"] = field(
        default="constant", metadata={"help": "How the rate falls after warm-up."}
    )
