"""Distillation with the frozen-output cache against asking the teacher anew in every epoch: same student, less time.

Both train the same student from the same start on the same batches with the same loss. One reads the teacher's
distributions from the cache, which it fills once (the time for that counts); the other runs the teacher, in batches of
like length just as efficient, at every step, as the released code of FreeTransfer-X does. At the end the weights must
be equal up to rounding. Seconds are CPU seconds of the one thread that works, so that other work on the machine does
not enter.

The ratio is (teacher + student) / student per step, so it depends on how large the teacher is beside the student. By
default the teacher has the shape of XLM-R base, the paper's bridge, with the student's vocabulary (which costs memory,
not time); `--teacher small` has 12 layers of width 384.

    python benchmarks/distill.py [--texts 64] [--epochs 50] [--teacher small]
"""

import argparse
import json
import tempfile
import time
from pathlib import Path

import numpy as np
import torch

import crosslift as xl
from crosslift.data.examples import Examples
from crosslift.methods.distill import Distill, Settings
from crosslift.models.frozen import FrozenCache
from crosslift.models.load import load_model, load_tokenizer
from crosslift.models.new_encoder import Architecture, new_encoder
from crosslift.models.students import new_student, save_student, student_tokenizer
from crosslift.models.teachers import open_teacher, teacher_outputs
from crosslift.runs.folder import RunFolder
from crosslift.runs.plan import Plan
from crosslift.runs.settings import Execution, Optimisation
from crosslift.runs.train import train
from crosslift.tasks import Classification

TEACHERS = {
    "base": Architecture(layers=12, width=768, heads=12, feedforward=3072),
    "small": Architecture(layers=12, width=384, heads=12, feedforward=1536),
}


class AskedAnew(Distill):
    """The same method, with the teacher run on the texts of every batch."""

    def __init__(self, teacher, examples, *given) -> None:  # noqa: ANN001, ANN002
        super().__init__(*given)
        self.teacher, self.examples = teacher, examples

    def batch(self, rows: np.ndarray, step: int) -> dict[str, torch.Tensor]:
        """Return the batch with what the teacher says now."""
        batch = self.task.collate(self.encoded, rows, self.pad_id)
        batch["teacher"] = torch.from_numpy(self.teacher(self.examples.select(rows.tolist())))
        return batch


def texts(count: int) -> Examples:
    """Sentences of the embedded corpus, all languages, until there are enough."""
    found: list[str] = []
    for language in ("en", "de", "es", "ru", "sw"):
        found += xl.load("demo-intent", language=language, split="train").texts
    found = list(dict.fromkeys(found))[:count]
    assert len(found) == count, f"the embedded corpus has only {len(found)} sentences"
    return Examples("classification", "en", [str(i) for i in range(count)], found, name="demo")


def trained(folder: Path, method: Distill, start: Path, task: Classification, epochs: float) -> tuple[dict, float]:
    model = load_model(start, task, head_seed=1)
    optimisation = Optimisation(learning_rate=5e-4, epochs=epochs, batch_size=64)
    plan = Plan(method, optimisation, Execution().max_tokens, seed=1)
    began = time.process_time()
    done = train(model, plan, RunFolder(folder), optimisation, Execution(checkpoint_every=10**9), seed=1)
    return done.weights["last"], time.process_time() - began


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--texts", type=int, default=64)
    parser.add_argument("--epochs", type=float, default=50)
    parser.add_argument("--student", default="cnn")
    parser.add_argument("--teacher", default="base", choices=list(TEACHERS))
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results/distill.json"))
    arguments = parser.parse_args()

    examples = texts(arguments.texts)
    task = Classification(labels=tuple(f"class {i}" for i in range(60)), max_length=64)
    with tempfile.TemporaryDirectory() as scratch:
        home = Path(scratch)
        pieces = student_tokenizer({"text": list(examples.texts)}, 10_000)
        shape = TEACHERS[arguments.teacher]
        save_student(new_encoder(shape, pieces, seed=0).base_model, pieces, home / "encoder")
        save_student(load_model(home / "encoder", task), pieces, home / "teacher")
        save_student(new_student(arguments.student, pieces, "classification"), pieces, home / "start")
        tokenizer = load_tokenizer(home / "start")
        teacher = open_teacher(home / "teacher")

        began = time.process_time()
        said = teacher_outputs(teacher, examples, FrozenCache(home / "cache"))
        asking = time.process_time() - began
        once = Distill(Settings(), task, tokenizer, examples, said)
        ours, training = trained(home / "ours", once, home / "start", task, arguments.epochs)
        anew = AskedAnew(teacher, examples, Settings(), task, tokenizer, examples, said)
        plain, plain_seconds = trained(home / "plain", anew, home / "start", task, arguments.epochs)

    largest = max(float((ours[name] - plain[name]).abs().max()) for name in ours)
    result = {
        "texts": len(examples),
        "epochs": arguments.epochs,
        "student": arguments.student,
        "teacher": f"12 layers of width {shape.width}",
        "threads": torch.get_num_threads(),
        "cached_seconds": round(asking + training, 2),
        "of_which_asking_the_teacher": round(asking, 2),
        "asked_every_epoch_seconds": round(plain_seconds, 2),
        "ratio": round(plain_seconds / (asking + training), 2),
        "largest_difference_of_a_weight": largest,
    }
    print(json.dumps(result, indent=2))
    assert largest < 1e-3, "the two must be the same student"
    arguments.out.parent.mkdir(parents=True, exist_ok=True)
    arguments.out.write_text(json.dumps(result, indent=2) + "\n")


if __name__ == "__main__":
    main()
