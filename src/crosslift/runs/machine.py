"""What the machine can do: precision, memory, versions."""

from __future__ import annotations

import functools
import os
import platform
import subprocess
import sys
from contextlib import AbstractContextManager, nullcontext
from importlib import metadata, util
from typing import TYPE_CHECKING

from crosslift.errors import BadInput, nearest

if TYPE_CHECKING:
    import torch

PRECISIONS = ("auto", "fp32", "bf16")
CORE = ("torch", "transformers", "accelerate", "safetensors", "tokenizers", "numpy", "scipy", "scikit-learn")
EXTRAS = {
    "data": ("datasets", "pyarrow"),
    "segment": ("jieba", "fugashi", "ipadic", "pythainlp"),
    "align": ("eflomal",),
    "translate": ("ctranslate2", "sentencepiece"),
    "onnx": ("onnx", "onnxruntime", "onnxscript"),
    "report": ("jinja2", "altair", "vl-convert-python"),
    "ray": ("ray",),
    "trackers": ("tensorboard",),
}


def autocast_for(asked: str, device: torch.device) -> AbstractContextManager[object]:
    """Return the context in which forward passes run: bf16 where asked and possible, else nothing."""
    import torch

    on = precision_for(asked, device.type == "cpu") == "bf16"
    return torch.autocast(device.type, dtype=torch.bfloat16) if on else nullcontext()


def precision_for(asked: str, cpu: bool) -> str:
    """Return `bf16` or `fp32` for what was asked and what the machine can do."""
    import torch

    if asked not in PRECISIONS:
        raise BadInput(f'There is no precision "{asked}".{nearest(asked, PRECISIONS)}', "It is auto, fp32 or bf16.")
    if asked == "fp32" or (asked == "auto" and cpu):
        return "fp32"
    if not cpu:
        if torch.cuda.is_bf16_supported():
            return "bf16"
        if asked == "auto":
            return "fp32"
        raise BadInput("This GPU has no bf16.", "Use --precision fp32.")
    if cpu_bf16_works():
        return "bf16"
    raise BadInput(
        "bf16 matrix products crash on this CPU (illegal instruction).",
        "Use --precision fp32, or set DNNL_MAX_CPU_ISA=AVX512_CORE before starting.",
    )


_PRODUCT = """
import time, torch
torch.set_num_threads(1)
def seconds(dtype):
    a, b = torch.ones(512, 512, dtype=dtype), torch.ones(512, 512, dtype=dtype)
    best = 1e9
    for _ in range(8):
        began = time.perf_counter()
        a @ b
        best = min(best, time.perf_counter() - began)
    return best
print(seconds(torch.float32) / seconds(torch.bfloat16))
"""


def cpu_bf16_works() -> bool:
    """Whether a bf16 matrix product on this CPU ends well."""
    return cpu_bf16_gain() is not None


@functools.cache
def cpu_bf16_gain() -> float | None:
    """Return how many times as fast as in fp32 a matrix product is in bf16 on this CPU; `None` where it crashes.

    It is tried in a process of its own: where it is broken, the process dies (illegal instruction).
    """
    tried = subprocess.run([sys.executable, "-c", _PRODUCT], capture_output=True, check=False, text=True)
    return round(float(tried.stdout), 1) if tried.returncode == 0 else None


def versions(packages: tuple[str, ...] = CORE) -> dict[str, str]:
    """Return package -> installed version, `–` where it is missing."""
    found = {}
    for name in packages:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            found[name] = "–"
    return found


def describe() -> dict[str, object]:
    """Return what `crosslift env` shows and what every run stores."""
    import torch

    gpus = [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())]
    return {
        "python": platform.python_version(),
        "platform": platform.platform(terse=True),
        "cores": os.cpu_count() or 1,
        "threads": torch.get_num_threads(),
        "memory_gib": round(total_memory() / 2**30, 1),
        "gpus": gpus,
        "offline": bool(os.environ.get("HF_HUB_OFFLINE")),
        "packages": versions(),
        "extras": {extra: all(util.find_spec(_module(p)) for p in names) for extra, names in EXTRAS.items()},
    }


def _module(package: str) -> str:
    return {"vl-convert-python": "vl_convert"}.get(package, package)


def total_memory() -> int:
    """Return the machine's memory in bytes."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
