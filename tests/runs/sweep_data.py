"""A small grid with its files, for the tests of both engines."""

import os
from pathlib import Path

from safetensors.torch import load_file
from torch import equal

from tests.tiny_data import classification
from tests.tiny_models import save_encoder

SRC = str(Path(__file__).parents[2] / "src")
ENV = {**os.environ, "PYTHONPATH": SRC, "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"}

RUN = {
    "method": "finetune",
    "model": "encoder",
    "data": "train.tsv",
    "dev": "dev.tsv",
    "learning_rate": 5e-3,
    "steps": 24,
    "batch_size": 8,
    "evaluations": 1,
    "checkpoint_every": 8,
}
GRID = {
    "shared": {**RUN, "seeds": [1, 2]},
    "fit": {"method": "finetune"},
    "evaluate": {"data": "test.{lang}.tsv", "languages": ["de", "sw"]},
}


def make(folder: Path) -> Path:
    """Write an encoder and tables; `bad.tsv` has a label that the training data lacks."""
    save_encoder(folder / "encoder")
    for name, count, seed in (("train", 40, 1), ("dev", 8, 2), ("bad", 8, 2), ("test.de", 16, 3), ("test.sw", 16, 4)):
        examples = classification(count, seed)
        labels = ["purple", *list(examples.labels)[1:]] if name == "bad" else examples.labels
        rows = zip(examples.ids, examples.texts, labels, strict=True)
        lines = ["id\ttext\tlabel", *("\t".join(row) for row in rows)]
        (folder / f"{name}.tsv").write_text("\n".join(lines) + "\n")
    return folder


def weights_equal(a: Path, b: Path) -> bool:
    """Whether two run folders deliver the same weights, bit for bit."""
    first, second = (load_file(path / "model" / "model.safetensors") for path in (a, b))
    return first.keys() == second.keys() and all(equal(first[name], tensor) for name, tensor in second.items())
